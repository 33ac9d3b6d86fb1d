//! Recordings and what is known about them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::BenchError;
use crate::audio::SPEAKING_RATE;
use crate::audio::codec::wav;
use crate::audio::resample::Resampler;

/// What a recording holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody addresses the agent.
    Speech,
    /// Nobody does: no turn must come of it.
    Noise,
}

/// One recording, ready to be streamed.
#[derive(Clone, Debug)]
pub struct Recording {
    /// File name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// Mono samples at 24 kHz, as they go over the wire.
    pub samples: Vec<f32>,
    /// First and last audible sample of speech, in seconds.
    pub speech: Option<(f64, f64)>,
    /// Silences inside, over 1.5 s, in seconds: a turn may end in one.
    pub long_pauses: Vec<(f64, f64)>,
    /// What is said, where it is known.
    pub transcript: Option<String>,
    /// Root mean square of the quietest tenth of its 20 ms windows.
    pub floor: f32,
}

/// Reads every `*.wav` of `dir` (sorted by name), with what `index.tsv` and `turns.tsv` say.
pub fn load(dir: &Path, only: &[String]) -> Result<Vec<Arc<Recording>>, BenchError> {
    let input = |what: String| BenchError::Input(what);
    let index = table(&dir.join("index.tsv"))?;
    let turns = table(&dir.join("turns.tsv"))?;
    let entries = std::fs::read_dir(dir).map_err(|error| input(format!("{}: {error}", dir.display())))?;
    let mut paths: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("wav")))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
        })
        .collect();
    paths.sort();
    if paths.is_empty() {
        return Err(input(format!(
            "{}: no WAV file{}",
            dir.display(),
            if only.is_empty() { "" } else { " of that name" }
        )));
    }
    paths.iter().map(|path| read(path, &index, &turns).map(Arc::new)).collect()
}

type Table = HashMap<String, HashMap<String, String>>;

/// A tab-separated table keyed by its `file` column; empty when the file is not there.
fn table(path: &Path) -> Result<Table, BenchError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Table::new()),
        Err(error) => return Err(BenchError::Input(format!("{}: {error}", path.display()))),
    };
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let mut rows = Table::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let row: HashMap<String, String> = names
            .iter()
            .zip(line.split('\t'))
            .map(|(name, value)| ((*name).to_owned(), value.to_owned()))
            .collect();
        let Some(file) = row.get("file") else {
            return Err(BenchError::Input(format!("{}: no column 'file'", path.display())));
        };
        rows.insert(file.clone(), row);
    }
    Ok(rows)
}

fn read(path: &Path, index: &Table, turns: &Table) -> Result<Recording, BenchError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bad = |why: &dyn std::fmt::Display| BenchError::Input(format!("{}: {why}", path.display()));
    let wav = wav::read(path).map_err(|error| bad(&error))?;
    let mut resampler = Resampler::new(wav.rate, SPEAKING_RATE).map_err(|error| bad(&error))?;
    let mut samples = resampler.push(&wav.samples);
    samples.extend(resampler.flush());
    let known = index.get(&name);
    let kind = match known.and_then(|row| row.get("kind")) {
        Some(kind) if kind == "noise" => Kind::Noise,
        None if name.starts_with("noise-") || name.starts_with("silence-") => Kind::Noise,
        _ => Kind::Speech,
    };
    let levels = levels(&samples);
    let mut sorted = levels.clone();
    sorted.sort_by(f32::total_cmp);
    let floor = sorted.get(sorted.len() / 10).copied().unwrap_or(0.0);
    let row = turns.get(&name);
    let seconds = |key: &str| row.and_then(|row| row.get(key)).and_then(|value| value.parse::<f64>().ok());
    let speech = match (kind, seconds("speech_start"), seconds("speech_end")) {
        (Kind::Noise, ..) => None,
        (_, Some(start), Some(end)) => Some((start, end)),
        _ => audible(&levels, floor),
    };
    let transcript = known.and_then(|row| row.get("transcript")).filter(|text| !text.is_empty()).cloned();
    let long_pauses = row.and_then(|row| row.get("longer_pauses")).map_or_else(Vec::new, |text| spans(text));
    Ok(Recording { name, kind, samples, speech, long_pauses, transcript, floor })
}

/// `a-b,c-d` in seconds; `-` is none.
fn spans(text: &str) -> Vec<(f64, f64)> {
    text.split(',')
        .filter_map(|span| span.split_once('-'))
        .filter_map(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)))
        .collect()
}

const WINDOW: usize = SPEAKING_RATE as usize / 50;

/// Root mean square of each 20 ms.
fn levels(samples: &[f32]) -> Vec<f32> {
    samples
        .chunks(WINDOW)
        .map(|chunk| (chunk.iter().map(|sample| sample * sample).sum::<f32>() / chunk.len() as f32).sqrt())
        .collect()
}

/// First and last window above the middle (in decibels) between floor and peak, widened to a tenth of the peak.
fn audible(levels: &[f32], floor: f32) -> Option<(f64, f64)> {
    let peak = levels.iter().copied().fold(0.0f32, f32::max);
    let threshold = (peak * floor.max(1e-5)).sqrt().clamp(peak * 0.02, peak * 0.1);
    let first = levels.iter().position(|level| *level > threshold)?;
    let last = levels.iter().rposition(|level| *level > threshold)?;
    Some((first as f64 * 0.02, (last + 1) as f64 * 0.02))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        assert_eq!(spans("0.79-3.05,4-5"), [(0.79, 3.05), (4.0, 5.0)]);
        assert!(spans("-").is_empty());
    }

    #[test]
    fn the_speech_is_found_by_level() {
        let mut levels = vec![0.001; 100];
        levels[20..50].fill(0.2);
        let (start, end) = audible(&levels, 0.001).expect("there is speech");
        assert!((start - 0.4).abs() < 1e-9 && (end - 1.0).abs() < 1e-9, "{start} {end}");
    }
}
