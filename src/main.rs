//! The `voluble` program.
fn main() {}
