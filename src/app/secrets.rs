//! Ephemeral client secrets: made by a server that has a key, given to a
//! browser, good for opening sessions until they expire.
//!
//! Kept in memory as digests, so that a dump of it opens nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rand::Rng as _;
use rand::distr::Alphanumeric;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// How a secret begins.
pub const PREFIX: &str = "ek_";
/// Random characters of a secret: 238 bits.
const LENGTH: usize = 40;

/// Too many are alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} client secrets are alive; wait until some expire")]
pub struct Full(usize);

/// Those that are alive.
#[derive(Debug)]
pub struct Secrets {
    most: usize,
    alive: Mutex<HashMap<[u8; 32], Secret>>,
}

#[derive(Debug)]
struct Secret {
    expires_at: u64,
    session: Value,
}

impl Secrets {
    /// None yet; at most so many.
    pub fn new(most: usize) -> Self {
        Self { most, alive: Mutex::default() }
    }

    /// Makes one for sessions of this configuration; times in Unix seconds.
    ///
    /// # Errors
    /// When too many are alive.
    pub fn make(&self, session: Value, now: u64, seconds: u32) -> Result<(String, u64), Full> {
        let random: String = rand::rng().sample_iter(Alphanumeric).take(LENGTH).map(char::from).collect();
        let value = format!("{PREFIX}{random}");
        let expires_at = now + u64::from(seconds);
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.len() >= self.most {
            alive.retain(|_, secret| secret.expires_at > now);
        }
        if alive.len() >= self.most {
            return Err(Full(alive.len()));
        }
        alive.insert(Sha256::digest(&value).into(), Secret { expires_at, session });
        Ok((value, expires_at))
    }

    /// The configuration of a secret that is alive.
    pub fn find(&self, value: &str, now: u64) -> Option<Value> {
        let digest: [u8; 32] = Sha256::digest(value).into();
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.get(&digest)?.expires_at <= now {
            alive.remove(&digest);
            return None;
        }
        alive.get(&digest).map(|secret| secret.session.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_is_good_until_it_expires_and_more_than_once() {
        let secrets = Secrets::new(10);
        let (value, expires_at) = secrets.make(json!({"a": 1}), 1_000, 60).expect("room");
        assert!(value.starts_with("ek_") && value.len() == 43);
        assert_eq!(expires_at, 1_060);
        assert_eq!(secrets.find(&value, 1_000), Some(json!({"a": 1})));
        assert_eq!(secrets.find(&value, 1_059), Some(json!({"a": 1})));
        assert_eq!(secrets.find(&value, 1_060), None);
        assert_eq!(secrets.find("ek_other", 1_000), None);
    }

    #[test]
    fn there_is_a_limit_and_the_expired_make_room() {
        let secrets = Secrets::new(1);
        secrets.make(json!({}), 0, 10).expect("room");
        assert_eq!(secrets.make(json!({}), 5, 10), Err(Full(1)));
        assert!(secrets.make(json!({}), 10, 10).is_ok());
    }
}
