//! The loop guard: ends an answer that repeats itself.

/// Longest phrase, in tokens, that is looked for.
const LONGEST: usize = 64;
/// A phrase must have come this often in a row.
const TIMES: usize = 4;

/// Whether the tail of `tokens` is one phrase over and over, for at least
/// `flood` tokens and four times. `flood` 0: never.
pub fn loops(tokens: &[u32], flood: usize) -> bool {
    if flood == 0 || tokens.len() < flood {
        return false;
    }
    (1..=LONGEST).any(|period| {
        let needed = flood.max(period * TIMES);
        tokens.len() >= needed && {
            let tail = &tokens[tokens.len() - needed..];
            tail[period..] == tail[..needed - period]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_are_seen() {
        for period in [1, 2, 7, 40, 64] {
            let mut tokens: Vec<u32> = (1000..1100).collect();
            let phrase: Vec<u32> = (0..period as u32).collect();
            let times = (48 / period).max(TIMES) + 1;
            for _ in 0..times {
                tokens.extend(&phrase);
            }
            assert!(loops(&tokens, 48), "period {period}");
            assert!(!loops(&tokens, 0));
        }
    }

    #[test]
    fn ordinary_repetition_is_not() {
        assert!(!loops(&[7; 40], 48));
        let list: Vec<u32> = (0..60).flat_map(|i| [1, 2, 3, 100 + i]).collect();
        assert!(!loops(&list, 48));
        let three: Vec<u32> = (0..30).cycle().take(90).collect();
        assert!(!loops(&three, 48));
        assert!(!loops(&[], 48));
    }
}
