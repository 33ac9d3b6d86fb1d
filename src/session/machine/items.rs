//! What clients do to the history.

use std::time::Duration;

use super::{Event, Machine};
use crate::audio::SPEAKING_RATE;
use crate::llm::Role;
use crate::session::command::Tag;
use crate::session::event::RejectionCode;
use crate::session::history::{Refused, Spoken};
use crate::session::ids::ItemId;
use crate::session::item::{Item, ItemKind, ItemStatus, Part, Place};
use crate::session::playback::Source;

impl Machine {
    pub(super) fn create_item(&mut self, now: Duration, tag: Tag, mut item: Item, place: &Place) {
        if let Err((message, param)) = self.check_item(&item) {
            return self.reject(tag, RejectionCode::InvalidValue, message, Some(param));
        }
        if item.id.as_str().is_empty() {
            item.id = self.new_item_id();
        }
        item.status = ItemStatus::Completed;
        let added = if self.hearing.has_named(&item.id) {
            Err(Refused::Duplicate)
        } else {
            self.history.add(item.clone(), place)
        };
        match added {
            Ok(previous) => {
                self.emit(Event::ItemAdded { item: item.clone(), previous: previous.clone() });
                self.emit(Event::ItemDone { item: item.clone(), previous });
                self.recognise_item(now, &item);
                self.make_room();
            }
            Err(Refused::Duplicate) => {
                let message = format!("Item '{}' already exists in the conversation", item.id);
                self.reject(tag, RejectionCode::DuplicateItem, message, Some("item.id"));
            }
            Err(Refused::NoSuchPlace(id)) => {
                let message = format!("the previous item '{id}' does not exist");
                self.reject(tag, RejectionCode::ItemNotFound, message, Some("previous_item_id"));
            }
        }
    }

    fn check_item(&self, item: &Item) -> Result<(), (String, &'static str)> {
        let chars = match &item.kind {
            ItemKind::Message { role, parts } => {
                if parts.is_empty() {
                    return Err(("a message needs content".to_owned(), "item.content"));
                }
                let audio = parts.iter().any(|part| matches!(part, Part::OutputAudio { .. }));
                if *role == Role::Assistant && audio {
                    return Err((
                        "the agent's audio cannot be created by a client".to_owned(),
                        "item.content",
                    ));
                }
                parts.iter().map(part_chars).sum()
            }
            ItemKind::FunctionCall { arguments, .. } => arguments.chars().count(),
            ItemKind::FunctionCallOutput { output, .. } => output.expose().chars().count(),
        };
        if chars > self.limits.max_item_chars {
            let message = format!("an item holds at most {} characters", self.limits.max_item_chars);
            return Err((message, "item.content"));
        }
        Ok(())
    }

    pub(super) fn retrieve_item(&mut self, tag: Tag, id: &ItemId) {
        match self.history.get(id).cloned() {
            Some(item) => self.emit(Event::ItemRetrieved { item }),
            None => self.no_item(tag, id),
        }
    }

    pub(super) fn delete_item(&mut self, tag: Tag, id: &ItemId) {
        if self.is_open(id) {
            let message = format!("item '{id}' is still being written; cancel its response first");
            return self.reject(tag, RejectionCode::InvalidValue, message, Some("item_id"));
        }
        match self.history.remove(id) {
            Some(_) => {
                self.emit(Event::ItemDeleted { item: id.clone() });
            }
            None => self.no_item(tag, id),
        }
    }

    /// Only `audio_end_ms` of a spoken item was heard. More than there is, is taken for all of it: clients count
    /// in wall time and overshoot.
    pub(super) fn truncate_item(
        &mut self,
        _now: Duration,
        tag: Tag,
        id: &ItemId,
        content_index: u32,
        audio_end_ms: u64,
    ) {
        let Some(item) = self.history.get(id) else { return self.no_item(tag, id) };
        let ItemKind::Message { role: Role::Assistant, parts } = &item.kind else {
            let message = "Only model output audio messages can be truncated";
            return self.reject(tag, RejectionCode::InvalidValue, message, Some("item_id"));
        };
        if parts.first().is_none_or(|part| !matches!(part, Part::OutputAudio { .. })) {
            let message = "Only model output audio messages can be truncated";
            return self.reject(tag, RejectionCode::InvalidValue, message, Some("item_id"));
        }
        if content_index != 0 {
            let message = format!("item '{id}' has one content part");
            return self.reject(tag, RejectionCode::InvalidValue, message, Some("content_index"));
        }
        let samples = audio_end_ms.saturating_mul(u64::from(SPEAKING_RATE)) / 1000;
        let real = self.open_samples(id).or_else(|| self.history.spoken(id).map(|spoken| spoken.samples));
        let samples = samples.min(real.unwrap_or(0));
        if self.history.cut(id, samples, Source::Reported).is_none() {
            // Still being written: the cut waits for its words.
            let heard = Some((samples, Source::Reported));
            self.history.set_spoken(id, Spoken { heard, ..Spoken::default() });
        }
        let audio_end_ms = samples * 1000 / u64::from(SPEAKING_RATE);
        self.emit(Event::ItemTruncated { item: id.clone(), content_index, audio_end_ms });
    }

    fn no_item(&mut self, tag: Tag, id: &ItemId) {
        let message = format!("Item with item_id '{id}' not found");
        self.reject(tag, RejectionCode::ItemNotFound, message, Some("item_id"));
    }

    /// Keeps the history within its limit: the oldest whole items go.
    pub(super) fn make_room(&mut self) {
        while self.history.len() >= self.limits.max_items {
            let Some(oldest) = self.history.oldest_whole() else { return };
            self.history.remove(&oldest);
            self.emit(Event::ItemDeleted { item: oldest });
        }
    }
}

fn part_chars(part: &Part) -> usize {
    match part {
        Part::InputText(text) | Part::OutputText(text) | Part::OutputAudio { transcript: text } => {
            text.expose().chars().count()
        }
        Part::InputAudio { transcript, .. } => {
            transcript.as_ref().map_or(0, |text| text.expose().chars().count())
        }
    }
}
