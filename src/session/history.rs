//! What was said and, of the agent's speech, what was heard.
//!
//! Owns: the items in order, the word spans of spoken ones, the prompt made of
//! them. Must not know: events, turns, clocks.

use std::collections::HashMap;
use std::sync::Arc;

use super::ids::{CallId, ItemId};
use super::item::{Item, ItemKind, ItemStatus, Part, Place};
use super::playback::Source;
use crate::audio::SPEAKING_RATE;
use crate::error::Private;
use crate::llm::{Message, Role, ToolCall};

/// Where a word of a spoken item lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// One past the word's last byte in the item's text.
    pub to: usize,
    /// First sample at [`SPEAKING_RATE`] of the item's audio.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

/// What is known of an item that was spoken.
#[derive(Clone, Debug, Default)]
pub struct Spoken {
    /// Everything written for it.
    pub text: String,
    /// Its words, in order.
    pub spans: Vec<Span>,
    /// Its audio so far.
    pub samples: u64,
    /// Samples that were heard, where the speech was cut, and how that is known.
    pub heard: Option<(u64, Source)>,
}

impl Spoken {
    /// Only so much was heard. What the far end says counts more than the clock; else a later cut can only shorten.
    pub fn cut(&mut self, samples: u64, source: Source) {
        self.heard = Some(match (self.heard, source) {
            (Some(heard @ (_, Source::Reported)), Source::Estimated) => heard,
            (Some((heard, earlier)), source) if earlier == source => (heard.min(samples), source),
            _ => (samples, source),
        });
    }

    /// The words that were heard: all of them, or up to the last one of which more than half was played.
    pub fn heard_text(&self) -> &str {
        let Some((heard, _)) = self.heard else { return &self.text };
        let end = self
            .spans
            .iter()
            .take_while(|span| span.start + (span.end - span.start) / 2 < heard)
            .last()
            .map_or(0, |span| span.to);
        let mut end = end.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        // The mark that closes the last word belongs to it.
        let rest = &self.text[end..];
        let marks = rest.find(|c: char| c.is_alphanumeric() || c.is_whitespace()).unwrap_or(rest.len());
        if end == 0 { "" } else { &self.text[..end + marks] }
    }

    /// Length of its audio, ms.
    pub fn duration_ms(&self) -> u64 {
        self.samples * 1000 / u64::from(SPEAKING_RATE)
    }
}

/// Why an item cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is one of this id.
    Duplicate,
    /// The item to come after is not there.
    NoSuchPlace(ItemId),
}

/// The conversation's items.
#[derive(Clone, Debug, Default)]
pub struct History {
    items: Vec<Item>,
    spoken: HashMap<ItemId, Spoken>,
    most_audio: usize,
}

impl History {
    /// An empty one that keeps this many samples of what the caller said, for retrieval.
    pub fn new(most_audio: usize) -> Self {
        Self { most_audio, ..Self::default() }
    }

    /// Adds an item; returns the id of the one before it.
    ///
    /// # Errors
    /// A duplicate id, or a place that is not there.
    pub fn add(&mut self, item: Item, place: &Place) -> Result<Option<ItemId>, Refused> {
        if self.get(&item.id).is_some() {
            return Err(Refused::Duplicate);
        }
        let index = match place {
            Place::End => self.items.len(),
            Place::Root => 0,
            Place::After(id) => self.position(id).ok_or_else(|| Refused::NoSuchPlace(id.clone()))? + 1,
        };
        self.items.insert(index, item);
        self.forget_audio();
        Ok(self.before(index))
    }

    /// Keeps the newest audio within the limit; items lose theirs whole.
    fn forget_audio(&mut self) {
        let mut left = self.most_audio;
        for item in self.items.iter_mut().rev() {
            let ItemKind::Message { parts, .. } = &mut item.kind else { continue };
            for part in parts {
                if let Part::InputAudio { audio, .. } = part {
                    if audio.len() > left {
                        left = 0;
                        *audio = Arc::default();
                    }
                    left -= audio.len();
                }
            }
        }
    }

    /// The item before this one.
    pub fn previous(&self, id: &ItemId) -> Option<ItemId> {
        self.position(id).and_then(|index| self.before(index))
    }

    fn before(&self, index: usize) -> Option<ItemId> {
        index.checked_sub(1).map(|index| self.items[index].id.clone())
    }

    /// Id of the newest item.
    pub fn last(&self) -> Option<ItemId> {
        self.items.last().map(|item| item.id.clone())
    }

    /// Items kept.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing was said yet.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// An item by id.
    pub fn get(&self, id: &ItemId) -> Option<&Item> {
        self.items.iter().find(|item| item.id == *id)
    }

    /// An item by id, to change.
    pub fn get_mut(&mut self, id: &ItemId) -> Option<&mut Item> {
        self.items.iter_mut().find(|item| item.id == *id)
    }

    /// Removes an item.
    pub fn remove(&mut self, id: &ItemId) -> Option<Item> {
        self.spoken.remove(id);
        self.position(id).map(|index| self.items.remove(index))
    }

    /// The oldest item that is whole, for making room.
    pub fn oldest_whole(&self) -> Option<ItemId> {
        self.items.iter().find(|item| item.status != ItemStatus::InProgress).map(|item| item.id.clone())
    }

    fn position(&self, id: &ItemId) -> Option<usize> {
        self.items.iter().position(|item| item.id == *id)
    }

    /// Sets the words of what the user said.
    pub fn set_transcript(&mut self, id: &ItemId, words: &str) {
        let Some(Item { kind: ItemKind::Message { parts, .. }, .. }) = self.get_mut(id) else { return };
        for part in parts {
            if let Part::InputAudio { transcript, .. } = part {
                *transcript = Some(Private::new(words.to_owned()));
            }
        }
    }

    /// What is known of a spoken item.
    pub fn spoken(&self, id: &ItemId) -> Option<&Spoken> {
        self.spoken.get(id)
    }

    /// Keeps what is known of a spoken item; its transcript becomes the words heard.
    pub fn set_spoken(&mut self, id: &ItemId, spoken: Spoken) {
        let heard = spoken.heard_text().to_owned();
        if let Some(Item { kind: ItemKind::Message { parts, .. }, .. }) = self.get_mut(id) {
            for part in parts {
                if let Part::OutputAudio { transcript } = part {
                    *transcript = Private::new(heard.clone());
                }
            }
        }
        self.spoken.insert(id.clone(), spoken);
    }

    /// Cuts a spoken item to what was heard of it. `None` when it was not spoken.
    pub fn cut(&mut self, id: &ItemId, samples: u64, source: Source) -> Option<()> {
        let mut spoken = self.spoken.remove(id)?;
        spoken.cut(samples, source);
        self.set_spoken(id, spoken);
        Some(())
    }

    /// The prompt: instructions, then what was said and heard, the oldest left out above `limit` characters.
    pub fn prompt(&self, instructions: &str, limit: usize) -> Vec<Message> {
        prompt(self.items.iter(), instructions, limit)
    }
}

/// A prompt of these items.
pub fn prompt<'a>(items: impl Iterator<Item = &'a Item>, instructions: &str, limit: usize) -> Vec<Message> {
    let mut messages: Vec<Message> = items.filter_map(message).collect();
    let mut left = limit;
    let mut keep = messages.len();
    for message in messages.iter().rev() {
        let chars = message.text.expose().chars().count()
            + message.tool_calls.iter().map(|call| call.arguments.len() + call.name.len()).sum::<usize>();
        // The newest message always stays: a prompt without a question has no answer.
        if chars > left && keep < messages.len() {
            break;
        }
        left = left.saturating_sub(chars);
        keep -= 1;
    }
    messages.drain(..keep);
    // A history does not begin with an answer to a question that was left out.
    if keep > 0 {
        let first = messages.iter().position(|message| message.role == Role::User).unwrap_or(0);
        messages.drain(..first);
    }
    if !instructions.is_empty() {
        messages.insert(0, Message::text(Role::System, instructions));
    }
    messages
}

/// An item as a message; `None` when it holds no words.
fn message(item: &Item) -> Option<Message> {
    match &item.kind {
        ItemKind::Message { role, parts } => {
            let mut text = String::new();
            for part in parts {
                let words = match part {
                    Part::InputText(words) | Part::OutputText(words) => words.expose(),
                    Part::OutputAudio { transcript } => transcript.expose(),
                    Part::InputAudio { transcript: Some(words), .. } => words.expose(),
                    Part::InputAudio { transcript: None, .. } => continue,
                };
                if !text.is_empty() && !words.is_empty() {
                    text.push(' ');
                }
                text.push_str(words);
            }
            (!text.trim().is_empty()).then(|| Message::text(*role, text))
        }
        ItemKind::FunctionCall { name, call_id, arguments } => {
            let call = ToolCall {
                id: call_id.as_str().to_owned(),
                name: name.clone(),
                arguments: arguments.clone(),
            };
            Some(Message { tool_calls: vec![call], ..Message::text(Role::Assistant, "") })
        }
        ItemKind::FunctionCallOutput { call_id: CallId(id), output } => Some(Message {
            tool_call_id: Some(id.clone()),
            ..Message::text(Role::Tool, output.expose().clone())
        }),
    }
}

/// A user's item that was spoken.
pub fn heard_item(id: ItemId, audio: Arc<Vec<f32>>) -> Item {
    Item {
        id,
        status: ItemStatus::Completed,
        kind: ItemKind::Message {
            role: Role::User,
            parts: vec![Part::InputAudio { transcript: None, audio }],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(id: &str, role: Role, text: &str) -> Item {
        Item {
            id: ItemId::from(id),
            status: ItemStatus::Completed,
            kind: ItemKind::Message { role, parts: vec![Part::InputText(Private::new(text.into()))] },
        }
    }

    fn spoken() -> Spoken {
        // "Hello there, friend." at 1,000 samples a word.
        let spans = vec![
            Span { to: 5, start: 0, end: 1000 },
            Span { to: 11, start: 1000, end: 2000 },
            Span { to: 19, start: 2000, end: 3000 },
        ];
        Spoken { text: "Hello there, friend.".into(), spans, samples: 3000, heard: None }
    }

    #[test]
    fn heard_words_end_at_the_last_word_heard_for_the_most_part() {
        let cut =
            |heard| Spoken { heard: Some((heard, Source::Estimated)), ..spoken() }.heard_text().to_owned();
        assert_eq!(cut(0), "");
        assert_eq!(cut(400), "");
        assert_eq!(cut(700), "Hello");
        assert_eq!(cut(1999), "Hello there,");
        assert_eq!(cut(3000), "Hello there, friend.");
        assert_eq!(spoken().heard_text(), "Hello there, friend.");
    }

    #[test]
    fn items_go_where_they_are_put() {
        let mut history = History::default();
        assert_eq!(history.add(said("a", Role::User, "1"), &Place::End), Ok(None));
        assert_eq!(history.add(said("b", Role::User, "2"), &Place::End), Ok(Some("a".into())));
        assert_eq!(history.add(said("c", Role::User, "3"), &Place::Root), Ok(None));
        assert_eq!(history.add(said("d", Role::User, "4"), &Place::After("c".into())), Ok(Some("c".into())));
        assert_eq!(history.add(said("d", Role::User, "4"), &Place::End), Err(Refused::Duplicate));
        let place = Place::After("x".into());
        assert_eq!(history.add(said("e", Role::User, "5"), &place), Err(Refused::NoSuchPlace("x".into())));
        let words: Vec<_> =
            history.prompt("", 100).iter().map(|message| message.text.expose().clone()).collect();
        assert_eq!(words, ["3", "4", "1", "2"]);
    }

    #[test]
    fn a_long_history_loses_its_oldest_turns_whole() {
        let mut history = History::default();
        for turn in 0..10 {
            for (role, name) in [(Role::User, "u"), (Role::Assistant, "a")] {
                let id = format!("{name}{turn}");
                history.add(said(&id, role, &format!("{name}{turn:09}")), &Place::End).expect("a new id");
            }
        }
        let messages = history.prompt("be kind", 55);
        assert_eq!(messages[0].role, Role::System);
        assert_eq!(messages[1].role, Role::User, "an answer without its question is left out");
        assert_eq!(messages.len(), 5);
        assert_eq!(messages[4].text.expose(), "a000000009");
        assert_eq!(history.prompt("", 1).len(), 1, "the newest message always stays");
    }

    #[test]
    fn cutting_twice_only_shortens_but_the_far_end_knows_better() {
        let mut history = History::default();
        let item = Item {
            kind: ItemKind::Message {
                role: Role::Assistant,
                parts: vec![Part::OutputAudio { transcript: Private::default() }],
            },
            ..said("a", Role::Assistant, "")
        };
        history.add(item, &Place::End).expect("a new id");
        history.set_spoken(&"a".into(), spoken());
        let mut cut = |samples, source| {
            history.cut(&"a".into(), samples, source).expect("spoken");
            history.prompt("", 100)[0].text.expose().clone()
        };
        assert_eq!(cut(700, Source::Estimated), "Hello");
        assert_eq!(cut(2500, Source::Estimated), "Hello");
        assert_eq!(cut(1999, Source::Reported), "Hello there,");
        assert_eq!(cut(700, Source::Estimated), "Hello there,");
        assert_eq!(cut(3000, Source::Reported), "Hello there,");
        assert_eq!(history.cut(&"b".into(), 1, Source::Reported), None);
    }

    #[test]
    fn only_the_newest_audio_is_kept() {
        let mut history = History::new(250);
        for id in ["a", "b", "c"] {
            history.add(heard_item(id.into(), Arc::new(vec![0.5; 100])), &Place::End).expect("a new id");
        }
        let kept = |id: &str| match &history.get(&id.into()).expect("added").kind {
            ItemKind::Message { parts, .. } => match &parts[..] {
                [Part::InputAudio { audio, .. }] => audio.len(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!([kept("a"), kept("b"), kept("c")], [0, 100, 100]);
    }
}
