//! Text to token ids and back, from the vocabulary of a model file.
//!
//! Byte-level BPE. What a person typed can never become a control token:
//! [`Tokenizer::encode`] knows none, and [`Tokenizer::encode_marked`], which
//! reads a rendered chat template, passes over what [`Tokenizer::guard`]
//! covered.

use std::borrow::Cow;
use std::collections::HashMap;

use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

use super::LlmError;
use super::vocabulary::{TokenKind, Vocabulary};

/// How Qwen2 cuts text: words with the space before them, digits one by one.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Splits a control token in two where a person typed one. A noncharacter
/// (Unicode 23.7): no interchanged text holds it, and it is dropped if one does.
const GUARD: char = '\u{FDD0}';

/// Names under which chat formats close a turn, beside the ids the file gives.
const ENDS: [&str; 6] =
    ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|im_start|>", "<|end|>"];

/// The tokenizer of one model. Shared by all generations.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Bytes of every token, joined; token `i` is `ends[i-1]..ends[i]`.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    /// Control tokens and markers, longest first.
    marks: Vec<(String, u32)>,
    stops: Vec<u32>,
    bos: Option<u32>,
}

impl Tokenizer {
    /// Builds the tokenizer of a vocabulary.
    ///
    /// # Errors
    /// [`LlmError::Model`] for a pre-tokenizer that is not known (`qwen2`,
    /// `smollm`) or merges that do not fit the tokens.
    pub fn new(vocabulary: &Vocabulary) -> Result<Self, LlmError> {
        let fault = |error: Box<dyn std::error::Error + Send + Sync>| {
            LlmError::Model(format!("{}: tokenizer: {error}", vocabulary.name))
        };
        let ids = vocabulary.tokens.iter().cloned().zip(0..).collect();
        let bpe = BPE::new(ids, vocabulary.merges.clone());
        let mut inner = tokenizers::Tokenizer::new(bpe);
        let digits_alone = |rest: Vec<PreTokenizerWrapper>| Sequence::new(rest);
        match vocabulary.pre.as_str() {
            "qwen2" => {
                inner.with_normalizer(Some(NFC)).map_err(fault)?;
                let words = Split::new(
                    SplitPattern::Regex(QWEN2.to_owned()),
                    SplitDelimiterBehavior::Isolated,
                    false,
                )
                .map_err(fault)?;
                let bytes = ByteLevel::new(false, false, false);
                inner.with_pre_tokenizer(Some(digits_alone(vec![words.into(), bytes.into()])));
            }
            "smollm" => {
                let bytes = ByteLevel::new(false, false, true);
                inner.with_pre_tokenizer(Some(digits_alone(vec![Digits::new(true).into(), bytes.into()])));
            }
            other => {
                return Err(LlmError::Model(format!(
                    "{}: pre-tokenizer '{other}' is not known (known: qwen2, smollm)",
                    vocabulary.name
                )));
            }
        }
        let (bytes, ends) = spell_out(vocabulary);
        let is_mark = |id: usize| matches!(vocabulary.kinds[id], TokenKind::Control | TokenKind::Marker);
        let mut marks: Vec<(String, u32)> = vocabulary
            .tokens
            .iter()
            .zip(0_u32..)
            .filter(|(token, id)| is_mark(*id as usize) && !token.is_empty())
            .map(|(token, id)| (token.clone(), id))
            .collect();
        marks.sort_by_key(|(token, _)| std::cmp::Reverse(token.len()));
        let mut stops = vocabulary.ends.clone();
        stops.extend(marks.iter().filter(|(token, _)| ENDS.contains(&token.as_str())).map(|(_, id)| *id));
        stops.sort_unstable();
        stops.dedup();
        Ok(Self { inner, bytes, ends, kinds: vocabulary.kinds.clone(), marks, stops, bos: vocabulary.bos })
    }

    /// Ids of plain text; nothing in it is a control token.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        if text.is_empty() {
            return Vec::new();
        }
        self.inner
            .encode_fast(text, false)
            .expect("byte-level BPE knows every text, and no post-processor or truncation is set")
            .get_ids()
            .to_vec()
    }

    /// Ids of a rendered template: control tokens and markers are read as such,
    /// except where [`guard`](Self::guard) covered them.
    pub fn encode_marked(&self, rendered: &str) -> Vec<u32> {
        let mut ids: Vec<u32> = self.bos.into_iter().collect();
        let mut rest = rendered;
        while let Some((at, mark, id)) = self.first_mark(rest) {
            ids.extend(self.encode(&uncover(&rest[..at])));
            ids.push(id);
            rest = &rest[at + mark.len()..];
        }
        ids.extend(self.encode(&uncover(rest)));
        ids
    }

    /// Covers every control token and marker in a text from outside, so that
    /// [`encode_marked`](Self::encode_marked) reads it as text.
    pub fn guard<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let text = uncover(text);
        let open = self.marks.iter().any(|(mark, _)| ends_inside(&text, mark));
        if !open && self.first_mark(&text).is_none() {
            return text;
        }
        let mut covered = String::with_capacity(text.len() + 8);
        let mut rest = &*text;
        while let Some((at, mark, _)) = self.first_mark(rest) {
            let first = mark.chars().next().map_or(0, char::len_utf8);
            covered.push_str(&rest[..at + first]);
            covered.push(GUARD);
            rest = &rest[at + first..];
        }
        covered.push_str(rest);
        if open {
            covered.push(GUARD);
        }
        Cow::Owned(covered)
    }

    /// The bytes a token stands for; a control or unused token stands for none.
    pub fn bytes(&self, id: u32) -> &[u8] {
        let Some(end) = self.ends.get(id as usize) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id as usize - 1] };
        &self.bytes[start as usize..*end as usize]
    }

    /// What a token is for; `None` for an id that is not of this vocabulary.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// The id of a control token or marker.
    pub fn mark(&self, text: &str) -> Option<u32> {
        self.marks.iter().find(|(mark, _)| mark == text).map(|(_, id)| *id)
    }

    /// Ids that end an answer.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// The leftmost mark, the longest one there.
    fn first_mark(&self, text: &str) -> Option<(usize, &str, u32)> {
        let found = self.marks.iter().filter_map(|(mark, id)| Some((text.find(mark)?, mark.as_str(), *id)));
        found.min_by_key(|(at, mark, _)| (*at, std::cmp::Reverse(mark.len())))
    }
}

/// Whether the text ends in the middle of this mark.
fn ends_inside(text: &str, mark: &str) -> bool {
    mark.char_indices().skip(1).any(|(at, _)| text.ends_with(&mark[..at]))
}

fn uncover(text: &str) -> Cow<'_, str> {
    if text.contains(GUARD) { Cow::Owned(text.replace(GUARD, "")) } else { Cow::Borrowed(text) }
}

/// The bytes of every token, joined, and where each ends.
fn spell_out(vocabulary: &Vocabulary) -> (Vec<u8>, Vec<u32>) {
    let alphabet = alphabet();
    let mut bytes = Vec::with_capacity(vocabulary.tokens.len() * 6);
    let mut ends = Vec::with_capacity(vocabulary.tokens.len());
    for (token, kind) in vocabulary.tokens.iter().zip(&vocabulary.kinds) {
        match kind {
            TokenKind::Normal => bytes.extend(token.chars().filter_map(|c| alphabet.get(&c))),
            TokenKind::Marker => bytes.extend_from_slice(token.as_bytes()),
            TokenKind::Control | TokenKind::Unused => {}
        }
        ends.push(u32::try_from(bytes.len()).expect("a vocabulary has far less than 4 GiB of text"));
    }
    (bytes, ends)
}

/// The byte-level alphabet (GPT-2): printable bytes stand for themselves, the
/// others for the characters from U+0100 on, in order.
fn alphabet() -> HashMap<char, u8> {
    let itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100;
    (0..=255_u8)
        .map(|byte| {
            let code = if itself(byte) {
                u32::from(byte)
            } else {
                next += 1;
                next - 1
            };
            (char::from_u32(code).expect("below U+0200 every code is a character"), byte)
        })
        .collect()
}
