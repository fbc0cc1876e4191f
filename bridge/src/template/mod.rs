//! Chat templates: minijinja set up to behave like the Jinja environment of transformers.

mod json;
mod python;

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use crate::bounded::{self, Bounds, Stopped, Strays};
use crate::ffi::{Buffer, Result, Slice, free_handle, guard, handle, set_last_error};

const NAME: &str = "chat_template"; // shown in messages, with the line
/// Every instruction costs one, and so do 64 bytes produced: a few tenths of a second of work.
const FUEL: u64 = 5_000_000;
const BYTES_PER_FUEL: u64 = 64;
const RECURSION: usize = 120; // of macros
/// What fuel does not bound: comparing long texts, and nested values that hold one list many times over
/// when they are compared or become text. Dropping nested values takes stack, about 150 bytes a level
/// in optimised code.
fn bounds(context: &str) -> Bounds {
    Bounds {
        stack: if cfg!(debug_assertions) { 8 << 30 } else { 1 << 30 },
        memory: (512 << 20) + 32 * context.len(),
        time: Duration::from_secs(10) + Duration::from_micros(context.len() as u64),
    }
}

pub struct Template {
    environment: Arc<Environment<'static>>,
    strays: Strays,
}

/// The cause that raise_exception leaves in an error.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl Template {
    pub fn compile(source: &str) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| describe(&e))?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(RECURSION);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(python::call_method);
        environment.set_formatter(|out, state, value| {
            out.write_str(&python::str(state, value)?).map_err(|_| ErrorKind::WriteFailure.into())
        });
        environment.add_filter("tojson", json::tojson);
        environment.add_filter("string", |state: &State, value: &Value| match value.as_str() {
            Some(_) => Ok(value.clone()),
            None => python::str(state, value).map(Value::from),
        });
        environment.add_filter("e", escape);
        environment.add_filter("escape", escape);
        environment.add_filter("wordcount", wordcount);
        environment.add_test("iterable", is_iterable);
        environment.add_test("sequence", is_sequence);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned(NAME, without_generation_tags(source))
            .map_err(|e| describe(&e))?;
        // For bounded::run: minijinja makes the texts of small numbers when HTML first needs them.
        let _ = Environment::new().render_named_str("a.html", "{{ 1 }}", ());
        Ok(Template { environment: Arc::new(environment), strays: Strays::default() })
    }

    fn render(&self, context: &str) -> std::result::Result<String, Failure> {
        let (environment, owned) = (Arc::clone(&self.environment), context.to_owned());
        let work = move || render(&environment, &owned);
        match bounded::run("template", &bounds(context), &self.strays, work) {
            Ok(done) => done.result,
            Err(stopped) => {
                bounded::keep_for_ever(self.environment.clone());
                Err(Failure::stopped(&stopped))
            }
        }
    }
}

fn render(environment: &Environment, context: &str) -> std::result::Result<String, Failure> {
    let context: serde_json::Value = serde_json::from_str(context)
        .map_err(|e| Failure::Failed(format!("variables of the template: {e}")))?;
    let template = environment.get_template(NAME).map_err(|e| Failure::of(&e))?;
    template.render(Value::from(Serde(&context))).map_err(|e| Failure::of(&e))
}

enum Failure {
    Raised(String),
    Failed(String),
    Unavailable(String), // through no fault of this template and its variables
}

impl Failure {
    fn stopped(stopped: &Stopped) -> Failure {
        let message = format!("{NAME}: {stopped}");
        match stopped {
            Stopped::NoThread(_) | Stopped::Strays | Stopped::Busy => Failure::Unavailable(message),
            _ => Failure::Failed(message),
        }
    }

    fn of(error: &Error) -> Failure {
        let mut cause = error.source();
        while let Some(inner) = cause {
            if let Some(raised) = inner.downcast_ref::<Raised>() {
                return Failure::Raised(raised.0.clone());
            }
            cause = inner.source();
        }
        Failure::Failed(match error.kind() {
            ErrorKind::OutOfFuel => {
                format!("{}: it does more work than a template may", describe(error))
            }
            _ => describe(error),
        })
    }
}

/// The error and its causes in one line.
fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text.replace('\n', " ")
}

fn raise_exception(state: &State, message: Value) -> std::result::Result<Value, Error> {
    let message = python::str(state, &message)?;
    let raised = Raised(message.clone());
    Err(Error::new(ErrorKind::InvalidOperation, message).with_source(raised))
}

fn strftime_now(format: &str) -> std::result::Result<String, Error> {
    use chrono::format::{Item, StrftimeItems};
    let items: Vec<_> = StrftimeItems::new(format).collect();
    if items.iter().any(|item| matches!(item, Item::Error)) {
        let message = format!("strftime_now: unknown format {format:?}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let now = bounded::apart(chrono::Local::now); // reads the time zone's file
    Ok(now.format_with_items(items.iter()).to_string())
}

/// Jinja's own escaping, under which templates may rely on `| e` for markup.
fn escape(state: &State, value: &Value) -> std::result::Result<String, Error> {
    let mut out = String::new();
    for c in python::str(state, value)?.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    Ok(out)
}

fn wordcount(text: &str) -> usize {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).count()
}

/// As in Python: None is not iterable, a string is, and so is what is undefined.
fn is_iterable(value: &Value) -> bool {
    match value.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Number => false,
        ValueKind::Undefined | ValueKind::String => true,
        _ => value.try_iter().is_ok(),
    }
}

/// As in Jinja: whatever has a length and items, which mappings and strings have too.
fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Map, Seq, String, Undefined};
    matches!(value.kind(), Seq | Map | String | Undefined)
}

/// `{% generation %}`, which marks an assistant's tokens for training, is only a scope here.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%").into_iter().chain(rest.find("{#")).min() {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let close = if tag.starts_with("{#") { "#}" } else { "%}" };
        let Some(length) = tag.find(close) else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(length + close.len());
        match tag.trim_matches(['{', '}', '%', '-', '+']).trim() {
            "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_template_compile(source: Slice) -> *mut Template {
    guard(std::ptr::null_mut(), || {
        handle(Template::compile(unsafe { source.text("the template")? }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_template_free(template: *mut Template) {
    unsafe { free_handle(template) }
}

/// The values of BridgeRenderStatus.
#[repr(C)]
enum RenderStatus {
    Ok = 0,
    Failed = 1,
    Raised = 2,
    Unavailable = 3,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_template_render(
    template: *const Template,
    context: Slice,
    out: *mut Buffer<u8>,
) -> RenderStatus {
    guard(RenderStatus::Failed, || {
        let context = unsafe { context.text("variables of the template")? };
        match unsafe { &*template }.render(context) {
            Ok(text) => {
                unsafe { *out = text.into_bytes().into() };
                Ok(RenderStatus::Ok)
            }
            Err(Failure::Failed(message)) => Err(message),
            Err(Failure::Raised(message)) => Ok(status(RenderStatus::Raised, &message)),
            Err(Failure::Unavailable(message)) => Ok(status(RenderStatus::Unavailable, &message)),
        }
    })
}

fn status(status: RenderStatus, message: &str) -> RenderStatus {
    set_last_error(message);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, context: &str) -> Result<String> {
        Template::compile(source)?.render(context).map_err(|failure| match failure {
            Failure::Raised(message) => format!("raised: {message}"),
            Failure::Failed(message) | Failure::Unavailable(message) => message,
        })
    }

    // Expected texts are those of transformers' renderer (tools/check_templates.py compares more).
    #[test]
    fn renders_like_transformers() {
        let cases = [
            ("{% if true %}\n  x\n  {% endif %}\ny\n", "  x\ny"),
            (
                "{{ [1, 'a', none, true, 1.0, {'k': \"it's\"}] }}",
                "[1, 'a', None, True, 1.0, {'k': \"it's\"}]",
            ),
            (
                "{{ {'a': 1, 'b': [1.5, 1e20, 1e-7]} | tojson }}",
                "{\"a\": 1, \"b\": [1.5, 1e+20, 1e-07]}",
            ),
            ("{{ 'é<&>\"\u{1}' | tojson }}", "\"é<&>\\\"\\u0001\""),
            ("{{ 'é😀' | tojson(ensure_ascii=true) }}", "\"\\u00e9\\ud83d\\ude00\""),
            (
                "{{ {'a': [1, {}], 'b': []} | tojson(indent=2) }}",
                "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}",
            ),
            (
                "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}",
                "{\"a\":2,\"b\":1}",
            ),
            ("{%- generation -%} a {%- endgeneration %}|{# {% generation %} #}b", "a|b"),
            (
                "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
                "02",
            ),
            (
                "{{ 'a-b-c'.rsplit('-', 1) }}{{ ' x '.strip() }}{{ 'ab'.removeprefix('a') }}",
                "['a-b', 'c']xb",
            ),
            (
                "{{ none is iterable }}{{ 'a' is iterable }}{{ {} is sequence }}{{ x is defined }}",
                "FalseTrueTrueFalse",
            ),
            ("{{ '7'.zfill(3) }}{{ 'a'.center(4, '*') }}{{ 'ab'.index('b') }}", "007*a**1"),
        ];
        for (source, expected) in cases {
            assert_eq!(render(source, "{}").as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn errors_say_where() {
        assert_eq!(render("{{ raise_exception('no') }}", "{}"), Err("raised: no".into()));
        let message = render("\n\n{% if %}", "{}").unwrap_err();
        assert!(message.contains("chat_template:3"), "{message}");
        let message = render("{{ x.y.z }}", "{}").unwrap_err();
        assert!(message.contains("undefined"), "{message}");
    }

    #[test]
    fn runaway_templates_end() {
        let cases = [
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% for j in range(99) %}{% set ns.x = [[[[[[[[[[[[[[[[[[[[ns.x]]]]]]]]]]]]]]]]]]]] %}{% endfor %}{% endfor %}",
            "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% for j in range(99) %}{% set ns.x = {'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':{'a':ns.x}}}}}}}}}} %}{% endfor %}{% endfor %}",
            "{{ 'a' * 99999999999 }}",
            "{{ 'a'.center(99999999999) }}",
            "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
            "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
            "{{ [[1] * 99999] * 99999 }}",
            "{{ ([[1] * 99999] * 99999) | tojson }}",
            "{{ ([[1] * 99999] * 99999) | string | length }}",
            "{{ (['a' * 9999999] * 99999) | tojson }}",
            "{{ [1] | tojson(indent='a' * 99999999) }}",
            "{{ raise_exception([[1] * 99999] * 99999) }}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(31) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
        ];
        for source in cases {
            assert!(render(source, "{}").is_err(), "{source}");
        }
        let shared = "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(40) %}\
            {% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
        for last in ["ns.x ~ 'a'", "ns.x == ns.y"] {
            let message = render(&format!("{shared}{{{{ {last} }}}}"), "{}").unwrap_err();
            assert!(message.contains("than it may have"), "{message}"); // memory or time
        }
        let deep = format!("{}{}", "[".repeat(9999), "]".repeat(9999));
        assert!(render("x", &format!("{{\"x\": {deep}}}")).is_err());
    }
}
