//! `voluble bench turn`: what a caller would feel, measured over the public
//! protocol against a running server.
//!
//! Each recording is streamed in real time as a microphone would, then a hiss
//! at the recording's own noise floor until the answer has ended. The gap is
//! counted from the last audible sample of the input, at the moment when a
//! microphone would have delivered it, to the first audible sample of the
//! answer, at the moment when it could have been played.

mod call;
mod recording;
mod report;

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use indicatif::{ProgressBar, ProgressStyle};

pub use call::{Call, CallError, CallOptions};
pub use recording::{Kind, Recording};
pub use report::{Report, Row};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's realtime endpoint, `ws://host:port/v1/realtime`.
    pub url: String,
    /// Folder with `*.wav`, and optionally `index.tsv` and `turns.tsv` beside them.
    pub dir: PathBuf,
    /// Callers at once.
    pub callers: usize,
    /// Only recordings whose name contains one of these; empty: all.
    pub only: Vec<String>,
    /// Times each recording is called.
    pub repeat: usize,
    /// Where the report goes as JSON.
    pub json: Option<PathBuf>,
    /// `server_vad` or `semantic_vad`.
    pub turn_detection: String,
    /// API key, where the server asks for one.
    pub key: Option<String>,
}

/// Why the bench could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A recording or table that cannot be read: names the file.
    #[error("{0}")]
    Input(String),
    /// The server could not be reached at all.
    #[error("{0}")]
    Server(#[from] CallError),
    /// The report could not be written.
    #[error("{path}: {source}")]
    Output {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Runs the bench, prints the table to stdout (progress on stderr) and returns the report.
///
/// # Errors
/// When no recording can be read, the server is not there, or the report cannot be written. A single
/// call that fails is a row of the report, not an error.
pub async fn turn(options: &Options) -> Result<Report, BenchError> {
    let recordings = recording::load(&options.dir, &options.only)?;
    let jobs: VecDeque<Arc<Recording>> = recordings
        .iter()
        .flat_map(|recording| std::iter::repeat_n(recording.clone(), options.repeat.max(1)))
        .collect();
    let call_options = CallOptions {
        url: options.url.clone(),
        key: options.key.clone(),
        turn_detection: options.turn_detection.clone(),
    };
    call::probe(&call_options).await?;

    let bar = ProgressBar::new(jobs.len() as u64);
    bar.set_style(
        ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} {msg}")
            .expect("the template is a constant that parses"),
    );
    let queue = Arc::new(Mutex::new(jobs));
    let rows = Arc::new(Mutex::new(Vec::new()));
    let callers = (0..options.callers.max(1)).map(|_| {
        let (queue, rows, bar, call_options) =
            (queue.clone(), rows.clone(), bar.clone(), call_options.clone());
        async move {
            loop {
                let next = queue.lock().expect("no caller panics while it holds the queue").pop_front();
                let Some(recording) = next else { break };
                bar.set_message(recording.name.clone());
                let row = match Call::run(&call_options, &recording).await {
                    Ok(call) => Row::of(&recording, &call),
                    Err(error) => Row::failed(&recording, &error),
                };
                rows.lock().expect("no caller panics while it holds the rows").push(row);
                bar.inc(1);
            }
        }
    });
    futures_util::future::join_all(callers).await;
    bar.finish_and_clear();

    let mut rows = std::mem::take(&mut *rows.lock().expect("every caller has ended"));
    rows.sort_by(|a, b| a.file.cmp(&b.file));
    let report = Report::new(options.callers.max(1), rows);
    let mut out = std::io::stdout().lock();
    let written = write!(out, "{report}").and_then(|()| out.flush());
    written.map_err(|source| BenchError::Output { path: "stdout".into(), source })?;
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).expect("a report is plain data");
        std::fs::write(path, text).map_err(|source| BenchError::Output { path: path.clone(), source })?;
    }
    Ok(report)
}
