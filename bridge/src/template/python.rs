//! Python's view of values: `str()`, floats, and the methods of strings that minijinja lacks.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::BYTES_PER_FUEL;
use super::json::MAX_DEPTH;

/// The longest text that padding may make.
const MAX_WIDTH: usize = 1 << 20;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// `repr(float)` of a finite number: the shortest digits that read back as the same.
pub fn float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let text = value.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

/// `str(value)`; like all text made from values here it costs fuel (see FUEL).
pub fn str(state: &State, value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Bool | ValueKind::None | ValueKind::Undefined => {
            Ok(value.to_string())
        }
        _ => repr(state, value, 0),
    }
}

fn repr(state: &State, value: &Value, depth: usize) -> Result<String, Error> {
    let text = repr_unpaid(state, value, depth)?;
    state.consume_fuel(1 + text.len() as u64 / BYTES_PER_FUEL)?;
    Ok(text)
}

fn repr_unpaid(state: &State, value: &Value, depth: usize) -> Result<String, Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("a value is nested deeper than {MAX_DEPTH}")));
    }
    let items = |value: &Value| -> Result<Vec<String>, Error> {
        value.try_iter()?.map(|item| repr(state, &item, depth + 1)).collect()
    };
    match value.kind() {
        ValueKind::Number if !value.is_integer() => Ok(match f64::try_from(value.clone())? {
            f if f.is_nan() => "nan".into(),
            f if f.is_infinite() => if f > 0.0 { "inf" } else { "-inf" }.into(),
            f => float(f),
        }),
        ValueKind::Seq if value.is_tuple() => {
            let items = items(value)?;
            let comma = if items.len() == 1 { "," } else { "" };
            Ok(format!("({}{comma})", items.join(", ")))
        }
        ValueKind::Seq | ValueKind::Iterable => Ok(format!("[{}]", items(value)?.join(", "))),
        ValueKind::Map => {
            let entry = |key: Value| -> Result<String, Error> {
                let item = value.get_item(&key)?;
                Ok(format!("{}: {}", repr(state, &key, depth + 1)?, repr(state, &item, depth + 1)?))
            };
            let entries = value.try_iter()?.map(entry).collect::<Result<Vec<_>, _>>()?;
            Ok(format!("{{{}}}", entries.join(", ")))
        }
        ValueKind::String => Ok(format!("{value:?}")),
        ValueKind::Undefined => Ok("Undefined".into()),
        _ => Ok(value.to_string()),
    }
}

/// Methods of values: ours first, then those of minijinja's Python compatibility.
pub fn call_method(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if let Some(result) = string_method(text, method, args)? {
            return Ok(result);
        }
    }
    unknown_method_callback(state, value, method, args)
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let triple = |a: &str, b: &str, c: &str| {
        Value::from(Tuple::from(vec![Value::from(a), Value::from(b), Value::from(c)]))
    };
    let result = match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.split_once(separator) {
                Some((before, after)) => triple(before, separator, after),
                None => triple(text, "", ""),
            }
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.rsplit_once(separator) {
                Some((before, after)) => triple(before, separator, after),
                None => triple("", "", text),
            }
        }
        "rsplit" => rsplit(text, args)?,
        "index" => {
            let (part,): (&str,) = from_args(args)?;
            let at = text.find(part).ok_or_else(|| invalid("substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase())
        }
        "zfill" => zfill(text, args)?,
        "center" | "ljust" | "rjust" => justify(text, method, args)?,
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
    let most = most.and_then(|n| usize::try_from(n).ok());
    let mut parts = Vec::new();
    let mut rest = if separator.is_none() { text.trim() } else { text };
    while most.is_none_or(|most| parts.len() < most) {
        let cut = match separator {
            Some("") => return Err(invalid("empty separator")),
            Some(separator) => rest.rsplit_once(separator),
            None => rest
                .rfind(char::is_whitespace)
                .map(|at| (rest[..at].trim_end(), rest[at..].trim_start())),
        };
        let Some((before, after)) = cut else { break };
        parts.push(after);
        rest = before;
    }
    if separator.is_some() || !rest.is_empty() {
        parts.push(rest);
    }
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

/// How many characters `text` lacks to be `width` long.
fn missing(text: &str, width: usize) -> Result<usize, Error> {
    if width > MAX_WIDTH {
        return Err(invalid(format!("a width of {width} is beyond the limit of {MAX_WIDTH}")));
    }
    Ok(width.saturating_sub(text.chars().count()))
}

fn zfill(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (width,): (usize,) = from_args(args)?;
    let zeros = "0".repeat(missing(text, width)?);
    let digits = text.trim_start_matches(['+', '-']);
    let sign = if digits.len() + 1 == text.len() { &text[..1] } else { "" };
    Ok(Value::from(format!("{sign}{zeros}{}", &text[sign.len()..])))
}

fn justify(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    let missing = missing(text, width)?;
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width & 1), // as CPython rounds
    };
    let fill = fill.unwrap_or(" ");
    Ok(Value::from(fill.repeat(left) + text + &fill.repeat(missing - left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (123456789012345.0, "123456789012345.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
        ];
        for (value, text) in cases {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn rsplit_like_python() {
        let environment = minijinja::Environment::new();
        let state = environment.empty_state();
        let split = |text: &str, args: &[Value]| str(&state, &rsplit(text, args).unwrap()).unwrap();
        assert_eq!(split("a,b,c", &[",".into()]), "['a', 'b', 'c']");
        assert_eq!(split("a,b,c", &[",".into(), 1.into()]), "['a,b', 'c']");
        assert_eq!(split(" a  b c ", &[]), "['a', 'b', 'c']");
        assert_eq!(split("", &[]), "[]");
        assert_eq!(split("", &[",".into()]), "['']");
    }

    #[test]
    fn zfill_keeps_the_sign() {
        assert_eq!(zfill("-7", &[4.into()]).unwrap().as_str(), Some("-007"));
        assert_eq!(zfill("7", &[3.into()]).unwrap().as_str(), Some("007"));
    }
}
