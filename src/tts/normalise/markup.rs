//! Takes out what is written to be seen: markdown, HTML tags, emoji.

use super::Char;

/// Longest tag that is taken for one, in characters.
const LONGEST_TAG: usize = 200;

/// The characters that are left, each with its bytes; `base` is added to them.
/// Where something was taken out between words, a space stands.
pub fn strip(text: &str, base: usize, mut in_code: bool) -> Vec<Char> {
    let source: Vec<(usize, char)> = text.char_indices().collect();
    let mut out: Vec<Char> = Vec::with_capacity(source.len());
    let mut line_start = true;
    let mut at = 0;
    while let Some(&(byte, c)) = source.get(at) {
        let next = |offset: usize| source.get(at + offset).map_or('\n', |(_, c)| *c);
        let before = at.checked_sub(1).map_or('\n', |at| source[at].1);
        let mut put = |c: char, length: usize| {
            let to = source.get(at + length).map_or(text.len(), |(byte, _)| *byte);
            out.push(Char { c, from: base + byte, to: base + to });
        };
        let was_line_start = line_start;
        line_start = c == '\n' || line_start && c == ' ';
        at += match c {
            '`' if next(1) == '`' && next(2) == '`' => {
                in_code = !in_code;
                put(' ', 3);
                3
            }
            _ if in_code => 1,
            '`' => 1,
            '\\' if next(1).is_ascii_punctuation() => 1,
            '#' | '>' if was_line_start && (next(1) == c || next(1) == ' ') => {
                line_start = true;
                1
            }
            '-' | '*' | '+' | '•' if was_line_start && next(1) == ' ' => 1,
            '-' | '=' | '*' | '_' if rule(&source[at..]) >= 3 => {
                let length = rule(&source[at..]);
                put(' ', length);
                length
            }
            '-' if next(1) == '-' => {
                put('—', 2);
                2
            }
            '*' if is_factor(before, next(1)) => {
                put('×', 1);
                1
            }
            '*' => 1,
            '_' => {
                if before.is_alphanumeric() && next(1).is_alphanumeric() {
                    put('_', 1);
                }
                1
            }
            '~' if !next(1).is_ascii_digit() => 1,
            '!' if next(1) == '[' => 1,
            '[' => note(&source[at..]).unwrap_or(1),
            ']' => target(&source[at..]).unwrap_or(1),
            '<' => match tag(&source[at..]) {
                Some(length) => {
                    put(' ', length);
                    length
                }
                None => {
                    put(c, 1);
                    1
                }
            },
            '>' if before.is_alphanumeric() || before == '/' => {
                put(' ', 1);
                1
            }
            '&' => match entity(&source[at..]) {
                Some((c, length)) => {
                    put(c, length);
                    length
                }
                None => {
                    put(c, 1);
                    1
                }
            },
            c if is_picture(c) => {
                put(' ', 1);
                1
            }
            '\t' | '\r' => {
                put(' ', 1);
                1
            }
            '“' | '”' | '„' | '«' | '»' | '"' => {
                put('"', 1);
                1
            }
            c => {
                put(c, 1);
                1
            }
        };
    }
    out
}

/// How often the first character is repeated: three make a line across the page.
fn rule(rest: &[(usize, char)]) -> usize {
    rest.iter().take_while(|(_, c)| *c == rest[0].1).count()
}

/// `5 * 3`, `5*3`: a product, not emphasis.
fn is_factor(before: char, after: char) -> bool {
    before == ' ' && after == ' ' || before.is_ascii_digit() && after.is_ascii_digit()
}

/// `[12]`: a footnote mark.
fn note(rest: &[(usize, char)]) -> Option<usize> {
    let digits = rest[1..].iter().take_while(|(_, c)| c.is_ascii_digit() || *c == '^').count();
    (digits > 0 && rest.get(digits + 1).is_some_and(|(_, c)| *c == ']')).then_some(digits + 2)
}

/// `](address)`: where a link leads.
fn target(rest: &[(usize, char)]) -> Option<usize> {
    if rest.get(1)?.1 != '(' {
        return None;
    }
    let end = rest.iter().take(2_048).position(|(_, c)| *c == ')')?;
    // A title after the address may hold spaces; plain words in brackets are no address.
    let first: String = rest[2..end].iter().map(|(_, c)| *c).take_while(|c| *c != ' ').collect();
    (first.contains(['/', '.', '#', ':']) || first.is_empty()).then_some(end + 1)
}

/// `<b>`, `</p>`, `<br/>`, `<!-- -->`.
fn tag(rest: &[(usize, char)]) -> Option<usize> {
    let first = rest.get(1)?.1;
    if !(first.is_ascii_alphabetic() || first == '/' || first == '!') {
        return None;
    }
    let end = rest.iter().take(LONGEST_TAG).position(|(_, c)| *c == '>')?;
    let inside: String = rest[1..end].iter().map(|(_, c)| *c).collect();
    // An address in angle brackets is said.
    (!inside.contains("://") && !inside.contains('@')).then_some(end + 1)
}

fn entity(rest: &[(usize, char)]) -> Option<(char, usize)> {
    let end = rest.iter().take(10).position(|(_, c)| *c == ';')?;
    let name: String = rest[1..end].iter().map(|(_, c)| *c).collect();
    let c = match name.as_str() {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" | "#39" => '\'',
        "nbsp" => ' ',
        _ => return None,
    };
    Some((c, end + 1))
}

/// Emoji, symbols of no sound, and the invisible marks that join them.
fn is_picture(c: char) -> bool {
    matches!(c as u32,
        0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x2064 | 0xfe00..=0xfe0f | 0xfeff
        | 0x2190..=0x21ff | 0x2300..=0x23ff | 0x2460..=0x24ff | 0x2500..=0x27bf | 0x2900..=0x297f | 0x2b00..=0x2bff
        | 0x3030 | 0x303d | 0x3297 | 0x3299 | 0xe000..=0xf8ff
        | 0x1f000..=0x1faff | 0xe0000..=0xe01ef | 0xa9 | 0xae | 0x2122)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(text: &str) -> String {
        let text: String = strip(text, 0, false).iter().map(|char| char.c).collect();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn markdown_is_taken_out() {
        assert_eq!(
            left("# Title\n> quoted\n- **bold** and _soft_ `code` ~~gone~~"),
            "Title quoted bold and soft code gone"
        );
        assert_eq!(left("see [the docs](https://a.b/c \"t\") ![pic](x.png)[1]"), "see the docs pic");
        assert_eq!(left("a\n---\nb *** c"), "a b c");
        assert_eq!(left("snake_case 5 * 3 2*4 \\*"), "snake_case 5 × 3 2×4");
        assert_eq!(
            left("a <b>bold</b> x<br/>y &amp; <https://a.b> 3 < 4"),
            "a bold x y & <https://a.b 3 < 4"
        );
    }

    #[test]
    fn pictures_are_taken_out() {
        assert_eq!(left("Hi 😀👍🏽 there 👩‍👩‍👧 ✅ ©"), "Hi there");
    }

    #[test]
    fn bytes_point_back() {
        let text = "é **b** &amp;";
        for char in strip(text, 5, false) {
            let written = &text[char.from - 5..char.to - 5];
            assert!(written.starts_with(char.c) || written == "&amp;", "{written}");
        }
    }
}
