//! Ephemeral client secrets: the request that makes one, and its answer.

use serde_json::{Value, json};

use super::config::Shown;
use super::fields::{Fault, Fields};
use super::{configure, object};
use crate::session::settings::Settings;

/// Life of a secret where none is asked for, in seconds.
const DEFAULT_SECONDS: u32 = 600;

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Life of the secret, seconds.
    pub seconds: u32,
    /// Configuration of the sessions it opens.
    pub session: Value,
}

/// Which endpoint was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/realtime/client_secrets`
    ClientSecrets,
    /// `/v1/realtime/sessions`: the beta's.
    Sessions,
    /// `/v1/realtime/transcription_sessions`: the beta's.
    TranscriptionSessions,
}

/// Reads a request; an empty body is one with defaults.
///
/// # Errors
/// The first fault, in the session's configuration too.
pub fn read(endpoint: Endpoint, body: &[u8], settings: &Settings, shown: &Shown) -> Result<Request, Fault> {
    let body: Value = if body.iter().all(u8::is_ascii_whitespace) {
        json!({})
    } else {
        serde_json::from_slice(body)
            .map_err(|error| Fault::client("invalid_json", format!("The body is not valid JSON: {error}.")))?
    };
    let fields = Fields::new(&body, "")?;
    // The beta put the configuration at the top and the expiry into `client_secret`.
    let (session, expiry) = match endpoint {
        Endpoint::ClientSecrets => (fields.value("session").cloned(), fields.object("expires_after")?),
        _ => {
            let inner = fields.object("client_secret")?.map(|secret| secret.object("expires_after"));
            let expiry = inner.transpose()?.flatten().or(fields.object("expires_after")?);
            (Some(body.clone()), expiry)
        }
    };
    let mut session = session.unwrap_or_else(|| json!({"type": "realtime"}));
    let kind = match endpoint {
        Endpoint::TranscriptionSessions => Some("transcription"),
        Endpoint::Sessions => Some("realtime"),
        Endpoint::ClientSecrets => None,
    };
    if let (Some(kind), Value::Object(map)) = (kind, &mut session) {
        map.insert("type".to_owned(), json!(kind));
        map.remove("client_secret");
        map.remove("expires_after");
    }
    let inner = Fields::new(&session, "session")?;
    inner.need_string("type")?;
    configure(&session, settings.clone(), shown.clone())?;
    let seconds = match expiry {
        Some(expiry) => {
            expiry.choice("anchor", &[("created_at", ())])?;
            expiry.integer("seconds", 10..=7200)?.unwrap_or(DEFAULT_SECONDS)
        }
        None => DEFAULT_SECONDS,
    };
    Ok(Request { seconds, session })
}

/// The answer; `expires_at` in Unix seconds.
pub fn answer(
    endpoint: Endpoint,
    (value, expires_at): (&str, u64),
    session_id: &str,
    settings: &Settings,
    shown: &Shown,
) -> Value {
    let mut session = object::session(session_id, settings, shown, 0);
    match endpoint {
        Endpoint::ClientSecrets => json!({"value": value, "expires_at": expires_at, "session": session}),
        _ => {
            session["client_secret"] = json!({"value": value, "expires_at": expires_at});
            session
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    fn parse(endpoint: Endpoint, body: &Value) -> Result<Request, Fault> {
        read(endpoint, body.to_string().as_bytes(), &settings(), &Shown::new("m"))
    }

    #[test]
    fn the_life_of_a_secret_has_bounds() {
        let request =
            parse(Endpoint::ClientSecrets, &json!({"session": {"type": "realtime"}})).expect("valid");
        assert_eq!(request.seconds, 600);
        let asked = |seconds| json!({"expires_after": {"anchor": "created_at", "seconds": seconds}});
        assert_eq!(parse(Endpoint::ClientSecrets, &asked(30)).expect("valid").seconds, 30);
        assert!(parse(Endpoint::ClientSecrets, &asked(9)).is_err());
        assert!(parse(Endpoint::ClientSecrets, &asked(7201)).is_err());
        assert!(read(Endpoint::ClientSecrets, b"", &settings(), &Shown::new("m")).is_ok());
        assert!(read(Endpoint::ClientSecrets, b"{", &settings(), &Shown::new("m")).is_err());
    }

    #[test]
    fn the_configuration_is_checked_at_once() {
        let body = json!({"session": {"type": "realtime", "audio": {"output": {"speed": 9}}}});
        let fault = parse(Endpoint::ClientSecrets, &body).expect_err("too fast");
        assert_eq!(fault.param.as_deref(), Some("session.audio.output.speed"));
        let fault = parse(Endpoint::ClientSecrets, &json!({"session": {"voice": "x"}})).expect_err("no type");
        assert_eq!(fault.param.as_deref(), Some("session.type"));
    }

    #[test]
    fn the_betas_endpoints_take_the_configuration_flat() {
        let body =
            json!({"model": "gpt-4o-realtime-preview", "voice": "alloy", "modalities": ["audio", "text"]});
        let request = parse(Endpoint::Sessions, &body).expect("valid");
        assert_eq!(request.session["type"], json!("realtime"));
        let answer = answer(Endpoint::Sessions, ("ek_1", 5), "sess_1", &settings(), &Shown::new("m"));
        assert_eq!(answer["client_secret"], json!({"value": "ek_1", "expires_at": 5}));
        let request =
            parse(Endpoint::TranscriptionSessions, &json!({"input_audio_format": "pcm16"})).expect("valid");
        assert_eq!(request.session["type"], json!("transcription"));
    }
}
