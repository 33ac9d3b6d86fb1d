//! Voluble: a real-time voice agent backend.

pub mod app;
pub mod transport;

pub mod protocol;

pub mod session;
pub mod turn;

pub mod stt;
pub mod llm;
pub mod engine;
pub mod tts;

pub mod audio;
pub mod metrics;
pub mod config;
pub mod models;
pub mod error;
