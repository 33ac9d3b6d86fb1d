//! The turns of recordings, offline: Silero, Smart Turn and the endpoint policy
//! as the driver runs them, without a clock.
//!
//! Each recording is followed by seconds of its own background, so that a turn
//! can end. Prints a table (`cargo test --test all turn::recordings -- --nocapture`).
//! `VOLUBLE_TURN_DIR` takes another folder with `index.tsv` and `turns.tsv`,
//! `VOLUBLE_TURN_SETTINGS` a TOML file of `[turn]` values to try.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use voluble::audio::clock::{Millis, Rate};
use voluble::audio::codec::wav;
use voluble::audio::{HEARING_RATE, VAD_FRAME, resample};
use voluble::config;
use voluble::turn::endpoint::{Cue, Detection, Eagerness, Endpoint, Signal};
use voluble::turn::local::LocalTurnModels;
use voluble::turn::vad::level_db;
use voluble::turn::{AudioTime, TurnModels};

use super::goldens::models;
use crate::common::data_dir;

/// Background before and after a recording.
const LEAD: Millis = Millis(1_000);
const TAIL: Millis = Millis(6_000);
/// From the decision to the first audible sample of the answer, at the least, seconds.
const ANSWER_AUDIBLE: f64 = 0.6;
/// Padding before the voice in both kinds of detection, seconds.
const PADDING: f64 = 0.3;
/// What a completion score takes until its answer is there, in frames.
const SCORE_FRAMES: usize = 3;

/// A recording and what was marked in it, seconds.
struct Marked {
    name: String,
    kind: String,
    samples: Vec<f32>,
    speech: Option<(f64, f64)>,
    /// Pauses of more than a breath: a turn may end in them.
    longer_pauses: Vec<(f64, f64)>,
}

/// What happened to it; seconds in the recording's own time.
#[derive(Default)]
struct Heard {
    starts: Vec<(f64, f64)>,
    /// Decision, last voiced sample.
    ends: Vec<(f64, f64)>,
    likely: usize,
    retracted: usize,
    scores: Vec<(f64, f32)>,
}

fn folder() -> PathBuf {
    std::env::var_os("VOLUBLE_TURN_DIR").map_or_else(|| data_dir().join("speech"), PathBuf::from)
}

fn settings() -> config::turn::Turn {
    let Some(path) = std::env::var_os("VOLUBLE_TURN_SETTINGS") else { return config::turn::Turn::default() };
    let text = std::fs::read_to_string(&path).expect("the settings file is readable");
    toml::from_str(&text).expect("the settings file holds [turn] values")
}

fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn spans(text: &str) -> Vec<(f64, f64)> {
    text.split(',')
        .filter_map(|span| span.split_once('-'))
        .filter_map(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)))
        .collect()
}

fn marked(folder: &Path) -> Vec<Marked> {
    let turns: BTreeMap<String, Vec<String>> =
        rows(&folder.join("turns.tsv")).into_iter().map(|row| (row[0].clone(), row)).collect();
    rows(&folder.join("index.tsv"))
        .into_iter()
        .map(|row| {
            let recording =
                wav::read(&folder.join(&row[0])).unwrap_or_else(|error| panic!("{}: {error}", row[0]));
            let samples = resample::convert(&recording.samples, recording.rate, HEARING_RATE)
                .unwrap_or_else(|error| panic!("{}: {error}", row[0]));
            let turn = turns.get(&row[0]);
            let number = |at: usize| turn.and_then(|turn| turn[at].parse().ok());
            Marked {
                name: row[0].clone(),
                kind: row[4].clone(),
                samples,
                speech: number(1).zip(number(2)),
                longer_pauses: turn.map(|turn| spans(&turn[4])).unwrap_or_default(),
            }
        })
        .collect()
}

/// So much of the recording's quietest stretch, forwards and backwards in turn so that it does not click.
fn background(samples: &[f32], length: AudioTime) -> Vec<f32> {
    let piece = 3_200.min(samples.len());
    let quietest = (0..=(samples.len() - piece) / 400)
        .map(|step| &samples[step * 400..step * 400 + piece])
        .min_by(|a, b| level_db(a).total_cmp(&level_db(b)))
        .expect("there is at least one piece");
    let round: Vec<f32> = quietest.iter().chain(quietest.iter().rev()).copied().collect();
    round.into_iter().cycle().take(length as usize).collect()
}

fn hear(
    models: &LocalTurnModels,
    marked: &Marked,
    detection: Detection,
    settings: &config::turn::Turn,
) -> Heard {
    let mut audio = background(&marked.samples, LEAD.heard());
    audio.extend(&marked.samples);
    audio.extend(background(&marked.samples, TAIL.heard()));
    let mut voice = models.voice_activity().expect("the model loads");
    let completion = models.completion();
    let mut policy = Endpoint::new(detection, settings);
    let mut heard = Heard::default();
    let mut answers: Vec<(usize, Cue)> = Vec::new();
    let seconds = |at: AudioTime| Rate::HEARING.seconds(at) - LEAD.0 as f64 / 1000.0;
    for (index, frame) in audio.chunks_exact(VAD_FRAME).enumerate() {
        let now = ((index + 1) * VAD_FRAME) as AudioTime;
        let score = voice.score(frame).expect("the model runs");
        let mut signals = policy.on(Cue::Frame { end: now, voice: score, level_db: level_db(frame) });
        let (due, later) = answers.into_iter().partition(|(at, _)| *at <= index);
        answers = later;
        for (_, cue) in due {
            signals.extend(policy.on(cue));
        }
        for signal in signals {
            match signal {
                Signal::Started { start, .. } => heard.starts.push((seconds(now), seconds(start))),
                Signal::Likely { .. } => heard.likely += 1,
                Signal::Retracted => heard.retracted += 1,
                Signal::Final { speech_end, .. } => heard.ends.push((seconds(now), seconds(speech_end))),
                Signal::AskCompletion { asked, audio: span } => {
                    let probability = completion
                        .score(&audio[span.start as usize..span.end as usize])
                        .expect("the model runs");
                    heard.scores.push((seconds(now), probability));
                    answers.push((index + SCORE_FRAMES, Cue::Completion { asked, probability }));
                }
            }
        }
    }
    heard
}

impl Marked {
    /// Ends decided while the speaker was not done, outside the longer pauses.
    fn premature(&self, heard: &Heard) -> usize {
        let Some((_, speech_end)) = self.speech else { return 0 };
        let allowed = |at: f64| self.longer_pauses.iter().any(|(from, to)| (*from..*to).contains(&at));
        heard.ends.iter().filter(|(at, _)| *at < speech_end - 0.05 && !allowed(*at)).count()
    }

    /// Whether the speaker went on after an end so late that the answer would have begun.
    fn noticed(&self, heard: &Heard) -> bool {
        let Some((_, speech_end)) = self.speech else { return false };
        heard.ends.iter().any(|(at, _)| {
            let resumed = heard.starts.iter().map(|(_, from)| *from + PADDING).find(|from| from > at);
            *at < speech_end - 0.05 && resumed.is_some_and(|from| from - at > ANSWER_AUDIBLE)
        })
    }

    /// From the marked end of speech to the decision, seconds; `None` when there is none.
    fn delay(&self, heard: &Heard) -> Option<f64> {
        let (_, speech_end) = self.speech?;
        heard.ends.iter().map(|(at, _)| at - speech_end).find(|delay| *delay >= -0.05)
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn table(models: &LocalTurnModels, recordings: &[Marked], detection: Detection) -> Summary {
    let settings = settings();
    let mut summary = Summary::default();
    let mut text = String::new();
    for marked in recordings {
        let heard = hear(models, marked, detection, &settings);
        let premature = marked.premature(&heard);
        let delay = marked.delay(&heard);
        let first = heard.starts.first().copied();
        writeln!(
            text,
            "{:<32} {:<7} starts {:>2} ends {:>2} premature {premature:>2} delay {:>6} onset {:>6} likely {:>2} {}",
            marked.name,
            marked.kind,
            heard.starts.len(),
            heard.ends.len(),
            delay.map_or_else(|| "-".to_owned(), |delay| format!("{:.0}", delay * 1000.0)),
            // Where the kept audio begins, before the marked start.
            first
                .zip(marked.speech)
                .map_or_else(|| "-".to_owned(), |(first, speech)| format!("{:.0}", (first.1 - speech.0) * 1000.0)),
            heard.likely,
            heard.scores.iter().map(|(at, p)| format!("{at:.2}:{p:.2}")).collect::<Vec<_>>().join(" "),
        )
        .expect("a string takes all");
        if marked.kind == "noise" {
            summary.noise_starts += heard.starts.len();
            continue;
        }
        if marked.kind == "long" {
            continue;
        }
        summary.turns += 1;
        summary.cut += usize::from(premature > 0);
        summary.noticed += usize::from(marked.noticed(&heard));
        if marked.kind == "speech" {
            summary.speech += 1;
            summary.cut_speech += usize::from(premature > 0);
        }
        summary.unheard += usize::from(first.is_none());
        summary.late_onset +=
            usize::from(first.zip(marked.speech).is_some_and(|(first, speech)| first.1 > speech.0 + 0.05));
        summary.delays.extend(delay);
    }
    println!("{text}");
    let mut delays = summary.delays.clone();
    println!(
        "{detection:?}\n{} turns, {} cut ({} noticed; {} of {} without a pause), {} unheard, {} begun late, {} starts on noise, median delay {:.0} ms, P90 {:.0} ms",
        summary.turns,
        summary.cut,
        summary.noticed,
        summary.cut_speech,
        summary.speech,
        summary.unheard,
        summary.late_onset,
        summary.noise_starts,
        median(&mut delays) * 1000.0,
        delays.get(delays.len() * 9 / 10).copied().unwrap_or(f64::NAN) * 1000.0,
    );
    summary
}

#[derive(Default)]
struct Summary {
    turns: usize,
    /// Turns ended before their end.
    cut: usize,
    /// Those whose speaker went on only when the answer would have been audible.
    noticed: usize,
    /// Turns without a pause of 0.4 s, and how many of them were cut.
    speech: usize,
    cut_speech: usize,
    unheard: usize,
    /// Turns whose kept audio begins after the marked start.
    late_onset: usize,
    noise_starts: usize,
    delays: Vec<f64>,
}

/// What the policy is to reach on the recordings that ship with the repository. A pause of half a second
/// between two sentences cannot be told from the end of a turn; such recordings (`pause`,
/// `digits`) count by what the caller would notice: [`Marked::noticed`].
#[test]
fn recordings_are_turns() {
    let models = models();
    let recordings = marked(&folder());
    let semantic = table(&models, &recordings, Detection::Semantic { eagerness: Eagerness::Auto });
    assert_eq!(semantic.unheard, 0);
    assert_eq!(semantic.late_onset, 0);
    assert!(semantic.turns >= 10);
    assert_eq!(semantic.delays.len(), semantic.turns, "every turn ends");
    assert!(semantic.cut_speech * 20 <= semantic.speech, "{} of {}", semantic.cut_speech, semantic.speech);
    assert!(semantic.noticed * 20 <= semantic.turns, "{} of {}", semantic.noticed, semantic.turns);
    assert!(semantic.noise_starts <= 1, "{} starts on noise", semantic.noise_starts);
    let silence = Detection::Silence { threshold: 0.5, prefix_padding: Millis(300), silence: Millis(500) };
    let plain = table(&models, &recordings, silence);
    assert_eq!((plain.unheard, plain.late_onset), (0, 0));
}
