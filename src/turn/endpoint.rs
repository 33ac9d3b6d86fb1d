//! Where a turn starts and ends: the pure policy over scores.
//!
//! Owns: the state of one caller's turn. Must not know: audio, models, the wall
//! clock, what was said before. The driver scores every frame of
//! [`VAD_FRAME`] samples and passes the result as [`Cue::Frame`];
//! it answers [`Signal::AskCompletion`] when the model has run, however late.
//!
//! Invariants (property-tested below): signals of a turn come in the order
//! `Started, (Likely, Retracted)*, Likely, Final`; completion is asked only
//! between `Likely` and what follows it; a late answer about silence that has
//! since been broken changes nothing; times never run backwards.
//!
//! A turn starts when enough voice has added up, loud enough against the
//! background of the last seconds. Its end is likely when the voice has fallen for
//! a moment. It is final after a fixed silence ([`Detection::Silence`]), or
//! ([`Detection::Semantic`]) soon when the utterance surely is complete, later
//! when it may be, last when it does not sound so. Completion is scored again as the
//! silence grows and the mean of the answers counts: a single answer jumps by
//! half its range from one 64 ms to the next, the mean tells a breath from an end.
//! Measured on the recordings of `tests/turn`, no rule on the score alone tells a
//! pause between two sentences from the end of the second; only time does.

use std::ops::Range;

use super::AudioTime;
use super::background::Background;
use super::semantic;
use super::words::Tail;
use crate::audio::VAD_FRAME;
use crate::audio::clock::Millis;
use crate::config;

const FRAME: AudioTime = VAD_FRAME as AudioTime;

/// How soon a pause counts as the end of a turn that sounds incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Eagerness {
    /// Waits longest.
    Low,
    /// Waits a while.
    Medium,
    /// Waits little.
    High,
    /// As `Medium`.
    #[default]
    Auto,
}

/// What ends a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detection {
    /// Silence alone.
    Silence {
        /// Voice probability from which a frame is speech, 0..=1.
        threshold: f32,
        /// Audio kept from before the start.
        prefix_padding: Millis,
        /// Silence that ends the turn.
        silence: Millis,
    },
    /// Silence and how finished the utterance sounds.
    Semantic {
        /// How long an utterance that sounds incomplete is waited for.
        eagerness: Eagerness,
    },
}

/// What the policy hears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cue {
    /// A frame of [`VAD_FRAME`] samples that ended at `end`.
    Frame {
        /// One past the frame's last sample.
        end: AudioTime,
        /// Probability of voice, 0..=1.
        voice: f32,
        /// Level ([`super::vad::level_db`]).
        level_db: f32,
    },
    /// The answer to [`Signal::AskCompletion`].
    Completion {
        /// As in the question.
        asked: AudioTime,
        /// Probability that the turn is complete, 0..=1.
        probability: f32,
    },
    /// How the words recognised so far in this turn end.
    Words(Tail),
}

/// What follows from it. Samples of the conversation's clock throughout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The caller began to speak.
    Started {
        /// Where the turn's audio begins, padding included.
        start: AudioTime,
        /// Where the voice begins.
        voice: AudioTime,
    },
    /// The voice fell: work for the answer may begin.
    Likely {
        /// One past the last voiced sample.
        speech_end: AudioTime,
    },
    /// Please score this audio and answer with [`Cue::Completion`].
    AskCompletion {
        /// Names the question.
        asked: AudioTime,
        /// The turn's audio up to now, at most what the model looks at.
        audio: Range<AudioTime>,
    },
    /// The voice came back: what began at `Likely` is void.
    Retracted,
    /// The turn is over.
    Final {
        /// Where the turn's audio begins, padding included.
        start: AudioTime,
        /// One past the last voiced sample.
        speech_end: AudioTime,
    },
}

/// The policy of one caller.
#[derive(Clone, Debug)]
pub struct Endpoint {
    rules: Rules,
    background: Background,
    state: State,
    /// End of the newest frame.
    now: AudioTime,
    /// Audio before this belongs to an earlier turn.
    floor: AudioTime,
}

/// The settings, in samples.
#[derive(Clone, Debug)]
struct Rules {
    start_at: f32,
    stop_at: f32,
    min_speech: AudioTime,
    start_gap: AudioTime,
    padding: AudioTime,
    min_snr_db: f32,
    min_level_db: f32,
    likely: AudioTime,
    max_turn: AudioTime,
    end: End,
}

#[derive(Clone, Debug)]
enum End {
    Silence(AudioTime),
    Semantic {
        score_at: Vec<AudioTime>,
        sure_at: f32,
        sure_wait: AudioTime,
        maybe_at: f32,
        maybe_wait: AudioTime,
        number_wait: AudioTime,
        longest: AudioTime,
    },
}

#[derive(Clone, Debug)]
enum State {
    Idle,
    /// Voice that may become a turn.
    Rising {
        voice: AudioTime,
        voiced: AudioTime,
        last: AudioTime,
        loudest_db: f32,
    },
    Speaking(Turn),
}

#[derive(Clone, Debug)]
struct Turn {
    start: AudioTime,
    voice: AudioTime,
    /// One past the last voiced sample.
    speech_end: AudioTime,
    fallen: Option<Fallen>,
    tail: Tail,
}

/// A silence that may be the end.
#[derive(Clone, Debug, Default)]
struct Fallen {
    /// How many of the scheduled scores were asked for.
    asked: usize,
    /// The answers so far.
    answers: Vec<f32>,
}

/// How many of the newest answers count.
const ANSWERS: usize = 4;

impl Fallen {
    /// Mean of the newest answers; `None` before the first.
    fn completion(&self) -> Option<f32> {
        let newest = &self.answers[self.answers.len().saturating_sub(ANSWERS)..];
        (!newest.is_empty()).then(|| newest.iter().sum::<f32>() / newest.len() as f32)
    }
}

impl Endpoint {
    /// A policy with nobody speaking.
    pub fn new(detection: Detection, settings: &config::turn::Turn) -> Self {
        Self {
            rules: Rules::new(detection, settings),
            background: Background::new(),
            state: State::Idle,
            now: 0,
            floor: 0,
        }
    }

    /// Changes the rules from the next cue on; a turn in progress goes on under the new ones.
    pub fn configure(&mut self, detection: Detection, settings: &config::turn::Turn) {
        self.rules = Rules::new(detection, settings);
    }

    /// Forgets a turn in progress without a word: the client committed or cleared its audio.
    pub fn reset(&mut self) {
        self.state = State::Idle;
        self.floor = self.now;
    }

    /// Whether a turn is in progress.
    pub fn speaking(&self) -> bool {
        matches!(self.state, State::Speaking(_))
    }

    /// How much audio from before now a turn that starts with the next frame may claim.
    pub fn lookback(&self) -> AudioTime {
        self.rules.padding + 2 * (self.rules.min_speech + self.rules.start_gap)
    }

    /// Takes one cue; the signals in order, mostly none.
    pub fn on(&mut self, cue: Cue) -> Vec<Signal> {
        let mut signals = Vec::new();
        match cue {
            Cue::Frame { end, voice, level_db } => {
                self.now = self.now.max(end);
                self.background.push(level_db);
                self.frame(voice, level_db, &mut signals);
            }
            Cue::Completion { asked, probability } => {
                if let State::Speaking(turn) = &mut self.state
                    && asked > turn.speech_end
                    && let Some(fallen) = &mut turn.fallen
                {
                    fallen.answers.push(probability);
                }
            }
            Cue::Words(tail) => {
                if let State::Speaking(turn) = &mut self.state {
                    turn.tail = tail;
                }
            }
        }
        self.end_if_due(&mut signals);
        signals
    }

    fn frame(&mut self, voice: f32, level_db: f32, signals: &mut Vec<Signal>) {
        let start_of_frame = self.now.saturating_sub(FRAME);
        match &mut self.state {
            State::Idle if voice >= self.rules.start_at => {
                self.state = State::Rising {
                    voice: start_of_frame,
                    voiced: FRAME,
                    last: self.now,
                    loudest_db: level_db,
                };
                self.start_if_due(signals);
            }
            State::Idle => {}
            State::Rising { voiced, last, loudest_db, .. } => {
                if voice >= self.rules.start_at {
                    *voiced += FRAME;
                    *last = self.now;
                    *loudest_db = loudest_db.max(level_db);
                    self.start_if_due(signals);
                } else if self.now - *last > self.rules.start_gap {
                    self.state = State::Idle;
                }
            }
            State::Speaking(turn) => {
                // Once the voice has fallen, a frame must be as sure as a start to bring it back.
                let needed = if turn.fallen.is_some() { self.rules.start_at } else { self.rules.stop_at };
                if voice >= needed {
                    turn.speech_end = self.now;
                    if turn.fallen.take().is_some() {
                        signals.push(Signal::Retracted);
                    }
                    return;
                }
                let silence = self.now - turn.speech_end;
                if silence >= self.rules.likely && turn.fallen.is_none() {
                    turn.fallen = Some(Fallen::default());
                    signals.push(Signal::Likely { speech_end: turn.speech_end });
                }
                if let (Some(fallen), End::Semantic { score_at, .. }) = (&mut turn.fallen, &self.rules.end)
                    && score_at.get(fallen.asked).is_some_and(|at| silence >= *at)
                {
                    fallen.asked += 1;
                    let oldest = self.now.saturating_sub(semantic::SAMPLES as AudioTime);
                    signals.push(Signal::AskCompletion {
                        asked: self.now,
                        audio: turn.start.max(oldest)..self.now,
                    });
                }
            }
        }
    }

    fn start_if_due(&mut self, signals: &mut Vec<Signal>) {
        let State::Rising { voice, voiced, last, loudest_db } = self.state else { return };
        let loud_enough = loudest_db >= self.rules.min_level_db
            && loudest_db >= self.background.level_db() + self.rules.min_snr_db;
        if voiced < self.rules.min_speech || !loud_enough {
            return;
        }
        let start = voice.saturating_sub(self.rules.padding).max(self.floor);
        self.state =
            State::Speaking(Turn { start, voice, speech_end: last, fallen: None, tail: Tail::default() });
        signals.push(Signal::Started { start, voice });
    }

    fn end_if_due(&mut self, signals: &mut Vec<Signal>) {
        let State::Speaking(turn) = &mut self.state else { return };
        let silence = self.now - turn.speech_end;
        let fallen = turn.fallen.as_ref();
        let ended = match &self.rules.end {
            End::Silence(needed) => silence >= *needed,
            End::Semantic { sure_at, sure_wait, maybe_at, maybe_wait, number_wait, longest, .. } => {
                let wait = match fallen.and_then(Fallen::completion) {
                    Some(completion) if completion >= *sure_at => *sure_wait,
                    Some(completion) if completion >= *maybe_at => *maybe_wait,
                    _ => *longest,
                };
                let least = if turn.tail == Tail::Number { *number_wait } else { 0 };
                silence >= wait.min(*longest).max(least)
            }
        };
        if !ended && self.now - turn.voice < self.rules.max_turn {
            return;
        }
        if fallen.is_none() {
            signals.push(Signal::Likely { speech_end: turn.speech_end });
        }
        signals.push(Signal::Final { start: turn.start, speech_end: turn.speech_end });
        self.floor = turn.speech_end;
        self.state = State::Idle;
    }
}

impl Rules {
    fn new(detection: Detection, settings: &config::turn::Turn) -> Self {
        let samples = |ms: u32| Millis(u64::from(ms)).heard();
        let (start_at, padding, end) = match detection {
            Detection::Silence { threshold, prefix_padding, silence } => {
                (threshold, prefix_padding.heard(), End::Silence(silence.heard()))
            }
            Detection::Semantic { eagerness } => {
                let longest = match eagerness {
                    Eagerness::Low => settings.wait_low_ms,
                    Eagerness::Medium | Eagerness::Auto => settings.wait_medium_ms,
                    Eagerness::High => settings.wait_high_ms,
                };
                let end = End::Semantic {
                    score_at: settings.score_at_ms.iter().copied().map(samples).collect(),
                    sure_at: settings.sure_at,
                    sure_wait: samples(settings.sure_wait_ms),
                    maybe_at: settings.maybe_at,
                    maybe_wait: samples(settings.maybe_wait_ms),
                    number_wait: samples(settings.number_wait_ms),
                    longest: samples(longest),
                };
                (settings.threshold, samples(settings.prefix_padding_ms), end)
            }
        };
        Self {
            start_at,
            stop_at: (start_at - settings.release).max(0.01),
            min_speech: samples(settings.min_speech_ms),
            start_gap: samples(settings.start_gap_ms),
            padding,
            min_snr_db: settings.min_snr_db,
            min_level_db: settings.min_level_db,
            likely: samples(settings.likely_ms),
            max_turn: samples(settings.max_turn_ms),
            end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SILENT_DB: f32 = -70.0;
    const LOUD_DB: f32 = -25.0;

    struct Scene {
        policy: Endpoint,
        now: AudioTime,
    }

    impl Scene {
        fn new(detection: Detection) -> Self {
            Self { policy: Endpoint::new(detection, &config::turn::Turn::default()), now: 0 }
        }

        fn hear(&mut self, ms: u64, voice: f32, level_db: f32) -> Vec<(AudioTime, Signal)> {
            let mut heard = Vec::new();
            for _ in 0..ms / 32 {
                self.now += FRAME;
                let signals = self.policy.on(Cue::Frame { end: self.now, voice, level_db });
                heard.extend(signals.into_iter().map(|signal| (self.now, signal)));
            }
            heard
        }

        fn speak(&mut self, ms: u64) -> Vec<(AudioTime, Signal)> {
            self.hear(ms, 0.95, LOUD_DB)
        }

        fn pause(&mut self, ms: u64) -> Vec<(AudioTime, Signal)> {
            self.hear(ms, 0.02, SILENT_DB)
        }
    }

    fn semantic() -> Scene {
        Scene::new(Detection::Semantic { eagerness: Eagerness::Auto })
    }

    fn silence() -> Scene {
        Scene::new(Detection::Silence { threshold: 0.5, prefix_padding: Millis(300), silence: Millis(500) })
    }

    fn asked(signals: &[(AudioTime, Signal)]) -> Option<AudioTime> {
        signals.iter().find_map(|(_, signal)| match signal {
            Signal::AskCompletion { asked, .. } => Some(*asked),
            _ => None,
        })
    }

    #[test]
    fn silence_ends_a_turn_and_keeps_what_came_before_it() {
        let mut scene = silence();
        assert_eq!(scene.pause(1_024), []);
        let started = scene.speak(1_024);
        let voice = Millis(1_024).heard();
        let start = voice - Millis(300).heard();
        assert_eq!(started.first().map(|(_, signal)| signal), Some(&Signal::Started { start, voice }));
        let ended = scene.pause(640);
        let speech_end = Millis(2_048).heard();
        assert_eq!(ended[0].1, Signal::Likely { speech_end });
        assert_eq!(ended[1], (speech_end + Millis(512).heard(), Signal::Final { start, speech_end }));
        assert_eq!(ended.len(), 2);
    }

    #[test]
    fn a_click_or_a_cough_is_no_turn() {
        let mut scene = semantic();
        scene.pause(1_024);
        for _ in 0..10 {
            assert_eq!(scene.speak(96), []);
            assert_eq!(scene.pause(320), []);
        }
    }

    #[test]
    fn voice_that_does_not_stand_out_is_background() {
        let mut scene = semantic();
        scene.hear(2_048, 0.1, -38.0);
        assert_eq!(scene.hear(640, 0.9, -34.0), []);
        assert!(!scene.hear(640, 0.9, -20.0).is_empty());
        let mut faint = semantic();
        assert_eq!(faint.hear(2_048, 0.9, -75.0), []);
    }

    /// Speaks, then falls silent while every question gets the same answer; how long the end took.
    fn silence_until_final(scene: &mut Scene, answer: Option<f32>) -> AudioTime {
        scene.speak(1_024);
        let fell = scene.now;
        while scene.now < fell + Millis(10_000).heard() {
            let heard = scene.pause(32);
            if heard.iter().any(|(_, signal)| matches!(signal, Signal::Final { .. })) {
                return scene.now - fell;
            }
            if let (Some(question), Some(probability)) = (asked(&heard), answer) {
                let late = scene.policy.on(Cue::Completion { asked: question, probability });
                if late.iter().any(|signal| matches!(signal, Signal::Final { .. })) {
                    return scene.now - fell;
                }
            }
        }
        panic!("the turn never ends");
    }

    #[test]
    fn the_surer_the_end_the_sooner_it_comes() {
        let waits: Vec<AudioTime> = [Some(0.99), Some(0.6), Some(0.1), None]
            .map(|answer| silence_until_final(&mut semantic(), answer))
            .to_vec();
        assert_eq!(waits[0], Millis(320).heard());
        assert_eq!(waits[1], Millis(704).heard());
        // Never longer than the eagerness allows, even if the model says nothing at all.
        assert_eq!(waits[2], Millis(1_312).heard());
        assert_eq!(waits[3], waits[2]);
        let eager = Detection::Semantic { eagerness: Eagerness::High };
        assert!(silence_until_final(&mut Scene::new(eager), Some(0.1)) < waits[2]);
        let patient = Detection::Semantic { eagerness: Eagerness::Low };
        assert!(silence_until_final(&mut Scene::new(patient), Some(0.1)) > waits[2]);
    }

    #[test]
    fn after_digits_more_are_waited_for() {
        let mut scene = semantic();
        scene.speak(1_024);
        scene.policy.on(Cue::Words(Tail::Number));
        let question = asked(&scene.pause(128)).expect("completion is asked when the voice falls");
        scene.policy.on(Cue::Completion { asked: question, probability: 0.99 });
        assert!(scene.pause(832).iter().all(|(_, signal)| !matches!(signal, Signal::Final { .. })));
        assert!(scene.pause(64).iter().any(|(_, signal)| matches!(signal, Signal::Final { .. })));
    }

    #[test]
    fn one_high_answer_among_low_ones_does_not_end_a_turn() {
        let mut scene = semantic();
        scene.speak(1_024);
        for probability in [0.05, 0.99, 0.1] {
            let question = asked(&scene.pause(128)).expect("completion is asked as the silence grows");
            assert_eq!(scene.policy.on(Cue::Completion { asked: question, probability }), []);
        }
        assert!(scene.pause(320).iter().all(|(_, signal)| !matches!(signal, Signal::Final { .. })));
    }

    #[test]
    fn a_late_answer_about_a_broken_silence_counts_for_nothing() {
        let mut scene = semantic();
        scene.speak(1_024);
        let question = asked(&scene.pause(160)).expect("completion is asked when the voice falls");
        let back = scene.speak(320);
        assert_eq!(back[0].1, Signal::Retracted);
        assert_eq!(scene.policy.on(Cue::Completion { asked: question, probability: 1.0 }), []);
        assert!(scene.pause(160).iter().all(|(_, signal)| !matches!(signal, Signal::Final { .. })));
    }

    #[test]
    fn a_turn_has_a_longest_length() {
        let mut scene = silence();
        let mut heard = Vec::new();
        while scene.now < Millis(125_000).heard() {
            heard.extend(scene.speak(320));
            // Between words the level falls; were it steady it would be background.
            heard.extend(scene.hear(64, 0.6, -50.0));
        }
        assert!(matches!(heard[1].1, Signal::Likely { .. }) && matches!(heard[2].1, Signal::Final { .. }));
        // The next turn claims no audio of the first.
        let Signal::Final { speech_end, .. } = heard[2].1 else { panic!("checked above") };
        assert!(matches!(heard[3].1, Signal::Started { start, .. } if start >= speech_end));
    }

    #[test]
    fn a_commit_by_hand_leaves_nothing_behind() {
        let mut scene = silence();
        scene.speak(1_024);
        scene.policy.reset();
        assert!(!scene.policy.speaking());
        assert_eq!(scene.pause(2_048), []);
        let started = scene.speak(512);
        assert!(matches!(started[0].1, Signal::Started { .. }));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Hear(f32, f32),
        Answer(f32, usize),
        Words(bool),
        Reset,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            12 => (0.0f32..1.0, -90.0f32..0.0).prop_map(|(voice, level)| Step::Hear(voice, level)),
            6 => Just(Step::Hear(0.95, -20.0)),
            6 => Just(Step::Hear(0.01, -75.0)),
            3 => (0.0f32..1.0, 0usize..3).prop_map(|(p, which)| Step::Answer(p, which)),
            1 => any::<bool>().prop_map(Step::Words),
            1 => Just(Step::Reset),
        ];
        // Runs of the same step make speech and silence that last.
        prop::collection::vec((step, 1usize..30), 1..60)
            .prop_map(|runs| runs.into_iter().flat_map(|(step, count)| vec![step; count]).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn signals_keep_their_order(steps in steps(), by_silence in any::<bool>()) {
            let mut scene = if by_silence { silence() } else { semantic() };
            let mut questions: Vec<AudioTime> = Vec::new();
            let (mut speaking, mut fallen) = (false, false);
            let mut claimed = 0;
            for step in steps {
                let signals = match step {
                    Step::Hear(voice, level_db) => {
                        scene.now += FRAME;
                        scene.policy.on(Cue::Frame { end: scene.now, voice, level_db })
                    }
                    Step::Answer(probability, which) => match questions.iter().rev().nth(which) {
                        Some(&asked) => scene.policy.on(Cue::Completion { asked, probability }),
                        None => continue,
                    },
                    Step::Words(number) => {
                        scene.policy.on(Cue::Words(if number { Tail::Number } else { Tail::Sentence }))
                    }
                    Step::Reset => {
                        scene.policy.reset();
                        (speaking, fallen) = (false, false);
                        claimed = scene.now;
                        continue;
                    }
                };
                for signal in signals {
                    match signal {
                        Signal::Started { start, voice } => {
                            prop_assert!(!speaking && start <= voice && voice < scene.now && start >= claimed);
                            (speaking, fallen) = (true, false);
                        }
                        Signal::Likely { speech_end } => {
                            prop_assert!(speaking && !fallen && speech_end <= scene.now);
                            fallen = true;
                        }
                        Signal::AskCompletion { asked, audio } => {
                            prop_assert!(speaking && fallen && !by_silence);
                            prop_assert!(audio.start < audio.end && audio.end == asked && asked == scene.now);
                            questions.push(asked);
                        }
                        Signal::Retracted => {
                            prop_assert!(speaking && fallen);
                            fallen = false;
                        }
                        Signal::Final { start, speech_end } => {
                            prop_assert!(speaking && fallen && start < speech_end && speech_end <= scene.now);
                            (speaking, fallen) = (false, false);
                            claimed = speech_end;
                        }
                    }
                }
                prop_assert_eq!(scene.policy.speaking(), speaking);
            }
        }
    }
}
