//! Whisper over the recordings of `tests/data/speech`: the right words, none
//! where none were said, and the contract of a stream. One recogniser serves
//! all tests, as it does all sessions.

mod recordings;
mod stream;

use std::path::Path;
use std::sync::OnceLock;

use tokio::sync::mpsc;
use voluble::audio::HEARING_RATE;
use voluble::audio::codec::wav;
use voluble::audio::resample;
use voluble::config::stt::Stt;
use voluble::models::Store;
use voluble::stt::{
    RecognitionEvent, RecognitionOptions, RecognitionStream, Recognizer, Transcript, Whisper,
};

use crate::common::data_dir;

/// One row of `index.tsv`.
pub struct Recording {
    pub file: String,
    pub language: String,
    pub kind: String,
    pub transcript: String,
}

impl Recording {
    pub fn samples(&self) -> Vec<f32> {
        read(&data_dir().join("speech").join(&self.file))
    }
}

/// A recording at the rate of hearing.
pub fn read(path: &Path) -> Vec<f32> {
    let wav = wav::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    resample::convert(&wav.samples, wav.rate, HEARING_RATE).expect("the recordings have common rates")
}

pub fn recordings() -> Vec<Recording> {
    let path = data_dir().join("speech/index.tsv");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let row = |line: &str| {
        let field: Vec<&str> = line.split('\t').collect();
        Recording {
            file: field[0].to_owned(),
            language: field[3].split('-').next().unwrap_or_default().to_owned(),
            kind: field[4].to_owned(),
            transcript: field[5].to_owned(),
        }
    };
    text.lines().skip(1).map(row).collect()
}

pub fn recording(name: &str) -> Recording {
    recordings().into_iter().find(|r| r.file == name).unwrap_or_else(|| panic!("no recording {name}"))
}

/// The recogniser of all tests: no eager decoding, whose moment depends on the machine.
pub fn whisper() -> &'static Whisper {
    static WHISPER: OnceLock<Whisper> = OnceLock::new();
    WHISPER.get_or_init(|| load(&Stt { eager: false, ..settings() }))
}

/// The model of many languages, on one thread: the other cores run other tests, and whisper.cpp's
/// threads wait for each other by spinning.
pub fn settings() -> Stt {
    Stt { model: "whisper-base".to_owned(), threads: 1, ..Stt::default() }
}

pub fn load(settings: &Stt) -> Whisper {
    Whisper::load(settings, &Store::default()).unwrap_or_else(|e| panic!("{e}"))
}

pub fn options(language: Option<&str>) -> RecognitionOptions {
    RecognitionOptions { language: language.map(str::to_owned), ..RecognitionOptions::default() }
}

pub type Events = mpsc::Receiver<RecognitionEvent>;

pub fn open(stt: &Whisper, options: &RecognitionOptions) -> (Box<dyn RecognitionStream>, Events) {
    let (tx, rx) = mpsc::channel(64);
    (stt.open(options, tx).expect("a stream is free"), rx)
}

/// The next final; partials are passed over.
pub fn next_final(events: &mut Events) -> (u64, Transcript) {
    loop {
        match events.blocking_recv().expect("the stream is open") {
            RecognitionEvent::Final { marker, transcript } => return (marker, transcript),
            RecognitionEvent::Failed { message, .. } => panic!("recognition failed: {message}"),
            RecognitionEvent::Partial { .. } => {}
        }
    }
}

/// The transcript of one piece of audio.
pub fn transcribe(stt: &Whisper, options: &RecognitionOptions, audio: &[f32]) -> Transcript {
    let (mut stream, mut events) = open(stt, options);
    audio.chunks(512).for_each(|chunk| stream.push(chunk));
    stream.flush(1);
    next_final(&mut events).1
}
