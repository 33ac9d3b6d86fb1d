//! The one table of what is served, and who may ask for it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{ConnectInfo, Extension, Path, Query, Request, State};
use axum::http::{Response, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;

use super::auth::{Caller, Refused};
use super::call;
use super::page;
use super::server::{App, now};
use crate::protocol::openai::error::ApiError;
use crate::protocol::openai::realtime::config::Shown;
use crate::protocol::openai::realtime::secret::{self, Endpoint};
use crate::protocol::openai::realtime::{configure, set_kind};
use crate::session::settings::{SessionKind, Settings};
use crate::transport::{http, ws};

/// Everything that is served.
pub fn table(app: Arc<App>) -> Router {
    let api = Router::new()
        .route("/realtime", get(realtime))
        .route("/realtime/client_secrets", post(client_secrets))
        .route("/realtime/sessions", post(sessions))
        .route("/realtime/transcription_sessions", post(transcription_sessions))
        .route("/models", get(models))
        .route("/models/{id}", get(model))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), authenticate));
    Router::new()
        .nest("/v1", api)
        .route("/healthz", get(super::health::alive))
        .route("/readyz", get(super::health::ready))
        .route("/metrics", get(super::health::metrics))
        .fallback(files)
        .with_state(app)
}

/// The one place where callers of `/v1` are let in or not.
async fn authenticate(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    match app.gate.admit(request.headers(), peer, &app.secrets, now()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refused) => refusal(refused),
    }
}

fn refusal(refused: Refused) -> Response<Body> {
    tracing::info!(reason = refused.code(), "a request was refused");
    let error = ApiError::client(refused.code(), refused.to_string());
    http::json(refused.status(), &error.body())
}

fn failed(error: &ApiError) -> Response<Body> {
    http::json(error.kind.row().status, &error.body())
}

/// What a WebSocket's address may say.
#[derive(Debug, Deserialize)]
struct RealtimeQuery {
    model: Option<String>,
    intent: Option<String>,
    call_id: Option<String>,
    voluble: Option<String>,
}

async fn realtime(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<RealtimeQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response<Body> {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let why = "This is a WebSocket endpoint; the request is not a WebSocket handshake.";
            return http::json(
                rejection.status().as_u16(),
                &ApiError::client("websocket_required", why).body(),
            );
        }
    };
    let (settings, shown) = match begin(&app, &caller, &query) {
        Ok(begin) => begin,
        Err(error) => return failed(&error),
    };
    let limits = app.limits;
    ws::limited(upgrade, &limits)
        .protocols(["realtime"])
        .on_upgrade(move |socket| call::run(app, socket, settings, shown))
}

/// The configuration that a call begins with.
fn begin(app: &App, caller: &Caller, query: &RealtimeQuery) -> Result<(Settings, Shown), ApiError> {
    if query.call_id.is_some() {
        let why = "Calls over WebRTC or SIP do not exist here; connect with ?model=.";
        return Err(ApiError::client("invalid_value", why).at("call_id"));
    }
    let mut settings = app.door.defaults();
    let mut shown = Shown::new(&app.door.model());
    match query.intent.as_deref() {
        None | Some("realtime" | "conversation" | "") => {}
        Some("transcription") => set_kind(&mut settings, SessionKind::Transcription),
        Some(_) => {
            let why = "Invalid value for 'intent'. Supported values are: 'transcription'.";
            return Err(ApiError::client("invalid_value", why).at("intent"));
        }
    }
    if let Caller::Ephemeral(session) = caller {
        (settings, shown) = configure(session, settings, shown)?;
    }
    if let Some(model) = query.model.as_deref().filter(|model| !model.is_empty()) {
        // Clients name the model they were written for; the one that is loaded answers.
        shown.model = model.into();
    }
    shown.extensions |= query.voluble.as_deref().is_some_and(|value| !matches!(value, "" | "0" | "false"));
    Ok((settings, shown))
}

async fn client_secrets(state: State<Arc<App>>, caller: Extension<Caller>, body: Bytes) -> Response<Body> {
    make_secret(Endpoint::ClientSecrets, &state.0, &caller.0, &body)
}

async fn sessions(state: State<Arc<App>>, caller: Extension<Caller>, body: Bytes) -> Response<Body> {
    make_secret(Endpoint::Sessions, &state.0, &caller.0, &body)
}

async fn transcription_sessions(
    state: State<Arc<App>>,
    caller: Extension<Caller>,
    body: Bytes,
) -> Response<Body> {
    make_secret(Endpoint::TranscriptionSessions, &state.0, &caller.0, &body)
}

fn make_secret(endpoint: Endpoint, app: &App, caller: &Caller, body: &[u8]) -> Response<Body> {
    if matches!(caller, Caller::Ephemeral(_)) {
        // Or it would live for ever by renewing itself.
        let why = "A client secret cannot make another one; use an API key.";
        return http::json(403, &ApiError::client("invalid_api_key", why).body());
    }
    let made = || -> Result<serde_json::Value, ApiError> {
        let (settings, shown) = (app.door.defaults(), Shown::new(&app.door.model()));
        let request = secret::read(endpoint, body, &settings, &shown)?;
        let (settings, shown) = configure(&request.session, settings, shown)?;
        let (value, expires_at) = app
            .secrets
            .make(request.session, now(), request.seconds)
            .map_err(|full| ApiError::capacity("rate_limit_exceeded", full.to_string()))?;
        let id = format!("sess_{}", call::random_tag());
        Ok(secret::answer(endpoint, (&value, expires_at), &id, &settings, &shown))
    };
    match made() {
        Ok(answer) => http::json(200, &answer),
        Err(error) => failed(&error),
    }
}

fn model_object(app: &App, id: &str) -> serde_json::Value {
    json!({"id": id, "object": "model", "created": app.started_at, "owned_by": "voluble"})
}

async fn models(State(app): State<Arc<App>>) -> Response<Body> {
    let list: Vec<_> = app.models.iter().map(|id| model_object(&app, id)).collect();
    http::json(200, &json!({"object": "list", "data": list}))
}

async fn model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response<Body> {
    if app.models.contains(&id) {
        return http::json(200, &model_object(&app, &id));
    }
    let shown: String = id.chars().take(64).collect();
    http::json(
        404,
        &ApiError::client("model_not_found", format!("The model '{shown}' does not exist."))
            .at("model")
            .body(),
    )
}

async fn unknown(uri: Uri) -> Response<Body> {
    let shown: String = uri.path().chars().take(128).collect();
    http::json(404, &ApiError::client("unknown_url", format!("Unknown request URL: /v1{shown}.")).body())
}

async fn wrong_method() -> Response<Body> {
    http::json(405, &ApiError::client("method_not_allowed", "This URL does not take this method.").body())
}

async fn files(request: Request) -> Response<Body> {
    let wanted = matches!(request.method().as_str(), "GET" | "HEAD");
    match page::find(request.uri().path()) {
        Some(file) if wanted => http::page(file.content_type, file.body),
        Some(_) => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        None => http::text(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "not found\n".to_owned()),
    }
}
