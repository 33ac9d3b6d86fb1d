//! One WebSocket between a client and a [`Port`].
//!
//! Limits: a message larger than [`Limits::max_message`] is reported as a
//! [`Fault`] and nothing is read after it; nothing received for
//! [`Limits::idle`] (pings are answered by every live client) ends the
//! connection; a write that takes longer than [`Limits::write`] ends it too, so
//! a client that stops reading costs one queue and one socket buffer and
//! nobody else notices.

use std::pin::pin;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::error::CapacityError;

use super::Port;
use super::wire::{Fault, Incoming, WireMsg};

/// How long a closing handshake may take.
const LINGER: Duration = Duration::from_secs(2);
/// Most bytes of a close reason (RFC 6455 section 5.5).
const MAX_REASON: usize = 123;
/// Messages up to this many times the limit are still read to their end, so
/// that the client gets to see why it is refused; beyond it the socket is cut.
const GRACE: usize = 2;
/// Bytes read from the socket at a time.
const READ_BUFFER: usize = 16 * 1024;

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest incoming message, bytes.
    pub max_message: usize,
    /// A ping is sent this often.
    pub ping: Duration,
    /// Longest time without anything received; longer than `ping`.
    pub idle: Duration,
    /// Longest time one message may take to be written.
    pub write: Duration,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client closed, or its side is gone.
    Peer,
    /// We closed.
    Ours,
    /// The client did not read for [`Limits::write`].
    Stalled,
}

impl Ended {
    /// Value of the metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Ours => "ours",
            Self::Stalled => "stalled",
        }
    }
}

/// The upgrade with our limits.
pub fn limited(upgrade: WebSocketUpgrade, limits: &Limits) -> WebSocketUpgrade {
    let hard = limits.max_message.saturating_mul(GRACE);
    upgrade.max_message_size(hard).max_frame_size(hard).read_buffer_size(READ_BUFFER)
}

/// Moves messages until either side ends. Returns once the socket is done with.
pub async fn serve(socket: WebSocket, limits: Limits, port: Port) -> Ended {
    let (mut sink, mut stream) = socket.split();
    let Port { incoming, mut outgoing } = port;
    let ended = {
        let mut reading = pin!(read(&mut stream, &limits, incoming));
        let mut writing = pin!(write(&mut sink, &limits, &mut outgoing));
        tokio::select! {
            // When both are ready, what is left to say is said first.
            biased;
            ended = &mut writing => ended,
            more = &mut reading => match more {
                Reading::PeerGone => Ended::Peer,
                // The dialect words what happened and closes.
                Reading::Stopped => writing.await,
            },
        }
    };
    match ended {
        Ended::Ours => {
            // Wait for the client's half of the handshake: closing a socket with
            // unread input would reset it and could take our last words with it.
            let drained = timeout(LINGER, async { while let Some(Ok(_)) = stream.next().await {} });
            if drained.await.is_err() {
                tracing::debug!("the client did not finish the closing handshake");
            }
        }
        // Sends the answer to the client's close frame, where there was one.
        Ended::Peer => drop(timeout(LINGER, sink.flush()).await),
        Ended::Stalled => {}
    }
    ended
}

/// Why reading ended.
enum Reading {
    PeerGone,
    /// A fault was reported, or nobody listens any more.
    Stopped,
}

async fn read(
    stream: &mut SplitStream<WebSocket>,
    limits: &Limits,
    incoming: tokio::sync::mpsc::Sender<Incoming>,
) -> Reading {
    loop {
        let message = match timeout(limits.idle, stream.next()).await {
            Err(_) => Incoming::Fault(Fault::Idle { seconds: limits.idle.as_secs() }),
            Ok(None | Some(Ok(Message::Close(_)))) => return Reading::PeerGone,
            Ok(Some(Err(error))) => match too_large(error, limits) {
                Some(fault) => Incoming::Fault(fault),
                None => return Reading::PeerGone,
            },
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => continue,
            Ok(Some(Ok(Message::Text(text)))) => match fits(text.len(), limits) {
                Ok(()) => Incoming::Message(WireMsg::Text(text.as_str().to_owned())),
                Err(fault) => Incoming::Fault(fault),
            },
            Ok(Some(Ok(Message::Binary(bytes)))) => match fits(bytes.len(), limits) {
                Ok(()) => Incoming::Message(WireMsg::Binary(bytes)),
                Err(fault) => Incoming::Fault(fault),
            },
        };
        let last = matches!(message, Incoming::Fault(_));
        // Waits while the session is behind: the socket fills up and the client has to wait too.
        if incoming.send(message).await.is_err() || last {
            return Reading::Stopped;
        }
    }
}

fn fits(size: usize, limits: &Limits) -> Result<(), Fault> {
    if size > limits.max_message { Err(Fault::TooLarge { size, max: limits.max_message }) } else { Ok(()) }
}

/// The fault, when it was one of size.
fn too_large(error: axum::Error, limits: &Limits) -> Option<Fault> {
    match error.into_inner().downcast_ref::<WsError>() {
        Some(WsError::Capacity(CapacityError::MessageTooLong { size, .. })) => {
            Some(Fault::TooLarge { size: *size, max: limits.max_message })
        }
        _ => None,
    }
}

async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    limits: &Limits,
    outgoing: &mut tokio::sync::mpsc::Receiver<WireMsg>,
) -> Ended {
    let mut ping = interval(limits.ping);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ping.tick().await;
    loop {
        let message = tokio::select! {
            message = outgoing.recv() => match message {
                Some(WireMsg::Text(text)) => Message::Text(text.into()),
                Some(WireMsg::Binary(bytes)) => Message::Binary(bytes),
                Some(WireMsg::Close { code, reason }) => close(code, &reason),
                None => close(1000, ""),
            },
            _ = ping.tick() => Message::Ping(bytes::Bytes::new()),
        };
        let last = matches!(message, Message::Close(_));
        match timeout(limits.write, sink.send(message)).await {
            Err(_) => return Ended::Stalled,
            Ok(Err(_)) => return Ended::Peer,
            Ok(Ok(())) if last => return Ended::Ours,
            Ok(Ok(())) => {}
        }
    }
}

fn close(code: u16, reason: &str) -> Message {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    Message::Close(Some(CloseFrame { code, reason: reason[..end].into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_letters() {
        let Message::Close(Some(frame)) = close(1008, &"é".repeat(100)) else { panic!("a close frame") };
        assert_eq!(frame.reason.as_str().len(), 122);
    }
}
