//! Regular expressions as they come from outside, before llguidance sees them.

use llguidance::derivre::{RegexAst, RegexBuilder};

use super::reason;
use crate::ffi::Result;

/// Classes of Unicode in one grammar; each is hundreds of ranges, about 6 kB while it is parsed.
pub const MAX_CLASSES: usize = 10_000;

/// llguidance rewrites expressions before it parses them, and takes some for other than they are.
pub fn check(source: &str) -> Result<&str> {
    if source.contains("<stop>") {
        return Err("groups of a regular expression cannot be named stop".into());
    }
    check_size(source)?;
    let parsed = RegexBuilder::new().mk(&RegexAst::Regex(source.to_owned()));
    match parsed {
        Ok(_) if source.is_empty() => Ok("(?:)"),
        Ok(_) => Ok(source),
        Err(e) => Err(format!("{}: regular expression {source:?}", reason(&e.to_string()))),
    }
}

/// Of an expression, or of a text that has expressions in it.
pub fn check_size(source: &str) -> Result<()> {
    match class_count(source) {
        0..=MAX_CLASSES => Ok(()),
        count => Err(format!(
            "{count} classes such as \\w or \\p{{L}} are too many, the limit is {MAX_CLASSES}"
        )),
    }
}

/// Backslashes before a letter that begins a class of Unicode.
pub fn class_count(source: &str) -> usize {
    let mut escaped = false;
    let mut count = 0;
    for byte in source.bytes() {
        count += usize::from(escaped && b"wWdDsSpP".contains(&byte));
        escaped = !escaped && byte == b'\\';
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_counted() {
        for (source, count) in
            [("", 0), (r"wd\\w", 0), (r"\w", 1), (r"[\W\d]\p{L}\PN", 4), (r"\\\s\n", 1)]
        {
            assert_eq!(class_count(source), count, "{source}");
        }
    }

    #[test]
    fn too_many_classes_are_refused() {
        assert!(check(&r"\w".repeat(MAX_CLASSES + 1)).unwrap_err().contains("10001 classes"));
        assert!(check(r"\w+").is_ok());
    }
}
