//! What is known of a model before it is fetched: one TOML file each in
//! `models/`, compiled in.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::ModelsError;

/// A model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptor {
    /// Its name, and its folder in the store.
    pub name: String,
    /// What it is for ("speech to text").
    pub role: String,
    /// One line for people.
    pub about: String,
    /// Licence, as an SPDX expression where it has one.
    pub licence: String,
    /// Whether a plain `models pull` fetches it.
    pub default: bool,
    /// For a language model: the drafter made for it.
    pub drafter: Option<String>,
    /// For a drafter: the language model it was made for.
    pub base: Option<String>,
    /// Packages it is published in.
    #[serde(default, rename = "package")]
    pub packages: Vec<Package>,
    /// Files it consists of.
    #[serde(rename = "file")]
    pub files: Vec<File>,
    /// What else is known (sample rate, dtype, vocabulary), for people.
    #[serde(default)]
    pub facts: BTreeMap<String, toml::Value>,
}

/// A published package that holds (a part of) a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Name in the registry.
    pub name: String,
    /// The pinned version.
    pub version: String,
    /// Size of the wheel.
    pub bytes: u64,
    /// Checksum of the wheel, hexadecimal.
    pub sha256: String,
    /// Only for this processor (`std::env::consts::ARCH`).
    pub arch: Option<String>,
    /// Platform tag to ask for; unset: any.
    pub platform: Option<String>,
    /// Python version to ask for, so that every machine gets the same wheel.
    pub python: Option<String>,
}

impl Package {
    /// `name==version`, as the package client wants it.
    pub fn requirement(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }
}

/// A file of a model in the store.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Its name in the model's folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its checksum; absent for a converted file, whose inputs are checked instead.
    pub sha256: Option<String>,
    /// Only for this processor.
    pub arch: Option<String>,
    /// Pieces of packages that are joined in this order.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// How it is made from `inputs`.
    pub convert: Option<Conversion>,
    /// What it is converted from.
    #[serde(default, rename = "input")]
    pub inputs: Vec<Input>,
    /// Name of a file in the project's own `models/` folder.
    pub shipped: Option<String>,
}

/// A piece of a package.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Which of the packages.
    pub package: String,
    /// Path inside it.
    pub path: String,
}

/// Known conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conversion {
    /// `model.bin` and `vocabulary.txt` of CTranslate2 to whisper.cpp's ggml.
    #[serde(rename = "ctranslate2-whisper")]
    Ctranslate2Whisper,
}

/// An input of a conversion.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// What the conversion calls it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its checksum.
    pub sha256: String,
    /// Pieces of packages that are joined in this order.
    pub parts: Vec<Part>,
}

impl Descriptor {
    /// Reads a descriptor and keeps what concerns this processor.
    ///
    /// # Errors
    /// The TOML error, one that names the line.
    pub fn parse(text: &str, arch: &str) -> Result<Self, toml::de::Error> {
        let mut descriptor: Self = toml::from_str(text)?;
        let here = |wanted: &Option<String>| wanted.as_deref().is_none_or(|wanted| wanted == arch);
        descriptor.packages.retain(|package| here(&package.arch));
        descriptor.files.retain(|file| here(&file.arch));
        Ok(descriptor)
    }

    /// Size of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The package of a part.
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl File {
    /// Every part it needs, its own and its inputs'.
    pub fn all_parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().chain(self.inputs.iter().flat_map(|input| &input.parts))
    }
}

/// The compiled-in files, in the order in which a voice meets them.
const SOURCES: &[(&str, &str)] = &[
    ("onnxruntime", include_str!("../../models/onnxruntime.toml")),
    ("silero-vad", include_str!("../../models/silero-vad.toml")),
    ("smart-turn-v3.2", include_str!("../../models/smart-turn-v3.2.toml")),
    ("whisper-base", include_str!("../../models/whisper-base.toml")),
    ("whisper-tiny-en", include_str!("../../models/whisper-tiny-en.toml")),
    ("qwen2.5-coder-0.5b-instruct", include_str!("../../models/qwen2.5-coder-0.5b-instruct.toml")),
    ("qwen2.5-coder-0.5b-selfdraft", include_str!("../../models/qwen2.5-coder-0.5b-selfdraft.toml")),
    ("qwen2.5-coder-1.5b-instruct", include_str!("../../models/qwen2.5-coder-1.5b-instruct.toml")),
    ("smollm2-135m-instruct", include_str!("../../models/smollm2-135m-instruct.toml")),
    ("piper-en-us-joe-medium", include_str!("../../models/piper-en-us-joe-medium.toml")),
];

static ALL: LazyLock<Vec<Descriptor>> = LazyLock::new(|| {
    let parse = |(name, text): &(&str, &str)| match Descriptor::parse(text, std::env::consts::ARCH) {
        Ok(descriptor) => descriptor,
        // The files are part of the program; a test reads every one.
        Err(error) => panic!("models/{name}.toml: {error}"),
    };
    SOURCES.iter().map(parse).collect()
});

/// Every known model.
pub fn all() -> &'static [Descriptor] {
    &ALL
}

/// The model of this name.
///
/// # Errors
/// [`ModelsError::UnknownModel`], naming the nearest.
pub fn find(name: &str) -> Result<&'static Descriptor, ModelsError> {
    all().iter().find(|descriptor| descriptor.name == name).ok_or_else(|| {
        let likeness = |known: &Descriptor| strsim::jaro_winkler(name, &known.name);
        let nearest = all().iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        ModelsError::UnknownModel {
            name: name.to_owned(),
            nearest: nearest.map_or_else(String::new, |known| known.name.clone()),
        }
    })
}

/// The models that these words name: `default` and `all` are sets; no word at
/// all means `default`. In the order of [`all`], each once.
///
/// # Errors
/// [`ModelsError::UnknownModel`].
pub fn select(words: &[String]) -> Result<Vec<&'static Descriptor>, ModelsError> {
    let wants = |word: &str, descriptor: &Descriptor| match word {
        "all" => true,
        "default" => descriptor.default,
        name => descriptor.name == name,
    };
    for word in words.iter().filter(|word| !matches!(word.as_str(), "all" | "default")) {
        find(word)?;
    }
    Ok(all()
        .iter()
        .filter(|descriptor| {
            words.iter().any(|word| wants(word, descriptor)) || words.is_empty() && descriptor.default
        })
        .collect())
}
