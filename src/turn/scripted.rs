//! Scorers without a model, for tests of logic.
//!
//! Voice is what is loud: a test feeds a tone for speech and silence for
//! silence. Completion answers from a list, then with a fixed value. What was
//! asked can be read back; either scorer can be made to fail.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::vad::level_db;
use super::{Completion, TurnError, TurnModels, VoiceActivity};

const NAME: &str = "scripted";

/// How [`Scripted`] scorers behave.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// Level, in dB of full scale, from which a frame is voice.
    pub voice_above_db: f32,
    /// Probability given to voice; silence gets the rest to 1.
    pub voice: f32,
    /// Answers to completion, in order.
    pub completions: VecDeque<f32>,
    /// The answer when the list is used up.
    pub completion: f32,
    /// Every voice score fails.
    pub voice_fails: bool,
    /// Every completion score fails.
    pub completion_fails: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            voice_above_db: -45.0,
            voice: 0.98,
            completions: VecDeque::new(),
            completion: 0.95,
            voice_fails: false,
            completion_fails: false,
        }
    }
}

/// Scorers that follow a script. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    script: Script,
    asked: Vec<usize>,
    opened: usize,
}

impl Scripted {
    /// Scorers of this script.
    pub fn new(script: Script) -> Self {
        let shared = Shared { script, ..Shared::default() };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Changes the script from the next score on.
    pub fn rewrite(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.lock().script);
    }

    /// Lengths, in samples, of the utterances whose completion was asked.
    pub fn asked(&self) -> Vec<usize> {
        self.lock().asked.clone()
    }

    /// How many voice scorers were made.
    pub fn opened(&self) -> usize {
        self.lock().opened
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing is left half done by a panic between two statements here.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VoiceActivity for Scripted {
    fn score(&mut self, frame: &[f32]) -> Result<f32, TurnError> {
        let shared = self.lock();
        if shared.script.voice_fails {
            return Err(fault());
        }
        let voice = shared.script.voice;
        Ok(if level_db(frame) >= shared.script.voice_above_db { voice } else { 1.0 - voice })
    }

    fn reset(&mut self) {}
}

impl Completion for Scripted {
    fn score(&self, utterance: &[f32]) -> Result<f32, TurnError> {
        let mut shared = self.lock();
        shared.asked.push(utterance.len());
        if shared.script.completion_fails {
            return Err(fault());
        }
        let fixed = shared.script.completion;
        Ok(shared.script.completions.pop_front().unwrap_or(fixed))
    }
}

impl TurnModels for Scripted {
    fn voice_activity(&self) -> Result<Box<dyn VoiceActivity>, TurnError> {
        self.lock().opened += 1;
        Ok(Box::new(self.clone()))
    }

    fn completion(&self) -> Arc<dyn Completion> {
        Arc::new(self.clone())
    }
}

fn fault() -> TurnError {
    TurnError::Model { model: NAME, reason: "the script says so".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::VAD_FRAME;

    #[test]
    fn loud_frames_are_voice_and_answers_come_in_order() {
        let scripted = Scripted::new(Script { completions: [0.1, 0.2].into(), ..Script::default() });
        let mut voice = scripted.voice_activity().expect("nothing to load");
        assert_eq!(voice.score(&[0.3; VAD_FRAME]).expect("the script allows it"), 0.98);
        assert!(voice.score(&[0.0; VAD_FRAME]).expect("the script allows it") < 0.1);
        let completion = scripted.completion();
        let answers: Vec<f32> =
            (0..3).map(|i| completion.score(&vec![0.0; i]).expect("the script allows it")).collect();
        assert_eq!(answers, [0.1, 0.2, 0.95]);
        assert_eq!((scripted.asked(), scripted.opened()), (vec![0, 1, 2], 1));
        scripted.rewrite(|script| script.completion_fails = true);
        assert!(completion.score(&[]).is_err());
    }
}
