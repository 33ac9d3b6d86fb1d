//! Bytes in, bytes out.
//!
//! Owns: sockets, their limits and timeouts, HTTP answers. Must not know: an
//! event name, a turn, a model. Moves [`wire::WireMsg`]s between a peer and a
//! pair of bounded channels; whoever holds the [`Line`] speaks a dialect on it.
//! A full channel is backpressure: nothing is dropped, the peer is read more
//! slowly. Tested over real sockets in `tests/server`, without one by [`memory`].

use tokio::sync::mpsc;

use wire::{Incoming, WireMsg};

pub mod http;
pub mod memory;
pub mod wire;
pub mod ws;

/// The dialect's end of a connection.
#[derive(Debug)]
pub struct Line {
    /// From the peer; ends when the peer has gone.
    pub incoming: mpsc::Receiver<Incoming>,
    /// To the peer; closed when the peer has gone. Full: the peer reads slowly.
    pub outgoing: mpsc::Sender<WireMsg>,
}

/// The transport's end of a connection.
#[derive(Debug)]
pub struct Port {
    /// Towards the dialect. Full: the session is behind, so the peer is not read.
    pub incoming: mpsc::Sender<Incoming>,
    /// From the dialect; ends when it has nothing more to say.
    pub outgoing: mpsc::Receiver<WireMsg>,
}

/// Both ends of a new connection; each direction holds this many messages.
pub fn line(incoming: usize, outgoing: usize) -> (Port, Line) {
    let (in_tx, in_rx) = mpsc::channel(incoming);
    let (out_tx, out_rx) = mpsc::channel(outgoing);
    (Port { incoming: in_tx, outgoing: out_rx }, Line { incoming: in_rx, outgoing: out_tx })
}
