//! The listening server: state, limits, start, stop.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::auth::Gate;
use super::door::Door;
use super::routes;
use super::secrets::Secrets;
use crate::config::Config;
use crate::metrics::Exporter;
use crate::transport::ws::Limits;

/// How long sockets may take to close once every session has ended.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What a server is made of.
pub struct Parts {
    /// Opens sessions.
    pub door: Arc<dyn Door>,
    /// Names shown by `/v1/models`.
    pub models: Vec<String>,
    /// The page for Prometheus.
    pub metrics: Option<Exporter>,
}

/// What every request may look at.
pub struct App {
    pub(super) door: Arc<dyn Door>,
    pub(super) models: Vec<String>,
    pub(super) metrics: Option<Exporter>,
    pub(super) gate: Gate,
    pub(super) secrets: Secrets,
    pub(super) limits: Limits,
    pub(super) send_queue: usize,
    /// Time limit of a session.
    pub(super) max_seconds: u64,
    pub(super) started_at: u64,
    /// A clone is held by every call: the drain waits until all are gone.
    pub(super) calls: mpsc::Sender<()>,
    draining: AtomicBool,
}

impl App {
    /// Whether a stop was asked for.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// Serves until `shutdown` is ready and the calls have ended, at the latest
/// a little after `session.drain_seconds`.
///
/// # Errors
/// When the listener fails.
pub async fn run(
    listener: TcpListener,
    config: &Config,
    parts: Parts,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let server = &config.server;
    let (calls, mut running) = mpsc::channel(1);
    let app = Arc::new(App {
        door: parts.door,
        models: parts.models,
        metrics: parts.metrics,
        gate: Gate::new(server),
        secrets: Secrets::new(server.max_client_secrets),
        limits: Limits {
            max_message: server.max_message_bytes,
            ping: Duration::from_millis(server.ping_ms),
            idle: Duration::from_millis(server.idle_ms),
            write: Duration::from_millis(server.write_timeout_ms),
        },
        send_queue: server.send_queue,
        max_seconds: u64::from(config.session.max_minutes) * 60,
        started_at: now(),
        calls,
        draining: AtomicBool::new(false),
    });
    let address = listener.local_addr()?;
    if app.gate.is_open() {
        tell_openness(address, server.open_to_network);
    }
    let drain = Duration::from_secs(u64::from(config.session.drain_seconds));
    let (stopped, stopping) = oneshot::channel();
    let stop = {
        let app = app.clone();
        async move {
            shutdown.await;
            app.draining.store(true, Ordering::Relaxed);
            tracing::info!(limit_s = drain.as_secs(), "stopping: waiting for calls to end");
            // Nobody listens when the server has ended by an error.
            stopped.send(()).ok();
        }
    };
    let listener = listener.tap_io(|stream| {
        // Small frames of audio must not wait for each other.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection's delay could not be turned off");
        }
    });
    let service = routes::table(app.clone()).into_make_service_with_connect_info::<SocketAddr>();
    let door = app.door.clone();
    let serving = async {
        axum::serve(listener, service).with_graceful_shutdown(stop).await?;
        drop(app);
        running.recv().await;
        Ok(())
    };
    let ending = async {
        if stopping.await.is_err() {
            std::future::pending::<()>().await;
        }
        // Sessions say their last words, which clients may take a moment to read.
        let last_words = async {
            door.drain().await;
            sleep(LAST_WORDS).await;
        };
        drop(timeout(drain + LAST_WORDS, last_words).await);
    };
    tokio::select! {
        result = serving => result,
        () = ending => {
            tracing::warn!("some connections did not end in time and were cut");
            Ok(())
        }
    }
}

fn tell_openness(address: SocketAddr, to_network: bool) {
    if to_network {
        tracing::warn!(%address, "no API keys are set: everyone who reaches this address may call");
    } else if address.ip().is_loopback() {
        tracing::info!(%address, "no API keys are set: callers on this machine need none");
    } else {
        tracing::warn!(
            %address,
            "no API keys are set: callers from other machines are refused (set server.api_keys, or server.open_to_network)"
        );
    }
}

/// Unix time in seconds.
pub(super) fn now() -> u64 {
    // Before 1970 only when the clock is broken; everything that looks at it would then have expired.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
