//! JSON schemas on their way to llguidance, which ignores some keywords: here every keyword is one that it
//! enforces, an annotation, which is left out, or an error that names its path.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::disjoint::Comparison;
use super::values::{
    Harmless, apply_number_format, check_constant, check_constants, check_factor, check_harmless,
    check_number, check_pattern, check_property_count, check_type, count_of, fail, format_of,
    strings,
};
use crate::ffi::Result;

/// Levels of JSON; each costs the compiler stack.
const MAX_DEPTH: usize = 100;
/// Of all places in one schema together: each holds the keys above it.
const MAX_PATH_BYTES: usize = 32 << 20;
/// Properties of one object that may be left out: any of them may come next, which is work for each token.
const MAX_OPTIONAL: usize = 1_000;
/// Between values: up to two spaces, or one or two line ends and an indentation. More would let a model
/// go on with blanks for ever.
const WHITESPACE: &str = r"\x20{1,2}|(\r?\n){1,2}[\x20\t]{0,64}";
/// Not \u: a key spelled with it would escape what its property asks for.
const ESCAPES: &str = "nrbtf\\\"";
/// What a keyword's value is, or why there is none.
#[derive(Clone, Copy)]
enum Form {
    Schema,
    Schemas,
    SchemaMap,
    PropertyMap,
    Items,
    AdditionalItems,
    PatternMap,
    OneOf,
    Type,
    Constant,
    Constants,
    Names,
    Count,
    Properties,
    Number,
    Bound,
    Factor,
    Pattern,
    Format,
    Reference,
    Note,
    RootNote,
    /// Not supported, but for the value with which it says nothing.
    Only(Harmless),
    Refused,
}

const KEYWORDS: &[(&str, Form)] = &[
    ("$anchor", Form::Note),
    ("$comment", Form::Note),
    ("$defs", Form::SchemaMap),
    ("$dynamicAnchor", Form::Note),
    ("$dynamicRef", Form::Refused),
    ("$id", Form::RootNote),
    ("$recursiveAnchor", Form::Note),
    ("$recursiveRef", Form::Refused),
    ("$ref", Form::Reference),
    ("$schema", Form::RootNote),
    ("$vocabulary", Form::RootNote),
    ("additionalItems", Form::AdditionalItems),
    ("additionalProperties", Form::Schema),
    ("allOf", Form::Schemas),
    ("anyOf", Form::Schemas),
    ("const", Form::Constant),
    ("contains", Form::Refused),
    ("contentEncoding", Form::Note),
    ("contentMediaType", Form::Note),
    ("contentSchema", Form::Note),
    ("default", Form::Note),
    ("definitions", Form::SchemaMap),
    ("dependencies", Form::Refused),
    ("dependentRequired", Form::Refused),
    ("dependentSchemas", Form::Refused),
    ("deprecated", Form::Note),
    ("description", Form::Note),
    ("discriminator", Form::Note),
    ("else", Form::Refused),
    ("enum", Form::Constants),
    ("example", Form::Note),
    ("examples", Form::Note),
    ("exclusiveMaximum", Form::Bound),
    ("exclusiveMinimum", Form::Bound),
    ("externalDocs", Form::Note),
    ("format", Form::Format),
    ("id", Form::RootNote),
    ("if", Form::Refused),
    ("items", Form::Items),
    ("maxContains", Form::Refused),
    ("maxItems", Form::Count),
    ("maxLength", Form::Count),
    ("maxProperties", Form::Properties),
    ("maximum", Form::Number),
    ("minContains", Form::Refused),
    ("minItems", Form::Count),
    ("minLength", Form::Count),
    ("minProperties", Form::Properties),
    ("minimum", Form::Number),
    ("multipleOf", Form::Factor),
    ("not", Form::Refused),
    ("nullable", Form::Only(Harmless::False)),
    ("oneOf", Form::OneOf),
    ("pattern", Form::Pattern),
    ("patternProperties", Form::PatternMap),
    ("prefixItems", Form::Schemas),
    ("properties", Form::PropertyMap),
    ("propertyNames", Form::Only(Harmless::True)),
    ("readOnly", Form::Note),
    ("required", Form::Names),
    ("then", Form::Refused),
    ("title", Form::Note),
    ("type", Form::Type),
    ("unevaluatedItems", Form::Only(Harmless::True)),
    ("unevaluatedProperties", Form::Only(Harmless::True)),
    ("uniqueItems", Form::Only(Harmless::False)),
    ("writeOnly", Form::Note),
];

/// Keywords whose value is applied on its own; llguidance must see the others first and together.
const APPLICATORS: &[&str] = &["const", "enum", "allOf", "anyOf", "oneOf", "$ref"];

/// The schema in `text` as llguidance is to see it.
pub fn prepare(text: &str) -> Result<Value> {
    check_depth(text)?;
    let schema: Value =
        serde_json::from_str(text).map_err(|e| format!("the JSON schema is not JSON: {e}"))?;
    let mut walk = Walk {
        comparison: Comparison::new(&schema),
        places: HashSet::new(),
        references: Vec::new(),
        path_bytes: 0,
    };
    let mut prepared = match walk.schema(&schema, "")? {
        Value::Object(map) => map,
        Value::Bool(true) => Map::new(),
        _ => return Err("JSON schema: nothing satisfies the schema false".into()),
    };
    walk.check_references()?;
    prepared.insert(
        "x-guidance".into(),
        json!({
            "coerce_one_of": true, // whose alternatives have been seen to exclude each other
            "json_allowed_escapes": ESCAPES,
            "whitespace_pattern": WHITESPACE,
        }),
    );
    Ok(Value::Object(prepared))
}

fn check_depth(text: &str) -> Result<()> {
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(format!(
                        "the JSON schema is nested deeper than {MAX_DEPTH} levels"
                    ));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

struct Walk<'a> {
    comparison: Comparison<'a>,
    places: HashSet<String>,           // JSON pointers of schemas
    references: Vec<(String, String)>, // where, to which pointer
    path_bytes: usize,                 // of all places
}

fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: &'a Value, path: &str) -> Result<Value> {
        self.path_bytes += path.len();
        if self.path_bytes > MAX_PATH_BYTES {
            return Err("JSON schema: its keys are too long for as many schemas as it holds".into());
        }
        self.places.insert(path.to_owned());
        let map = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(map) => map,
            _ => return fail(path, "a schema is an object or a boolean"),
        };
        let mut first = Map::new();
        let mut last = Map::new();
        for (key, value) in map {
            let at = below(path, key);
            if key.starts_with("x-") {
                continue; // extensions of others, annotations all
            }
            let Some(&(_, form)) = KEYWORDS.iter().find(|(name, _)| name == key) else {
                return fail(&at, format_args!("the keyword {key:?} is not known"));
            };
            if let Some(value) = self.keyword(form, key, value, map, &at)? {
                let target = if APPLICATORS.contains(&&**key) { &mut last } else { &mut first };
                target.insert(key.clone(), value);
            }
        }
        apply_number_format(map, &mut first);
        first.extend(last);
        Ok(Value::Object(first))
    }

    /// The keyword's value as it is passed on; none where it is left out.
    fn keyword(
        &mut self,
        form: Form,
        key: &str,
        value: &'a Value,
        siblings: &Map<String, Value>,
        at: &str,
    ) -> Result<Option<Value>> {
        match form {
            Form::Note => return Ok(None),
            Form::RootNote if at.matches('/').count() == 1 => return Ok(None),
            Form::RootNote => {
                return fail(at, format_args!("{key:?} is supported at the root only"));
            }
            Form::Refused => return fail(at, format_args!("the keyword {key:?} is not supported")),
            Form::Only(harmless) => return check_harmless(harmless, key, value, at),
            Form::Schema => return self.schema(value, at).map(Some),
            Form::Schemas | Form::OneOf => return self.list(form, value, at).map(Some),
            Form::PropertyMap => {
                check_optional(value, siblings.get("required"), at)?;
                return self.map(value, at).map(Some);
            }
            Form::SchemaMap => return self.map(value, at).map(Some),
            Form::PatternMap => {
                for pattern in value.as_object().into_iter().flat_map(Map::keys) {
                    check_pattern(pattern, &below(at, pattern))?;
                }
                return self.map(value, at).map(Some);
            }
            Form::Items if value.is_array() => {
                if siblings.contains_key("prefixItems") {
                    return fail(at, "beside prefixItems it must be a schema");
                }
                return self.list(Form::Schemas, value, at).map(Some);
            }
            Form::Items => return self.schema(value, at).map(Some),
            Form::AdditionalItems => {
                // Without a list of items it says nothing.
                let counts = siblings.get("items").is_some_and(Value::is_array);
                return self.schema(value, at).map(|v| counts.then_some(v));
            }
            Form::Format => return format_of(value, siblings, at),
            Form::Reference => {
                let target = pointer_of(value, at)?;
                self.references.push((at.to_owned(), target));
            }
            Form::Type => check_type(value, at)?,
            Form::Constant => check_constant(value, at)?,
            Form::Constants => check_constants(value, at)?,
            Form::Names if strings(value).is_some() => {}
            Form::Names => return fail(at, "must be an array of strings"),
            Form::Count => _ = count_of(value, at)?,
            Form::Properties => check_property_count(key, value, siblings, at)?,
            Form::Bound if value.is_boolean() => {}
            Form::Number | Form::Bound => check_number(value, at)?,
            Form::Factor => check_factor(value, at)?,
            Form::Pattern => match value.as_str() {
                Some(pattern) => check_pattern(pattern, at)?,
                None => return fail(at, "must be a string"),
            },
        }
        Ok(Some(value.clone()))
    }

    fn list(&mut self, form: Form, value: &'a Value, at: &str) -> Result<Value> {
        let Some(schemas) = value.as_array() else {
            return fail(at, "must be an array of schemas");
        };
        if matches!(form, Form::OneOf) {
            for (i, a) in schemas.iter().enumerate() {
                if let Some(j) = (0..i).find(|&j| !self.comparison.are_disjoint(&schemas[j], a)) {
                    return fail(
                        at,
                        format_args!(
                            "alternatives {j} and {i} may hold at once, which only anyOf allows here \
                             (or give them different types or a property with different constants)"
                        ),
                    );
                }
            }
        }
        let each = schemas.iter().enumerate().map(|(i, v)| self.schema(v, &format!("{at}/{i}")));
        each.collect::<Result<_>>().map(Value::Array)
    }

    fn map(&mut self, value: &'a Value, at: &str) -> Result<Value> {
        let Some(map) = value.as_object() else { return fail(at, "must be an object of schemas") };
        let each = map.iter().map(|(k, v)| Ok((k.clone(), self.schema(v, &below(at, k))?)));
        each.collect::<Result<_>>().map(Value::Object)
    }

    fn check_references(&self) -> Result<()> {
        let mut next = HashMap::new();
        for (at, target) in &self.references {
            if !self.places.contains(target) {
                return fail(at, format_args!("there is no schema at {target:?}"));
            }
            next.insert(at.trim_end_matches("/$ref"), &**target);
        }
        // Nothing satisfies a reference that leads back to itself.
        let mut ends = HashSet::new();
        for (at, target) in &self.references {
            let mut passed = HashSet::new();
            let mut place = &**target;
            while passed.insert(place) && !ends.contains(place) {
                match next.get(place) {
                    Some(further) => place = further,
                    None => ends.extend(passed.drain()),
                }
            }
            if !ends.contains(place) {
                return fail(at, "the reference leads back to itself");
            }
            ends.extend(passed);
        }
        Ok(())
    }
}

fn check_optional(properties: &Value, required: Option<&Value>, at: &str) -> Result<()> {
    let Some(properties) = properties.as_object() else { return Ok(()) };
    let required: HashSet<&str> =
        required.and_then(strings).unwrap_or_default().into_iter().collect();
    let optional = properties.keys().filter(|name| !required.contains(&***name)).count();
    match optional {
        0..=MAX_OPTIONAL => Ok(()),
        _ => fail(
            at,
            format_args!(
                "{optional} properties that are not required are too many, the limit is {MAX_OPTIONAL}"
            ),
        ),
    }
}

/// The JSON pointer of a reference within the schema.
pub fn pointer_of(reference: &Value, at: &str) -> Result<String> {
    let Some(pointer) = reference.as_str().and_then(|r| r.strip_prefix('#')) else {
        return fail(at, "only references within the schema, \"#/…\", are supported");
    };
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return fail(at, "references to anchors are not supported");
    }
    match percent_decoded(pointer) {
        Some(pointer) => Ok(pointer),
        None => fail(at, "wrong %-escapes"),
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}
