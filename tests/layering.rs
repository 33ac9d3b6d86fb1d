//! Who may use what: reads every `crate::` path under `src/` and fails on one
//! that the table forbids, naming file and line.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One row: files whose path under `src/` starts with `area` may name only
/// these modules (besides their own) after `crate::`. The longest matching
/// area counts. A module may be narrowed: `session::event` allows just that.
struct Rule {
    area: &'static str,
    may: &'static [&'static str],
    /// External crates that must not appear.
    never: &'static [&'static str],
}

const SEAM: &[&str] =
    &["session::command", "session::event", "session::ids", "session::item", "session::settings"];

/// The table of the house. `*` allows everything.
const TABLE: &[Rule] = &[
    Rule { area: "main.rs", may: &["*"], never: &[] },
    Rule { area: "lib.rs", may: &["*"], never: &[] },
    Rule { area: "app", may: &["*"], never: &[] },
    Rule {
        area: "transport",
        may: &["audio", "error", "metrics", "config"],
        never: &["ort", "whisper_rs", "candle_core"],
    },
    Rule {
        area: "protocol",
        may: &[
            // The messages that transports move are the dialects' input and output.
            "transport::wire",
            "audio",
            "error",
            "metrics",
            "config",
            "session::command",
            "session::event",
            "session::ids",
            "session::item",
            "session::settings",
        ],
        never: &["tokio", "axum", "ort", "whisper_rs", "candle_core"],
    },
    Rule {
        area: "session",
        may: &["turn", "audio", "stt", "llm", "tts", "error", "config"],
        never: &["tokio", "axum", "ort", "whisper_rs", "candle_core", "metrics::", "tracing"],
    },
    Rule {
        area: "session/driver",
        may: &["turn", "audio", "stt", "llm", "tts", "error", "config", "metrics"],
        never: &["axum", "ort", "whisper_rs", "candle_core"],
    },
    Rule {
        area: "session/manager",
        may: &["turn", "audio", "stt", "llm", "tts", "error", "config", "metrics"],
        never: &["axum", "ort", "whisper_rs", "candle_core"],
    },
    Rule {
        area: "turn",
        may: &["audio", "error", "config", "models"],
        never: &["tokio", "axum", "whisper_rs", "candle_core"],
    },
    Rule {
        area: "stt",
        may: &["audio", "error", "config", "metrics", "models"],
        never: &["axum", "candle_core"],
    },
    Rule {
        area: "llm",
        may: &["engine", "error", "config", "metrics", "models"],
        never: &["axum", "ort", "whisper_rs"],
    },
    Rule {
        area: "engine",
        may: &["error", "config", "metrics", "models"],
        never: &["axum", "ort", "whisper_rs", "tokenizers"],
    },
    Rule {
        area: "tts",
        may: &["audio", "error", "config", "metrics", "models"],
        never: &["axum", "whisper_rs", "candle_core"],
    },
    Rule { area: "audio", may: &["error"], never: &["tokio", "axum", "ort", "whisper_rs", "candle_core"] },
    Rule {
        area: "metrics",
        may: &["error", "config", "session::event"],
        never: &["axum", "ort", "whisper_rs", "candle_core"],
    },
    Rule { area: "config", may: &["error"], never: &["tokio", "axum", "ort", "whisper_rs", "candle_core"] },
    Rule { area: "models", may: &["error", "config"], never: &["axum", "whisper_rs", "candle_core"] },
    Rule { area: "error.rs", may: &[], never: &["tokio", "axum"] },
];

#[test]
fn every_path_is_allowed() {
    let src = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    assert!(files.len() > 20, "only {} files found under src/", files.len());
    let mut faults = Vec::new();
    for file in &files {
        let rel = file.strip_prefix(&src).expect("collected under src").to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(file).expect("a source file is readable");
        faults.extend(check(&rel, &text));
    }
    assert!(faults.is_empty(), "forbidden paths:\n{}", faults.join("\n"));
}

#[test]
fn the_check_itself_finds_faults() {
    let bad = "use crate::{session::machine::Machine, audio::ring};\nfn f() { crate::llm::x(); tokio::spawn(a); }\n";
    let faults = check("protocol/openai/x.rs", bad);
    assert_eq!(faults.len(), 3, "{faults:?}");
    assert!(check("protocol/openai/x.rs", "use crate::session::event::Event; // crate::llm\n").is_empty());
    assert!(check("turn/x.rs", "#[cfg(test)]\nmod tests { use crate::llm::X; }\n").is_empty());
}

/// Faults of one file.
fn check(rel: &str, text: &str) -> Vec<String> {
    let rule = TABLE
        .iter()
        .filter(|rule| {
            rel == rule.area
                || rel.starts_with(&format!("{}/", rule.area))
                || rel.starts_with(&format!("{}.", rule.area))
        })
        .max_by_key(|rule| rule.area.len());
    let Some(rule) = rule else {
        return vec![format!("src/{rel}: no rule for this area in tests/layering.rs")];
    };
    let own = rel.split(['/', '.']).next().unwrap_or_default();
    let mut faults = Vec::new();
    if rule.may.contains(&"*") {
        return faults;
    }
    for (line, path) in crate_paths(text) {
        let allowed = path == own
            || path.starts_with(&format!("{own}::"))
            || rule.may.iter().any(|may| path == *may || path.starts_with(&format!("{may}::")));
        if !allowed {
            faults.push(format!("src/{rel}:{line}: crate::{path} (allowed: {:?})", rule.may));
        }
    }
    for (number, line) in production_lines(text) {
        for never in rule.never {
            let needle = if never.ends_with("::") { (*never).to_owned() } else { format!("{never}::") };
            // Its own module of the same name (crate::metrics) is not the external crate.
            let found = line.match_indices(&needle).any(|(at, _)| {
                let before = &line[..at];
                !before.ends_with("::") && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            });
            if found {
                faults.push(format!("src/{rel}:{number}: {never} must not be used here"));
            }
        }
    }
    faults
}

/// Lines without comments, up to the file's test module.
fn production_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            break;
        }
        let code = line.split("//").next().unwrap_or_default();
        lines.push((index + 1, code.to_owned()));
    }
    lines
}

/// Every path after `crate::`, groups expanded, with its line.
fn crate_paths(text: &str) -> Vec<(usize, String)> {
    let lines = production_lines(text);
    let mut joined = String::new();
    let mut starts = BTreeMap::new();
    for (number, line) in &lines {
        starts.insert(joined.len(), *number);
        joined.push_str(line);
        joined.push('\n');
    }
    let mut paths = Vec::new();
    for (at, _) in joined.match_indices("crate::") {
        if joined[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let number = *starts.range(..=at).next_back().expect("the first line starts at 0").1;
        expand(&joined[at + "crate::".len()..], "", &mut |path| paths.push((number, path)));
    }
    paths
}

/// Expands `a::{b, c::d}` from the start of `rest`; returns how much was read.
fn expand(rest: &str, prefix: &str, found: &mut dyn FnMut(String)) -> usize {
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
    let path = format!("{prefix}{}", &rest[..end]);
    if !(path.ends_with("::") || path.is_empty() && rest.starts_with('{')) {
        found(path);
        return end;
    }
    if !rest[end..].starts_with('{') {
        found(path.trim_end_matches(':').to_owned());
        return end;
    }
    let mut at = end + 1;
    loop {
        at += rest[at..].len() - rest[at..].trim_start_matches(|c: char| c.is_whitespace() || c == ',').len();
        if at >= rest.len() || rest[at..].starts_with('}') {
            return (at + 1).min(rest.len());
        }
        let read = expand(&rest[at..], &path, found);
        at += read.max(1);
    }
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("src is readable") {
        let path = entry.expect("an entry is readable").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn the_seam_modules_exist() {
    for module in SEAM {
        let path = format!("src/{}.rs", module.replace("::", "/"));
        assert!(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(&path).is_file(), "{path} is gone");
    }
}
