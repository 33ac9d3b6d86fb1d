//! Growing transcripts as deltas.
//!
//! The recogniser replaces its partial each time; the protocol only knows
//! deltas that are appended. Sent is therefore only what two partials in a row
//! agree on, up to a word boundary, and nothing more once a partial contradicts
//! what was already sent: `completed` brings the whole text anyway.

use std::collections::HashMap;

use crate::session::ids::ItemId;

/// What was sent of each open transcript.
#[derive(Debug, Default)]
pub struct Transcripts {
    open: HashMap<ItemId, Open>,
}

#[derive(Debug, Default)]
struct Open {
    sent: String,
    last: String,
}

impl Transcripts {
    /// The whole text so far; gives the delta that can be sent now.
    pub fn partial(&mut self, item: &ItemId, text: &str) -> Option<String> {
        let open = self.open.entry(item.clone()).or_default();
        let agreed = agreed_words(&open.last, text);
        open.last = text.to_owned();
        let delta = agreed.strip_prefix(open.sent.as_str()).filter(|delta| !delta.is_empty())?.to_owned();
        open.sent.push_str(&delta);
        Some(delta)
    }

    /// The final text; gives the last delta where it continues what was sent.
    pub fn done(&mut self, item: &ItemId, text: &str) -> Option<String> {
        let sent = self.open.remove(item).unwrap_or_default().sent;
        text.strip_prefix(sent.as_str()).filter(|delta| !delta.is_empty()).map(str::to_owned)
    }

    /// Forgets an item.
    pub fn forget(&mut self, item: &ItemId) {
        self.open.remove(item);
    }
}

/// The common start of two texts, up to the end of a word.
fn agreed_words<'t>(before: &str, now: &'t str) -> &'t str {
    let common = before
        .char_indices()
        .zip(now.chars())
        .find(|((_, a), b)| a != b)
        .map_or(before.len().min(now.len()), |((at, _), _)| at);
    if common == now.len() && common == before.len() {
        return now;
    }
    now[..common].rfind(char::is_whitespace).map_or("", |end| &now[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_add_up_to_the_final_text() {
        let item = ItemId::from("item_1");
        let mut transcripts = Transcripts::default();
        let mut sent = String::new();
        for partial in
            ["What", "What is the", "What is the cap", "What is the capital of", "What is the capital of"]
        {
            sent.extend(transcripts.partial(&item, partial));
        }
        assert_eq!(sent, "What is the capital of");
        sent.extend(transcripts.done(&item, "What is the capital of France?"));
        assert_eq!(sent, "What is the capital of France?");
        assert!(transcripts.open.is_empty());
    }

    #[test]
    fn a_correction_of_what_was_sent_ends_the_deltas() {
        let item = ItemId::from("item_1");
        let mut transcripts = Transcripts::default();
        assert_eq!(transcripts.partial(&item, "I scream now"), None);
        assert_eq!(transcripts.partial(&item, "I scream now and"), Some("I scream".to_owned()));
        assert_eq!(transcripts.partial(&item, "Ice cream now"), None);
        assert_eq!(transcripts.partial(&item, "Ice cream now please"), None);
        assert_eq!(transcripts.done(&item, "Ice cream now, please."), None);
    }

    #[test]
    fn letters_of_several_bytes_are_never_cut() {
        let item = ItemId::from("item_1");
        let mut transcripts = Transcripts::default();
        transcripts.partial(&item, "Où êtes vôus");
        assert_eq!(transcripts.partial(&item, "Où êtes vous là"), Some("Où êtes".to_owned()));
    }
}
