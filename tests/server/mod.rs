//! The server over real sockets. Mostly with a toy session behind it: what is tested
//! there is what happens between a client's socket and a session; `conversation`
//! has real sessions with scripted parts.

mod access;
mod conversation;
mod flow;
mod kit;
mod malformed;
mod toy;
