//! Bad input over a real socket: an answer, and everybody lives.

use serde_json::json;
use tokio_tungstenite::tungstenite::protocol::Message;

use super::kit::{Client, Seen, Server};

/// The session still does what it is asked.
async fn lives(client: &mut Client) {
    client
        .send(
            json!({"type": "session.update", "session": {"type": "realtime", "instructions": "still here"}}),
        )
        .await;
    let updated = client.wait_for("session.updated").await;
    assert_eq!(updated["session"]["instructions"], "still here");
}

#[tokio::test]
async fn nonsense_is_answered_and_the_session_lives() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.wait_for("session.created").await;
    for text in ["{", "", "[1,2", "\u{0}", "true", "{\"type\":\"unknown\"}"] {
        client.send_message(Message::text(text)).await;
        let error = client.wait_for("error").await;
        assert_eq!(error["error"]["type"], "invalid_request_error", "{text}: {error}");
    }
    client.send_message(Message::binary(vec![0_u8; 4096])).await;
    let error = client.wait_for("error").await;
    assert_eq!(error["error"]["code"], "invalid_event");
    lives(&mut client).await;
    server.stop().await;
}

#[tokio::test]
async fn text_that_is_no_text_ends_only_its_own_connection() {
    let server = Server::start().await;
    let (mut bad, mut good) = (server.client().await, server.client().await);
    // A text frame with a broken letter, against RFC 6455.
    let frame = tokio_tungstenite::tungstenite::protocol::frame::Frame::message(
        vec![0xff, 0xfe],
        tokio_tungstenite::tungstenite::protocol::frame::coding::OpCode::Data(
            tokio_tungstenite::tungstenite::protocol::frame::coding::Data::Text,
        ),
        true,
    );
    bad.send_message(Message::Frame(frame)).await;
    bad.closed().await;
    server.wait_for_sessions(1).await;
    lives(&mut good).await;
    drop(good);
    server.stop().await;
}

#[tokio::test]
async fn a_frame_of_20_mb_is_refused_with_its_size() {
    let server = Server::start().await;
    let (mut bad, mut good) = (server.client().await, server.client().await);
    bad.send_message(Message::text("x".repeat(20 * 1024 * 1024))).await;
    let error = bad.wait_for("error").await;
    assert_eq!(error["error"]["code"], "message_too_large");
    let (code, reason) = bad.closed().await.expect("a close frame");
    assert_eq!(code, 1009);
    assert!(reason.contains("16777216"), "{reason}");
    server.wait_for_sessions(1).await;
    lives(&mut good).await;
    drop(good);
    server.stop().await;
}

#[tokio::test]
async fn a_frame_that_never_ends_is_cut() {
    let server = Server::start().await;
    let (mut bad, mut good) = (server.client().await, server.client().await);
    let huge = Message::binary(vec![0_u8; 80 * 1024 * 1024]);
    // The server may hang up while it is being sent.
    let send = async {
        use futures_util::SinkExt as _;
        bad.socket.send(huge).await.ok();
        bad.closed().await;
    };
    tokio::time::timeout(super::kit::PATIENCE, send).await.expect("an end");
    server.wait_for_sessions(1).await;
    lives(&mut good).await;
    drop(good);
    server.stop().await;
}

#[tokio::test]
async fn a_flood_of_nonsense_from_a_client_that_never_reads_is_held() {
    let mut config = voluble::config::Config::default();
    config.server.write_timeout_ms = 500;
    let server = Server::with(config, Default::default()).await;
    let (mut bad, mut good) = (server.client().await, server.client().await);
    let flood = async {
        use futures_util::SinkExt as _;
        let nonsense = format!("{{\"type\": \"{}\"}}", "x".repeat(4000));
        while bad.socket.send(Message::text(nonsense.clone())).await.is_ok() {}
    };
    tokio::time::timeout(super::kit::PATIENCE, flood).await.expect("the server hangs up");
    server.wait_for_sessions(1).await;
    lives(&mut good).await;
    assert!(matches!(good.socket.close(None).await.map(|()| Seen::Closed(None)), Ok(Seen::Closed(None))));
    server.stop().await;
}
