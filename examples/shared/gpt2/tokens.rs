//! GPT-2's byte-pair encoding. Adjacent tokens are merged in the order of a list (Sennrich et al.,
//! "Neural Machine Translation of Rare Words with Subword Units", 2016).

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// The contractions that are separate words.
const SHORT: [&str; 7] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];

/// The tokenizer that `vocab.json` and `merges.txt` describe.
#[derive(Debug)]
pub struct Tokens {
    numbers: HashMap<String, i64>,
    texts: HashMap<i64, String>,
    /// The rank of each mergeable pair of tokens. The pair of the lowest rank is merged first.
    ranks: HashMap<(String, String), usize>,
}

impl Tokens {
    /// Reads `vocab.json` and `merges.txt` in a folder.
    pub fn read(folder: &Path) -> Result<Self, Failure> {
        let text = |name: &str| {
            let path = folder.join(name);
            let failed = |error| Failure::Input(format!("{}: {error}", path.display()));
            fs::read_to_string(&path).map_err(failed)
        };
        let numbers: HashMap<String, i64> = serde_json::from_str(&text("vocab.json")?)
            .map_err(|error| Failure::Input(format!("vocab.json: {error}")))?;
        let merges = text("merges.txt")?;
        let pairs = merges.lines().filter(|line| !line.starts_with("#version"));
        let pairs = pairs.filter_map(|line| line.split_once(' '));
        let owned = |(left, right): (&str, &str)| (left.to_owned(), right.to_owned());
        Ok(Self {
            texts: numbers
                .iter()
                .map(|(text, &number)| (number, text.clone()))
                .collect(),
            numbers,
            ranks: pairs.map(owned).zip(0..).collect(),
        })
    }

    /// Returns the token numbers of a text.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>, Failure> {
        let parts = words(text).into_iter().flat_map(|word| self.merged(word));
        let number = |part: String| {
            let number = self.numbers.get(&part).copied();
            number.ok_or_else(|| Failure::Input(format!("vocab.json: no token {part:?}")))
        };
        parts.map(number).collect()
    }

    /// Returns the text of tokens. Bytes that are not UTF-8 become replacement characters.
    pub fn decode(&self, numbers: &[i64]) -> String {
        let bytes: HashMap<char, u8> = (0..=u8::MAX).map(|byte| (printable(byte), byte)).collect();
        let texts = numbers.iter().filter_map(|number| self.texts.get(number));
        let bytes: Vec<u8> = texts
            .flat_map(|text| text.chars())
            .filter_map(|own| bytes.get(&own).copied())
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Merges the bytes of a word into tokens, the pair of the lowest rank first.
    fn merged(&self, word: &str) -> Vec<String> {
        let mut parts: Vec<String> = word.bytes().map(|byte| printable(byte).into()).collect();
        loop {
            let rank = |at: usize| self.ranks.get(&(parts[at].clone(), parts[at + 1].clone()));
            let ranked = (0..parts.len() - 1).filter_map(|at| Some((rank(at)?, at)));
            let Some((_, at)) = ranked.min() else {
                return parts;
            };
            let right = parts.remove(at + 1);
            parts[at].push_str(&right);
        }
    }
}

/// Returns the character that represents a byte in the files. A visible Latin-1 character
/// represents its own byte. Characters from 256 on represent the other bytes.
fn printable(byte: u8) -> char {
    let is_visible = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..);
    match is_visible(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&byte| !is_visible(byte)).count();
            char::from_u32(256 + before as u32).expect("it is below 512")
        }
    }
}

/// Divides a text into words, like the published pattern. Each word includes the space before it.
/// Letters are Unicode's alphabetic characters, a slightly larger set than the pattern's letters.
fn words(mut text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    while !text.is_empty() {
        let (word, rest) = text.split_at(word_bytes(text));
        words.push(word);
        text = rest;
    }
    words
}

/// Returns the length of the first word of a text that is not empty.
fn word_bytes(text: &str) -> usize {
    if let Some(short) = SHORT.iter().find(|short| text.starts_with(**short)) {
        return short.len();
    }
    let kind = |own: char| {
        (
            own.is_whitespace(),
            own.is_numeric(),
            own.is_alphabetic() && !own.is_numeric(),
        )
    };
    let body = text.strip_prefix(' ').unwrap_or(text);
    if let Some(first) = body.chars().next().filter(|first| !first.is_whitespace()) {
        let end = body
            .find(|own| kind(own) != kind(first))
            .unwrap_or(body.len());
        return text.len() - body.len() + end;
    }
    // The text begins with whitespace. If there are several whitespace characters, the last one
    // belongs to the next word.
    let Some(end) = text.find(|own: char| !own.is_whitespace()) else {
        return text.len();
    };
    let last = text[..end].chars().next_back().map_or(0, char::len_utf8);
    if last < end { end - last } else { end }
}
