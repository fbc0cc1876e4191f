//! How byte-level vocabularies cut a text into words: `tokenizer.ggml.pre` to regular expressions.
//!
//! Each name stands for the pre-tokenizer of one or more families' tokenizer.json. A text is split
//! at the first pattern, the parts at the second, and so on; what lies between matches is a part too.

use onig::Regex;

use crate::ffi::Result;

pub struct Family {
    /// Values of `tokenizer.ggml.pre`.
    pub names: &'static [&'static str],
    patterns: &'static [&'static str],
    /// The text is brought into Unicode's composed form first.
    pub nfc: bool,
    /// A word that is a token becomes that token, however it would have merged.
    pub whole_words: bool,
    /// A text starts with BOS unless the file says otherwise.
    pub adds_bos: bool,
}

impl Family {
    const fn new(names: &'static [&'static str], patterns: &'static [&'static str]) -> Family {
        Family { names, patterns, nfc: false, whole_words: false, adds_bos: false }
    }

    const fn nfc(self) -> Family {
        Family { nfc: true, ..self }
    }

    const fn whole_words(self) -> Family {
        Family { whole_words: true, ..self }
    }

    const fn adds_bos(self) -> Family {
        Family { adds_bos: true, ..self }
    }
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const DIGIT: &str = r"\p{N}";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1f7d}ᾀ-ᾴᾶ-ᾼ\x{1fbe}ῂ-ῄῆ-ῌῐ-\x{1fd3}ῖ-\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK_CJK: &str = r"[一-龥ࠀ-一가-\x{D7FF}]+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const FALCON_PUNCTUATION: &str = r"[\p{P}\$\+<=>\^~\|`]+";
const DEFAULT_PUNCTUATION: &str = r"[\p{P}\$\+<=>\^~\|]+";
const THREE_DIGITS: &str = r"[0-9][0-9][0-9]";

pub const FAMILIES: &[Family] = &[
    Family::new(&["default"], &[DEFAULT_PUNCTUATION, GPT2, r"\p{N}+", THREE_DIGITS]),
    Family::new(
        &[
            "gpt-2",
            "a.x-4.0",
            "exaone4",
            "gigachat",
            "granite-docling",
            "jais",
            "jina-de",
            "jina-es",
            "jina-v1-en",
            "jina-v2-code",
            "jina-v2-de",
            "jina-v2-es",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "phi-2",
            "roberta-bpe",
            "trillion",
        ],
        &[GPT2],
    ),
    Family::new(
        &[
            "smollm",
            "codeshell",
            "command-r",
            "exaone",
            "mellum2",
            "minerva-7b",
            "refact",
            "starcoder",
        ],
        &[DIGIT, GPT2],
    ),
    Family::new(
        &[
            "llama-bpe",
            "falcon-h1",
            "falcon3",
            "jina-v5-nano",
            "lfm2",
            "llama-v3",
            "llama3",
            "midm-2.0",
            "pixtral",
        ],
        &[LLAMA3],
    )
    .whole_words()
    .adds_bos(),
    Family::new(&["chatglm-bpe", "dbrx", "smaug-bpe"], &[LLAMA3]),
    Family::new(&["glm4", "glm5"], &[LLAMA3]).whole_words(),
    Family::new(&["qwen2", "deepseek-r1-qwen", "megrez"], &[QWEN2]).nfc(),
    Family::new(&["f2llmv2", "grok-2", "hunyuan", "kormo", "solar-open", "stablelm2"], &[QWEN2]),
    Family::new(&["qwen35"], &[QWEN35]).nfc(),
    Family::new(&["seed-coder"], &[SEED_CODER]),
    Family::new(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    Family::new(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            DEEPSEEK_CJK,
            r"\p{N}+",
        ],
    ),
    Family::new(&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, DIGIT]),
    Family::new(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        &[r"\p{N}{1,3}", r"[一-龥\x{3040}-ゟ゠-ヿ]+", DEEPSEEK3],
    ),
    Family::new(&["falcon"], &[FALCON_PUNCTUATION, GPT2, THREE_DIGITS]),
    Family::new(&["tekken"], &[TEKKEN]).whole_words().adds_bos(),
    Family::new(&["gpt-4o", "kanana2", "llama4", "minimax-m2", "talkie"], &[GPT4O]),
    Family::new(&["bloom", "gpt3-finnish", "poro-chat"], &[BLOOM]),
    Family::new(&["viking"], &[BLOOM, DIGIT]),
];

pub struct Pretokenizer {
    pub family: &'static Family,
    patterns: Vec<Regex>,
}

impl Pretokenizer {
    pub fn named(name: &str) -> Result<Self> {
        let Some(family) = FAMILIES.iter().find(|f| f.names.contains(&name)) else {
            let mut known: Vec<&str> = FAMILIES.iter().flat_map(|f| f.names).copied().collect();
            known.sort_unstable();
            return Err(format!(
                "unknown tokenizer.ggml.pre \"{name}\"; known are {}",
                known.join(", ")
            ));
        };
        let compile =
            |p: &&str| Regex::new(p).map_err(|e| format!("pre-tokenizer \"{name}\": {e}"));
        let patterns = family.patterns.iter().map(compile).collect::<Result<_>>()?;
        Ok(Pretokenizer { family, patterns })
    }

    /// Calls `word` with each part of `text`, in order.
    pub fn split(&self, text: &str, word: &mut impl FnMut(&str)) {
        split_by(&self.patterns, text, word);
    }
}

fn split_by(patterns: &[Regex], text: &str, word: &mut impl FnMut(&str)) {
    let Some((pattern, rest)) = patterns.split_first() else {
        return word(text);
    };
    let mut done = 0;
    for (begin, end) in pattern.find_iter(text) {
        if done < begin {
            split_by(rest, &text[done..begin], word);
        }
        if begin < end {
            split_by(rest, &text[begin..end], word);
        }
        done = end;
    }
    if done < text.len() {
        split_by(rest, &text[done..], word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        Pretokenizer::named(name).unwrap().split(text, &mut |w: &str| words.push(w.to_string()));
        words
    }

    #[test]
    fn every_family_compiles_and_loses_nothing() {
        let text = "It's  12345 naïve \r\n\n 日本語 Été_x+=1\t😀 ";
        for name in FAMILIES.iter().flat_map(|f| f.names) {
            assert_eq!(words(name, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = FAMILIES.iter().flat_map(|f| f.names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn families_differ_in_numbers() {
        assert_eq!(words("gpt-2", "a 1234"), ["a", " 1234"]);
        assert_eq!(words("smollm", "a 12"), ["a", " ", "1", "2"]);
        assert_eq!(words("qwen2", "a 12"), ["a", " ", "1", "2"]);
        assert_eq!(words("llama-bpe", "a 1234"), ["a", " ", "123", "4"]);
    }

    #[test]
    fn unknown_name_lists_the_known() {
        let message = Pretokenizer::named("nonsense").err().unwrap();
        assert!(message.contains("nonsense") && message.contains("qwen2"), "{message}");
    }
}
