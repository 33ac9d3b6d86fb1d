//! What is measured: names, recording, the page for Prometheus.
//!
//! Owns: every metric's name and buckets ([`names`]), turning a turn's
//! [`crate::session::event::Timeline`] into values, the exporter ([`export`]).
//! Must not know: how a stage works. Recording costs a map look-up and an
//! atomic addition; before [`Exporter::install`] it does nothing.

pub mod export;
pub mod names;
mod timeline;
pub mod wer;

pub use export::{Exporter, MetricsError};
pub use timeline::{OpenSession, record_answer, record_error, record_refusal, record_turn, session_opened};
