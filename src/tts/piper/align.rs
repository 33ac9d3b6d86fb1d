//! Which phonemes belong to which word.
//!
//! espeak draws some words together ("in the" becomes `ɪnðə`) and parts
//! others, so its groups are not the words. When the counts differ, the
//! phonemes of the whole are laid beside those of the words said alone, with
//! the fewest changes, and each takes the word of its neighbour.

use super::voice::symbols;

/// A symbol and the word it belongs to; `None` for a space between words.
pub type Owned = (char, Option<usize>);

/// The answer's symbols with the word of each, when espeak's groups are the words.
pub fn by_groups(answer: &str, words: usize) -> Option<Vec<Owned>> {
    (answer.split_whitespace().count() == words).then(|| own(answer, |group, _| group))
}

/// The answer's symbols with the word of each, by comparison with the words said alone.
pub fn by_likeness(answer: &str, alone: &[String]) -> Vec<Owned> {
    let whole: Vec<char> = symbols(answer).filter(|c| !c.is_whitespace()).collect();
    let parts: Vec<(char, usize)> = alone
        .iter()
        .enumerate()
        .flat_map(|(word, ipa)| symbols(ipa).filter(|c| !c.is_whitespace()).map(move |c| (c, word)))
        .collect();
    if parts.is_empty() {
        return own(answer, |_, _| 0);
    }
    let owners = owners(&whole, &parts);
    own(answer, |_, index| owners[index])
}

/// The answer's symbols, each owned as `owner` says of its group and its place
/// among the symbols that are no spaces.
fn own(answer: &str, owner: impl Fn(usize, usize) -> usize) -> Vec<Owned> {
    let mut out = Vec::new();
    let mut index = 0;
    for (number, group) in answer.split_whitespace().enumerate() {
        if number > 0 {
            out.push((' ', None));
        }
        for symbol in symbols(group) {
            out.push((symbol, Some(owner(number, index))));
            index += 1;
        }
    }
    out
}

/// For each symbol of `whole`, the word of the symbol of `parts` that it lies
/// beside in the alignment with the fewest changes (Wagner and Fischer 1974).
fn owners(whole: &[char], parts: &[(char, usize)]) -> Vec<usize> {
    let width = parts.len() + 1;
    let mut cost = vec![0u32; (whole.len() + 1) * width];
    for (j, cost) in cost.iter_mut().enumerate().take(width) {
        *cost = j as u32 * 2;
    }
    for i in 1..=whole.len() {
        cost[i * width] = i as u32 * 2;
        for j in 1..width {
            let (a, b) = (whole[i - 1], parts[j - 1].0);
            let change = match (a == b, is_mark(a), is_mark(b)) {
                (true, ..) => 0,
                // A stress mark is no likeness to a sound.
                (false, true, false) | (false, false, true) => 5,
                _ => 3,
            };
            cost[i * width + j] = (cost[(i - 1) * width + j - 1] + change)
                .min(cost[(i - 1) * width + j] + 2)
                .min(cost[i * width + j - 1] + 2);
        }
    }
    let mut owners = vec![0; whole.len()];
    let (mut i, mut j) = (whole.len(), parts.len());
    while i > 0 {
        let here = cost[i * width + j];
        let word = parts[j.saturating_sub(1)].1;
        if j > 0 && here == cost[i * width + j - 1] + 2 {
            j -= 1;
        } else if here == cost[(i - 1) * width + j] + 2 {
            // An added symbol: a stress mark goes with what follows it, all else with what came before.
            owners[i - 1] = match owners.get(i) {
                Some(next) if is_mark(whole[i - 1]) => *next,
                _ => word,
            };
            i -= 1;
        } else {
            owners[i - 1] = word;
            (i, j) = (i - 1, j - 1);
        }
    }
    owners
}

fn is_mark(c: char) -> bool {
    matches!(c, 'ˈ' | 'ˌ' | 'ː')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(owned: &[Owned], count: usize) -> Vec<String> {
        (0..count)
            .map(|word| owned.iter().filter(|(_, of)| *of == Some(word)).map(|(symbol, _)| symbol).collect())
            .collect()
    }

    #[test]
    fn groups_are_words_when_there_are_as_many() {
        let owned = by_groups("həlˈoʊ ðˈɛɹ", 2).expect("two groups, two words");
        assert_eq!(words(&owned, 2), ["həlˈoʊ", "ðˈɛɹ"]);
        assert_eq!(by_groups("ɪnðə hˈaʊs", 3), None);
    }

    #[test]
    fn words_drawn_together_are_parted() {
        let alone = ["ˈɪn", "ðə", "hˈaʊs", "ʌv", "ðə", "ɹˈaɪzɪŋ", "sˈʌn"].map(str::to_owned);
        let owned = by_likeness("ɪnðə hˈaʊs ʌvðə ɹˈaɪzɪŋ sˈʌn", &alone);
        assert_eq!(words(&owned, 7), ["ɪn", "ðə", "hˈaʊs", "ʌv", "ðə", "ɹˈaɪzɪŋ", "sˈʌn"]);
        let alone = ["ðˈɛɹ", "wʌz", "ˈeɪ", "mˈæn"].map(str::to_owned);
        assert_eq!(words(&by_likeness("ðɛɹwˌʌz ɐ mˈæn", &alone), 4), ["ðɛɹ", "wˌʌz", "ɐ", "mˈæn"]);
    }

    #[test]
    fn owners_never_go_back() {
        for (answer, alone) in [("abc def", vec!["x", "", "zabq", "e"]), ("a", vec!["", ""]), ("", vec!["a"])]
        {
            let alone: Vec<String> = alone.into_iter().map(str::to_owned).collect();
            let owners: Vec<usize> =
                by_likeness(answer, &alone).into_iter().filter_map(|(_, of)| of).collect();
            assert!(owners.is_sorted(), "{answer}: {owners:?}");
            assert!(owners.iter().all(|word| *word < alone.len()));
        }
    }
}
