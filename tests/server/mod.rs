//! The server over real sockets, with a toy session behind it: what is tested
//! here is what happens between a client's socket and a session.

mod access;
mod flow;
mod kit;
mod malformed;
mod toy;
