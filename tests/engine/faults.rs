//! Weight files that cannot be used: one line that names file and key.

use std::fs;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{Content, Value, write};
use candle_core::{Device, Tensor, quantized};
use voluble::config::engine::Engine as Settings;
use voluble::engine::{Engine, Weights};

use super::{SMOL, base};

fn refusal(path: &Path, drafter: Option<&Path>) -> String {
    let weights = Weights { base: path.to_owned(), drafter: drafter.map(Path::to_owned) };
    let error = Engine::load(&weights, &Settings::default()).expect_err("it cannot be used").to_string();
    assert_eq!(error.lines().count(), 1, "one line: {error}");
    error
}

/// A tiny file of this architecture, without the tensor `without`, `wrong` of a wrong shape.
fn tiny(dir: &Path, architecture: &str, without: &str, wrong: &str) -> PathBuf {
    let number = Value::U32;
    let key = |name: &str| format!("{architecture}.{name}");
    let tokens = Value::Array((0..40).map(|i| Value::String(format!("t{i}"))).collect());
    let keys = [
        key("embedding_length"),
        key("attention.head_count"),
        key("attention.head_count_kv"),
        key("block_count"),
        key("feed_forward_length"),
        key("context_length"),
        key("attention.layer_norm_rms_epsilon"),
    ];
    let (name, eps) = (Value::String(architecture.to_owned()), Value::F32(1e-5));
    let numbers: Vec<Value> = [64, 2, 1, 1, 64, 128].map(number).into();
    let mut metadata = vec![("general.architecture", &name), ("tokenizer.ggml.tokens", &tokens)];
    metadata.extend(keys.iter().map(String::as_str).zip(numbers.iter().chain([&eps])));
    let shapes: &[(&str, &[usize])] = &[
        ("token_embd.weight", &[40, 64]),
        ("output_norm.weight", &[64]),
        ("blk.0.attn_norm.weight", &[64]),
        ("blk.0.ffn_norm.weight", &[64]),
        ("blk.0.attn_q.weight", &[64, 64]),
        ("blk.0.attn_k.weight", &[32, 64]),
        ("blk.0.attn_v.weight", &[32, 64]),
        ("blk.0.attn_output.weight", &[64, 64]),
        ("blk.0.ffn_gate.weight", &[64, 64]),
        ("blk.0.ffn_up.weight", &[64, 64]),
        ("blk.0.ffn_down.weight", &[64, 64]),
    ];
    let tensors: Vec<(&str, quantized::QTensor)> = shapes
        .iter()
        .filter(|(name, _)| *name != without)
        .map(|(name, shape)| {
            let shape = if *name == wrong { vec![3, 64] } else { shape.to_vec() };
            let tensor = Tensor::ones(shape, candle_core::DType::F32, &Device::Cpu).expect("a tensor");
            let tensor = quantized::QTensor::quantize(&tensor, quantized::GgmlDType::F32);
            (*name, tensor.expect("f32 stays as it is"))
        })
        .collect();
    let path = dir.join("tiny.gguf");
    let mut out = fs::File::create(&path).expect("a file");
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
    write(&mut out, &metadata, &tensors).expect("written");
    path
}

#[test]
fn a_whole_tiny_file_loads() {
    let dir = tempfile::tempdir().expect("a folder");
    let weights = Weights { base: tiny(dir.path(), "llama", "", ""), drafter: None };
    let engine = Engine::load(&weights, &Settings::default()).expect("nothing is wrong with it");
    assert_eq!((engine.info().vocabulary, engine.info().context), (40, 128));
}

#[test]
fn faults_name_file_and_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let missing = refusal(&tiny(dir, "llama", "blk.0.ffn_up.weight", ""), None);
    assert!(missing.contains("tiny.gguf: no tensor 'blk.0.ffn_up.weight'"), "{missing}");
    let shape = refusal(&tiny(dir, "llama", "", "blk.0.attn_k.weight"), None);
    assert!(shape.contains("tensor 'blk.0.attn_k.weight' has shape [3, 64], expected [32, 64]"), "{shape}");
    let bias = refusal(&tiny(dir, "qwen2", "", ""), None);
    assert!(bias.contains("no tensor 'blk.0.attn_q.bias'"), "{bias}");
    let unknown = refusal(&tiny(dir, "mamba", "", ""), None);
    assert!(unknown.contains("unknown 'general.architecture' 'mamba'"), "{unknown}");
    let none = refusal(&dir.join("nothing.gguf"), None);
    assert!(none.contains("nothing.gguf"), "{none}");
    let text = dir.join("text.gguf");
    fs::write(&text, "this is no model").expect("written");
    assert!(refusal(&text, None).contains("text.gguf: not a usable GGUF file"));
    fs::write(&text, "").expect("written");
    assert!(refusal(&text, None).contains("text.gguf"));
}

#[test]
fn a_file_cut_short_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let whole = fs::read(base(SMOL)).expect("the small model is there");
    let path = dir.path().join("short.gguf");
    fs::write(&path, &whole[..whole.len() - 1000]).expect("written");
    let error = refusal(&path, None);
    assert!(error.contains("short.gguf") && error.contains("truncated"), "{error}");
    fs::write(&path, &whole[..5000]).expect("written");
    assert!(refusal(&path, None).contains("short.gguf: not a usable GGUF file"));
}

#[test]
fn a_drafter_for_another_base_is_refused() {
    let small = base(SMOL);
    let other = refusal(&small, Some(&super::drafter()));
    assert!(other.contains("drafter.safetensors") && other.contains("tensor"), "{other}");
    let gated = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/smollm2-135m-gated-r64-v0.safetensors");
    let format = refusal(&small, Some(&gated));
    assert!(format.contains("no metadata key 'config'"), "{format}");
    let none = refusal(&small, Some(&small));
    assert!(none.contains("not a usable safetensors file"), "{none}");
}

/// candle can read what these tests write; else they would test nothing.
#[test]
fn the_tiny_file_is_a_gguf_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut file = fs::File::open(tiny(dir.path(), "llama", "", "")).expect("a file");
    assert_eq!(Content::read(&mut file).expect("GGUF").tensor_infos.len(), 11);
}
