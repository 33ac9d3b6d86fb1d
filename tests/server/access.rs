//! Who is let in, with what, and what else is served.

use serde_json::{Value, json};
use voluble::config::Config;

use super::kit::{Client, Server};
use super::toy::Toys;

const PATH: &str = "/v1/realtime?model=gpt-realtime";
const KEY: (&str, &str) = ("authorization", "Bearer sk-test");

async fn keyed() -> Server {
    let mut config = Config::default();
    config.server.api_keys = vec!["sk-test".to_owned()];
    Server::with(config, Toys::default()).await
}

fn body(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

#[tokio::test]
async fn a_key_is_taken_from_either_place_and_the_answer_is_realtime() {
    let server = keyed().await;
    let client = Client::connect(server.address, PATH, &[KEY]).await.expect("let in");
    assert_eq!(client.protocol, None);
    let protocols = "realtime, openai-insecure-api-key.sk-test, openai-agents-sdk.0.20.0";
    let mut client = Client::connect(server.address, PATH, &[("sec-websocket-protocol", protocols)])
        .await
        .expect("let in");
    assert_eq!(client.protocol.as_deref(), Some("realtime"));
    let created = client.wait_for("session.created").await;
    assert_eq!(created["session"]["model"], "gpt-realtime");
    for headers in
        [vec![], vec![("authorization", "Bearer wrong")], vec![("authorization", "Bearer ek_unknown")]]
    {
        assert_eq!(Client::connect(server.address, PATH, &headers).await.expect_err("refused"), 401);
    }
    server.stop().await;
}

#[tokio::test]
async fn refusals_have_the_apis_shape() {
    let server = keyed().await;
    let (status, head, text) = server.http("GET /v1/models", &[], "").await;
    assert_eq!(status, 401);
    assert!(head.contains("www-authenticate: bearer"));
    assert_eq!(body(&text)["error"]["code"], "invalid_api_key");
    let (status, _, text) = server.http("GET /v1/models", &[KEY], "").await;
    assert_eq!((status, body(&text)["data"][0]["id"].as_str()), (200, Some("toy")));
    let (status, _, text) = server.http("GET /v1/models/none", &[KEY], "").await;
    assert_eq!((status, body(&text)["error"]["code"].as_str()), (404, Some("model_not_found")));
    let (status, _, text) = server.http("GET /v1/nothing", &[KEY], "").await;
    assert_eq!((status, body(&text)["error"]["code"].as_str()), (404, Some("unknown_url")));
    let (status, _, _) = server.http("DELETE /v1/models", &[KEY], "").await;
    assert_eq!(status, 405);
    let (status, _, text) = server.http("GET /v1/realtime", &[KEY], "").await;
    assert_eq!(status / 100, 4);
    assert_eq!(body(&text)["error"]["code"], "websocket_required");
    server.stop().await;
}

#[tokio::test]
async fn a_secret_opens_sessions_with_its_configuration_more_than_once() {
    let server = keyed().await;
    let request = json!({"expires_after": {"anchor": "created_at", "seconds": 60},
        "session": {"type": "realtime", "instructions": "From the secret.", "model": "theirs",
                    "audio": {"output": {"format": {"type": "audio/pcmu"}}}}});
    let url = "POST /v1/realtime/client_secrets";
    let (status, _, text) = server.http(url, &[KEY], &request.to_string()).await;
    assert_eq!(status, 200, "{text}");
    let answer = body(&text);
    let value = answer["value"].as_str().expect("a secret").to_owned();
    assert!(value.starts_with("ek_"));
    assert!(answer["expires_at"].as_u64().is_some());
    assert_eq!(answer["session"]["type"], "realtime");
    assert!(answer["session"]["id"].as_str().is_some_and(|id| id.starts_with("sess_")));
    for _ in 0..2 {
        let protocols = format!("realtime, openai-insecure-api-key.{value}");
        let headers = [("sec-websocket-protocol", protocols.as_str())];
        let mut client = Client::connect(server.address, "/v1/realtime", &headers).await.expect("let in");
        let session = client.wait_for("session.created").await["session"].take();
        assert_eq!(session["instructions"], "From the secret.");
        assert_eq!(session["model"], "theirs");
        assert_eq!(session["audio"]["output"]["format"], json!({"type": "audio/pcmu"}));
        // The client may still change it.
        client
            .send(json!({"type": "session.update", "session": {"type": "realtime", "instructions": "Mine."}}))
            .await;
        assert_eq!(client.wait_for("session.updated").await["session"]["instructions"], "Mine.");
    }
    let bearer = format!("Bearer {value}");
    let (status, _, _) = server.http(url, &[("authorization", &bearer)], &request.to_string()).await;
    assert_eq!(status, 403, "a secret made another one");
    server.stop().await;
}

#[tokio::test]
async fn faulty_requests_for_secrets_name_the_field() {
    let server = keyed().await;
    let url = "POST /v1/realtime/client_secrets";
    for (request, param) in [
        (json!({"expires_after": {"anchor": "created_at", "seconds": 5}}), "expires_after.seconds"),
        (json!({"expires_after": {"anchor": "yesterday"}}), "expires_after.anchor"),
        (json!({"session": {"type": "dance"}}), "session.type"),
        (json!({"session": {"type": "realtime", "tools": 5}}), "session.tools"),
    ] {
        let (status, _, text) = server.http(url, &[KEY], &request.to_string()).await;
        assert_eq!((status, body(&text)["error"]["param"].as_str()), (400, Some(param)), "{text}");
    }
    let (status, _, _) = server.http(url, &[KEY], "{").await;
    assert_eq!(status, 400);
    let (status, _, _) = server.http(url, &[], "{}").await;
    assert_eq!(status, 401);
    let (status, _, text) = server.http("POST /v1/realtime/sessions", &[KEY], r#"{"voice": "alloy"}"#).await;
    assert_eq!(status, 200);
    assert!(body(&text)["client_secret"]["value"].as_str().is_some_and(|value| value.starts_with("ek_")));
    let (status, _, text) = server.http("POST /v1/realtime/transcription_sessions", &[KEY], "").await;
    assert_eq!(status, 200);
    assert_eq!(body(&text)["object"], "realtime.transcription_session");
    server.stop().await;
}

#[tokio::test]
async fn transcription_sessions_are_opened_by_intent() {
    let server = Server::start().await;
    let mut client =
        Client::connect(server.address, "/v1/realtime?intent=transcription", &[]).await.expect("let in");
    let created = client.wait_for("session.created").await;
    assert_eq!(created["session"]["object"], "realtime.transcription_session");
    assert!(created["session"]["audio"]["input"]["transcription"].is_object());
    client.send(json!({"type": "response.create"})).await;
    client.wait_for("error").await;
    for path in ["/v1/realtime?intent=dance", "/v1/realtime?call_id=rtc_1"] {
        assert_eq!(Client::connect(server.address, path, &[]).await.expect_err("refused"), 400);
    }
    server.stop().await;
}

#[tokio::test]
async fn without_keys_foreign_pages_are_kept_out() {
    let server = Server::start().await;
    let own = format!("http://{}", server.address);
    for (headers, wanted) in [
        (vec![("origin", own.as_str())], None),
        (vec![("origin", "https://evil.example")], Some(403)),
        (vec![("origin", "null")], Some(403)),
        (vec![("host", "rebound.example")], Some(403)),
    ] {
        let got = Client::connect(server.address, PATH, &headers).await.err();
        assert_eq!(got, wanted, "{headers:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_page_and_its_files_are_served_with_guards() {
    let server = keyed().await;
    for (path, content_type) in [
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/style.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let (status, head, text) = server.http(&format!("GET {path}"), &[], "").await;
        assert_eq!(status, 200, "{path}");
        assert!(head.contains(&format!("content-type: {content_type}")), "{head}");
        assert!(head.contains("content-security-policy: "), "{head}");
        assert!(!text.is_empty());
    }
    for path in ["/nothing", "/../Cargo.toml", "/%2e%2e/Cargo.toml"] {
        assert_eq!(server.http(&format!("GET {path}"), &[], "").await.0, 404, "{path}");
    }
    assert_eq!(server.http("POST /", &[], "").await.0, 405);
    server.stop().await;
}

#[tokio::test]
async fn health_is_open_to_everybody() {
    let server = keyed().await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.http(&format!("GET {path}"), &[], "").await.0, 200, "{path}");
    }
    server.stop().await;
}
