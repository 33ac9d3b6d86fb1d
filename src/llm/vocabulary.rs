//! What a GGUF file says about its text side: tokens, merges, template.
//!
//! Only the header is read, never a tensor. Keys follow the GGUF
//! specification (`tokenizer.ggml.*`, `tokenizer.chat_template`).

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use candle_core::quantized::gguf_file::{Content, Value};

use super::LlmError;

/// What a token is for (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Text.
    Normal,
    /// A mark of the chat format; it is no text.
    Control,
    /// A mark that is text too (`<tool_call>`).
    Marker,
    /// Padding of the embedding table.
    Unused,
}

/// The text side of a model file.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// The model's own name.
    pub name: String,
    /// How text is cut before byte pairs are merged (`tokenizer.ggml.pre`).
    pub pre: String,
    /// Every token in the byte-level alphabet, by id.
    pub tokens: Vec<String>,
    /// What each token is for, by id.
    pub kinds: Vec<TokenKind>,
    /// Byte-pair merges, strongest first.
    pub merges: Vec<(String, String)>,
    /// Ids that the file names as the end of a turn or text.
    pub ends: Vec<u32>,
    /// Put before every prompt, when the file asks for it.
    pub bos: Option<u32>,
    /// The Jinja chat template.
    pub chat_template: Option<String>,
    /// Longest sequence the model was made for, in tokens.
    pub context: usize,
}

impl Vocabulary {
    /// Reads the header of a GGUF file.
    ///
    /// # Errors
    /// [`LlmError::Model`], naming the file and the key, for a file that cannot
    /// be read or whose tokenizer is not byte-level BPE (`gpt2`).
    pub fn read(path: &Path) -> Result<Self, LlmError> {
        let fault = |reason: String| LlmError::Model(format!("{}: {reason}", path.display()));
        let file = File::open(path).map_err(|error| fault(error.to_string()))?;
        let content = Content::read(&mut BufReader::new(file))
            .map_err(|error| fault(first_line(&error.to_string())))?;
        Self::from_header(&content).map_err(fault)
    }

    fn from_header(content: &Content) -> Result<Self, String> {
        let header = Header(content);
        let model = header.text("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(format!("tokenizer.ggml.model is '{model}'; only byte-level BPE ('gpt2') is known"));
        }
        let tokens = header.texts("tokenizer.ggml.tokens")?;
        let kinds = header.kinds(tokens.len())?;
        let merges = header
            .texts("tokenizer.ggml.merges")?
            .into_iter()
            .map(|merge| match merge.split_once(' ') {
                Some((left, right)) => Ok((left.to_owned(), right.to_owned())),
                None => Err("tokenizer.ggml.merges has an entry without a space".to_owned()),
            })
            .collect::<Result<_, _>>()?;
        let ends =
            ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
        let architecture = header.text("general.architecture")?;
        let add_bos = matches!(content.metadata.get("tokenizer.ggml.add_bos_token"), Some(Value::Bool(true)));
        Ok(Self {
            name: header.text("general.name").unwrap_or_else(|_| architecture.clone()),
            pre: header.text("tokenizer.ggml.pre")?,
            ends: ends.iter().filter_map(|key| header.number(key)).collect(),
            bos: header.number("tokenizer.ggml.bos_token_id").filter(|_| add_bos),
            chat_template: header.text("tokenizer.chat_template").ok(),
            context: header
                .number(&format!("{architecture}.context_length"))
                .ok_or_else(|| format!("{architecture}.context_length is missing"))?
                as usize,
            tokens,
            kinds,
            merges,
        })
    }
}

struct Header<'a>(&'a Content);

impl Header<'_> {
    fn get(&self, key: &str) -> Result<&Value, String> {
        self.0.metadata.get(key).ok_or_else(|| format!("{key} is missing"))
    }

    fn text(&self, key: &str) -> Result<String, String> {
        self.get(key)?.to_string().cloned().map_err(|_| format!("{key} is no text"))
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, String> {
        let list = self.get(key)?.to_vec().map_err(|_| format!("{key} is no list"))?;
        list.iter()
            .map(|value| {
                value.to_string().cloned().map_err(|_| format!("{key} has an entry that is no text"))
            })
            .collect()
    }

    fn number(&self, key: &str) -> Option<u32> {
        match self.0.metadata.get(key)? {
            Value::U32(number) => Some(*number),
            Value::I32(number) => (*number).try_into().ok(),
            Value::U64(number) => (*number).try_into().ok(),
            _ => None,
        }
    }

    fn kinds(&self, len: usize) -> Result<Vec<TokenKind>, String> {
        let key = "tokenizer.ggml.token_type";
        let list = self.get(key)?.to_vec().map_err(|_| format!("{key} is no list"))?;
        if list.len() != len {
            return Err(format!("{key} has {} entries for {len} tokens", list.len()));
        }
        list.iter()
            .map(|value| match value {
                Value::I32(1 | 6) | Value::U32(1 | 6) => Ok(TokenKind::Normal),
                Value::I32(2 | 5) | Value::U32(2 | 5) => Ok(TokenKind::Unused),
                Value::I32(3) | Value::U32(3) => Ok(TokenKind::Control),
                Value::I32(4) | Value::U32(4) => Ok(TokenKind::Marker),
                _ => Err(format!("{key} has an entry that is no token type")),
            })
            .collect()
    }
}

/// Candle's errors carry a backtrace after the first line.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_model_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("model.gguf");
        let missing = Vocabulary::read(&path).expect_err("it is not there");
        assert!(missing.to_string().contains("model.gguf"), "{missing}");
        std::fs::write(&path, b"not a model at all").expect("written");
        let wrong = Vocabulary::read(&path).expect_err("it is none");
        assert!(wrong.to_string().contains("model.gguf"), "{wrong}");
        assert_eq!(wrong.to_string().lines().count(), 1);
    }
}
