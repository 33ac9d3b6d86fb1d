//! Writing the ggml file that whisper.cpp loads.
//!
//! Little endian: `u32` magic, 11 `i32` hyper-parameters, the mel filters, the
//! vocabulary as raw bytes, then per tensor: rank, name length, type, the
//! dimensions innermost first, name, data. (`models/convert-pt-to-ggml.py` of
//! whisper.cpp; the reader is `whisper_model_load`.) Special tokens are not
//! written: whisper.cpp makes them up itself.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use super::ct2::Model;
use super::{ConvertError, io_at, mel};

/// "ggml" as whisper.cpp reads it.
pub(super) const MAGIC: u32 = 0x6767_6d6c;
/// `ftype` and tensor type of 16-bit floats, in ggml's numbering; f32 is 0.
const F16: i32 = 1;
const F32: i32 = 0;
/// The first special token: where the vocabulary proper ends.
const FIRST_SPECIAL: &str = "<|endoftext|>";
/// whisper.cpp takes a model with at least so many tokens for a multilingual one.
const MULTILINGUAL_VOCAB: usize = 51_865;

/// Writes the whole file. `path` is only for messages.
pub(super) fn write(
    model: &Model<'_>,
    vocabulary: &str,
    out: &mut impl Write,
    path: &Path,
) -> Result<(), ConvertError> {
    let shape = Shape::of(model)?;
    let tokens = tokens(vocabulary, shape.vocab)?;
    let mut head = MAGIC.to_le_bytes().to_vec();
    let params = [
        shape.vocab,
        shape.audio_ctx,
        shape.audio_state,
        shape.audio_heads,
        shape.audio_layers,
        shape.text_ctx,
        shape.text_state,
        shape.text_heads,
        shape.text_layers,
        shape.mels,
    ];
    params.iter().for_each(|&n| put(&mut head, n));
    head.extend(F16.to_le_bytes());
    put(&mut head, shape.mels);
    put(&mut head, mel::BINS);
    mel::filters(shape.mels).iter().for_each(|w| head.extend(w.to_le_bytes()));
    put(&mut head, tokens.len());
    for token in &tokens {
        put(&mut head, token.len());
        head.extend(token);
    }
    out.write_all(&head).map_err(io_at(path))?;

    for tensor in plan(&shape) {
        let bytes = tensor.encode(model)?;
        out.write_all(&bytes).map_err(io_at(path))?;
    }
    Ok(())
}

/// Appends a size as whisper.cpp's `i32`. Every size here comes from a file
/// whose own sizes are 32 bits wide.
fn put(out: &mut Vec<u8>, n: usize) {
    out.extend((n as u32).to_le_bytes());
}

/// The hyper-parameters, read off the tensors.
struct Shape {
    vocab: usize,
    audio_ctx: usize,
    audio_state: usize,
    audio_heads: usize,
    audio_layers: usize,
    text_ctx: usize,
    text_state: usize,
    text_heads: usize,
    text_layers: usize,
    mels: usize,
}

impl Shape {
    fn of(model: &Model<'_>) -> Result<Self, ConvertError> {
        let dims = |name: &str, rank: usize| {
            let shape = &model.get(name)?.shape;
            if shape.len() == rank {
                Ok(shape.clone())
            } else {
                Err(ConvertError::Shape(format!("'{name}' has shape {shape:?}, expected {rank} dimensions")))
            }
        };
        let embeddings = dims("decoder/embeddings/weight", 2)?;
        let audio = dims("encoder/position_encodings/encodings", 2)?;
        let text = dims("decoder/position_encodings/encodings", 2)?;
        Ok(Self {
            vocab: embeddings[0],
            audio_ctx: audio[0],
            audio_state: audio[1],
            audio_heads: model.count("encoder/num_heads")?,
            audio_layers: model.layers("encoder"),
            text_ctx: text[0],
            text_state: text[1],
            text_heads: model.count("decoder/num_heads")?,
            text_layers: model.layers("decoder"),
            mels: dims("encoder/conv1/weight", 3)?[1],
        })
    }
}

/// The byte strings of the vocabulary proper, in order of id.
fn tokens(vocabulary: &str, vocab: usize) -> Result<Vec<Vec<u8>>, ConvertError> {
    let bytes_of = byte_alphabet();
    let mut tokens = Vec::with_capacity(vocab);
    for (line, token) in vocabulary.split('\n').enumerate() {
        let token = token.strip_suffix('\r').unwrap_or(token);
        if token == FIRST_SPECIAL {
            // The English models keep GPT-2's vocabulary, whose last word this is.
            if vocab < MULTILINGUAL_VOCAB {
                tokens.push(FIRST_SPECIAL.as_bytes().to_vec());
            }
            return if tokens.len() <= vocab {
                Ok(tokens)
            } else {
                Err(ConvertError::Shape(format!(
                    "the vocabulary has {} words, the model room for {vocab} tokens",
                    tokens.len()
                )))
            };
        }
        let bytes = token.chars().map(|c| bytes_of.get(&c).copied()).collect::<Option<Vec<u8>>>();
        tokens.push(bytes.ok_or_else(|| {
            ConvertError::Unknown(format!("line {} of the vocabulary is not byte-level BPE", line + 1))
        })?);
    }
    Err(ConvertError::Truncated(format!("the vocabulary has no '{FIRST_SPECIAL}'")))
}

/// GPT-2's printable stand-ins for bytes, back to the bytes: printable Latin-1
/// stands for itself, the other 68 bytes for U+0100 onwards in order.
fn byte_alphabet() -> HashMap<char, u8> {
    let mut next = 0x100_u32;
    (0..=255_u8)
        .map(|b| {
            let printable = matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            let c = if printable {
                char::from(b)
            } else {
                next += 1;
                char::from_u32(next - 1).expect("U+0100 to U+0143 are letters")
            };
            (c, b)
        })
        .collect()
}

/// One tensor to write: where it comes from and how it is stored.
struct Tensor {
    name: String,
    source: String,
    /// Which of how many equal parts of the source's rows.
    part: (usize, usize),
    /// The shape wanted, outermost first.
    shape: Vec<usize>,
    kind: i32,
}

impl Tensor {
    fn encode(&self, model: &Model<'_>) -> Result<Vec<u8>, ConvertError> {
        let floats = model.get(&self.source)?.floats(&self.source)?;
        let (index, parts) = self.part;
        let wanted = self.shape.iter().product::<usize>();
        if floats.len() != wanted * parts {
            return Err(ConvertError::Shape(format!(
                "'{}' has {} numbers, expected {}",
                self.source,
                floats.len(),
                wanted * parts
            )));
        }
        let mut out = Vec::with_capacity(wanted * 4 + 64);
        put(&mut out, self.shape.len());
        put(&mut out, self.name.len());
        out.extend(self.kind.to_le_bytes());
        self.shape.iter().rev().for_each(|&d| put(&mut out, d));
        out.extend(self.name.as_bytes());
        for &x in &floats[index * wanted..][..wanted] {
            if self.kind == F16 {
                out.extend(half::f16::from_f32(x).to_le_bytes());
            } else {
                out.extend(x.to_le_bytes());
            }
        }
        Ok(out)
    }
}

/// Every tensor of the file.
fn plan(shape: &Shape) -> Vec<Tensor> {
    let mut plan = Plan(Vec::new());
    let (audio, text) = (shape.audio_state, shape.text_state);
    for (name, inputs) in [("conv1", shape.mels), ("conv2", audio)] {
        plan.one(
            format!("encoder.{name}.weight"),
            format!("encoder/{name}/weight"),
            &[audio, inputs, 3],
            F16,
        );
        // whisper.cpp adds it to rows: [state, 1], not [state].
        plan.one(format!("encoder.{name}.bias"), format!("encoder/{name}/bias"), &[audio, 1], F32);
    }
    for (side, rows, state) in [("encoder", shape.audio_ctx, audio), ("decoder", shape.text_ctx, text)] {
        plan.one(
            format!("{side}.positional_embedding"),
            format!("{side}/position_encodings/encodings"),
            &[rows, state],
            F32,
        );
    }
    plan.norm("encoder.ln_post", "encoder/layer_norm", audio);
    plan.norm("decoder.ln", "decoder/layer_norm", text);
    plan.one(
        "decoder.token_embedding.weight".to_owned(),
        "decoder/embeddings/weight".to_owned(),
        &[shape.vocab, text],
        F16,
    );
    for (side, layers, state) in
        [("encoder", shape.audio_layers, audio), ("decoder", shape.text_layers, text)]
    {
        for i in 0..layers {
            let (to, from) = (format!("{side}.blocks.{i}"), format!("{side}/layer_{i}"));
            plan.self_attention(&format!("{to}.attn"), &format!("{from}/self_attention"), state);
            if side == "decoder" {
                plan.cross_attention(&format!("{to}.cross_attn"), &format!("{from}/attention"), state);
            }
            plan.norm(&format!("{to}.mlp_ln"), &format!("{from}/ffn/layer_norm"), state);
            plan.linear(&format!("{to}.mlp.0"), &format!("{from}/ffn/linear_0"), (0, 1), [4 * state, state]);
            plan.linear(&format!("{to}.mlp.2"), &format!("{from}/ffn/linear_1"), (0, 1), [state, 4 * state]);
        }
    }
    plan.0
}

struct Plan(Vec<Tensor>);

impl Plan {
    fn one(&mut self, name: String, source: String, shape: &[usize], kind: i32) {
        self.0.push(Tensor { name, source, part: (0, 1), shape: shape.to_vec(), kind });
    }

    fn norm(&mut self, to: &str, from: &str, state: usize) {
        self.one(format!("{to}.weight"), format!("{from}/gamma"), &[state], F32);
        self.one(format!("{to}.bias"), format!("{from}/beta"), &[state], F32);
    }

    fn weight(&mut self, to: &str, from: &str, part: (usize, usize), shape: [usize; 2]) {
        let (name, source) = (format!("{to}.weight"), format!("{from}/weight"));
        self.0.push(Tensor { name, source, part, shape: shape.to_vec(), kind: F16 });
    }

    fn linear(&mut self, to: &str, from: &str, part: (usize, usize), shape: [usize; 2]) {
        self.weight(to, from, part, shape);
        let (name, source) = (format!("{to}.bias"), format!("{from}/bias"));
        self.0.push(Tensor { name, source, part, shape: vec![shape[0]], kind: F32 });
    }

    fn self_attention(&mut self, to: &str, from: &str, state: usize) {
        let square = [state, state];
        self.norm(&format!("{to}_ln"), &format!("{from}/layer_norm"), state);
        self.linear(&format!("{to}.query"), &format!("{from}/linear_0"), (0, 3), square);
        self.weight(&format!("{to}.key"), &format!("{from}/linear_0"), (1, 3), square);
        self.linear(&format!("{to}.value"), &format!("{from}/linear_0"), (2, 3), square);
        self.linear(&format!("{to}.out"), &format!("{from}/linear_1"), (0, 1), square);
    }

    fn cross_attention(&mut self, to: &str, from: &str, state: usize) {
        let square = [state, state];
        self.norm(&format!("{to}_ln"), &format!("{from}/layer_norm"), state);
        self.linear(&format!("{to}.query"), &format!("{from}/linear_0"), (0, 1), square);
        self.weight(&format!("{to}.key"), &format!("{from}/linear_1"), (0, 2), square);
        self.linear(&format!("{to}.value"), &format!("{from}/linear_1"), (1, 2), square);
        self.linear(&format!("{to}.out"), &format!("{from}/linear_2"), (0, 1), square);
    }
}
