//! Hearing: voice activity, end of turn, barge-in.

use serde::{Deserialize, Serialize};

use super::{Invalid, Section};

/// Hearing: voice activity, end of turn, barge-in. Lengths are milliseconds of audio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {
    /// Threads for one completion score (Smart Turn). 1..=64.
    pub completion_threads: usize,
    /// Voice probability from which a frame may start a turn, where the client sets none. 0.05..=0.95.
    pub threshold: f32,
    /// How far below the start threshold a frame still continues a turn. 0..=0.5.
    pub release: f32,
    /// Voice that must add up before a turn starts, so that a click or a cough is none. 32..=2000.
    pub min_speech_ms: u32,
    /// Gap that the voice at the start of a turn may have. 0..=1000.
    pub start_gap_ms: u32,
    /// Audio kept from before the start, where the client sets none. 0..=5000.
    pub prefix_padding_ms: u32,
    /// How far, in dB, the voice of a starting turn must stand above the background. 0..=40.
    pub min_snr_db: f32,
    /// Level, in dB of full scale, below which nothing starts a turn. -100..=0.
    pub min_level_db: f32,
    /// Silence after which the end is called likely. 32..=5000.
    pub likely_ms: u32,
    /// Silences at which completion is scored, ascending. 32..=10000 each.
    pub score_at_ms: Vec<u32>,
    /// Mean completion probability from which a turn surely is complete. 0..=1.
    pub sure_at: f32,
    /// Silence after which a turn that surely is complete ends. 32..=5000.
    pub sure_wait_ms: u32,
    /// Mean completion probability from which a turn may be complete. 0..=1.
    pub maybe_at: f32,
    /// Silence after which a turn that may be complete ends. 32..=10000.
    pub maybe_wait_ms: u32,
    /// Least silence after digits, as more of them often follow. 0..=10000.
    pub number_wait_ms: u32,
    /// Silence that ends a turn which sounds incomplete, with eagerness `high`. 100..=20000.
    pub wait_high_ms: u32,
    /// The same with eagerness `medium` and `auto`. 100..=20000.
    pub wait_medium_ms: u32,
    /// The same with eagerness `low`. 100..=20000.
    pub wait_low_ms: u32,
    /// Longest turn; it ends there even under continued voice. 1000..=3600000.
    pub max_turn_ms: u32,
    /// Who may interrupt the agent, and how.
    pub barge_in: BargeIn,
}

/// Interrupting the agent. Lengths are milliseconds of audio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BargeIn {
    /// Voice probability from which a frame counts. 0.05..=0.95.
    pub threshold: f32,
    /// Time after the agent's first sound in which nothing interrupts it. 0..=5000.
    pub guard_ms: u32,
    /// Voice after which the agent's sound may be lowered. 32..=5000.
    pub hold_ms: u32,
    /// Voice that takes the floor. 32..=10000.
    pub take_ms: u32,
    /// Gap in the voice after which counting starts again. 32..=5000.
    pub gap_ms: u32,
    /// Words that must have been recognised too; 0: voice alone suffices. 0..=20.
    pub min_words: u32,
    /// Utterances under the agent's speech that leave it the floor, lower case.
    pub backchannels: Vec<String>,
    /// Level of the agent's echo in the input relative to what is played, in dB, until it has been
    /// measured. -60..=10.
    pub echo_db: f32,
    /// How far above the expected echo the caller must be, in dB. 0..=40.
    pub echo_margin_db: f32,
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            completion_threads: 1,
            threshold: 0.5,
            release: 0.15,
            min_speech_ms: 160,
            start_gap_ms: 160,
            prefix_padding_ms: 300,
            min_snr_db: 8.0,
            min_level_db: -60.0,
            likely_ms: 128,
            score_at_ms: vec![128, 256, 384, 512, 704, 960],
            sure_at: 0.93,
            sure_wait_ms: 320,
            maybe_at: 0.4,
            maybe_wait_ms: 704,
            number_wait_ms: 1_000,
            wait_high_ms: 800,
            wait_medium_ms: 1_300,
            wait_low_ms: 2_500,
            max_turn_ms: 120_000,
            barge_in: BargeIn::default(),
        }
    }
}

impl Default for BargeIn {
    fn default() -> Self {
        let words = [
            "mhm", "mm", "mmhm", "mm-hmm", "hmm", "hm", "uh-huh", "uh huh", "yeah", "yes", "yep", "ok",
            "okay", "right", "sure", "i see", "got it", "ah", "oh",
        ];
        Self {
            threshold: 0.5,
            guard_ms: 200,
            hold_ms: 96,
            take_ms: 256,
            gap_ms: 192,
            min_words: 0,
            backchannels: words.map(str::to_owned).to_vec(),
            echo_db: -15.0,
            echo_margin_db: 6.0,
        }
    }
}

impl Section for Turn {
    fn validate(&self) -> Result<(), Invalid> {
        let talk = &self.barge_in;
        within("completion_threads", self.completion_threads as f64, 1.0, 64.0)?;
        within("threshold", self.threshold, 0.05, 0.95)?;
        within("release", self.release, 0.0, 0.5)?;
        within("min_speech_ms", self.min_speech_ms, 32.0, 2_000.0)?;
        within("start_gap_ms", self.start_gap_ms, 0.0, 1_000.0)?;
        within("prefix_padding_ms", self.prefix_padding_ms, 0.0, 5_000.0)?;
        within("min_snr_db", self.min_snr_db, 0.0, 40.0)?;
        within("min_level_db", self.min_level_db, -100.0, 0.0)?;
        within("likely_ms", self.likely_ms, 32.0, 5_000.0)?;
        for at in &self.score_at_ms {
            within("score_at_ms", *at, 32.0, 10_000.0)?;
        }
        if !self.score_at_ms.is_sorted() {
            return Err(Invalid::new("score_at_ms", "must ascend"));
        }
        within("sure_at", self.sure_at, 0.0, 1.0)?;
        within("sure_wait_ms", self.sure_wait_ms, 32.0, 5_000.0)?;
        within("maybe_at", self.maybe_at, 0.0, 1.0)?;
        within("maybe_wait_ms", self.maybe_wait_ms, 32.0, 10_000.0)?;
        within("number_wait_ms", self.number_wait_ms, 0.0, 10_000.0)?;
        within("wait_high_ms", self.wait_high_ms, 100.0, 20_000.0)?;
        within("wait_medium_ms", self.wait_medium_ms, 100.0, 20_000.0)?;
        within("wait_low_ms", self.wait_low_ms, 100.0, 20_000.0)?;
        within("max_turn_ms", self.max_turn_ms, 1_000.0, 3_600_000.0)?;
        within("barge_in.threshold", talk.threshold, 0.05, 0.95)?;
        within("barge_in.guard_ms", talk.guard_ms, 0.0, 5_000.0)?;
        within("barge_in.hold_ms", talk.hold_ms, 32.0, 5_000.0)?;
        within("barge_in.take_ms", talk.take_ms, 32.0, 10_000.0)?;
        within("barge_in.gap_ms", talk.gap_ms, 32.0, 5_000.0)?;
        within("barge_in.min_words", talk.min_words, 0.0, 20.0)?;
        within("barge_in.echo_db", talk.echo_db, -60.0, 10.0)?;
        within("barge_in.echo_margin_db", talk.echo_margin_db, 0.0, 40.0)
    }
}

fn within(key: &str, value: impl Into<f64>, low: f64, high: f64) -> Result<(), Invalid> {
    // The comparison is false for NaN, which is refused too.
    if (low..=high).contains(&value.into()) {
        Ok(())
    } else {
        Err(Invalid::new(key, format!("must be from {low} to {high}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_faults_are_named() {
        assert_eq!(Turn::default().validate(), Ok(()));
        let fault =
            Turn { threshold: f32::NAN, ..Turn::default() }.validate().expect_err("NaN is no threshold");
        assert_eq!(fault.key, "threshold");
        let fault =
            Turn { score_at_ms: vec![500, 200], ..Turn::default() }.validate().expect_err("it descends");
        assert!(fault.reason.contains("ascend"));
        let talk = BargeIn { take_ms: 1, ..BargeIn::default() };
        let fault = Turn { barge_in: talk, ..Turn::default() }.validate().expect_err("1 ms is no voice");
        assert_eq!(fault.key, "barge_in.take_ms");
    }
}
