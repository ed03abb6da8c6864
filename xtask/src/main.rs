//! Development tasks: architecture checks and generated files.

fn main() {}
