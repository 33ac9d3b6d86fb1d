//! Whether the server lives, whether it takes calls, what it measured.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, Response, StatusCode};

use super::server::{App, now};
use crate::protocol::openai::error::ApiError;
use crate::transport::http;

const TEXT: &str = "text/plain; charset=utf-8";
/// Prometheus' text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The process answers.
pub async fn alive() -> Response<Body> {
    http::text(StatusCode::OK, TEXT, "ok\n".to_owned())
}

/// New calls are taken: the models are loaded and no stop was asked for.
pub async fn ready(State(app): State<Arc<App>>) -> Response<Body> {
    if app.is_draining() {
        return http::text(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n".to_owned());
    }
    http::text(StatusCode::OK, TEXT, "ready\n".to_owned())
}

/// The page for Prometheus: to this machine freely, to others with a key.
pub async fn metrics(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response<Body> {
    if !peer.ip().to_canonical().is_loopback()
        && let Err(refused) = app.gate.admit(&headers, peer, &app.secrets, now())
    {
        let error = ApiError::client(refused.code(), refused.to_string());
        return http::json(refused.status(), &error.body());
    }
    match &app.metrics {
        Some(exporter) => http::text(StatusCode::OK, EXPOSITION, exporter.render()),
        None => http::text(StatusCode::NOT_FOUND, TEXT, "metrics are off\n".to_owned()),
    }
}
