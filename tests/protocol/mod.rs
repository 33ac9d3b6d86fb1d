//! The dialects, message by message, without a session or a socket.

mod client_events;
pub mod kit;
mod malformed;
mod server_events;
