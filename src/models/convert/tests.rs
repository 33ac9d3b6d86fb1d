use std::collections::HashMap;
use std::fs;

use super::*;

const STATE: usize = 4;
const VOCAB: usize = 6;
const MELS: usize = 8;

fn string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u16 + 1).to_le_bytes());
    out.extend(s.as_bytes());
    out.push(0);
}

/// A Whisper of one layer a side; every tensor counts up from its own offset.
fn variables() -> Vec<(String, Vec<usize>, u8)> {
    let mut v: Vec<(String, Vec<usize>, u8)> = Vec::new();
    let mut add = |name: &str, shape: &[usize], dtype: u8| v.push((name.to_owned(), shape.to_vec(), dtype));
    add("encoder/num_heads", &[], 2);
    add("decoder/num_heads", &[], 2);
    add("encoder/conv1/weight", &[STATE, MELS, 3], 4);
    add("encoder/conv1/bias", &[STATE], 4);
    add("encoder/conv2/weight", &[STATE, STATE, 3], 4);
    add("encoder/conv2/bias", &[STATE], 4);
    add("encoder/position_encodings/encodings", &[10, STATE], 4);
    add("decoder/position_encodings/encodings", &[5, STATE], 4);
    add("decoder/embeddings/weight", &[VOCAB, STATE], 4);
    for side in ["encoder", "decoder"] {
        add(&format!("{side}/layer_norm/gamma"), &[STATE], 4);
        add(&format!("{side}/layer_norm/beta"), &[STATE], 4);
        let attentions: &[(&str, &[usize])] = if side == "encoder" {
            &[("self_attention", &[3, 1])]
        } else {
            &[("self_attention", &[3, 1]), ("attention", &[1, 2, 1])]
        };
        for (attention, linears) in attentions {
            let at = format!("{side}/layer_0/{attention}");
            add(&format!("{at}/layer_norm/gamma"), &[STATE], 4);
            add(&format!("{at}/layer_norm/beta"), &[STATE], 4);
            for (i, n) in linears.iter().enumerate() {
                // f32 for one of them: both kinds are read.
                let dtype = if i == 0 { 0 } else { 4 };
                add(&format!("{at}/linear_{i}/weight"), &[n * STATE, STATE], dtype);
                add(&format!("{at}/linear_{i}/bias"), &[n * STATE], dtype);
            }
        }
        let at = format!("{side}/layer_0/ffn");
        add(&format!("{at}/layer_norm/gamma"), &[STATE], 4);
        add(&format!("{at}/layer_norm/beta"), &[STATE], 4);
        add(&format!("{at}/linear_0/weight"), &[4 * STATE, STATE], 4);
        add(&format!("{at}/linear_0/bias"), &[4 * STATE], 4);
        add(&format!("{at}/linear_1/weight"), &[STATE, 4 * STATE], 4);
        add(&format!("{at}/linear_1/bias"), &[STATE], 4);
    }
    v
}

fn serialise(variables: &[(String, Vec<usize>, u8)]) -> Vec<u8> {
    let mut out = 6_u32.to_le_bytes().to_vec();
    string(&mut out, "WhisperSpec");
    out.extend(3_u32.to_le_bytes());
    out.extend((variables.len() as u32).to_le_bytes());
    for (index, (name, shape, dtype)) in variables.iter().enumerate() {
        string(&mut out, name);
        out.push(shape.len() as u8);
        shape.iter().for_each(|&d| out.extend((d as u32).to_le_bytes()));
        out.push(*dtype);
        let n: usize = shape.iter().product();
        let value = |i: usize| (index * 8 + i) as f32;
        let data: Vec<u8> = match dtype {
            0 => (0..n).flat_map(|i| value(i).to_le_bytes()).collect(),
            2 => (0..n).flat_map(|_| 2_i16.to_le_bytes()).collect(),
            4 => (0..n).flat_map(|i| half::f16::from_f32(value(i)).to_le_bytes()).collect(),
            _ => vec![0; n],
        };
        out.extend((data.len() as u32).to_le_bytes());
        out.extend(data);
    }
    out.extend(1_u32.to_le_bytes());
    string(&mut out, "decoder/projection/weight");
    string(&mut out, "decoder/embeddings/weight");
    out
}

const VOCABULARY: &str = "!\n\u{120}\u{e9}\n\n<|endoftext|>\n<|startoftranscript|>\n";

fn convert(model: &[u8], vocabulary: &str) -> Result<Vec<u8>, ConvertError> {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("model.bin"), model).expect("the folder is writable");
    fs::write(at("vocabulary.txt"), vocabulary).expect("the folder is writable");
    let result = convert_ctranslate2(&at("model.bin"), &at("vocabulary.txt"), &at("out.bin"));
    assert!(!at("out.part").exists(), "no half-written file stays behind");
    assert_eq!(at("out.bin").exists(), result.is_ok(), "the result appears only when whole");
    result.map(|()| fs::read(at("out.bin")).expect("it was just written"))
}

struct Ggml<'a>(&'a [u8]);

impl Ggml<'_> {
    fn u32(&mut self) -> u32 {
        let (head, rest) = self.0.split_at(4);
        self.0 = rest;
        u32::from_le_bytes(head.try_into().expect("four bytes"))
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        head.to_vec()
    }
}

#[test]
fn a_small_model_goes_over_whole() {
    let source = variables();
    let out = convert(&serialise(&source), VOCABULARY).expect("it is a whole model");
    let mut g = Ggml(&out);
    assert_eq!(g.u32(), ggml::MAGIC);
    let params: Vec<u32> = (0..11).map(|_| g.u32()).collect();
    assert_eq!(params, [6, 10, 4, 2, 1, 5, 4, 2, 1, 8, 1]);
    assert_eq!((g.u32(), g.u32()), (8, 201));
    g.bytes(8 * 201 * 4);
    let words: Vec<Vec<u8>> = (0..g.u32())
        .map(|_| {
            let n = g.u32() as usize;
            g.bytes(n)
        })
        .collect();
    assert_eq!(words, [b"!".to_vec(), vec![b' ', 0xe9], vec![], b"<|endoftext|>".to_vec()]);

    let mut tensors = HashMap::new();
    while !g.0.is_empty() {
        let (rank, name_len, kind) = (g.u32(), g.u32() as usize, g.u32());
        let dims: Vec<usize> = (0..rank).map(|_| g.u32() as usize).collect();
        let name = String::from_utf8(g.bytes(name_len)).expect("names are text");
        let n: usize = dims.iter().product();
        let data = g.bytes(n * if kind == 1 { 2 } else { 4 });
        let floats: Vec<f32> = if kind == 1 {
            data.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
        } else {
            data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        assert!(tensors.insert(name, (kind, dims, floats)).is_none(), "each tensor once");
    }
    // whisper.cpp refuses a file that does not hold exactly these.
    assert_eq!(tensors.len(), 4 + 2 + 2 + 2 + 1 + 15 + 24);

    let first = |name: &str| {
        let index = source.iter().position(|(n, ..)| n == name).expect("the name is one of the source");
        (index * 8) as f32
    };
    let expect = |name: &str, kind: u32, dims: &[usize], start: f32| {
        let (k, d, floats) = &tensors[name];
        assert_eq!((*k, d.as_slice(), floats[0]), (kind, dims, start), "{name}");
        assert!(floats.windows(2).all(|w| w[1] == w[0] + 1.0), "{name} is in order");
    };
    expect("encoder.conv1.weight", 1, &[3, 8, 4], first("encoder/conv1/weight"));
    expect("encoder.conv1.bias", 0, &[1, 4], first("encoder/conv1/bias"));
    expect("decoder.positional_embedding", 0, &[4, 5], first("decoder/position_encodings/encodings"));
    let qkv = first("decoder/layer_0/self_attention/linear_0/weight");
    expect("decoder.blocks.0.attn.query.weight", 1, &[4, 4], qkv);
    expect("decoder.blocks.0.attn.key.weight", 1, &[4, 4], qkv + 16.0);
    expect("decoder.blocks.0.attn.value.weight", 1, &[4, 4], qkv + 32.0);
    let bias = first("decoder/layer_0/self_attention/linear_0/bias");
    expect("decoder.blocks.0.attn.value.bias", 0, &[4], bias + 8.0);
    let kv = first("decoder/layer_0/attention/linear_1/weight");
    expect("decoder.blocks.0.cross_attn.key.weight", 1, &[4, 4], kv);
    expect("decoder.blocks.0.cross_attn.value.weight", 1, &[4, 4], kv + 16.0);
    expect("encoder.blocks.0.mlp.2.weight", 1, &[16, 4], first("encoder/layer_0/ffn/linear_1/weight"));
    expect("encoder.ln_post.bias", 0, &[4], first("encoder/layer_norm/beta"));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = serialise(&variables());
    for cut in [0, 3, 10, 25, 100, whole.len() / 2, whole.len() - 60] {
        let error = convert(&whole[..cut], VOCABULARY).expect_err("it is not whole");
        assert!(matches!(error, ConvertError::Truncated(_)), "{cut}: {error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

#[test]
fn strange_files_say_what_is_strange() {
    let good = serialise(&variables());
    let mut other_version = good.clone();
    other_version[0] = 7;
    let mut other_spec = good.clone();
    other_spec[6] = b'X';
    let mut int8 = variables();
    int8[2].2 = 1;
    let mut unknown_type = variables();
    unknown_type[2].2 = 9;
    let mut missing = variables();
    missing.retain(|(name, ..)| name != "decoder/layer_0/ffn/linear_1/bias");
    let mut narrow = variables();
    narrow[3].1 = vec![STATE - 1];
    for (model, hint) in [
        (other_version, "version 7"),
        (other_spec, "spec 'XhisperSpec'"),
        (serialise(&int8), "'encoder/conv1/weight' is stored as I8"),
        (serialise(&unknown_type), "'encoder/conv1/weight' is stored as type 9"),
        (serialise(&missing), "lacks the tensor 'decoder/layer_0/ffn/linear_1/bias'"),
        (serialise(&narrow), "'encoder/conv1/bias' has 3 numbers, expected 4"),
    ] {
        let error = convert(&model, VOCABULARY).expect_err(hint).to_string();
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn a_vocabulary_must_fit() {
    let model = serialise(&variables());
    for (vocabulary, hint) in [
        ("!\n", "has no '<|endoftext|>'"),
        ("\u{4e00}\n<|endoftext|>\n", "line 1 of the vocabulary"),
        ("a\nb\nc\nd\ne\nf\n<|endoftext|>\n", "7 words"),
    ] {
        let error = convert(&model, vocabulary).expect_err(hint).to_string();
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = convert_ctranslate2(Path::new("/nowhere/model.bin"), Path::new("v"), Path::new("o"))
        .expect_err("there is no such file");
    assert!(error.to_string().starts_with("/nowhere/model.bin: "), "{error}");
}
