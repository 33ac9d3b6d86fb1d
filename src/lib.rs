//! Voluble: a real-time voice agent backend.
//!
//! A caller speaks; Voluble hears the end of the turn, transcribes, thinks
//! with an embedded, diffusion-drafted language model and speaks back, over
//! one WebSocket, with barge-in.
//!
//! # The path of a caller's voice
//!
//! The modules below are declared in the order in which a voice passes them:
//!
//! ```text
//!            bytes        commands         cues            words
//!  caller -> transport -> protocol -> session (+ turn) -> stt -+
//!                                        |                     |
//!                                        +<--------------------+
//!                                        |  prompt
//!                                        v
//!                                       llm (-> engine: tokens)
//!                                        |  text
//!                                        v
//!                                       tts -> session -> protocol -> transport -> caller
//!                                            audio     events      bytes
//! ```
//!
//! * [`transport`] moves bytes; it knows no event name and no turn.
//! * [`protocol`] turns bytes into [`session::command::Command`]s and
//!   [`session::event::Event`]s into bytes, without awaiting or keeping
//!   conversation state.
//! * [`session`] is one conversation: a pure machine that decides and a driver
//!   that carries out.
//! * [`turn`] says who holds the floor: voice activity, end of turn, barge-in.
//! * [`stt`], [`llm`] and [`tts`] are the seams to the models; [`engine`] is
//!   the language model itself.
//! * [`app`] is the only place that names concrete implementations.
//!
//! # Time
//!
//! Conversation time is counted in samples heard ([`audio::HEARING_RATE`]);
//! the wall clock is read only for latency figures and time limits. The
//! session machine takes `now` as an argument, so its tests run under virtual
//! time and never sleep.
//!
//! # Speculation
//!
//! When the voice falls, the end of the turn is `Likely`: work may start. When
//! it is `Final`, the work is released; when it is `Retracted` (the caller went
//! on), it is thrown away unheard.
//!
//! # Errors and panics
//!
//! Bad input is an error, shown in the protocol's own shape, and the session
//! lives on. A broken assumption panics and ends one session, never the
//! server; an `expect` says why it cannot fire. Kinds and what follows from
//! them: [`error`].
//!
//! # Who may use what
//!
//! `tests/layering.rs` reads every `crate::` path and fails on one that the
//! table there forbids.

#![deny(rustdoc::broken_intra_doc_links)]
#![warn(clippy::all)]

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
