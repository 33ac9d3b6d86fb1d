//! Who may call: API keys, ephemeral secrets, and, without keys, this machine
//! alone.
//!
//! Without keys a web page anywhere could reach a server on the visitor's own
//! machine, because browsers let pages open WebSockets across sites and a page
//! can point its own host name at 127.0.0.1. Requests are therefore taken only
//! from this machine, only under a name that is ours, and only from our own page
//! or no page at all.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::secrets::{PREFIX, Secrets};
use crate::config::server::Server;

/// The subprotocol in which browsers, which cannot set headers, send a key.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";

/// Who was let in.
#[derive(Clone, Debug, PartialEq)]
pub enum Caller {
    /// With a key, or nobody was asked for one.
    Trusted,
    /// With an ephemeral secret, which carries a session's configuration.
    Ephemeral(Value),
}

/// Why somebody was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No key was sent.
    #[error(
        "No API key was given. Send 'Authorization: Bearer <key>', or from a browser the subprotocol \
         'openai-insecure-api-key.<key>'."
    )]
    NoKey,
    /// A wrong one was.
    #[error("The API key is not known here.")]
    WrongKey,
    /// An ephemeral secret that is not, or no longer, valid.
    #[error("The client secret is not known or has expired.")]
    Secret,
    /// From another machine, without keys.
    #[error("This server has no API keys and answers only callers on its own machine; see server.api_keys.")]
    Network,
    /// Under a foreign host name.
    #[error("This host name is not allowed; see server.allowed_hosts.")]
    Host,
    /// From a foreign page.
    #[error("Pages of this origin are not allowed; see server.allowed_origins.")]
    Origin,
}

impl Refused {
    /// HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::NoKey | Self::WrongKey | Self::Secret => 401,
            Self::Network | Self::Host | Self::Origin => 403,
        }
    }

    /// The code that programs switch on.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoKey | Self::WrongKey | Self::Secret => "invalid_api_key",
            Self::Network => "unsupported_network",
            Self::Host => "host_not_allowed",
            Self::Origin => "origin_not_allowed",
        }
    }
}

/// The check itself.
#[derive(Debug)]
pub struct Gate {
    keys: Vec<[u8; 32]>,
    open_to_network: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Gate {
    /// From the settings.
    pub fn new(config: &Server) -> Self {
        let digest = |key: &String| Sha256::digest(key.trim().as_bytes()).into();
        Self {
            keys: config.api_keys.iter().map(digest).collect(),
            open_to_network: config.open_to_network,
            hosts: config.allowed_hosts.iter().map(|host| host.to_lowercase()).collect(),
            origins: config.allowed_origins.iter().map(|origin| origin.to_lowercase()).collect(),
        }
    }

    /// Whether no key is asked for.
    pub fn is_open(&self) -> bool {
        self.keys.is_empty()
    }

    /// Decides on a request; `now` in Unix seconds.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn admit(
        &self,
        headers: &HeaderMap,
        peer: SocketAddr,
        secrets: &Secrets,
        now: u64,
    ) -> Result<Caller, Refused> {
        let token = token(headers);
        if let Some(secret) = token.filter(|token| token.starts_with(PREFIX)) {
            return secrets.find(secret, now).map(Caller::Ephemeral).ok_or(Refused::Secret);
        }
        if self.is_open() {
            return self.admit_unknown(headers, peer).map(|()| Caller::Trusted);
        }
        let digest: [u8; 32] = Sha256::digest(token.ok_or(Refused::NoKey)?.as_bytes()).into();
        // All keys are compared, so that the time says nothing of which one matched.
        let matches = self.keys.iter().fold(0, |found, key| found | key.ct_eq(&digest).unwrap_u8());
        if matches == 1 { Ok(Caller::Trusted) } else { Err(Refused::WrongKey) }
    }

    fn admit_unknown(&self, headers: &HeaderMap, peer: SocketAddr) -> Result<(), Refused> {
        if !self.open_to_network && !peer.ip().to_canonical().is_loopback() {
            return Err(Refused::Network);
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_lowercase();
        let name = host_name(&host);
        let ours = name.is_empty()
            || name == "localhost"
            || name.ends_with(".localhost")
            || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || self.hosts.iter().any(|known| known == name);
        if !ours {
            return Err(Refused::Host);
        }
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default().to_lowercase();
        let same = origin.split_once("://").is_some_and(|(_, place)| place == host);
        let allowed = same || self.origins.iter().any(|known| known == "*" || *known == origin);
        if allowed { Ok(()) } else { Err(Refused::Origin) }
    }
}

/// `localhost` of `localhost:8080`, `[::1]` of `[::1]:8080`.
fn host_name(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if !host.ends_with(']') => &host[..colon],
        _ => host,
    }
}

/// The key or secret of a request.
fn token(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let in_protocols = || {
        headers
            .get_all(SEC_WEBSOCKET_PROTOCOL)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .find_map(|protocol| protocol.trim().strip_prefix(KEY_PROTOCOL))
    };
    bearer.or_else(in_protocols).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    const LOCAL: &str = "127.0.0.1:5000";
    const FAR: &str = "192.0.2.7:5000";

    fn ask(config: Server, peer: &str, headers: &[(&str, &str)]) -> Result<Caller, Refused> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            map.append(name, HeaderValue::from_str(value).expect("a header value"));
        }
        Gate::new(&config).admit(&map, peer.parse().expect("an address"), &Secrets::new(1), 0)
    }

    fn keyed() -> Server {
        Server { api_keys: vec!["sk-one".to_owned(), "sk-two".to_owned()], ..Server::default() }
    }

    #[test]
    fn keys_are_taken_from_the_header_and_the_subprotocol() {
        for headers in [
            [("authorization", "Bearer sk-two")],
            [("authorization", "bearer  sk-one")],
            [("sec-websocket-protocol", "realtime, openai-insecure-api-key.sk-one, openai-agents-sdk.0.20")],
        ] {
            assert_eq!(ask(keyed(), FAR, &headers), Ok(Caller::Trusted), "{headers:?}");
        }
        assert_eq!(ask(keyed(), LOCAL, &[]), Err(Refused::NoKey));
        assert_eq!(ask(keyed(), LOCAL, &[("authorization", "Bearer sk-on")]), Err(Refused::WrongKey));
        assert_eq!(ask(keyed(), LOCAL, &[("authorization", "Basic sk-one")]), Err(Refused::NoKey));
        assert_eq!(ask(keyed(), LOCAL, &[("authorization", "Bearer ek_gone")]), Err(Refused::Secret));
    }

    #[test]
    fn without_keys_only_this_machine_is_let_in() {
        assert_eq!(ask(Server::default(), LOCAL, &[("host", "127.0.0.1:8080")]), Ok(Caller::Trusted));
        assert_eq!(ask(Server::default(), "[::1]:9", &[("host", "[::1]:8080")]), Ok(Caller::Trusted));
        assert_eq!(
            ask(Server::default(), "[::ffff:127.0.0.1]:9", &[("host", "localhost")]),
            Ok(Caller::Trusted)
        );
        assert_eq!(ask(Server::default(), FAR, &[("host", "127.0.0.1")]), Err(Refused::Network));
        let open = Server { open_to_network: true, ..Server::default() };
        assert_eq!(ask(open, FAR, &[("host", "192.0.2.1:8080")]), Ok(Caller::Trusted));
        // A key that nobody asked for does no harm.
        let headers = [("host", "localhost:8080"), ("authorization", "Bearer anything")];
        assert_eq!(ask(Server::default(), LOCAL, &headers), Ok(Caller::Trusted));
    }

    #[test]
    fn foreign_names_and_pages_are_refused_without_keys() {
        let host = ("host", "localhost:8080");
        let cases = [
            (vec![("host", "rebound.example:8080")], Err(Refused::Host)),
            (vec![host, ("origin", "http://localhost:8080")], Ok(Caller::Trusted)),
            (vec![host, ("origin", "http://localhost:9999")], Err(Refused::Origin)),
            (vec![host, ("origin", "https://evil.example")], Err(Refused::Origin)),
            (vec![host, ("origin", "null")], Err(Refused::Origin)),
        ];
        for (headers, wanted) in cases {
            assert_eq!(ask(Server::default(), LOCAL, &headers), wanted, "{headers:?}");
        }
        let config = Server {
            allowed_hosts: vec!["Voice.example".to_owned()],
            allowed_origins: vec!["https://app.example".to_owned()],
            ..Server::default()
        };
        let headers = [("host", "voice.example"), ("origin", "https://app.example")];
        assert_eq!(ask(config, LOCAL, &headers), Ok(Caller::Trusted));
    }
}
