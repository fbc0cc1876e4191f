//! Whether two schemas exclude each other for a reason that is plain to see.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::schema::pointer_of;

const MAX_DEPTH: usize = 6;
const MAX_PARTS: usize = 32;
/// Pairs of schemas that are looked at for one document, a few tens of milliseconds.
const MAX_STEPS: usize = 200_000;

/// Compares schemas of one document.
pub struct Comparison<'a> {
    root: &'a Value,
    steps_left: Cell<usize>,
}

type Schema = Map<String, Value>;

impl<'a> Comparison<'a> {
    pub fn new(root: &'a Value) -> Self {
        Comparison { root, steps_left: Cell::new(MAX_STEPS) }
    }

    /// Never true by mistake; false when it is not known.
    pub fn are_disjoint(&self, a: &'a Value, b: &'a Value) -> bool {
        self.disjoint(a, b, 0)
    }

    fn disjoint(&self, a: &'a Value, b: &'a Value, depth: usize) -> bool {
        let steps_left = self.steps_left.get();
        if depth > MAX_DEPTH || steps_left == 0 {
            return false;
        }
        self.steps_left.set(steps_left - 1);
        if *a == Value::Bool(false) || *b == Value::Bool(false) {
            return true;
        }
        let (mut left, mut right) = (Vec::new(), Vec::new());
        self.collect(a, &mut left);
        self.collect(b, &mut right);
        left.iter().any(|l| right.iter().any(|r| self.parts_disjoint(l, r, depth)))
            || self.all_alternatives_disjoint(&left, b, depth)
            || self.all_alternatives_disjoint(&right, a, depth)
    }

    /// The schema objects that must hold together for `schema` to hold.
    fn collect(&self, schema: &'a Value, parts: &mut Vec<&'a Schema>) {
        let Some(map) = schema.as_object() else { return };
        if parts.len() >= MAX_PARTS || parts.iter().any(|part| std::ptr::eq(*part, map)) {
            return;
        }
        parts.push(map);
        for part in map.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.collect(part, parts);
        }
        let target = map.get("$ref").and_then(|r| pointer_of(r, "").ok());
        if let Some(target) = target.and_then(|pointer| self.root.pointer(&pointer)) {
            self.collect(target, parts);
        }
    }

    fn all_alternatives_disjoint(
        &self,
        parts: &[&'a Schema],
        other: &'a Value,
        depth: usize,
    ) -> bool {
        parts.iter().any(|part| {
            ["anyOf", "oneOf"].iter().any(|key| {
                let options = part.get(*key).and_then(Value::as_array);
                options.is_some_and(|options| {
                    !options.is_empty()
                        && options.iter().all(|o| self.disjoint(o, other, depth + 1))
                })
            })
        })
    }

    fn parts_disjoint(&self, a: &'a Schema, b: &'a Schema, depth: usize) -> bool {
        if let (Some(a), Some(b)) = (types(a), types(b))
            && a.is_disjoint(&b)
        {
            return true;
        }
        if let (Some(a), Some(b)) = (constants(a), constants(b)) {
            return a.iter().all(|x| b.iter().all(|y| differ(x, y)));
        }
        self.objects_disjoint(a, b, depth)
    }

    /// A property that one of them requires, and for which they allow nothing in common.
    fn objects_disjoint(&self, a: &'a Schema, b: &'a Schema, depth: usize) -> bool {
        let is_object = |schema| types(schema).is_some_and(|t| t == BTreeSet::from(["object"]));
        if !is_object(a) || !is_object(b) {
            return false;
        }
        let properties = |schema: &'a Schema| schema.get("properties").and_then(Value::as_object);
        let (Some(left), Some(right)) = (properties(a), properties(b)) else { return false };
        let required = [a, b].into_iter().filter_map(|schema| schema.get("required")?.as_array());
        required.flatten().filter_map(Value::as_str).any(|name| {
            let both = left.get(name).zip(right.get(name));
            both.is_some_and(|(x, y)| self.disjoint(x, y, depth + 1))
        })
    }
}

/// Types of the values that may satisfy `schema`; none: not known. An integer is a number.
fn types(schema: &Schema) -> Option<BTreeSet<&str>> {
    let name = |t: &'_ str| match t {
        "integer" | "number" => "number",
        "string" => "string",
        "boolean" => "boolean",
        "null" => "null",
        "array" => "array",
        "object" => "object",
        _ => "",
    };
    match schema.get("type") {
        Some(Value::String(one)) => return Some(BTreeSet::from([name(one)])),
        Some(Value::Array(many)) => {
            return Some(many.iter().filter_map(Value::as_str).map(name).collect());
        }
        _ => {}
    }
    let values = constants(schema)?;
    Some(values.into_iter().map(type_of).collect())
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn constants(schema: &Schema) -> Option<Vec<&Value>> {
    match schema.get("const") {
        Some(value) => Some(vec![value]),
        None => schema.get("enum")?.as_array().map(|values| values.iter().collect()),
    }
}

/// Numbers may be written in two ways, also deep inside.
fn differ(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x.as_f64() != y.as_f64(),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => false,
        _ => a != b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plainly_disjoint_or_not() {
        let root = json!({"$defs": {
            "a": {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
            "b": {"type": "object", "properties": {"k": {"enum": ["b", "c"]}}},
            "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "null"}]},
        }});
        let cases = [
            (json!({"type": "string"}), json!({"type": ["null", "integer"]}), true),
            (json!({"type": "integer"}), json!({"type": "number"}), false),
            (json!({"const": 1}), json!({"enum": [2, "1"]}), true),
            (json!({"const": 1}), json!({"enum": [2, 1.0]}), false),
            (json!({"const": [1]}), json!({"const": [1.0]}), false),
            (json!({"const": 1}), json!({"type": "string"}), true),
            (json!({"$ref": "#/$defs/a"}), json!({"$ref": "#/$defs/b"}), true),
            (json!({"allOf": [{"$ref": "#/$defs/a"}]}), json!({"$ref": "#/$defs/b"}), true),
            (json!({"$ref": "#/$defs/b"}), json!({"$ref": "#/$defs/b"}), false),
            (json!({"$ref": "#/$defs/loop"}), json!({"$ref": "#/$defs/loop"}), false),
            (json!({"anyOf": [{"type": "null"}, {"const": 1}]}), json!({"type": "array"}), true),
            (json!({"anyOf": [{"type": "null"}, {"const": 1}]}), json!({"const": 1}), false),
            (json!({"anyOf": []}), json!({"const": 1}), false),
            (json!(true), json!({"const": 1}), false),
            (json!(false), json!(true), true),
            // Without a type the properties say nothing about other values.
            (
                json!({"properties": {"k": {"const": 1}}, "required": ["k"]}),
                json!({"properties": {"k": {"const": 2}}, "required": ["k"]}),
                false,
            ),
        ];
        for (a, b, expected) in &cases {
            let comparison = Comparison::new(&root);
            assert_eq!(comparison.are_disjoint(a, b), *expected, "{a} {b}");
            assert_eq!(comparison.are_disjoint(b, a), *expected, "{b} {a}");
        }
    }
}
