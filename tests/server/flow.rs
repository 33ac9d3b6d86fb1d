//! Too fast, too slow, gone, many.

use std::sync::atomic::Ordering;

use base64::Engine as _;
use futures_util::future::join_all;
use serde_json::json;
use voluble::config::Config;

use super::kit::{Client, Server};
use super::toy::Toys;

fn append(milliseconds: usize) -> serde_json::Value {
    let audio = base64::engine::general_purpose::STANDARD.encode(vec![0_u8; milliseconds * 48]);
    json!({"type": "input_audio_buffer.append", "audio": audio})
}

/// 60 s of sound at once into a session that takes its time: every sample arrives.
#[tokio::test]
async fn audio_faster_than_real_time_waits_and_none_is_lost() {
    let server = Server::with(Config::default(), Toys { slow: true, ..Toys::default() }).await;
    let mut client = server.client().await;
    for _ in 0..300 {
        client.send(append(200)).await;
    }
    client.send(json!({"type": "input_audio_buffer.commit"})).await;
    client.wait_for("input_audio_buffer.committed").await;
    assert_eq!(server.toys.samples.load(Ordering::SeqCst), 60 * 16_000);
    server.stop().await;
}

#[tokio::test]
async fn an_empty_commit_is_an_error_with_the_clients_id() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.send(json!({"type": "input_audio_buffer.commit", "event_id": "mine"})).await;
    let error = client.wait_for("error").await;
    assert_eq!(error["error"]["code"], "input_audio_buffer_commit_empty");
    assert_eq!(error["error"]["event_id"], "mine");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_stops_reading_is_closed_and_nobody_else_notices() {
    let mut config = Config::default();
    config.server.write_timeout_ms = 300;
    let server = Server::with(config, Toys::default()).await;
    let (mut lazy, mut good) = (server.client().await, server.client().await);
    good.wait_for("session.created").await;
    server.wait_for_sessions(2).await;
    lazy.send(json!({"type": "response.create"})).await;
    // Meanwhile the other one is served.
    good.send(json!({"type": "input_audio_buffer.clear"})).await;
    good.wait_for("input_audio_buffer.cleared").await;
    server.wait_for_sessions(1).await;
    good.send(json!({"type": "input_audio_buffer.clear"})).await;
    good.wait_for("input_audio_buffer.cleared").await;
    drop(lazy);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_late_gets_everything() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.send(json!({"type": "response.create"})).await;
    let mut bytes = 0;
    loop {
        let event = client.event().await;
        match event["type"].as_str() {
            Some("response.output_audio.delta") => {
                let delta = event["delta"].as_str().expect("base64");
                bytes += base64::engine::general_purpose::STANDARD.decode(delta).expect("base64").len();
            }
            Some("response.done") => break,
            _ => {}
        }
    }
    assert_eq!(bytes, 600 * 48_000);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_vanishes_ends_its_session() {
    let server = Server::start().await;
    let mut clients = join_all((0..5).map(|_| server.client())).await;
    server.wait_for_sessions(5).await;
    // Without a closing handshake.
    drop(clients.pop());
    server.wait_for_sessions(4).await;
    // In the middle of a flood of sound.
    clients[0].send(json!({"type": "response.create"})).await;
    clients[0].wait_for("response.output_audio.delta").await;
    drop(clients.remove(0));
    server.wait_for_sessions(3).await;
    // With one.
    clients[0].socket.close(None).await.expect("a close");
    clients.remove(0).closed().await;
    server.wait_for_sessions(2).await;
    drop(clients);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_gone() {
    let mut config = Config::default();
    config.server.ping_ms = 100;
    config.server.idle_ms = 400;
    let server = Server::with(config, Toys::default()).await;
    // This client only answers pings while it is read, and nobody reads it.
    let silent = server.client().await;
    server.wait_for_sessions(1).await;
    server.wait_for_sessions(0).await;
    drop(silent);
    // One that is read stays, however long it says nothing.
    let mut alive = server.client().await;
    let reading = tokio::time::timeout(std::time::Duration::from_millis(1_500), alive.closed()).await;
    assert!(reading.is_err(), "a live client was closed: {reading:?}");
    server.stop().await;
}

#[tokio::test]
async fn many_sessions_come_and_go() {
    let server = Server::start().await;
    for _ in 0..5 {
        let calls = (0..60).map(async |n| {
            let mut client = server.client().await;
            client.send(json!({"type": "session.update", "session": {"type": "realtime", "instructions": n.to_string()}})).await;
            let updated = client.wait_for("session.updated").await;
            assert_eq!(updated["session"]["instructions"], n.to_string());
        });
        join_all(calls).await;
    }
    server.wait_for_sessions(0).await;
    server.stop().await;
}

#[tokio::test]
async fn without_room_a_client_is_told_and_closed() {
    let server = Server::with(Config::default(), Toys { most: 1, ..Toys::default() }).await;
    let first = server.client().await;
    server.wait_for_sessions(1).await;
    let mut second = server.client().await;
    let error = second.wait_for("error").await;
    assert_eq!(error["error"]["code"], "rate_limit_exceeded");
    assert_eq!(error["error"]["type"], "rate_limit_error");
    assert_eq!(second.closed().await.map(|(code, _)| code), Some(1013));
    drop(first);
    server.wait_for_sessions(0).await;
    server.client().await.wait_for("session.created").await;
    server.stop().await;
}

#[tokio::test]
async fn a_stop_ends_calls_with_a_reason_and_takes_no_more() {
    let mut server = Server::start().await;
    let mut client = server.client().await;
    client.wait_for("session.created").await;
    let address = server.address;
    server.ask_to_stop();
    let (code, reason) = client.closed().await.expect("a close frame");
    assert_eq!((code, reason.as_str()), (1001, "the server is shutting down"));
    server.ended().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "still listening");
}

#[tokio::test]
async fn a_half_sent_request_does_not_hold_up_a_stop() {
    use tokio::io::AsyncWriteExt as _;
    let mut config = Config::default();
    config.session.drain_seconds = 0;
    let server = Server::with(config, Toys::default()).await;
    let mut slow = tokio::net::TcpStream::connect(server.address).await.expect("the server listens");
    slow.write_all(b"GET /v1/models HTTP/1.1\r\nhost: ").await.expect("sent");
    let mut client: Client = server.client().await;
    client.wait_for("session.created").await;
    server.stop().await;
}
