//! Who has the floor while the agent speaks: the pure policy.
//!
//! Owns: the decision whether what is heard under the agent's speech takes the
//! floor. Must not know: audio, models, responses, how the sound is stopped.
//!
//! A frame counts as the caller's when it is voiced and louder than the echo of
//! what is being played would be. The echo is expected at the loudest level
//! played in the last half second (the way to the caller and back takes
//! unknown time) plus a coupling, which is learned from frames in which the caller
//! does not speak. Voice that adds up to a short length may lower the agent;
//! a little more takes the floor, unless the words so far are but a listener's
//! sign ("mhm"), or words are required and have not come.

use std::collections::VecDeque;

use super::AudioTime;
use super::vad::SILENCE_DB;
use super::words::words;
use crate::audio::VAD_FRAME;
use crate::audio::clock::Millis;
use crate::config;

const FRAME: AudioTime = VAD_FRAME as AudioTime;
/// Frames of playing remembered: about half a second.
const ECHO_PATH: usize = 16;
/// Level below which nothing audible is being played.
const INAUDIBLE_DB: f32 = -60.0;
/// How fast the coupling follows what is measured, per frame.
const LEARN_UP: f32 = 0.3;
const LEARN_DOWN: f32 = 0.1;

/// What the policy hears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cue<'a> {
    /// The agent's first sound was sent.
    AgentStarted {
        /// The conversation's time.
        at: AudioTime,
    },
    /// The agent's sound is over or was stopped.
    AgentStopped,
    /// A frame of [`VAD_FRAME`] samples that ended at `end`.
    Frame {
        /// One past the frame's last sample.
        end: AudioTime,
        /// Probability of voice, 0..=1.
        voice: f32,
        /// Level of the input ([`super::vad::level_db`]).
        level_db: f32,
        /// Level of what is being played at this time, or [`SILENCE_DB`].
        playing_db: f32,
    },
    /// The words recognised so far since the voice began.
    Words(&'a str),
}

/// What follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Floor {
    /// The agent keeps the floor.
    #[default]
    Ignore,
    /// The caller may be about to take it: the agent may be lowered.
    Hold,
    /// The caller has it: the agent stops.
    TakeFloor,
}

/// The policy of one caller.
#[derive(Clone, Debug)]
pub struct BargeIn {
    settings: config::turn::BargeIn,
    /// When the agent began; `None`: it is silent.
    agent: Option<AudioTime>,
    played: VecDeque<f32>,
    /// Levels heard in frames that are not the caller's.
    returned: VecDeque<f32>,
    coupling_db: f32,
    voiced: AudioTime,
    last_voiced: AudioTime,
    words: Vec<String>,
}

impl BargeIn {
    /// A policy with the agent silent.
    pub fn new(settings: &config::turn::BargeIn) -> Self {
        Self {
            coupling_db: settings.echo_db,
            settings: settings.clone(),
            agent: None,
            played: VecDeque::with_capacity(ECHO_PATH),
            returned: VecDeque::with_capacity(ECHO_PATH),
            voiced: 0,
            last_voiced: 0,
            words: Vec::new(),
        }
    }

    /// Takes one cue. `TakeFloor` is repeated for as long as it holds, so that it is safe to act on it
    /// late; while the agent is silent it is always `Ignore`.
    pub fn on(&mut self, cue: Cue<'_>) -> Floor {
        match cue {
            Cue::AgentStarted { at } => {
                self.agent = Some(at);
                self.played.clear();
                self.returned.clear();
                self.forget();
                return Floor::Ignore;
            }
            Cue::AgentStopped => {
                self.agent = None;
                self.forget();
                return Floor::Ignore;
            }
            Cue::Words(text) => self.words = words(text),
            Cue::Frame { end, voice, level_db, playing_db } => {
                let Some(started) = self.agent else { return Floor::Ignore };
                self.frame(end, started, voice, level_db, playing_db);
            }
        }
        self.floor()
    }

    /// Whether the caller's own voice, not the agent's echo, was heard under the agent's speech just now. Ask
    /// before [`Cue::AgentStopped`]: it tells speech that goes on as a turn from what was an echo.
    pub fn caller_speaks(&self) -> bool {
        self.voiced >= samples(self.settings.hold_ms)
    }

    /// Level that an echo of the agent's speech is expected to have now, in dB of full scale.
    pub fn expected_echo_db(&self) -> f32 {
        let loudest = peak(&self.played);
        if loudest < INAUDIBLE_DB { SILENCE_DB } else { loudest + self.coupling_db }
    }

    fn frame(&mut self, end: AudioTime, started: AudioTime, voice: f32, level_db: f32, playing_db: f32) {
        remember(&mut self.played, playing_db);
        let guarded = end.saturating_sub(started) <= samples(self.settings.guard_ms);
        let above_echo = level_db > self.expected_echo_db() + self.settings.echo_margin_db;
        let voiced = voice >= self.settings.threshold;
        if voiced && above_echo && !guarded {
            self.voiced += FRAME;
            self.last_voiced = end;
            return;
        }
        if guarded || !voiced || self.voiced == 0 {
            self.learn(level_db);
        }
        if self.voiced > 0 && end.saturating_sub(self.last_voiced) > samples(self.settings.gap_ms) {
            self.forget();
        }
    }

    /// Moves the coupling towards what this frame shows; the caller is taken to be silent in it. Peaks
    /// are compared, because the way through the room takes longer than a syllable.
    fn learn(&mut self, level_db: f32) {
        remember(&mut self.returned, level_db);
        let loudest = peak(&self.played);
        if loudest < INAUDIBLE_DB {
            return;
        }
        let shown = (peak(&self.returned) - loudest).clamp(-60.0, 10.0);
        let rate = if shown > self.coupling_db { LEARN_UP } else { LEARN_DOWN };
        self.coupling_db += rate * (shown - self.coupling_db);
    }

    fn floor(&self) -> Floor {
        if self.agent.is_none() || self.voiced < samples(self.settings.hold_ms) {
            return Floor::Ignore;
        }
        let spoken = self.words.join(" ");
        if !spoken.is_empty() && self.settings.backchannels.contains(&spoken) {
            return Floor::Ignore;
        }
        let enough_words = self.words.len() >= self.settings.min_words as usize;
        if self.voiced < samples(self.settings.take_ms) || !enough_words {
            return Floor::Hold;
        }
        Floor::TakeFloor
    }

    fn forget(&mut self) {
        self.voiced = 0;
        self.words.clear();
    }
}

fn remember(levels: &mut VecDeque<f32>, level_db: f32) {
    if levels.len() == ECHO_PATH {
        levels.pop_front();
    }
    levels.push_back(level_db);
}

fn peak(levels: &VecDeque<f32>) -> f32 {
    levels.iter().copied().fold(SILENCE_DB, f32::max)
}

fn samples(ms: u32) -> AudioTime {
    Millis(u64::from(ms)).heard()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        policy: BargeIn,
        now: AudioTime,
    }

    impl Scene {
        fn new(settings: config::turn::BargeIn) -> Self {
            let mut policy = BargeIn::new(&settings);
            policy.on(Cue::AgentStarted { at: 0 });
            Self { policy, now: 0 }
        }

        /// The decisions of so many milliseconds of equal frames.
        fn hear(&mut self, ms: u64, voice: f32, level_db: f32, playing_db: f32) -> Vec<Floor> {
            (0..ms / 32)
                .map(|_| {
                    self.now += FRAME;
                    self.policy.on(Cue::Frame { end: self.now, voice, level_db, playing_db })
                })
                .collect()
        }
    }

    fn scene() -> Scene {
        Scene::new(config::turn::BargeIn::default())
    }

    #[test]
    fn the_caller_takes_the_floor_after_a_quarter_second() {
        let mut scene = scene();
        scene.hear(1_000, 0.02, -65.0, -20.0);
        let floors = scene.hear(640, 0.9, -28.0, -20.0);
        assert_eq!(floors.iter().position(|f| *f == Floor::Hold), Some(2), "{floors:?}");
        assert_eq!(floors.iter().position(|f| *f == Floor::TakeFloor), Some(7), "{floors:?}");
        assert!(floors[7..].iter().all(|f| *f == Floor::TakeFloor), "{floors:?}");
        assert!(scene.policy.caller_speaks());
        scene.policy.on(Cue::AgentStopped);
        assert!(!scene.policy.caller_speaks());
    }

    #[test]
    fn the_agent_does_not_interrupt_itself() {
        for coupling in [-40.0, -15.0, -3.0] {
            let mut scene = scene();
            let mut floors = Vec::new();
            for syllable in 0..60 {
                let playing = if syllable % 4 == 3 { -45.0 } else { -18.0 };
                floors.extend(scene.hear(160, 0.85, playing + coupling, playing));
            }
            assert!(!floors.contains(&Floor::TakeFloor), "coupling {coupling} dB");
            assert!(!scene.policy.caller_speaks(), "coupling {coupling} dB");
        }
    }

    #[test]
    fn a_caller_louder_than_a_strong_echo_is_heard() {
        let mut scene = scene();
        scene.hear(2_000, 0.8, -30.0, -20.0);
        assert!(!scene.hear(500, 0.9, -30.0, -20.0).contains(&Floor::TakeFloor));
        assert!(scene.hear(500, 0.95, -18.0, -20.0).contains(&Floor::TakeFloor));
    }

    #[test]
    fn nothing_interrupts_in_the_guard_window_or_when_the_agent_is_silent() {
        let mut scene = scene();
        assert!(scene.hear(200, 0.9, -20.0, -25.0).iter().all(|f| *f == Floor::Ignore));
        scene.policy.on(Cue::AgentStopped);
        assert!(scene.hear(2_000, 0.9, -20.0, SILENCE_DB).iter().all(|f| *f == Floor::Ignore));
    }

    #[test]
    fn a_click_is_forgotten() {
        let mut scene = scene();
        scene.hear(500, 0.0, -70.0, -20.0);
        for _ in 0..20 {
            let mut floors = scene.hear(96, 0.9, -20.0, -20.0);
            floors.extend(scene.hear(320, 0.05, -70.0, -20.0));
            assert!(!floors.contains(&Floor::TakeFloor));
        }
    }

    #[test]
    fn a_listeners_sign_leaves_the_floor() {
        let mut scene = scene();
        scene.hear(500, 0.0, -70.0, -20.0);
        scene.hear(128, 0.9, -25.0, -20.0);
        assert_eq!(scene.policy.on(Cue::Words("Mhm.")), Floor::Ignore);
        assert!(!scene.hear(320, 0.9, -25.0, -20.0).contains(&Floor::TakeFloor));
        assert_eq!(scene.policy.on(Cue::Words("Mhm, but wait")), Floor::TakeFloor);
    }

    #[test]
    fn words_can_be_required() {
        let mut scene = Scene::new(config::turn::BargeIn { min_words: 2, ..Default::default() });
        scene.hear(500, 0.0, -70.0, -20.0);
        let floors = scene.hear(1_000, 0.9, -25.0, -20.0);
        assert!(floors.contains(&Floor::Hold) && !floors.contains(&Floor::TakeFloor));
        assert_eq!(scene.policy.on(Cue::Words("stop")), Floor::Hold);
        assert_eq!(scene.policy.on(Cue::Words("stop it")), Floor::TakeFloor);
    }
}
