//! Plain HTTP answers.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;

/// Sent with every answer that a browser may show or run.
const GUARDS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; worker-src 'self' blob:; style-src 'self'; img-src 'self' data:; \
         connect-src 'self' ws: wss:; media-src 'self' blob:; manifest-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("permissions-policy", "microphone=(self), camera=(), geolocation=()"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// A JSON answer. An unknown status number becomes 500.
pub fn json(status: u16, body: &serde_json::Value) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = answer(status, "application/json", body.to_string().into());
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A plain text.
pub fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    answer(status, content_type, body.into())
}

/// A file of the web page, with what keeps a page from being misused.
pub fn page(content_type: &'static str, body: &'static [u8]) -> Response<Body> {
    let mut response = answer(StatusCode::OK, content_type, Bytes::from_static(body));
    for (name, value) in GUARDS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn answer(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Nothing here may outlive a restart with another version or another answer.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_carry_their_type_and_guards() {
        let refused = json(401, &serde_json::json!({"error": {}}));
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(refused.headers()[WWW_AUTHENTICATE], "Bearer");
        let page = page("text/html; charset=utf-8", b"<!doctype html>");
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert!(
            page.headers()["content-security-policy"]
                .to_str()
                .expect("text")
                .contains("frame-ancestors 'none'")
        );
        assert_eq!(json(7, &serde_json::json!({})).status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
