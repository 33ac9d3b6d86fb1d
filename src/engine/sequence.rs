//! One sequence being continued.

use tokio::sync::mpsc;

use super::cache::SequenceCache;
use super::model::Drafted;
use super::policy::{Depths, Drafting, settle};
use super::{DecodeParams, DecodeStats, StopReason, TokenEvent, guard, sampler};

/// A sequence in the worker.
pub(super) struct Sequence {
    /// Prompt and answer so far.
    pub tokens: Vec<u32>,
    pub prompt: usize,
    pub cache: SequenceCache,
    pub params: DecodeParams,
    pub key: Option<u64>,
    /// A beginning for all to use: read and kept, nothing emitted.
    pub prime: bool,
    pub events: mpsc::Sender<TokenEvent>,
    pub stats: DecodeStats,
    /// Hidden states of the newest token that the base has read.
    pub taps: Vec<f32>,
    pub depths: Depths,
    /// What was drafted behind the newest token, and how many of it to check.
    pub drafts: Vec<Drafted>,
    pub check: usize,
    /// Pages it may come to hold.
    pub pages: usize,
    pub ended: Option<End>,
}

/// How a sequence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done(StopReason),
    Failed(String),
    Cancelled,
}

impl Sequence {
    /// Tokens that the base has not read yet, the newest included.
    pub fn unread(&self) -> usize {
        self.tokens.len() - self.cache.len()
    }

    /// Whether the prompt is not read yet.
    pub fn prefilling(&self) -> bool {
        self.tokens.len() == self.prompt
    }

    /// Tokens it may still emit.
    pub fn left(&self) -> usize {
        (self.params.max_tokens as usize).saturating_sub(self.tokens.len() - self.prompt)
    }

    /// Takes in a pass that read `read` rows of it, the last `logits.len() / vocabulary`
    /// with logits. Returns which row of the pass's segment was the last that stays.
    pub fn take_in(
        &mut self,
        read: usize,
        logits: &[f32],
        vocabulary: usize,
        drafting: &mut Drafting,
        flood: usize,
    ) -> usize {
        let decided = logits.len() / vocabulary;
        if decided == 0 {
            self.cache.advance(read);
            if self.prime && self.unread() == 0 {
                self.ended = Some(End::Done(StopReason::Length));
            }
            return read - 1;
        }
        let first = self.prefilling();
        let drafts: Vec<u32> = self.drafts[..self.check].iter().map(|draft| draft.token).collect();
        let position = self.tokens.len();
        let settled = settle(&drafts, |index| {
            sampler::choose(&logits[index * vocabulary..][..vocabulary], &self.params, position + index)
        });
        let accepted = settled.len() - 1;
        drafting.learn(&mut self.depths, &self.drafts, self.check, accepted);
        self.stats.drafted += self.check as u32;
        self.stats.accepted += accepted as u32;
        if first {
            self.send(TokenEvent::Prefilled);
        } else {
            self.stats.passes += 1;
        }
        self.drafts.clear();
        self.check = 0;
        let kept = read - decided + settled.len();
        self.cache.advance(kept);
        self.emit(&settled, flood);
        kept - 1
    }

    fn emit(&mut self, settled: &[u32], flood: usize) {
        let mut block = Vec::with_capacity(settled.len());
        for &token in settled {
            self.tokens.push(token);
            if self.params.stop.contains(&token) {
                self.ended = Some(End::Done(StopReason::Stop));
                break;
            }
            block.push(token);
            self.stats.tokens += 1;
            if guard::loops(&self.tokens[self.prompt..], flood) {
                self.ended = Some(End::Done(StopReason::Loop));
            } else if self.left() == 0 {
                self.ended = Some(End::Done(StopReason::Length));
            }
            if self.ended.is_some() {
                break;
            }
        }
        // Drafts behind the end were read too; they are no part of the answer.
        self.cache.truncate(self.tokens.len());
        if !block.is_empty() {
            self.send(TokenEvent::Block(block));
        }
    }

    fn send(&mut self, event: TokenEvent) {
        // The channel holds a whole answer, so only a reader that went away refuses.
        if self.events.try_send(event).is_err() && !self.prime {
            self.ended = Some(End::Cancelled);
        }
    }

    /// Says how it ended.
    pub fn farewell(&mut self) {
        let event = match self.ended.clone() {
            Some(End::Done(reason)) => TokenEvent::Done { reason, stats: self.stats },
            Some(End::Failed(message)) => TokenEvent::Failed { message },
            Some(End::Cancelled) | None => return,
        };
        // A reader that is gone misses nothing.
        let _unread = self.events.try_send(event);
    }
}
