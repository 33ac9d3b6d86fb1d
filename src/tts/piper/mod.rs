//! Piper: VITS voices in ONNX Runtime, phonemes by espeak-ng.
//!
//! A clause is normalised to words and marks ([`crate::tts::normalise`]); each
//! run of words between marks goes to [`espeak`]; the answers, with the marks
//! and spaces between them as Piper learned them, become ids ([`voice`]); the
//! network ([`model`]) gives the sound and how long each id lasts ([`graph`]),
//! so the words' times are the network's own; then the silence at the ends is
//! cut ([`shape`]) and the rate changed.
//!
//! The crate piper-rs was not used: it drops the marks, gives no times, pins
//! another version of ONNX Runtime's bindings and links espeak-ng (GPL-3).

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

use self::espeak::Espeak;
use self::model::{Model, Stop};
use self::voice::{Phoneme, VoiceFile};
use super::normalise::{Language, Token, tokens};
use super::port::PlacedWord;
use super::worker::{Bounds, Job, PlacedPhoneme, Speak, Spoken, Worker};
use super::{SynthesisEvent, SynthesisStream, Synthesizer, TtsError, VoiceOptions};
use crate::audio::SPEAKING_RATE;
use crate::audio::resample::Resampler;
use crate::config::tts::Tts;
use crate::models::Store;
use crate::models::runtime::ensure_onnxruntime;

mod align;
pub mod espeak;
pub mod graph;
pub mod model;
pub mod shape;
pub mod voice;

/// What a voice says once when it is loaded, so that no caller pays for the first run.
const WARM_UP: &str = "All is well, and the first of the callers may speak.";

/// Words whose phonemes are remembered, at most.
const WORDS_KEPT: usize = 4_096;

/// Bounds of the speed that is honoured; others are brought inside.
const SPEEDS: std::ops::RangeInclusive<f32> = 0.25..=4.0;

/// The synthesizer: voices on a thread of their own.
pub struct Piper {
    worker: Worker,
    voices: Vec<String>,
}

impl Piper {
    /// Loads every voice of the settings, speaks once with each, and starts the thread.
    ///
    /// # Errors
    /// When a voice, ONNX Runtime or espeak-ng is missing: one line with the remedy.
    pub fn start(settings: &Tts, store: &Store) -> Result<Self, TtsError> {
        let mut speakers = Speakers::load(settings, store)?;
        speakers.warm_up()?;
        let bounds = Bounds {
            streams: settings.max_streams,
            bytes: settings.max_stream_bytes,
            limits: settings.into(),
        };
        let voices = settings.voices.iter().map(|voice| voice.name.clone()).collect();
        Ok(Self { worker: Worker::start(speakers, bounds)?, voices })
    }
}

impl Synthesizer for Piper {
    fn open(
        &self,
        voice: &VoiceOptions,
        events: mpsc::Sender<SynthesisEvent>,
    ) -> Result<Box<dyn SynthesisStream>, TtsError> {
        self.worker.open(voice, events)
    }

    fn voices(&self) -> Vec<String> {
        self.voices.clone()
    }
}

/// The voices, as the thread drives them.
pub struct Speakers {
    voices: Vec<Speaker>,
    manner: Manner,
}

/// What the settings say of the way of speaking. Pauses in milliseconds.
#[derive(Clone, Copy)]
struct Manner {
    variation: f32,
    sentence: u32,
    comma: u32,
    joint: u32,
}

struct Speaker {
    name: String,
    file: VoiceFile,
    model: Model,
    espeak: Espeak,
    language: Language,
    speaker: i64,
    resampler: Resampler,
    /// Phonemes of words said alone.
    alone: HashMap<String, String>,
}

/// A clause on its way to the network.
struct Script {
    phonemes: Vec<Phoneme>,
    /// Bytes of each word in everything fed.
    words: Vec<(usize, usize)>,
    /// The mark at its end.
    mark: Option<char>,
}

impl Speakers {
    /// Loads every voice of the settings.
    ///
    /// # Errors
    /// As [`Piper::start`].
    pub fn load(settings: &Tts, store: &Store) -> Result<Self, TtsError> {
        let environment = ensure_onnxruntime(store).map_err(|error| TtsError::Model(error.to_string()))?;
        let timeout = Duration::from_millis(settings.espeak_timeout_ms);
        let mut voices = Vec::new();
        for voice in &settings.voices {
            let json: PathBuf = store.path(&voice.model, "voice.onnx.json");
            let text = std::fs::read_to_string(&json).map_err(|error| {
                TtsError::Model(format!(
                    "{}: {error}; run `voluble models pull {}`",
                    json.display(),
                    voice.model
                ))
            })?;
            let file = VoiceFile::parse(&text)
                .map_err(|error| TtsError::Model(format!("{}: {error}", json.display())))?;
            if !(0..file.num_speakers.max(1)).contains(&voice.speaker) {
                return Err(TtsError::Model(format!(
                    "voice '{}' asks for speaker {} of {} (tts.voices)",
                    voice.name, voice.speaker, file.num_speakers
                )));
            }
            let model = Model::load(&store.path(&voice.model, "voice.onnx"), environment, settings.threads)?;
            let espeak = Espeak::start(&settings.espeak, &file.espeak.voice, timeout)?;
            let resampler = Resampler::new(file.audio.sample_rate, SPEAKING_RATE)
                .map_err(|error| TtsError::Model(format!("{}: {error}", json.display())))?;
            voices.push(Speaker {
                name: voice.name.clone(),
                language: Language::of(&file.espeak.voice),
                file,
                model,
                espeak,
                speaker: voice.speaker,
                resampler,
                alone: HashMap::new(),
            });
        }
        if voices.is_empty() {
            return Err(TtsError::Model("no voice is set (tts.voices)".to_owned()));
        }
        let manner = Manner {
            variation: settings.variation,
            sentence: settings.sentence_pause_ms,
            comma: settings.comma_pause_ms,
            joint: settings.joint_pause_ms,
        };
        Ok(Self { voices, manner })
    }

    fn warm_up(&mut self) -> Result<(), TtsError> {
        let manner = self.manner;
        for speaker in &mut self.voices {
            let clause = super::feed::Clause { text: WARM_UP.to_owned(), from: 0, in_code: false };
            let spoken =
                speaker.speak(&Job { clause, voice: VoiceOptions::default(), last: true }, manner)?;
            if spoken.samples.is_empty() {
                return Err(TtsError::Model(format!("voice '{}' makes no sound", speaker.name)));
            }
        }
        Ok(())
    }
}

impl Speak for Speakers {
    fn speak(&mut self, job: &Job) -> Result<Spoken, TtsError> {
        let index = self.voices.iter().position(|voice| voice.name == job.voice.voice).unwrap_or(0);
        self.voices[index].speak(job, self.manner)
    }

    fn recover(&mut self) {
        for voice in &mut self.voices {
            voice.espeak.reset();
            voice.resampler.flush();
        }
    }

    fn stopper(&self) -> Box<dyn Fn() + Send + Sync> {
        let stops: Vec<Stop> = self.voices.iter().map(|voice| voice.model.stop()).collect();
        Box::new(move || stops.iter().for_each(Stop::stop))
    }

    fn ready(&mut self) {
        self.voices.iter_mut().for_each(|voice| voice.model.ready());
    }
}

impl Speaker {
    fn speak(&mut self, job: &Job, manner: Manner) -> Result<Spoken, TtsError> {
        let script = self.script(job)?;
        if script.phonemes.iter().all(|phoneme| phoneme.word.is_none()) {
            return Ok(Spoken::default());
        }
        let ids = self.file.ids(&script.phonemes);
        let speed = if job.voice.speed.is_finite() { job.voice.speed } else { 1.0 };
        let speed = speed.clamp(*SPEEDS.start(), *SPEEDS.end());
        let mut scales = self.file.inference;
        scales.length_scale /= speed;
        scales.noise_scale *= manner.variation;
        scales.noise_w *= manner.variation;
        let mut sound = self.model.run(&ids.ids, scales, self.speaker)?;
        let exact = sound.lengths.is_some();
        let lengths =
            sound.lengths.take().unwrap_or_else(|| shape::even_lengths(sound.samples.len(), ids.ids.len()));

        let rate = self.file.audio.sample_rate;
        let pause_ms = match script.mark {
            // What comes after the last clause is silence anyway.
            _ if job.last => 0,
            Some('.' | '?' | '!') => manner.sentence,
            Some(_) => manner.comma,
            None => manner.joint,
        };
        let pause = (f64::from(rate) * f64::from(pause_ms) / 1_000.0 / f64::from(speed)) as usize;
        let cut = shape::trim(&mut sound.samples, rate, pause);
        let mut samples = self.resampler.push(&sound.samples);
        samples.extend(self.resampler.flush());

        let total = samples.len() as u64;
        let place = |at: usize| {
            let at = at.saturating_sub(cut) as u64;
            (at * u64::from(SPEAKING_RATE) / u64::from(rate)).min(total)
        };
        let word_of = |id: &Option<usize>| id.and_then(|phoneme| script.phonemes[phoneme].word);
        let of: Vec<Option<usize>> = ids.of.iter().map(word_of).collect();
        let words = shape::with_onsets(shape::spans(&lengths, &of, script.words.len()), &lengths, &of)
            .into_iter()
            .zip(&script.words)
            .map(|((start, end), (from, to))| PlacedWord {
                from: *from,
                to: *to,
                start: place(start),
                end: place(end),
            })
            .collect();
        let phonemes = shape::spans(&lengths, &ids.of, script.phonemes.len())
            .into_iter()
            .zip(&script.phonemes)
            .map(|((start, end), phoneme)| PlacedPhoneme {
                symbol: phoneme.symbol,
                start: place(start),
                end: place(end),
            })
            .collect();
        Ok(Spoken { samples, words, phonemes, exact })
    }

    /// The clause's phonemes, with the word of each.
    fn script(&mut self, job: &Job) -> Result<Script, TtsError> {
        // Runs of words, each with the mark after it.
        let mut runs: Vec<(Vec<String>, Option<char>)> = vec![(Vec::new(), None)];
        let mut words = Vec::new();
        for token in tokens(&job.clause.text, job.clause.from, self.language, job.clause.in_code) {
            match token {
                Token::Word { spoken, from, to } => {
                    if runs.last().is_none_or(|(_, mark)| mark.is_some()) {
                        runs.push((Vec::new(), None));
                    }
                    runs.last_mut().expect("one was just made").0.push(spoken);
                    words.push((from, to));
                }
                Token::Mark(mark) => {
                    let (said, last) = runs.last_mut().expect("there is always one");
                    if !said.is_empty() && last.is_none_or(|last| weight(mark) > weight(last)) {
                        *last = Some(mark);
                    }
                }
            }
        }
        let texts: Vec<String> = runs.iter().map(|(said, _)| said.join(" ")).collect();
        let answers = self.espeak.phonemes(&texts.iter().map(String::as_str).collect::<Vec<_>>())?;
        let mut phonemes = Vec::new();
        let mut first = 0;
        for (index, ((said, mark), answer)) in runs.iter().zip(&answers).enumerate() {
            for (symbol, word) in self.owned(said, answer)? {
                phonemes.push(Phoneme { symbol, word: word.map(|word| first + word) });
            }
            first += said.len();
            if said.is_empty() {
                continue;
            }
            phonemes.extend(mark.map(|symbol| Phoneme { symbol, word: None }));
            if index + 1 < runs.len() {
                phonemes.push(Phoneme { symbol: ' ', word: None });
            }
        }
        Ok(Script { phonemes, words, mark: runs.last().and_then(|(_, mark)| *mark) })
    }

    /// The symbols of an answer with the word of each. A word may be said in
    /// several (`$5` is "five dollars").
    fn owned(&mut self, said: &[String], answer: &str) -> Result<Vec<align::Owned>, TtsError> {
        let parts: Vec<(usize, &str)> = said
            .iter()
            .enumerate()
            .flat_map(|(word, spoken)| spoken.split_whitespace().map(move |part| (word, part)))
            .collect();
        let owned = match align::by_groups(answer, parts.len()) {
            Some(owned) => owned,
            None => {
                let alone = self.alone(&parts.iter().map(|(_, part)| *part).collect::<Vec<_>>())?;
                align::by_likeness(answer, &alone)
            }
        };
        let word_of = |part: usize| parts.get(part).map(|(word, _)| *word);
        Ok(owned.into_iter().map(|(symbol, part)| (symbol, part.and_then(word_of))).collect())
    }

    /// The phonemes of each word said alone.
    fn alone(&mut self, words: &[&str]) -> Result<Vec<String>, TtsError> {
        let mut unknown: Vec<&str> =
            words.iter().copied().filter(|word| !self.alone.contains_key(*word)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        if !unknown.is_empty() {
            let answers = self.espeak.phonemes(&unknown)?;
            if self.alone.len() + unknown.len() > WORDS_KEPT {
                let kept = words.iter().filter_map(|word| self.alone.remove_entry(*word)).collect();
                self.alone = kept;
            }
            self.alone.extend(unknown.iter().map(|word| (*word).to_owned()).zip(answers));
        }
        Ok(words.iter().map(|word| self.alone.get(*word).cloned().unwrap_or_default()).collect())
    }
}

/// Of marks that follow each other the heaviest is kept.
fn weight(mark: char) -> u8 {
    match mark {
        '?' => 4,
        '!' => 3,
        '.' => 2,
        _ => 1,
    }
}
