//! Finds tool calls in what the model writes, as it streams.
//!
//! Two forms are read: `<tool_call>{json}</tool_call>`, which the models are
//! trained on, and a bare JSON object (or one in a ```` ```json ```` fence) at
//! the start of a line that names a known tool, which small models write
//! instead. Everything else streams through at once. A bare object that turns
//! out to be no call is text; a marked call that cannot be read is an error:
//! spoken JSON helps nobody, and a call that vanished would be worse.

use serde_json::Value as Json;

use super::text::overlap;
use super::{Tool, ToolCall};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const FENCE: &str = "```";

/// Longest call that is waited for, in bytes.
const LONGEST: usize = 64 * 1024;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Text that is no part of a call.
    Text(String),
    /// A whole call.
    Call(ToolCall),
    /// A marked call that cannot be read: why.
    Malformed(String),
}

/// Reads one answer.
#[derive(Debug)]
pub struct Detector {
    names: Vec<String>,
    /// Not yet decided.
    held: String,
    state: State,
    /// Whether only spaces came since the last line break.
    line_start: bool,
    /// What was just given out was a call, so spaces up to the next text are layout.
    after_call: bool,
    ids: fn() -> String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    /// Inside `<tool_call>`.
    Marked,
    /// After a call: this mark, where it comes, is layout.
    Closing(&'static str),
}

/// How a beginning object looks.
enum Bare {
    /// Not enough seen.
    Undecided,
    /// It cannot be a call.
    No,
    /// The call and where it ends.
    Call(ToolCall, usize),
}

impl Detector {
    /// Reads answers that may call these tools. Without tools everything is text.
    /// `ids` makes the ids of calls.
    pub fn new(tools: &[Tool], ids: fn() -> String) -> Self {
        Self {
            names: tools.iter().map(|tool| tool.name.clone()).collect(),
            held: String::new(),
            state: State::Text,
            line_start: true,
            after_call: false,
            ids,
        }
    }

    /// Adds text; gives what is decided.
    pub fn push(&mut self, text: &str) -> Vec<Found> {
        if self.names.is_empty() {
            return if text.is_empty() { Vec::new() } else { vec![Found::Text(text.to_owned())] };
        }
        self.held.push_str(text);
        let mut found = Vec::new();
        while self.step(&mut found) {}
        found
    }

    /// No more text comes: gives the rest.
    pub fn finish(&mut self) -> Vec<Found> {
        let mut found = Vec::new();
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Marked => found.push(self.verdict(&held)),
            State::Closing(mark) if mark.starts_with(held.trim()) => {}
            State::Text | State::Closing(_) => self.text(&held, &mut found),
        }
        self.state = State::Text;
        found
    }

    /// One decision; `false` when more text is needed.
    fn step(&mut self, found: &mut Vec<Found>) -> bool {
        match self.state {
            State::Marked => self.marked(found),
            State::Closing(mark) => {
                let rest = self.held.trim_start();
                if rest.len() < mark.len() && mark.starts_with(rest) {
                    return false;
                }
                // Some models write several calls between one pair of marks.
                let another = mark == CLOSE && rest.starts_with('{');
                self.held = rest.strip_prefix(mark).unwrap_or(rest).to_owned();
                self.state = if another { State::Marked } else { State::Text };
                !self.held.is_empty()
            }
            State::Text => self.outside(found),
        }
    }

    fn marked(&mut self, found: &mut Vec<Found>) -> bool {
        let space = self.held.len() - self.held.trim_start().len();
        let object = self.held[space..].starts_with('{');
        let end = match balanced(&self.held[space..]) {
            Some(end) if object => space + end,
            _ => match self.held.find(CLOSE) {
                Some(end) => end,
                None if self.held.len() > LONGEST => self.held.len(),
                None => return false,
            },
        };
        let body = self.take(end);
        found.push(self.verdict(&body));
        self.after_call = true;
        self.line_start = true;
        self.state = State::Closing(CLOSE);
        true
    }

    fn outside(&mut self, found: &mut Vec<Found>) -> bool {
        // Where something begins that may be a call: a mark anywhere, an object or a fence at a line's start.
        let mark = self.held.find(OPEN);
        let bare = self.bare_start();
        match (mark, bare) {
            (Some(at), bare) if bare.is_none_or(|bare| at <= bare) => {
                let before = self.take(at);
                self.text(before.trim_end(), found);
                self.held.drain(..OPEN.len());
                self.state = State::Marked;
                true
            }
            (_, Some(at)) => {
                let before = self.take(at);
                self.text(&before, found);
                self.bare(found)
            }
            (_, None) => {
                let keep = overlap(&self.held, OPEN).max(self.open_fence());
                let before = self.take(self.held.len() - keep);
                self.text(&before, found);
                false
            }
        }
    }

    /// `held` starts with `{` or a fence.
    fn bare(&mut self, found: &mut Vec<Found>) -> bool {
        let fenced = self.held.starts_with(FENCE);
        let body = match fenced {
            false => Some(0),
            true => self.held.find('\n').map(|line| line + 1),
        };
        let decision = match body {
            // The fence's first line is still open: it must become ```json or the like.
            None => match is_json_fence(self.held[FENCE.len()..].trim_end()) {
                true => Bare::Undecided,
                false => Bare::No,
            },
            Some(at) if fenced && !is_json_fence(self.held[FENCE.len()..at].trim()) => Bare::No,
            Some(at) => {
                let space = self.held[at..].len() - self.held[at..].trim_start().len();
                self.object(at + space)
            }
        };
        match decision {
            Bare::Undecided => false,
            Bare::Call(call, end) => {
                found.push(Found::Call(call));
                self.held.drain(..end);
                self.after_call = true;
                self.line_start = true;
                self.state = if fenced { State::Closing(FENCE) } else { State::Text };
                !self.held.is_empty()
            }
            Bare::No => {
                // Its first characters are text now; the rest is looked at again, off the line's start.
                let len = if fenced { FENCE.len() } else { 1 };
                let text = self.take(len);
                self.text(&text, found);
                !self.held.is_empty()
            }
        }
    }

    /// Looks at an object from `at` on.
    fn object(&mut self, at: usize) -> Bare {
        let text = &self.held[at..];
        if text.is_empty() {
            return Bare::Undecided;
        }
        if !text.starts_with('{') || !may_be_call(text) || text.len() > LONGEST {
            return Bare::No;
        }
        let Some(end) = balanced(text) else { return Bare::Undecided };
        let body = text[..end].to_owned();
        match self.read(&body) {
            Ok(call) => Bare::Call(call, at + end),
            Err(_) => Bare::No,
        }
    }

    /// Where, at the start of a line, an object or a fence begins.
    fn bare_start(&self) -> Option<usize> {
        let mut line_start = self.line_start;
        for (at, c) in self.held.char_indices() {
            match c {
                '\n' => line_start = true,
                '{' if line_start => return Some(at),
                '`' if line_start && self.held[at..].starts_with(FENCE) => return Some(at),
                c if c.is_whitespace() => {}
                _ => line_start = false,
            }
        }
        None
    }

    /// Bytes at the end that may become a fence.
    fn open_fence(&self) -> usize {
        let ticks = self.held.len() - self.held.trim_end_matches('`').len();
        let before = &self.held[..self.held.len() - ticks];
        let line = before.rfind('\n').map_or(before, |at| &before[at + 1..]);
        let at_start = line.trim().is_empty() && (self.line_start || before.contains('\n'));
        if at_start && ticks < FENCE.len() { ticks } else { 0 }
    }

    fn take(&mut self, len: usize) -> String {
        let rest = self.held.split_off(len);
        std::mem::replace(&mut self.held, rest)
    }

    /// Gives text out.
    fn text(&mut self, text: &str, found: &mut Vec<Found>) {
        let text = if self.after_call { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.after_call = false;
        let line = text.rfind('\n').map_or(text, |at| &text[at + 1..]);
        self.line_start = line.trim().is_empty() && (self.line_start || text.contains('\n'));
        match found.last_mut() {
            Some(Found::Text(before)) => before.push_str(text),
            _ => found.push(Found::Text(text.to_owned())),
        }
    }

    fn verdict(&self, body: &str) -> Found {
        self.read(body).map_or_else(Found::Malformed, Found::Call)
    }

    /// Reads `{"name": ..., "arguments": {...}}`.
    fn read(&self, body: &str) -> Result<ToolCall, String> {
        let body = body.trim();
        // The first whole object: models that forget the closing mark go on after it.
        let body = balanced(body).map_or(body, |end| &body[..end]);
        let json: Json = serde_json::from_str(body)
            .map_err(|error| format!("the model wrote a tool call that is no JSON ({error})"))?;
        let json = json.get("function").filter(|inner| inner.is_object()).unwrap_or(&json);
        let name =
            json.get("name").and_then(Json::as_str).ok_or("the model wrote a tool call without a name")?;
        if !self.names.iter().any(|known| known == name) {
            return Err("the model called a tool that does not exist".to_owned());
        }
        let arguments = json.get("arguments").or_else(|| json.get("parameters"));
        let arguments = match arguments {
            None | Some(Json::Null) => "{}".to_owned(),
            Some(object @ Json::Object(_)) => object.to_string(),
            // Written as text that holds the object, as clients write it.
            Some(Json::String(text)) if matches!(serde_json::from_str(text), Ok(Json::Object(_))) => {
                text.clone()
            }
            Some(_) => return Err("the model wrote tool arguments that are no JSON object".to_owned()),
        };
        Ok(ToolCall { id: (self.ids)(), name: name.to_owned(), arguments })
    }
}

/// Whether the first line of a fence announces JSON, or may yet do so.
fn is_json_fence(info: &str) -> bool {
    info.is_empty() || ["json", "tool_call", "tool_code"].iter().any(|known| known.starts_with(info))
}

/// Whether an object that begins like this may still be a call: its first key is one of a call's.
fn may_be_call(text: &str) -> bool {
    let inner = text[1..].trim_start();
    let Some(key) = inner.strip_prefix('"') else { return inner.is_empty() };
    ["name", "arguments", "parameters", "function", "type"].iter().any(|known| match key.split_once('"') {
        Some((whole, _)) => whole == *known,
        None => known.starts_with(key),
    })
}

/// Where the object that starts the text ends.
fn balanced(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tools() -> Vec<Tool> {
        ["get_weather", "hang_up"]
            .map(|name| Tool { name: name.to_owned(), description: None, parameters: Json::Null })
            .to_vec()
    }

    fn detector() -> Detector {
        Detector::new(&tools(), || "call_1".to_owned())
    }

    /// Text and calls, texts that follow each other joined.
    fn all(parts: &[&str]) -> Vec<Found> {
        let mut detector = detector();
        let mut found: Vec<Found> = Vec::new();
        let mut rest: Vec<Found> = parts.iter().flat_map(|part| detector.push(part)).collect();
        rest.extend(detector.finish());
        for one in rest {
            match (found.last_mut(), one) {
                (Some(Found::Text(before)), Found::Text(more)) => before.push_str(&more),
                (_, one) => found.push(one),
            }
        }
        found
    }

    fn text(text: &str) -> Found {
        Found::Text(text.to_owned())
    }

    fn call(name: &str, arguments: &str) -> Found {
        Found::Call(ToolCall {
            id: "call_1".to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        })
    }

    #[test]
    fn every_form_is_found_however_it_is_cut() {
        let weather = || call("get_weather", r#"{"city":"Bern {","n":[1,2]}"#);
        let object = r#"{"name": "get_weather", "arguments": {"city": "Bern {", "n": [1, 2]}}"#;
        let cases = [
            (format!("<tool_call>\n{object}\n</tool_call>"), vec![weather()]),
            (format!("Let me look.\n<tool_call>{object}</tool_call>"), vec![text("Let me look."), weather()]),
            (
                format!("<tool_call>\n{object}\n</tool_call>\n<tool_call>\n{object}\n</tool_call>"),
                vec![weather(), weather()],
            ),
            (format!("<tool_call>\n{object}\n{object}"), vec![weather(), weather()]),
            (object.to_owned(), vec![weather()]),
            (format!("```json\n{object}\n```"), vec![weather()]),
            (format!("```\n{object}\n```\nDone."), vec![weather(), text("Done.")]),
            (format!("Sure:\n {object} ok"), vec![text("Sure:\n "), weather(), text("ok")]),
            (
                r#"{"type": "function", "function": {"name": "hang_up", "parameters": "{}"}}"#.to_owned(),
                vec![call("hang_up", "{}")],
            ),
            (r#"<tool_call>{"name": "hang_up"}</tool_call>"#.to_owned(), vec![call("hang_up", "{}")]),
            (format!("a {{b}} < c <tool {object}"), vec![text(&format!("a {{b}} < c <tool {object}"))]),
            ("```rust\nfn f() {}\n```".to_owned(), vec![text("```rust\nfn f() {}\n```")]),
            ("{\"a\": 1}\n``".to_owned(), vec![text("{\"a\": 1}\n``")]),
            (
                r#"{"name": "unknown", "arguments": {}}"#.to_owned(),
                vec![text(r#"{"name": "unknown", "arguments": {}}"#)],
            ),
            (r#"{"name": "get_weather", "#.to_owned(), vec![text(r#"{"name": "get_weather", "#)]),
        ];
        for (written, expected) in cases {
            for size in [1, 2, 3, 7, 1_000] {
                let chars: Vec<char> = written.chars().collect();
                let parts: Vec<String> = chars.chunks(size).map(|part| part.iter().collect()).collect();
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                let found: Vec<Found> = all(&parts)
                    .into_iter()
                    .map(|one| match one {
                        Found::Text(said) if expected.len() > 1 && said == "Let me look.\n" => {
                            text("Let me look.")
                        }
                        other => other,
                    })
                    .collect();
                assert_eq!(found, expected, "{written:?} in parts of {size}");
            }
        }
    }

    #[test]
    fn a_marked_call_that_cannot_be_read_is_an_error() {
        for broken in [
            "<tool_call>{\"name\": \"nobody\", \"arguments\": {}}</tool_call>",
            "<tool_call>get_weather()</tool_call>",
            "<tool_call>{\"name\": \"get_weather\", \"argu",
            "<tool_call>{\"name\": \"get_weather\", \"arguments\": [1]}</tool_call>",
            "<tool_call>{}",
        ] {
            assert!(matches!(all(&[broken])[..], [Found::Malformed(_)]), "{broken}");
        }
    }

    #[test]
    fn text_is_not_held_back() {
        let mut detector = detector();
        assert_eq!(detector.push("Hello "), [text("Hello ")]);
        assert_eq!(detector.push("it is 5 < 6 and"), [text("it is 5 < 6 and")]);
        assert_eq!(detector.push("\n{ x"), [text("\n{ x")]);
        let mut none = Detector::new(&[], || unreachable!("no tools, no calls"));
        assert_eq!(none.push("<tool_call>{"), [text("<tool_call>{")]);
    }

    proptest! {
        #[test]
        fn text_without_calls_is_never_changed(parts in prop::collection::vec("[{}`\\n <a\":nme]{0,6}|<tool|```json", 0..12)) {
            let whole = parts.concat();
            prop_assume!(!whole.contains(OPEN));
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let found = all(&parts);
            let expected = if whole.is_empty() { vec![] } else { vec![Found::Text(whole)] };
            prop_assert_eq!(found, expected);
        }
    }
}
