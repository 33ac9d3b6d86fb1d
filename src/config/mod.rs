//! What the operator may set: a tree of sections, each with its defaults.
//!
//! A section lives in the file of its own name and owns its defaults and the
//! meaning, unit and range of each value. Precedence: flag, environment
//! (`VOLUBLE_<SECTION>_<KEY>`), file, default.

use serde::{Deserialize, Serialize};

pub mod engine;
pub mod llm;
pub mod server;
pub mod session;
pub mod stt;
pub mod tts;
pub mod turn;

/// Everything that can be set, resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: server::Server,
    pub session: session::Session,
    pub turn: turn::Turn,
    pub stt: stt::Stt,
    pub llm: llm::Llm,
    pub engine: engine::Engine,
    pub tts: tts::Tts,
}
