//! `voluble serve`: from settings to a listening server.
//!
//! The address is taken before the models are loaded, so that a taken port is
//! known at once and not after ten seconds.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;
use super::output::Out;
use super::{parts, server};
use crate::config::Config;
use crate::config::server::Server;
use crate::metrics::Exporter;
use crate::models::Store;
use crate::session::manager::Manager;

/// Serves until SIGINT or SIGTERM. Progress goes to stderr, the URL to stdout.
///
/// # Errors
/// One line: a taken port, a model that is missing.
pub fn run(config: Config, out: &mut Out<'_>) -> Result<(), Failure> {
    let metrics = Exporter::install()?;
    let config = Arc::new(config);
    let runtime = super::runtime()?;
    let listener = runtime.block_on(listen(&config.server))?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::Failed(format!("the listener has no address: {error}")))?;
    let store = Store::from_config(&config.models);
    let parts = {
        let _within = runtime.enter();
        eprintln!("loading models from {}", store.root().display());
        parts::all(&config, &store, &|line| eprintln!("{line}"))?
    };
    let models = vec![parts.generator.model().to_owned()];
    let door = Arc::new(Manager::new(config.clone(), parts));
    runtime.block_on(async {
        let mut stop = Stop::listen()?;
        out.line(&format!("Voluble is ready: open {}", url(address)))?;
        out.flush()?;
        let parts = server::Parts { door, models, metrics: Some(metrics) };
        let serving = server::run(listener, &config, parts, async move { stop.asked().await });
        serving.await.map_err(|error| Failure::Failed(format!("the server ended: {error}")))
    })
}

/// Takes the address of the settings.
///
/// # Errors
/// One line with the remedy: a taken port, no right to it, no such address.
pub async fn listen(server: &Server) -> Result<TcpListener, Failure> {
    let (host, port) = (server.host.as_str(), server.port);
    TcpListener::bind((host, port)).await.map_err(|error| {
        Failure::Failed(match error.kind() {
            ErrorKind::AddrInUse => format!(
                "port {port} on {host} is taken; stop the program that has it, or choose another with --port (0 takes a free one)"
            ),
            ErrorKind::PermissionDenied => {
                format!("port {port} on {host} needs more rights; choose one above 1023 with --port")
            }
            ErrorKind::AddrNotAvailable => {
                format!("{host} is no address of this machine; choose another with --host, such as 127.0.0.1")
            }
            _ => format!("cannot listen on {host}, port {port}: {error}; choose another with --host"),
        })
    })
}

/// Where a browser on this machine finds the server.
pub fn url(address: SocketAddr) -> String {
    let host = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
    };
    format!("http://{}/", SocketAddr::new(host, address.port()))
}

/// The signals that ask a server to stop.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Listens for SIGINT and SIGTERM from now on, instead of dying of them.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen() -> Result<Self, Failure> {
        let catch =
            |kind| signal(kind).map_err(|error| Failure::Failed(format!("cannot catch signals: {error}")));
        Ok(Self { interrupt: catch(SignalKind::interrupt())?, terminate: catch(SignalKind::terminate())? })
    }

    /// Ends with the first of them. Cancel safe.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_is_one_line_with_the_remedy() {
        let first = listen(&Server { port: 0, ..Server::default() }).await.expect("a free port");
        let port = first.local_addr().expect("bound").port();
        let error = listen(&Server { port, ..Server::default() }).await.expect_err("taken");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("port {port} on 127.0.0.1 is taken")) && text.contains("--port"),
            "{text}"
        );
        assert_eq!(error.exit_code(), 1);
        let error = listen(&Server { host: "192.0.2.1".to_owned(), ..Server::default() })
            .await
            .expect_err("not ours");
        assert!(error.to_string().contains("192.0.2.1 is no address of this machine"), "{error}");
    }

    #[test]
    fn the_url_is_one_that_a_browser_can_open() {
        for (address, expected) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
            ("0.0.0.0:80", "http://127.0.0.1:80/"),
            ("[::]:8080", "http://[::1]:8080/"),
            ("10.1.2.3:9", "http://10.1.2.3:9/"),
        ] {
            assert_eq!(url(address.parse().expect("an address")), expected);
        }
    }
}
