//! Between a connection and its session: reads with the dialect what the
//! client sends, words with it what the session says.
//!
//! One task, and it never waits for one side only: while the session is behind,
//! its events still go out; while the client is behind, its commands still go
//! in. So neither can block the other, and a full channel slows down just the
//! side that filled it.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::protocol::Dialect;
use crate::session::command::Command;
use crate::session::event::{EndReason, Event};
use crate::transport::Line;
use crate::transport::wire::Incoming;

/// Messages that wait for the client before it is no longer listened to: a
/// client that sends nonsense and never reads must not fill the memory with errors.
const MOST_WAITING: usize = 64;

/// A session's two channels. Dropping them ends it.
#[derive(Debug)]
pub struct Ends {
    /// To the session. Full: it is behind.
    pub commands: mpsc::Sender<Command>,
    /// From the session; ends with it.
    pub events: mpsc::Receiver<Event>,
}

/// Runs until the client or the session has gone.
pub async fn run(dialect: &mut dyn Dialect, line: Line, ends: Ends) {
    let Line { mut incoming, outgoing } = line;
    let Ends { commands, mut events } = ends;
    let mut to_session: VecDeque<Command> = VecDeque::new();
    let mut to_client = VecDeque::new();
    // After the session's end or a fault only what is left to say goes out.
    let mut over = false;
    loop {
        if over && to_client.is_empty() {
            return;
        }
        tokio::select! {
            () = outgoing.closed() => return,
            permit = outgoing.reserve(), if !to_client.is_empty() => {
                let (Ok(permit), Some(message)) = (permit, to_client.pop_front()) else { return };
                permit.send(message);
            }
            permit = commands.reserve(), if !over && !to_session.is_empty() => {
                match (permit, to_session.pop_front()) {
                    (Ok(permit), Some(command)) => permit.send(command),
                    // The session has ended; its last events say why.
                    _ => to_session.clear(),
                }
            }
            event = events.recv(), if !over && to_client.is_empty() => {
                let event = event.unwrap_or(Event::Ended { reason: EndReason::Failed });
                over = matches!(event, Event::Ended { .. });
                to_client.extend(dialect.encode(&event));
            }
            message = incoming.recv(), if !over && to_session.is_empty() && to_client.len() < MOST_WAITING => match message {
                None => return,
                Some(Incoming::Message(message)) => {
                    let decoded = dialect.decode(message);
                    to_session.extend(decoded.commands);
                    to_client.extend(decoded.replies);
                }
                Some(Incoming::Fault(fault)) => {
                    over = true;
                    to_client.extend(dialect.fault(fault));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Decoded;
    use crate::session::command::CommandKind;
    use crate::transport::memory;
    use crate::transport::wire::{Fault, WireMsg};

    /// Every text is a commit, every event a word.
    struct Toy;

    impl Dialect for Toy {
        fn decode(&mut self, message: WireMsg) -> Decoded {
            match message {
                WireMsg::Text(text) if text == "bad" => {
                    Decoded { commands: Vec::new(), replies: vec![WireMsg::Text("error".to_owned())] }
                }
                _ => Decoded {
                    commands: vec![Command { tag: None, kind: CommandKind::CommitAudio }],
                    replies: Vec::new(),
                },
            }
        }

        fn encode(&mut self, event: &Event) -> Vec<WireMsg> {
            let word = match event {
                Event::AudioCleared => "cleared",
                Event::Ended { reason: EndReason::Failed } => "failed",
                Event::Ended { .. } => "ended",
                _ => return Vec::new(),
            };
            vec![WireMsg::Text(word.to_owned())]
        }

        fn fault(&mut self, _: Fault) -> Vec<WireMsg> {
            vec![WireMsg::Text("fault".to_owned())]
        }
    }

    struct Far {
        commands: mpsc::Receiver<Command>,
        events: mpsc::Sender<Event>,
    }

    fn start() -> (memory::Peer, Far, tokio::task::JoinHandle<()>) {
        let (peer, line) = memory::connect(1);
        let (command_tx, commands) = mpsc::channel(1);
        let (events, event_rx) = mpsc::channel(1);
        let ends = Ends { commands: command_tx, events: event_rx };
        let task = tokio::spawn(async move { run(&mut Toy, line, ends).await });
        (peer, Far { commands, events }, task)
    }

    fn word(text: &str) -> Option<WireMsg> {
        Some(WireMsg::Text(text.to_owned()))
    }

    #[tokio::test]
    async fn a_session_that_is_behind_still_gets_its_events_out() {
        let (mut peer, far, _task) = start();
        // The command channel and the line are full: nobody takes commands.
        for _ in 0..3 {
            assert!(peer.send("go").await);
        }
        for _ in 0..20 {
            far.events.send(Event::AudioCleared).await.expect("the pump lives");
            assert_eq!(peer.receive().await, word("cleared"));
        }
    }

    #[tokio::test]
    async fn a_client_that_is_behind_still_gets_its_commands_in() {
        let (peer, mut far, _task) = start();
        assert!(peer.send("go").await);
        assert!(far.commands.recv().await.is_some());
        // Events fill the line and the channel; nobody reads them, and commands still pass.
        for _ in 0..3 {
            far.events.send(Event::AudioCleared).await.expect("the pump lives");
        }
        for _ in 0..20 {
            assert!(peer.send("go").await);
            assert!(far.commands.recv().await.is_some());
        }
    }

    #[tokio::test]
    async fn either_end_ends_it() {
        let (peer, mut far, task) = start();
        drop(peer);
        task.await.expect("no panic");
        assert!(far.commands.recv().await.is_none());
        assert!(far.events.is_closed());

        let (mut peer, far, task) = start();
        far.events.send(Event::Ended { reason: EndReason::Expired }).await.expect("the pump lives");
        assert_eq!(peer.receive().await, word("ended"));
        assert_eq!(peer.receive().await, None);
        task.await.expect("no panic");

        // A session that vanishes without a word has failed.
        let (mut peer, far, task) = start();
        drop(far);
        assert_eq!(peer.receive().await, word("failed"));
        task.await.expect("no panic");
    }

    #[tokio::test]
    async fn what_is_malformed_is_answered_and_the_session_lives() {
        let (mut peer, mut far, _task) = start();
        assert!(peer.send("bad").await);
        assert_eq!(peer.receive().await, word("error"));
        assert!(peer.send("go").await);
        assert!(far.commands.recv().await.is_some());
    }
}
