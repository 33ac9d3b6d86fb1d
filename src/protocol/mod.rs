//! Dialects: pure codecs between messages on the wire and the session's
//! [`Command`]s and [`Event`]s.
//!
//! Owns: each dialect's wire state (audio formats, ids of messages, deltas),
//! the shape of its errors. Must not: await, read a clock, decide anything
//! about the conversation. Invariants: a message that cannot be read gives an
//! error reply and the session lives on; decoding never panics on any input.
//! Tested by unit tests beside the code and, for every event both ways, by
//! `tests/protocol`.

use crate::session::command::Command;
use crate::session::event::Event;
use crate::transport::wire::{Fault, WireMsg};

pub mod openai;

/// What came of one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// For the session, in order.
    pub commands: Vec<Command>,
    /// For the client at once: errors of form.
    pub replies: Vec<WireMsg>,
}

/// One protocol's codec for one connection.
pub trait Dialect: Send {
    /// Reads a message.
    fn decode(&mut self, message: WireMsg) -> Decoded;

    /// Words an event; empty where the protocol has no word for it.
    fn encode(&mut self, event: &Event) -> Vec<WireMsg>;

    /// Words what the transport could not take, closing included.
    fn fault(&mut self, fault: Fault) -> Vec<WireMsg>;
}
