use super::*;

/// Its tokens are the bytes.
fn vocabulary() -> Vocabulary {
    let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
    let token = |byte| Slice::of(byte);
    let tokens: Vec<TokenView> = bytes
        .iter()
        .map(|b| TokenView { piece: token(b), bytes: token(b), added: false, special: false })
        .collect();
    Vocabulary::new(&tokens, &[0]).unwrap()
}

/// A Lark grammar with a terminal that is doubled again and again.
fn doubled(start: &str) -> String {
    let doubled: String = (1..=14).map(|i| format!("A{i}: A{0} A{0}\n", i - 1)).collect();
    format!("start: {start}\nA0: \"a\"? /\\w/?\n{doubled}")
}

/// The part of this schema that refers to a draft's own schema is none; where it is looked for such
/// references it seems to be one.
const HIDDEN_REFERENCE: &str = r##"{
    "$defs": {
        "A": {"properties": {"const": {}}},
        "A%2Fproperties": {"const": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}
    },
    "$ref": "#/$defs/A%2Fproperties/const"
}"##;

#[test]
fn what_is_made_once_for_all_outlives_those_that_take_too_much() {
    let vocabulary = vocabulary();
    for _ in 0..2 {
        let hostile = doubled(&format!("%json {HIDDEN_REFERENCE} A14"));
        assert!(vocabulary.compile(Kind::Lark, &hostile).is_err());
        let harmless = vocabulary.compile(Kind::JsonSchema, HIDDEN_REFERENCE);
        assert_eq!(harmless.err().map(|refusal| refusal.message), None);
    }
}

#[test]
fn those_that_take_too_much_are_refused_and_leave_the_others_alone() {
    let vocabulary = vocabulary();
    let hostile = [
        (Kind::Regex, r"\w".repeat(130_000)),
        (Kind::Regex, r"(?i)\p{L}".repeat(9_000)),
        (Kind::Regex, "(a)*".repeat(16_000)),
        (Kind::Lark, doubled("A14")),
    ];
    for (kind, source) in hostile {
        let start = &source[..20];
        assert!(vocabulary.compile(kind, &source).is_err(), "{start}");
        assert!(vocabulary.compile(Kind::Regex, "[a-z]+").is_ok(), "after {start}");
    }
}
