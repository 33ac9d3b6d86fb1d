//! The message that crosses a socket: what transports move and dialects read.

use bytes::Bytes;

/// One message, whole. A dialect sees no fragments, pings or close handshakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireMsg {
    /// UTF-8 text.
    Text(String),
    /// Bytes.
    Binary(Bytes),
    /// Outgoing only: after what was sent before it, close with this code and reason.
    Close {
        /// RFC 6455 section 7.4.
        code: u16,
        /// For people; at most 123 bytes are sent.
        reason: String,
    },
}

/// What a transport could not take; the dialect words it for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A message larger than is taken, in bytes.
    TooLarge {
        /// Its size.
        size: usize,
        /// The most that is taken.
        max: usize,
    },
    /// Nothing at all came for this long, not even a pong.
    Idle {
        /// The limit, in seconds.
        seconds: u64,
    },
}

/// What reaches a dialect from a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A message.
    Message(WireMsg),
    /// What could not be taken; the transport reads nothing after it.
    Fault(Fault),
}
