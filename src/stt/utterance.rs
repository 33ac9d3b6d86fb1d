//! One stream's audio and what has become of it. Pure: no thread, no clock, no
//! model; the board asks it what is due and tells it what was decoded.
//!
//! Audio is a row of finished segments and an open tail. A segment ends in a
//! pause once enough was said, or at the quietest place before Whisper's window
//! is full; it is decoded once and its audio forgotten. A flush decodes the
//! tail. Where segments end depends on the audio alone, never on how it was cut
//! into pushes or on how fast the worker is.
//!
//! The newest decoding of the tail is kept: when only silence was added since,
//! it answers a flush at once.

use std::collections::VecDeque;

use super::guards::Signal;
use super::level::{Bounds, FRAME, Levels};
use crate::audio::HEARING_RATE;

/// Silence that ends a segment, in frames: 300 ms.
const PAUSE: usize = 15;
/// How much of the pause goes to the next segment, in frames.
const LEAD: usize = 7;
/// Longest segment, in frames: 28 s, two short of Whisper's window.
const LONGEST: usize = 28 * 50;
/// Silence after which the tail is decoded without being asked, in frames.
const EAGER: usize = 5;
/// Shortest audio worth decoding, in frames.
const SHORTEST: usize = 5;
/// Shortest audio of a partial, in frames.
const SHORTEST_PARTIAL: usize = 25;
/// Languages written without spaces between words.
const UNSPACED: [&str; 5] = ["zh", "ja", "th", "lo", "my"];

/// When to decode without being asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Frames after which a pause ends a segment.
    pub segment: usize,
    /// Frames of new speech between two partials; `None` makes none.
    pub partial: Option<usize>,
    /// Decode as soon as the voice falls quiet.
    pub eager: bool,
    /// Whether a partial may answer a flush: not when a smaller model makes it.
    pub partials_last: bool,
}

/// Why a stretch is decoded, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// A flush waits for it.
    Final,
    /// A segment is finished.
    Segment,
    /// The voice fell quiet: a flush is likely to come.
    Early,
    /// To show words while the caller speaks.
    Partial,
}

/// A stretch to decode, in samples of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub why: Why,
    pub from: u64,
    pub to: u64,
}

/// What a decoding said, after the guards.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Heard {
    pub text: String,
    pub language: Option<&'static str>,
    pub no_speech: f32,
}

/// What a flush asked for.
#[derive(Clone, Copy, Debug)]
struct Flush {
    marker: u64,
    end: u64,
    order: u64,
}

/// The end of a finished segment, and how loud the segment was.
#[derive(Clone, Copy, Debug)]
struct Cut {
    end: u64,
    bounds: Option<Bounds>,
}

/// The answer to a flush.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub marker: u64,
    pub heard: Heard,
    pub samples: u64,
}

#[derive(Debug)]
pub(super) struct Utterance {
    pace: Pace,
    audio: Vec<f32>,
    /// Stream position of `audio[0]`; a multiple of [`FRAME`].
    base: u64,
    levels: Levels,
    /// Finished segments that are not decoded yet.
    cuts: VecDeque<Cut>,
    /// Texts of the decoded segments.
    pieces: Vec<Heard>,
    flush: Option<Flush>,
    /// The newest decoding of the tail: from, to.
    newest: Option<(u64, u64, Heard)>,
    /// Where the newest attempt at a partial ended.
    tried: u64,
    shown: String,
}

impl Utterance {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            pace,
            audio: Vec::new(),
            base: 0,
            levels: Levels::default(),
            cuts: VecDeque::new(),
            pieces: Vec::new(),
            flush: None,
            newest: None,
            tried: 0,
            shown: String::new(),
        }
    }

    /// Samples pushed so far.
    pub(super) fn samples(&self) -> u64 {
        self.base + self.audio.len() as u64
    }

    /// Adds audio and finds the ends of segments.
    pub(super) fn push(&mut self, samples: &[f32]) {
        self.audio.extend_from_slice(samples);
        while (self.levels.len() + 1) * FRAME <= self.audio.len() {
            let at = self.levels.len() * FRAME;
            self.levels.push(&self.audio[at..at + FRAME]);
            self.cut();
        }
    }

    fn frame(&self, position: u64) -> usize {
        (position.saturating_sub(self.base) / FRAME as u64) as usize
    }

    fn position(&self, frame: usize) -> u64 {
        self.base + (frame * FRAME) as u64
    }

    /// Ends a segment at the newest frame, when one is due. Looks at nothing but
    /// the audio since the last cut, so that the worker's pace has no say.
    fn cut(&mut self) {
        let last = self.cuts.back();
        let open = last.map_or(0, |cut| self.frame(cut.end));
        let before = last.map_or(self.levels.before(), |cut| cut.bounds);
        let now = self.levels.len();
        let length = now - open;
        if length < self.pace.segment {
            return;
        }
        let quiet = self.levels.quiet_run(open, before);
        let at = if quiet >= PAUSE && quiet < length {
            now - LEAD
        } else if length >= LONGEST {
            self.levels.quietest(open + LONGEST / 2, now)
        } else {
            return;
        };
        self.cuts.push_back(Cut { end: self.position(at), bounds: self.levels.bounds(open, now) });
    }

    /// Asks for the text of everything pushed so far.
    pub(super) fn flush(&mut self, marker: u64, order: u64) {
        self.flush = Some(Flush { marker, end: self.samples(), order });
    }

    /// Since when a flush waits.
    pub(super) fn waiting(&self) -> Option<u64> {
        self.flush.map(|f| f.order)
    }

    /// The marker that waits.
    pub(super) fn marker(&self) -> Option<u64> {
        self.flush.map(|f| f.marker)
    }

    /// Gives up the flush that waits.
    pub(super) fn forget_flush(&mut self) {
        self.flush = None;
    }

    /// Whether a decoding of `stretch` that is under way will do for what is now wanted.
    pub(super) fn still_wanted(&self, stretch: Stretch) -> bool {
        if stretch.from != self.base || (stretch.why == Why::Partial && !self.pace.partials_last) {
            return false;
        }
        match (self.cuts.front(), self.flush) {
            (Some(cut), _) if stretch.to == cut.end => true,
            (_, Some(flush)) => {
                let end = self.first_end(flush.end);
                self.same_words(stretch.to, end)
            }
            (_, None) => true,
        }
    }

    /// Where the first stretch towards `end` ends.
    fn first_end(&self, end: u64) -> u64 {
        self.cuts.front().map_or(end, |cut| cut.end.min(end))
    }

    /// Whether nothing is said between two positions.
    fn same_words(&self, a: u64, b: u64) -> bool {
        !self.levels.voiced(self.frame(a.min(b)), self.frame(a.max(b)))
    }

    /// The next stretch to decode.
    pub(super) fn due(&self) -> Option<Stretch> {
        let unasked = |why| Stretch { why, from: self.base, to: self.position(self.levels.len()) };
        self.due_in_full().or_else(|| self.due_unasked().map(unasked))
    }

    /// The next stretch whose text will last.
    pub(super) fn due_in_full(&self) -> Option<Stretch> {
        let from = self.base;
        if let Some(flush) = self.flush {
            let to = self.first_end(flush.end);
            return Some(Stretch { why: Why::Final, from, to });
        }
        self.cuts.front().map(|cut| Stretch { why: Why::Segment, from, to: cut.end })
    }

    fn due_unasked(&self) -> Option<Why> {
        let now = self.levels.len();
        let tried = self.frame(self.tried.max(self.base));
        if now < SHORTEST_PARTIAL || now <= tried || !self.levels.voiced(tried, now) {
            return None;
        }
        if self.levels.quiet_run(0, self.levels.before()) >= EAGER {
            return self.pace.eager.then_some(Why::Early);
        }
        self.pace.partial.is_some_and(|frames| now - tried >= frames).then_some(Why::Partial)
    }

    /// The audio of a stretch and what its levels say; notes the attempt.
    pub(super) fn take(&mut self, stretch: Stretch) -> (Vec<f32>, Signal) {
        self.tried = self.tried.max(stretch.to);
        let (from, to) = ((stretch.from - self.base) as usize, (stretch.to - self.base) as usize);
        let signal = self.levels.signal(self.frame(stretch.from), self.frame(stretch.to));
        (self.audio[from..to.min(self.audio.len())].to_vec(), signal)
    }

    /// Notes what a stretch says.
    pub(super) fn heard(&mut self, stretch: Stretch, heard: Heard) {
        if stretch.from == self.base {
            self.newest = Some((stretch.from, stretch.to, heard));
        }
    }

    /// Moves on as far as what was heard allows; the answer when a flush is done.
    pub(super) fn settle(&mut self) -> Option<Answer> {
        loop {
            let end = self.flush.map(|f| f.end);
            match self.cuts.front().copied() {
                Some(cut) if end.is_none_or(|end| cut.end <= end) => {
                    let heard = self.known(cut.end)?;
                    self.commit(cut, heard);
                }
                _ => {
                    let tail = self.known(end?)?;
                    let flush = self.flush.take()?;
                    return Some(Answer {
                        marker: flush.marker,
                        heard: self.joined(&tail),
                        samples: flush.end,
                    });
                }
            }
        }
    }

    /// What is said from the base to `end`, when that is known.
    fn known(&self, end: u64) -> Option<Heard> {
        let frames = self.frame(end);
        if frames < SHORTEST || !self.levels.voiced(0, frames) {
            return Some(Heard { no_speech: 1.0, ..Heard::default() });
        }
        let (from, to, heard) = self.newest.as_ref()?;
        (*from == self.base && self.same_words(*to, end)).then(|| heard.clone())
    }

    fn commit(&mut self, cut: Cut, heard: Heard) {
        self.cuts.pop_front();
        self.levels.drop_front(self.frame(cut.end), cut.bounds);
        self.audio.drain(..(cut.end - self.base) as usize);
        self.base = cut.end;
        self.newest = None;
        self.pieces.push(heard);
    }

    /// The text of the segments and `tail`.
    fn joined(&self, tail: &Heard) -> Heard {
        let all = || self.pieces.iter().chain([tail]);
        let language = all().filter_map(|h| h.language).next_back();
        let glue = if language.is_some_and(|l| UNSPACED.contains(&l)) { "" } else { " " };
        let texts: Vec<&str> = all().map(|h| h.text.as_str()).filter(|t| !t.is_empty()).collect();
        let no_speech = all().map(|h| h.no_speech).fold(1.0, f32::min);
        Heard { text: texts.join(glue), language, no_speech }
    }

    /// The partial transcript with `tail` at its end, when it says something new.
    pub(super) fn news(&mut self, tail: &Heard) -> Option<String> {
        self.pace.partial?;
        let text = self.joined(tail).text;
        if text.is_empty() || text == self.shown {
            return None;
        }
        self.shown.clone_from(&text);
        Some(text)
    }

    /// Whether a decoding that began at `from` is about the tail as it is now.
    pub(super) fn begins_at(&self, from: u64) -> bool {
        from == self.base
    }

    /// The language heard last.
    pub(super) fn language(&self) -> Option<&'static str> {
        let newest = self.newest.as_ref().and_then(|(.., heard)| heard.language);
        newest.or_else(|| self.pieces.iter().filter_map(|h| h.language).next_back())
    }
}

/// Frames in so many seconds.
pub(super) fn frames(seconds: f32) -> usize {
    (seconds * HEARING_RATE as f32 / FRAME as f32) as usize
}

#[cfg(test)]
mod tests;
