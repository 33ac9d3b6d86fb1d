//! What the calls add up to: rows, percentiles, a table, JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::call::{Call, CallError};
use super::recording::{Kind, Recording};
use crate::metrics::wer;

/// A turn that ends this much before the last sample of speech was cut short: soft last sounds are marked
/// up to 0.1 s late, and a server may leave them out.
const SLACK: f64 = 0.3;

/// One call in the report.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// File name of the recording.
    pub file: String,
    /// Whether it must stay unanswered.
    pub noise: bool,
    /// From the last audible input sample to the first audible output sample.
    pub gap_ms: Option<f64>,
    /// Turns that the server took.
    pub turns: usize,
    /// Responses that it began.
    pub responses: usize,
    /// Responses more than turns with words.
    pub double_answers: usize,
    /// Turns that ended inside the utterance.
    pub premature: usize,
    /// Wrong words and words in the reference.
    pub word_errors: Option<(usize, usize)>,
    /// What was understood.
    pub heard: String,
    /// What was answered.
    pub said: String,
    /// Stage name to ms after the end of speech, of the turn that was measured.
    pub stages: BTreeMap<String, f64>,
    /// Errors, the call's own included.
    pub errors: Vec<String>,
}

impl Row {
    /// The row of a call that was made.
    pub fn of(recording: &Recording, call: &Call) -> Self {
        let heard = call.transcripts.join(" ");
        let cut_short = |at: f64| {
            recording.speech.is_some_and(|(start, end)| at > start && at < end - SLACK)
                && !recording.long_pauses.iter().any(|(start, end)| at > start - SLACK && at < *end)
        };
        let premature = call.ends.iter().filter(|end| cut_short(end.at)).count();
        // The answer is the first audible one that began after the speech had ended.
        let gap_ms = recording.speech.and_then(|(_, end)| {
            call.audible.iter().copied().find(|at| *at > end - SLACK).map(|at| (at - end) * 1000.0)
        });
        let stages = call
            .timelines
            .last()
            .and_then(|timeline| timeline.as_object())
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.strip_suffix("_ms")?.to_owned(), value.as_f64()?)))
            .collect();
        let word_errors = recording.transcript.as_ref().map(|reference| {
            let rate = wer::word_errors(reference, &heard);
            (rate.errors, rate.words)
        });
        Self {
            file: recording.name.clone(),
            noise: recording.kind == Kind::Noise,
            gap_ms,
            turns: call.transcripts.len(),
            responses: call.created.len(),
            double_answers: call.created.len().saturating_sub(call.transcripts.len()),
            premature,
            word_errors: word_errors.filter(|_| recording.kind == Kind::Speech),
            heard,
            said: call.said.clone(),
            stages,
            errors: call.errors.clone(),
        }
    }

    /// The row of a call that could not be made or was cut.
    pub fn failed(recording: &Recording, error: &CallError) -> Self {
        let mut row = Self::of(recording, &Call::default());
        row.errors.push(error.to_string());
        row
    }
}

/// Percentiles of the gap, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Values behind them.
    pub count: usize,
    /// Median.
    pub p50: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// Nineteen of twenty are below.
    pub p95: f64,
    /// The worst.
    pub max: f64,
}

impl Percentiles {
    /// Nearest-rank percentiles; all zero for no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let index = (share * values.len() as f64).ceil() as usize;
            values.get(index.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self { count: values.len(), p50: rank(0.5), p90: rank(0.9), p95: rank(0.95), max: rank(1.0) }
    }
}

/// The whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Callers at once.
    pub callers: usize,
    /// Recordings with speech that were called.
    pub speech: usize,
    /// Of these, answered audibly.
    pub answered: usize,
    /// Answers beyond one a turn.
    pub double_answers: usize,
    /// Turns cut inside the utterance.
    pub premature: usize,
    /// Recordings of noise.
    pub noise: usize,
    /// Of these, how many were taken for a turn with words or were answered.
    pub noise_turns: usize,
    /// Wrong words / reference words over all recordings with a transcript.
    pub word_error: Option<f64>,
    /// The gap.
    pub gap_ms: Percentiles,
    /// Each stage, ms after the end of speech as the server saw it.
    pub stages_ms: BTreeMap<String, Percentiles>,
    /// Calls that failed or in which the server sent an error.
    pub failed: usize,
    /// One a call.
    pub rows: Vec<Row>,
}

impl Report {
    /// Adds the rows up.
    pub fn new(callers: usize, rows: Vec<Row>) -> Self {
        let speech: Vec<&Row> = rows.iter().filter(|row| !row.noise).collect();
        let noise: Vec<&Row> = rows.iter().filter(|row| row.noise).collect();
        let (errors, words) = speech
            .iter()
            .filter_map(|row| row.word_errors)
            .fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
        let mut stages: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (name, value) in speech.iter().flat_map(|row| &row.stages) {
            stages.entry(name.clone()).or_default().push(*value);
        }
        Self {
            callers,
            speech: speech.len(),
            answered: speech.iter().filter(|row| row.gap_ms.is_some()).count(),
            double_answers: rows.iter().map(|row| row.double_answers).sum(),
            premature: speech.iter().map(|row| row.premature).sum(),
            noise: noise.len(),
            noise_turns: noise.iter().filter(|row| row.turns > 0 || row.responses > 0).count(),
            word_error: (words > 0).then(|| errors as f64 / words as f64),
            gap_ms: Percentiles::of(speech.iter().filter_map(|row| row.gap_ms)),
            stages_ms: stages.into_iter().map(|(name, values)| (name, Percentiles::of(values))).collect(),
            failed: rows.iter().filter(|row| !row.errors.is_empty()).count(),
            rows,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.file.len()).max().unwrap_or(4).max(4);
        writeln!(
            f,
            "{:width$}  {:>7}  {:>5}  {:>7}  {:>5}  {:>9}  heard",
            "file", "gap ms", "turns", "answers", "early", "wrong"
        )?;
        for row in &self.rows {
            let gap = row.gap_ms.map_or_else(|| "-".to_owned(), |gap| format!("{gap:.0}"));
            let wrong =
                row.word_errors.map_or_else(|| "-".to_owned(), |(errors, words)| format!("{errors}/{words}"));
            let file = &row.file;
            writeln!(
                f,
                "{file:width$}  {gap:>7}  {:>5}  {:>7}  {:>5}  {wrong:>9}  {}",
                row.turns, row.responses, row.premature, row.heard
            )?;
            for error in &row.errors {
                writeln!(f, "{:width$}  error: {error}", "")?;
            }
        }
        writeln!(f)?;
        writeln!(f, "{:16} {:>5}  {:>7}  {:>7}  {:>7}  {:>7}", "ms", "n", "P50", "P90", "P95", "max")?;
        line(f, "gap", self.gap_ms)?;
        let mut stages: Vec<_> = self.stages_ms.iter().filter(|(name, _)| *name != "speech").collect();
        stages.sort_by(|a, b| a.1.p50.total_cmp(&b.1.p50));
        for (name, percentiles) in stages {
            line(f, name, *percentiles)?;
        }
        writeln!(f)?;
        writeln!(f, "callers at once  {}", self.callers)?;
        writeln!(f, "answered         {} of {}", self.answered, self.speech)?;
        writeln!(f, "double answers   {}", self.double_answers)?;
        writeln!(f, "cut too early    {}", self.premature)?;
        writeln!(f, "turns on noise   {} of {}", self.noise_turns, self.noise)?;
        match self.word_error {
            Some(rate) => writeln!(f, "word error       {:.1} %", rate * 100.0)?,
            None => writeln!(f, "word error       - (no index.tsv with transcripts)")?,
        }
        writeln!(f, "calls with error {}", self.failed)
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, p: Percentiles) -> fmt::Result {
    writeln!(f, "{name:16} {:>5}  {:>7.0}  {:>7.0}  {:>7.0}  {:>7.0}", p.count, p.p50, p.p90, p.p95, p.max)
}

#[cfg(test)]
mod tests {
    use super::super::call::End;
    use super::*;

    fn recording() -> Recording {
        Recording {
            name: "a.wav".into(),
            kind: Kind::Speech,
            samples: Vec::new(),
            speech: Some((0.5, 4.0)),
            long_pauses: vec![(1.0, 3.0)],
            transcript: Some("one two three".into()),
            floor: 0.0,
        }
    }

    #[test]
    fn the_gap_is_of_the_answer_after_the_speech() {
        let call = Call {
            created: vec![2.0, 4.5],
            audible: vec![2.5, 4.9],
            transcripts: vec!["one".into(), "two three".into()],
            ends: vec![End { at: 1.2 }, End { at: 4.0 }],
            ..Call::default()
        };
        let row = Row::of(&recording(), &call);
        assert!((row.gap_ms.expect("answered") - 900.0).abs() < 1e-6);
        assert_eq!(row.premature, 0, "an end inside a long pause is allowed");
        assert_eq!(row.double_answers, 0);
        assert_eq!(row.word_errors, Some((0, 3)));
    }

    #[test]
    fn an_end_inside_the_words_is_premature_and_a_second_answer_is_double() {
        let call = Call {
            created: vec![3.6, 4.5],
            audible: vec![f64::NAN, 4.5],
            transcripts: vec!["one two".into()],
            ends: vec![End { at: 3.4 }],
            ..Call::default()
        };
        let row = Row::of(&recording(), &call);
        assert_eq!((row.premature, row.double_answers), (1, 1));
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let p = Percentiles::of((1..=20).map(f64::from));
        assert_eq!((p.p50, p.p90, p.p95, p.max), (10.0, 18.0, 19.0, 20.0));
        assert_eq!(Percentiles::of([]).count, 0);
    }

    #[test]
    fn a_noise_answer_is_counted() {
        let noise = Recording { kind: Kind::Noise, speech: None, transcript: None, ..recording() };
        let call = Call { created: vec![1.0], ..Call::default() };
        let report = Report::new(1, vec![Row::of(&noise, &call)]);
        assert_eq!((report.noise_turns, report.speech), (1, 0));
        assert!(report.to_string().contains("turns on noise   1 of 1"));
    }
}
