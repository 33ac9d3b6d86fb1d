//! Silero and Smart Turn against Python's onnxruntime and pipecat's feature
//! extractor (`reference/make_goldens.py`).

use std::time::Instant;

use voluble::audio::VAD_FRAME;
use voluble::audio::codec::wav;
use voluble::config::turn::Turn;
use voluble::models::Store;
use voluble::turn::TurnModels;
use voluble::turn::local::LocalTurnModels;
use voluble::turn::semantic::{BANDS, FRAMES, Features};

use crate::common::data_dir;

#[derive(serde::Deserialize)]
struct Goldens {
    completion: Vec<CompletionRow>,
    voice: Vec<VoiceRow>,
}

#[derive(serde::Deserialize)]
struct CompletionRow {
    file: String,
    start: usize,
    end: usize,
    probability: f32,
    /// `(band, frame, value)` of the features.
    probes: Vec<(usize, usize, f32)>,
}

#[derive(serde::Deserialize)]
struct VoiceRow {
    file: String,
    scores: Vec<f32>,
}

fn goldens() -> Goldens {
    let path = data_dir().join("turn/goldens.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("the goldens are JSON")
}

pub fn models() -> LocalTurnModels {
    LocalTurnModels::load(&Store::default(), &Turn::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn recording(file: &str) -> Vec<f32> {
    let recording =
        wav::read(&data_dir().join("speech").join(file)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(recording.rate, 16_000, "{file}");
    recording.samples
}

#[test]
fn completion_equals_the_reference() {
    let models = models();
    let completion = models.completion();
    let rows = goldens().completion;
    assert!(rows.len() >= 8);
    for row in rows {
        let audio = &recording(&row.file)[row.start..row.end];
        let features = Features::new().extract(audio);
        for (band, frame, value) in row.probes {
            let got = features[band * FRAMES + frame];
            assert!((got - value).abs() < 1e-3, "{} band {band} frame {frame}: {got}, not {value}", row.file);
        }
        let got = completion.score(audio).expect("the model runs");
        println!("{got:.6} {:.6} {}", row.probability, row.file);
        assert!((got - row.probability).abs() < 1e-3, "{}: {got}, not {}", row.file, row.probability);
    }
}

#[test]
fn voice_equals_the_reference() {
    let models = models();
    for row in goldens().voice {
        let mut voice = models.voice_activity().expect("the model loads");
        let audio = recording(&row.file);
        let scores: Vec<f32> =
            audio.chunks_exact(VAD_FRAME).map(|frame| voice.score(frame).expect("the model runs")).collect();
        assert_eq!(scores.len(), row.scores.len(), "{}", row.file);
        for (frame, (got, wanted)) in scores.iter().zip(&row.scores).enumerate() {
            assert!((got - wanted).abs() < 1e-3, "{} frame {frame}: {got}, not {wanted}", row.file);
        }
        voice.reset();
        let again: Vec<f32> =
            audio.chunks_exact(VAD_FRAME).map(|frame| voice.score(frame).expect("the model runs")).collect();
        assert_eq!(again, scores, "{}: a reset scorer starts anew", row.file);
    }
}

#[test]
fn a_frame_of_another_size_is_refused() {
    let mut voice = models().voice_activity().expect("the model loads");
    let error = voice.score(&[0.0; 100]).expect_err("100 samples are no frame").to_string();
    assert!(error.contains("512"), "{error}");
}

/// What one score costs; printed, not judged (`cargo test --release -- --nocapture the_cost`).
#[test]
fn the_cost_of_one_score_is_known() {
    let started = Instant::now();
    let models = models();
    let load = started.elapsed();
    let audio = recording("noise-music.wav");
    let features = Features::new();
    let started = Instant::now();
    let rounds = 5;
    for _ in 0..rounds {
        assert_eq!(features.extract(&audio).len(), BANDS * FRAMES);
    }
    let extract = started.elapsed() / rounds;
    let completion = models.completion();
    let started = Instant::now();
    for _ in 0..rounds {
        assert!(completion.score(&audio).is_ok());
    }
    let score = started.elapsed() / rounds;
    let started = Instant::now();
    let mut voice = models.voice_activity().expect("the model loads");
    let open = started.elapsed();
    let started = Instant::now();
    let mut frames = 0;
    for frame in audio.chunks_exact(VAD_FRAME) {
        assert!(voice.score(frame).is_ok());
        frames += 1;
    }
    println!(
        "load {load:.1?}; features of 8 s {extract:.1?}; completion {score:.1?}; voice scorer {open:.1?}, frame {:.1?}",
        started.elapsed() / frames
    );
}
