//! JSON schemas within a Lark grammar: each `%json {…}` is prepared like a schema of its own.

use serde_json::Value;

use super::schema;
use crate::ffi::Result;

const KEYWORD: &str = "%json";

/// The grammar with its schemas as llguidance is to see them.
pub fn prepare(source: &str) -> Result<String> {
    let mut prepared = String::with_capacity(source.len());
    let mut rest = source;
    let mut number = 0;
    while let Some(at) = find_keyword(rest) {
        number += 1;
        let (before, from) = rest.split_at(at + KEYWORD.len());
        let mut values = serde_json::Deserializer::from_str(from).into_iter::<Value>();
        if !matches!(values.next(), Some(Ok(_))) {
            return Err(format!("behind %json number {number} must stand a JSON schema"));
        }
        let (text, behind) = from.split_at(values.byte_offset());
        let schema = schema::prepare(text).map_err(|e| format!("%json number {number}: {e}"))?;
        prepared.push_str(before);
        prepared.push(' ');
        prepared.push_str(&schema.to_string());
        rest = behind;
    }
    prepared.push_str(rest);
    Ok(prepared)
}

/// Where the keyword stands next, outside of texts, regular expressions, special tokens and comments.
fn find_keyword(source: &str) -> Option<usize> {
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &source.as_bytes()[at..];
        at += match rest {
            [b'"', ..] => closed(rest, b'"'),
            [b'<', ..] => special(rest),
            [b'/', b'/', ..] | [b'#', ..] => {
                rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())
            }
            [b'/', ..] => closed(rest, b'/'),
            _ if rest.starts_with(KEYWORD.as_bytes()) => return Some(at),
            _ => 1,
        };
    }
    None
}

/// The length of the special token's name that begins here; 1 where none does.
fn special(bytes: &[u8]) -> usize {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"<>".contains(byte);
    match bytes[1..].iter().position(ends) {
        Some(length) if length > 0 && bytes[1 + length] == b'>' => length + 2,
        _ => 1,
    }
}

/// The length of what begins here and ends with the next `end` that no backslash stands before.
fn closed(bytes: &[u8], end: u8) -> usize {
    let mut escaped = false;
    for (i, &byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == end => return i + 1,
            _ => {}
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_prepared_and_other_text_stays() {
        let source =
            "start: \"%json\" /%json\\/x/ a // %json {\n# %json\na: %json {\"type\":\"null\"}\n";
        let prepared = prepare(source).unwrap();
        let (before, schema) = prepared.split_at(source.find("{\"type").unwrap());
        assert_eq!(before, &source[..before.len()]);
        assert!(schema.contains("x-guidance"));
        assert!(schema.ends_with('\n'));
        assert_eq!(prepare("start: \"a\"").unwrap(), "start: \"a\"");
    }

    #[test]
    fn special_tokens_hide_nothing() {
        for before in ["</think>", "<a\"b>", "<a#b>", "<a", "< /x/ >", "<>", "<a<b/c>"] {
            let prepared =
                prepare(&format!("start: {before} %json {{\"type\":\"null\"}}")).unwrap();
            assert!(prepared.contains("x-guidance"), "{before}");
        }
        assert_eq!(prepare("start: <%json>").unwrap(), "start: <%json>");
    }

    #[test]
    fn errors_count_the_schemas() {
        for (source, message) in [
            ("start: %json {\"type\": \"null\"} %json {\"if\": {}}", "%json number 2: "),
            ("start: %json", "behind %json number 1"),
            ("start: %json {\"a\"", "behind %json number 1"),
        ] {
            let error = prepare(source).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
