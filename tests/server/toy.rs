//! A session that does little, countably.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use voluble::app::door::Door;
use voluble::app::pump::Ends;
use voluble::protocol::openai::error::ApiError;
use voluble::session::command::{Command, CommandKind};
use voluble::session::event::{At, EndReason, Event, Rejection, RejectionCode, Response, ResponseStatus};
use voluble::session::settings::{Modality, Settings};

use crate::protocol::kit;

/// Opens toy sessions.
#[derive(Default)]
pub struct Toys {
    pub live: Arc<AtomicUsize>,
    pub samples: Arc<AtomicU64>,
    /// Sessions that may live at a time; 0: any number.
    pub most: usize,
    /// Whether every command takes a while.
    pub slow: bool,
    pub drained: Arc<AtomicBool>,
    pub wake: Arc<tokio::sync::Notify>,
}

impl Door for Toys {
    fn defaults(&self) -> Settings {
        kit::settings()
    }

    fn model(&self) -> String {
        "toy".to_owned()
    }

    fn open(&self, settings: Settings) -> Result<Ends, ApiError> {
        if self.most > 0 && self.live.load(Ordering::SeqCst) >= self.most {
            return Err(ApiError::capacity("rate_limit_exceeded", "No room for another session now."));
        }
        let (commands, command_rx) = mpsc::channel(4);
        let (event_tx, events) = mpsc::channel(4);
        self.live.fetch_add(1, Ordering::SeqCst);
        let toy = Toy {
            settings,
            live: self.live.clone(),
            samples: self.samples.clone(),
            slow: self.slow,
            drained: self.drained.clone(),
            wake: self.wake.clone(),
            heard: 0,
        };
        tokio::spawn(toy.run(command_rx, event_tx));
        Ok(Ends { commands, events })
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.drained.store(true, Ordering::SeqCst);
        self.wake.notify_waiters();
        Box::pin(std::future::ready(()))
    }
}

struct Toy {
    settings: Settings,
    live: Arc<AtomicUsize>,
    samples: Arc<AtomicU64>,
    slow: bool,
    drained: Arc<AtomicBool>,
    wake: Arc<tokio::sync::Notify>,
    heard: usize,
}

impl Drop for Toy {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Toy {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>, events: mpsc::Sender<Event>) {
        let settings = self.settings.clone();
        let started =
            Event::Started { session: "sess_toy".into(), conversation: "conv_toy".into(), settings };
        if events.send(started).await.is_err() {
            return;
        }
        let wake = self.wake.clone();
        loop {
            let command = tokio::select! {
                command = commands.recv() => command,
                () = wake.notified() => None,
            };
            let Some(command) = command else {
                if self.drained.load(Ordering::SeqCst) {
                    events.send(Event::Ended { reason: EndReason::Draining }).await.ok();
                }
                return;
            };
            for event in self.answer(command) {
                if events.send(event).await.is_err() {
                    return;
                }
            }
            if self.slow {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    fn answer(&mut self, command: Command) -> Vec<Event> {
        match command.kind {
            CommandKind::Configure(patch) => {
                self.settings.apply(patch);
                vec![Event::Configured { settings: self.settings.clone() }]
            }
            CommandKind::AppendAudio(samples) => {
                self.heard += samples.len();
                self.samples.fetch_add(samples.len() as u64, Ordering::SeqCst);
                Vec::new()
            }
            CommandKind::CommitAudio if self.heard == 0 => vec![Event::Rejected(Rejection {
                tag: command.tag,
                code: RejectionCode::CommitEmpty,
                message: "The buffer is empty.".to_owned(),
                param: None,
            })],
            CommandKind::CommitAudio => {
                self.heard = 0;
                vec![Event::AudioCommitted { item: "item_1".into(), previous: None }]
            }
            CommandKind::ClearAudio => vec![Event::AudioCleared],
            // Ten minutes of sound at once: more than every buffer on the way holds.
            CommandKind::CreateResponse(_) => {
                let at = At {
                    response: "resp_1".into(),
                    item: "item_2".into(),
                    output_index: 0,
                    content_index: 0,
                };
                let response = Response {
                    id: "resp_1".into(),
                    status: ResponseStatus::InProgress,
                    output: Vec::new(),
                    conversation: None,
                    modality: Modality::Audio,
                    voice: "joe".to_owned(),
                    max_output_tokens: None,
                    usage: None,
                    metadata: None,
                };
                let second = Event::AudioDelta { at, samples: vec![0.0; 24_000] };
                let mut events = vec![Event::ResponseCreated(response.clone())];
                events.extend(std::iter::repeat_n(second, 600));
                events.push(Event::ResponseDone(Response { status: ResponseStatus::Completed, ..response }));
                events
            }
            _ => Vec::new(),
        }
    }
}
