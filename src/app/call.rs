//! One call over WebSocket: admits it, joins socket, dialect and session.

use std::sync::Arc;

use axum::extract::ws::WebSocket;
use rand::Rng as _;
use rand::distr::Alphanumeric;

use super::pump;
use super::server::{App, now};
use crate::protocol::openai::realtime::config::Shown;
use crate::protocol::openai::realtime::{Realtime, Start};
use crate::session::settings::Settings;
use crate::transport::{line, ws};

/// Messages read ahead of the session; the socket's own buffer holds more.
const READ_AHEAD: usize = 4;

/// Runs a call to its end. Where the session is refused the client is told
/// over the socket: a failed upgrade shows browsers and SDKs no reason.
pub async fn run(app: Arc<App>, socket: WebSocket, settings: Settings, shown: Shown) {
    let _guard = app.calls.clone();
    let max_seconds = app.max_seconds;
    let mut dialect = Realtime::new(Start {
        settings: settings.clone(),
        shown,
        tag: random_tag(),
        expires_at: now() + max_seconds,
        max_seconds,
    });
    let (port, line) = line(READ_AHEAD, app.send_queue);
    let talk = async {
        match app.door.open(settings) {
            Ok(ends) => pump::run(&mut dialect, line, ends).await,
            Err(error) => {
                for message in dialect.refuse(&error) {
                    // Fails only when the client has gone already.
                    if line.outgoing.send(message).await.is_err() {
                        break;
                    }
                }
            }
        }
    };
    let (ended, ()) = tokio::join!(ws::serve(socket, app.limits, port), talk);
    tracing::debug!(by = ended.label(), "a call ended");
}

/// Random letters and digits for ids.
pub fn random_tag() -> String {
    rand::rng().sample_iter(Alphanumeric).take(16).map(char::from).collect()
}
