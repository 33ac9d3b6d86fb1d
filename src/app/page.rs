//! The files of the browser demo, inside the binary.

/// A file by the path under which it is served.
pub struct File {
    /// Path, without the leading slash.
    pub path: &'static str,
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// Its bytes.
    pub body: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($name:literal $content_type:ident)*) => {
        &[$(File {
            path: $name,
            content_type: $content_type,
            body: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/web/", $name)),
        }),*]
    };
}

/// Every file; the first is the page itself.
pub const FILES: &[File] = files! {
    "index.html" HTML
    "app.js" SCRIPT
    "audio.js" SCRIPT
    "capture-worklet.js" SCRIPT
    "log.js" SCRIPT
    "playback-worklet.js" SCRIPT
    "realtime.js" SCRIPT
    "waterfall.js" SCRIPT
    "style.css" STYLE
    "icon.svg" SVG
};

/// The file of a request path; `/` is the page.
pub fn find(path: &str) -> Option<&'static File> {
    let path = path.trim_start_matches('/');
    if path.is_empty() { FILES.first() } else { FILES.iter().find(|file| file.path == path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is added to `web/` and not here would be missing from the program.
    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/web");
        for entry in std::fs::read_dir(folder).expect("web/ is there") {
            let entry = entry.expect("a readable entry");
            let name = entry.file_name().into_string().expect("a plain name");
            if entry.path().is_file() {
                assert!(find(&name).is_some(), "web/{name} is not in the table");
            }
        }
        assert_eq!(find("/").map(|file| file.path), Some("index.html"));
        assert!(find("/../Cargo.toml").is_none());
    }
}
