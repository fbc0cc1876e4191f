//! The `tojson` filter of transformers: Python's `json.dumps` with ensure_ascii off.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};

use super::{BYTES_PER_FUEL, python};

/// Values nested deeper are refused: writing one takes a stack frame a level.
pub const MAX_DEPTH: usize = 128;
/// The longest text that may indent a level.
const MAX_INDENT: usize = 64;

struct Writer<'a> {
    state: &'a State<'a, 'a>,
    out: String,
    paid: usize, // bytes of `out` that fuel was taken for
    ensure_ascii: bool,
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
}

/// The positional arguments come in the order of transformers' own filter.
pub fn tojson(
    state: &State,
    value: &Value,
    args: Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    type Positional = (Option<bool>, Option<Value>, Option<Vec<String>>, Option<bool>);
    let (ensure_ascii, indent, separators, sort_keys): Positional = from_args(&args)?;
    let indent = named.get::<Option<Value>>("indent")?.or(indent).filter(|i| !i.is_none());
    let indent = match indent {
        None => None,
        Some(width) => Some(match width.as_str() {
            Some(text) if text.len() > MAX_INDENT => {
                return Err(invalid(format!("tojson: indent is longer than {MAX_INDENT} bytes")));
            }
            Some(text) => text.to_string(),
            None => " ".repeat(usize::try_from(width).unwrap_or(0).min(MAX_INDENT)),
        }),
    };
    let separators = named.get::<Option<Vec<String>>>("separators")?.or(separators);
    let (between_items, after_key) = match separators.as_deref() {
        Some([items, keys]) => (items.clone(), keys.clone()),
        Some(_) => return Err(invalid("tojson: separators is a pair".into())),
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let mut writer = Writer {
        state,
        out: String::new(),
        paid: 0,
        ensure_ascii: named.get::<Option<bool>>("ensure_ascii")?.or(ensure_ascii).unwrap_or(false),
        indent,
        between_items,
        after_key,
        sort_keys: named.get::<Option<bool>>("sort_keys")?.or(sort_keys).unwrap_or(false),
    };
    named.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("tojson: nested deeper than {MAX_DEPTH}")));
        }
        self.state.consume_fuel(1 + (self.out.len() - self.paid) as u64 / BYTES_PER_FUEL)?;
        self.paid = self.out.len();
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.sequence(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            other => {
                return Err(invalid(format!("Object of type {other} is not JSON serializable")));
            }
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
            return Ok(());
        }
        let text = match f64::try_from(value.clone())? {
            f if f.is_nan() => "NaN".into(),
            f if f.is_infinite() => if f > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            f => python::float(f),
        };
        self.out.push_str(&text);
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.begin_item(empty, depth + 1);
            self.value(&item, depth + 1)?;
            empty = false;
        }
        self.end_items(empty, depth);
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.begin_item(index == 0, depth + 1);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::Bool => self.string(if key.is_true() { "true" } else { "false" }),
                ValueKind::None => self.string("null"),
                _ => self.string(&python::str(self.state, key)?),
            }
            self.out.push_str(&self.after_key.clone());
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.end_items(keys.is_empty(), depth);
        self.out.push('}');
        Ok(())
    }

    fn begin_item(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push_str(&self.between_items);
        }
        self.new_line(depth);
    }

    fn end_items(&mut self, empty: bool, depth: usize) {
        if !empty {
            self.new_line(depth);
        }
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }
}
