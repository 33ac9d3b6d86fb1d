//! Addresses: URLs, e-mail, telephone numbers.

use super::number::one_by_one;
use super::{Text, Token};

/// Last labels by which a bare host name is known for one.
const DOMAINS: &[&str] = &[
    "com", "org", "net", "edu", "gov", "io", "ai", "dev", "app", "co", "uk", "de", "fr", "es", "eu", "ca",
    "au", "info", "biz", "tv", "us", "ch", "nl", "jp", "cn", "br",
];

/// Last labels that are said as words.
const SAID: &[&str] = &["com", "org", "net", "dev", "app", "info", "biz", "co", "gov", "edu"];

/// Reads an address that begins here; gives the place after it.
pub fn read(text: &Text, at: usize, out: &mut Vec<Token>) -> Option<usize> {
    if !text.begins(at) || text.before(at) == '_' {
        return None;
    }
    phone(text, at, out).or_else(|| internet(text, at, out))
}

fn internet(text: &Text, at: usize, out: &mut Vec<Token>) -> Option<usize> {
    if !text.char(at).is_alphanumeric() {
        return None;
    }
    let mut end =
        text.skip(at, |c| !c.is_whitespace() && !matches!(c, '<' | '>' | '"' | '(' | ')' | '[' | ']' | '|'));
    while end > at && matches!(text.char(end - 1), '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '’' | '…') {
        end -= 1;
    }
    let whole = text.slice(at, end);
    let lower = whole.to_lowercase();
    let spoken = match lower.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => web(rest)?,
        Some(_) => return None,
        None if lower.contains('@') => mail(lower.strip_prefix("mailto:").unwrap_or(&lower))?,
        None if lower.starts_with("www.") || is_host(lower.split('/').next().unwrap_or_default()) => {
            web(&lower)?
        }
        None => return None,
    };
    out.push(text.word(at, end, spoken));
    Some(end)
}

/// Whether this is a host name without `www`, by its last label.
fn is_host(host: &str) -> bool {
    let labels: Vec<&str> = host.split('.').collect();
    labels.len() >= 2
        && labels.last().is_some_and(|last| DOMAINS.contains(last))
        && labels
            .iter()
            .all(|label| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
        && labels[labels.len() - 2].chars().filter(char::is_ascii_alphabetic).count() >= 2
}

/// Host and path of a web address; nobody wants to hear a query.
fn web(rest: &str) -> Option<String> {
    let rest = rest.strip_prefix("www.").unwrap_or(rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut words = vec![labels(host)?];
    for part in path.split('/').filter(|part| !part.is_empty()) {
        words.push("slash".to_owned());
        words.push(signs(part));
    }
    Some(words.join(" "))
}

fn mail(address: &str) -> Option<String> {
    let (local, host) = address.split_once('@')?;
    if !host.contains('.') || !local.contains(|c: char| c.is_ascii_alphanumeric()) || host.contains('@') {
        return None;
    }
    Some(format!("{} at {}", signs(local), labels(host)?))
}

/// "mail dot example dot com".
fn labels(host: &str) -> Option<String> {
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let labels: Vec<&str> = host.split('.').filter(|label| !label.is_empty()).collect();
    let last = labels.len().checked_sub(1)?;
    let mut words: Vec<String> = labels
        .iter()
        .enumerate()
        .map(|(index, label)| match index == last && label.len() <= 3 && !SAID.contains(label) {
            true => spell(label),
            false => signs(label),
        })
        .collect();
    if !port.is_empty() {
        let name = format!("port {}", signs(port));
        let host = words.join(" dot ");
        words = vec![format!("{host} {name}")];
    }
    let said = words.join(" dot ");
    said.contains(char::is_alphanumeric).then_some(said)
}

/// Letters as words, digits one by one, signs by their names.
fn signs(part: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut letters = String::new();
    for c in part.chars() {
        if c.is_alphabetic() {
            letters.push(c);
            continue;
        }
        if !letters.is_empty() {
            words.push(std::mem::take(&mut letters));
        }
        let name = match c {
            '.' => "dot".to_owned(),
            '-' => "dash".to_owned(),
            '_' => "underscore".to_owned(),
            '+' => "plus".to_owned(),
            '~' => "tilde".to_owned(),
            '%' => "percent".to_owned(),
            '&' => "and".to_owned(),
            '=' => "equals".to_owned(),
            '@' => "at".to_owned(),
            ':' => "colon".to_owned(),
            c if c.is_ascii_digit() => one_by_one(&c.to_string()),
            _ => continue,
        };
        words.push(name);
    }
    if !letters.is_empty() {
        words.push(letters);
    }
    words.join(" ")
}

fn spell(label: &str) -> String {
    if !label.chars().all(|c| c.is_ascii_alphabetic()) {
        return signs(label);
    }
    let letters: Vec<String> = label.to_uppercase().chars().map(String::from).collect();
    letters.join(".")
}

/// A telephone number, digit by digit, with a pause between its groups.
fn phone(text: &Text, at: usize, out: &mut Vec<Token>) -> Option<usize> {
    let first = text.char(at);
    if !(first.is_ascii_digit() || matches!(first, '+' | '(') && text.char(at + 1).is_ascii_digit()) {
        return None;
    }
    let plus = first == '+';
    // Groups of digits with one separator between them, or brackets about one.
    let mut groups: Vec<(usize, usize)> = Vec::new();
    let mut separators = String::new();
    let mut place = at + usize::from(plus);
    let mut total = 0;
    loop {
        let bracket = text.char(place) == '(';
        let start = place + usize::from(bracket);
        let (digits, end) = text.digits(start);
        if digits.is_empty() || bracket && text.char(end) != ')' {
            break;
        }
        total += digits.len();
        groups.push((start, end));
        place = end + usize::from(bracket);
        let mut next = place;
        if matches!(text.char(next), '-' | '.' | ' ' | '\u{2011}' | '\u{a0}') {
            separators.push(text.char(next));
            next += 1;
        } else if bracket {
            separators.push(')');
        } else {
            break;
        }
        if bracket && text.char(next) == ' ' {
            next += 1;
        }
        if !(text.char(next).is_ascii_digit()
            || text.char(next) == '(' && text.char(next + 1).is_ascii_digit())
        {
            break;
        }
        place = next;
    }
    let end = groups.last()?.1;
    let sizes: Vec<usize> = groups.iter().map(|(start, end)| end - start).collect();
    let dashes = separators.chars().take(groups.len() - 1).all(|c| matches!(c, '-' | '\u{2011}'));
    let is_phone = match sizes[..] {
        _ if plus => groups.len() <= 7 && (8..=15).contains(&total),
        [3, 4] => dashes,
        [3, 3, 4] | [1, 3, 3, 4] => true,
        [10] => true,
        [11] => first == '1',
        _ => false,
    };
    if !is_phone
        || !text.ends(end)
        || matches!(text.char(end), '.' | ',') && text.char(end + 1).is_ascii_digit()
    {
        return None;
    }
    if let [(start, end)] = groups[..]
        && !plus
    {
        groups = match end - start {
            10 => vec![(start, start + 3), (start + 3, start + 6), (start + 6, end)],
            _ => vec![(start, start + 1), (start + 1, start + 4), (start + 4, start + 7), (start + 7, end)],
        };
    }
    for (index, (start, end)) in groups.into_iter().enumerate() {
        let digits = one_by_one(&text.slice(start, end));
        if index == 0 {
            let (from, name) = if plus { (at, format!("plus {digits}")) } else { (start, digits) };
            out.push(text.word(from, end, name));
        } else {
            out.push(Token::Mark(','));
            out.push(text.word(start, end, digits));
        }
    }
    Some(end)
}
