//! The one integration binary: one link step for all.
//!
//! Each module below is one area; what belongs there is said in its first lines.

mod cli;
mod common;
mod engine;
mod layering;
mod llm;
mod protocol;
mod server;
mod session;
mod setup;
mod tts;
mod turn;
