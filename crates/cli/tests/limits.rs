//! Limits: what holds without being asked for, and what is said when one is reached.
