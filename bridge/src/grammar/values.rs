//! The values of a schema's keywords, checked one by one.

use llguidance::derivre::{RegexAst, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind};
use serde_json::{Map, Number, Value};

use super::reason;
use crate::ffi::Result;

/// Beyond this not every integer has a double, in which llguidance computes.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

const TYPES: &[&str] = &["null", "boolean", "integer", "number", "string", "array", "object"];
const TEXT_FORMATS: &[&str] =
    &["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];
/// OpenAPI's formats of numbers, as bounds.
const NUMBER_FORMATS: &[(&str, Option<(f64, f64)>)] = &[
    ("double", None),
    ("float", None),
    ("int32", Some((-2_147_483_648.0, 2_147_483_647.0))),
    ("int64", Some((-MAX_EXACT, MAX_EXACT))),
];

/// The value with which a keyword says nothing.
#[derive(Clone, Copy)]
pub enum Harmless {
    False,
    True,
}

pub fn fail<T>(path: &str, what: impl std::fmt::Display) -> Result<T> {
    Err(format!("JSON schema at {}: {what}", if path.is_empty() { "/" } else { path }))
}

pub fn strings(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

pub fn check_harmless(
    harmless: Harmless,
    key: &str,
    value: &Value,
    at: &str,
) -> Result<Option<Value>> {
    let is_harmless = match harmless {
        Harmless::False => *value == Value::Bool(false),
        Harmless::True => {
            *value == Value::Bool(true) || value.as_object().is_some_and(Map::is_empty)
        }
    };
    match is_harmless {
        true => Ok(None),
        false => fail(at, format_args!("the keyword {key:?} is not supported")),
    }
}

pub fn check_type(value: &Value, at: &str) -> Result<()> {
    let one = value.as_str().map(|name| vec![name]);
    let Some(names) = one.or_else(|| strings(value)).filter(|names| !names.is_empty()) else {
        return fail(at, "must be a string or an array of strings");
    };
    match names.iter().find(|name| !TYPES.contains(name)) {
        Some(name) => fail(at, format_args!("there is no type {name:?}")),
        None => Ok(()),
    }
}

pub fn check_constants(value: &Value, at: &str) -> Result<()> {
    match value.as_array() {
        Some(values) if !values.is_empty() => values
            .iter()
            .enumerate()
            .try_for_each(|(i, value)| check_constant(value, &format!("{at}/{i}"))),
        _ => fail(at, "must be an array with at least one value"),
    }
}

pub fn check_constant(value: &Value, at: &str) -> Result<()> {
    match value {
        Value::Number(_) => check_number(value, at),
        Value::String(text) => check_text(text.as_bytes(), at),
        Value::Array(values) => values.iter().try_for_each(|v| check_constant(v, at)),
        Value::Object(map) => map.values().try_for_each(|v| check_constant(v, at)),
        _ => Ok(()),
    }
}

/// llguidance leaves out, in silence, what needs an escape that is not among ESCAPES.
fn check_text(text: &[u8], at: &str) -> Result<()> {
    match text.iter().find(|byte| byte.is_ascii_control() && !b"\x08\x0C\n\r\t".contains(byte)) {
        Some(byte) => {
            fail(at, format_args!("the control character \\x{byte:02x} is not supported"))
        }
        None => Ok(()),
    }
}

pub fn check_number(value: &Value, at: &str) -> Result<()> {
    match value.as_f64() {
        Some(number) if number.abs() <= MAX_EXACT => Ok(()),
        Some(_) => fail(at, "numbers beyond 2^53 are not supported"),
        None => fail(at, "must be a number"),
    }
}

pub fn check_factor(value: &Value, at: &str) -> Result<()> {
    check_number(value, at)?;
    match value.as_f64() {
        Some(number) if number > 0.0 => Ok(()),
        _ => fail(at, "must be positive"),
    }
}

pub fn count_of(value: &Value, at: &str) -> Result<u32> {
    // 4.0 is an integer as well.
    let number = value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0);
    match number {
        Some(_) if !value.is_u64() => fail(at, "must be written without a fraction"),
        Some(number) if number <= f64::from(u32::MAX) => Ok(number as u32),
        Some(_) => fail(at, "is too large"),
        None => fail(at, "must be a non-negative integer"),
    }
}

/// Properties without a name of their own may come twice in the text, and count once; named ones that
/// may be left out are counted only as "at least one" or "at most one" with no others.
pub fn check_property_count(
    key: &str,
    value: &Value,
    siblings: &Map<String, Value>,
    at: &str,
) -> Result<()> {
    let count = count_of(value, at)? as usize;
    let required = siblings.get("required").and_then(strings).unwrap_or_default();
    let more = count.saturating_sub(required.len());
    if key == "minProperties" && more > 1 {
        return fail(at, "more than one property beyond the required ones cannot be asked for");
    }
    let named = siblings.get("properties").and_then(Value::as_object);
    let all_required = named.is_none_or(|n| n.keys().all(|name| required.contains(&&**name)));
    let others = siblings.get("additionalProperties") != Some(&Value::Bool(false))
        || siblings.contains_key("patternProperties");
    if all_required || (key == "minProperties" && more == 0) || (more == 1 && !others) {
        return Ok(());
    }
    fail(
        at,
        "with properties that are not required, only one more than those required can be asked for, \
         and that without additional or pattern properties",
    )
}

pub fn format_of(value: &Value, siblings: &Map<String, Value>, at: &str) -> Result<Option<Value>> {
    let Some(name) = value.as_str() else { return fail(at, "must be a string") };
    if is_number(siblings) && NUMBER_FORMATS.iter().any(|(known, _)| *known == name) {
        return Ok(None); // see apply_number_format
    }
    match TEXT_FORMATS.contains(&name) {
        true => Ok(Some(value.clone())),
        false => fail(
            at,
            format_args!("the format {name:?} is not supported; strings have {TEXT_FORMATS:?}"),
        ),
    }
}

fn is_number(schema: &Map<String, Value>) -> bool {
    matches!(schema.get("type").and_then(Value::as_str), Some("integer" | "number"))
}

pub fn apply_number_format(source: &Map<String, Value>, out: &mut Map<String, Value>) {
    let name = source.get("format").and_then(Value::as_str).filter(|_| is_number(source));
    let known = NUMBER_FORMATS.iter().find(|(known, _)| Some(*known) == name);
    let Some((_, Some((low, high)))) = known else { return };
    let mut tighten = |key: &str, bound: f64, choose: fn(f64, f64) -> f64| {
        let own = out.get(key).and_then(Value::as_f64);
        let tighter = own.map_or(bound, |own| choose(own, bound));
        if let Some(number) = Number::from_f64(tighter) {
            out.insert(key.into(), Value::Number(number));
        }
    };
    tighten("minimum", *low, f64::max);
    tighten("maximum", *high, f64::min);
}

/// Patterns are ECMA's; what the regex crate reads differently, or not at all, is an error.
pub fn check_pattern(pattern: &str, at: &str) -> Result<()> {
    let mut in_class = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        let twice = chars.peek() == Some(&c);
        match c {
            '\\' => _ = chars.next(),
            '[' if in_class => return fail(at, "a [ within a character class must be escaped"),
            '[' => in_class = true,
            ']' => in_class = false,
            '&' | '-' | '~' if in_class && twice => {
                return fail(at, format_args!("{c}{c} within a character class must be escaped"));
            }
            _ => {}
        }
    }
    if pattern.contains("<stop>") {
        return fail(at, "groups cannot be named stop");
    }
    let parsed = RegexBuilder::new().mk(&RegexAst::SearchRegex(pattern.to_owned()));
    match parsed.map(|_| regex_syntax::parse(pattern)) {
        Ok(Ok(hir)) => check_literals(&hir, at),
        Ok(Err(e)) => fail(at, format_args!("{}: {pattern:?}", reason(&e.to_string()))),
        Err(e) => fail(at, format_args!("{}: {pattern:?}", reason(&e.to_string()))),
    }
}

fn check_literals(hir: &Hir, at: &str) -> Result<()> {
    match hir.kind() {
        HirKind::Literal(literal) => check_text(&literal.0, at),
        kind => kind.subs().iter().try_for_each(|sub| check_literals(sub, at)),
    }
}
