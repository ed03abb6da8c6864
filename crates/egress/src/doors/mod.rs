//! The way out for programs that know nothing of proxies: a resolver that knows allowed names alone, and sockets
//! inside that stand for them.

mod directory;
mod dns;
