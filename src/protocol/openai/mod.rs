//! OpenAI's protocols.
//!
//! Followed: the `openai-openapi` specification and the official SDKs' types
//! of 2026 (Realtime GA).

pub mod error;
pub mod realtime;
