//! A server on a free port, and clients for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, http};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};
use voluble::app::door::Door;
use voluble::app::server::{Parts, run};
use voluble::config::Config;
use voluble::session::manager::{self, Manager};

use super::toy::Toys;

/// Longest wait for anything; only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    pub address: SocketAddr,
    pub toys: Arc<Toys>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub async fn start() -> Self {
        Self::with(Config::default(), Toys::default()).await
    }

    pub async fn with(config: Config, toys: Toys) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let toys = Arc::new(toys);
        Self { toys: toys.clone(), ..Self::on(listener, address, config, toys) }
    }

    /// With real sessions.
    pub async fn of_sessions(config: Config, parts: manager::Parts) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let door = Arc::new(Manager::new(Arc::new(config.clone()), parts));
        Self::on(listener, address, config, door)
    }

    fn on(listener: TcpListener, address: SocketAddr, config: Config, door: Arc<dyn Door>) -> Self {
        let parts = Parts { door, models: vec!["toy".to_owned()], metrics: None };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            run(listener, &config, parts, async {
                stopped.await.ok();
            })
            .await
        });
        Self { address, toys: Arc::default(), stop: Some(stop), task }
    }

    /// Asks the server to stop and waits until it has.
    pub async fn stop(mut self) {
        self.ask_to_stop();
        self.ended().await;
    }

    pub fn ask_to_stop(&mut self) {
        self.stop.take().expect("asked once").send(()).expect("the server runs");
    }

    pub async fn ended(self) {
        let result = tokio::time::timeout(PATIENCE, self.task).await.expect("the server ends");
        result.expect("no panic").expect("no error");
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.address, "/v1/realtime?model=any", &[]).await.expect("let in")
    }

    /// Waits until so many sessions live.
    pub async fn wait_for_sessions(&self, wanted: usize) {
        let reached = async {
            while self.toys.live.load(Ordering::SeqCst) != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.expect("sessions begin and end");
    }

    /// Status, headers (lower case) and body of a plain request.
    pub async fn http(&self, request: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.expect("the server listens");
        let mut text =
            format!("{request} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "host") {
            text.push_str(&format!("host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).await.expect("the server reads");
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .expect("an answer")
            .expect("readable");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, head.to_lowercase(), body.to_owned())
    }
}

/// A WebSocket client.
#[derive(Debug)]
pub struct Client {
    pub socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// The subprotocol that the server chose.
    pub protocol: Option<String>,
}

/// What a client sees.
#[derive(Debug)]
pub enum Seen {
    Event(Value),
    Closed(Option<(u16, String)>),
}

impl Client {
    /// Connects; the HTTP status where it is refused.
    pub async fn connect(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let mut request = format!("ws://{address}{path}").into_client_request().expect("an address");
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().expect("a header name");
            request.headers_mut().insert(name, value.parse().expect("a header value"));
        }
        // Nothing of a message that the server refuses may be held back by the client.
        let config = WebSocketConfig::default().max_write_buffer_size(usize::MAX);
        match connect_async_with_config(request, Some(config), false).await {
            Ok((socket, response)) => {
                let protocol = response.headers().get("sec-websocket-protocol");
                let protocol = protocol.map(|value| value.to_str().expect("text").to_owned());
                Ok(Self { socket, protocol })
            }
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("the server does not speak WebSocket: {error}"),
        }
    }

    pub async fn send(&mut self, event: Value) {
        self.send_message(Message::text(event.to_string())).await;
    }

    pub async fn send_message(&mut self, message: Message) {
        let sent = tokio::time::timeout(PATIENCE, self.socket.send(message)).await;
        sent.expect("the server reads").expect("the connection lives");
    }

    pub async fn see(&mut self) -> Seen {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("the server speaks");
            match next {
                Some(Ok(Message::Text(text))) => {
                    return Seen::Event(serde_json::from_str(&text).expect("events are JSON"));
                }
                Some(Ok(Message::Close(frame))) => {
                    return Seen::Closed(frame.map(|frame| (frame.code.into(), frame.reason.to_string())));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Seen::Closed(None),
            }
        }
    }

    /// The next event.
    pub async fn event(&mut self) -> Value {
        match self.see().await {
            Seen::Event(event) => event,
            Seen::Closed(frame) => panic!("closed: {frame:?}"),
        }
    }

    /// The next event of this type.
    pub async fn wait_for(&mut self, name: &str) -> Value {
        loop {
            let event = self.event().await;
            if event["type"] == name {
                return event;
            }
        }
    }

    /// How the server closed, after any events.
    pub async fn closed(&mut self) -> Option<(u16, String)> {
        loop {
            if let Seen::Closed(frame) = self.see().await {
                return frame;
            }
        }
    }
}
