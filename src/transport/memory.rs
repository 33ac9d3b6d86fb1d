//! A connection without a socket, for tests.

use super::wire::{Incoming, WireMsg};
use super::{Line, Port, line};

/// The client of a connection that lies in memory.
#[derive(Debug)]
pub struct Peer {
    port: Port,
}

/// A client and the line it speaks on; each direction holds `depth` messages.
pub fn connect(depth: usize) -> (Peer, Line) {
    let (port, line) = line(depth, depth);
    (Peer { port }, line)
}

impl Peer {
    /// Sends a text; `false` when the other end has gone. Waits while the line is full.
    pub async fn send(&self, text: impl Into<String>) -> bool {
        self.port.incoming.send(Incoming::Message(WireMsg::Text(text.into()))).await.is_ok()
    }

    /// The next message; `None` when the other end has gone.
    pub async fn receive(&mut self) -> Option<WireMsg> {
        self.port.outgoing.recv().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_cross_in_order_and_ends_are_seen() {
        let (mut peer, mut far) = connect(2);
        assert!(peer.send("a").await && peer.send("b").await);
        for text in ["a", "b"] {
            let got = far.incoming.recv().await;
            assert_eq!(got, Some(Incoming::Message(WireMsg::Text(text.to_owned()))));
        }
        far.outgoing.send(WireMsg::Text("c".to_owned())).await.expect("the peer listens");
        assert_eq!(peer.receive().await, Some(WireMsg::Text("c".to_owned())));
        drop(far);
        assert_eq!(peer.receive().await, None);
        assert!(!peer.send("d").await);
    }
}
