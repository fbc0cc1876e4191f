#!/usr/bin/env python3
"""Answers bound to schemas and tools in every combination of thinking, streaming, n and tool_choice.

    pip install -r tests/api/requirements.txt
    tests/grammar_matrix.py --mantou build/test/mantou --model qwen2.5-coder-0.5b-instruct.gguf

Starts the server. Every answer must be JSON that the package jsonschema finds valid, or calls whose
arguments it finds valid; an answer of either kind where both are allowed. Answers that max_tokens cut off
are counted apart; they must be few. Prints a line for each combination and exits with 1 when an answer was
wrong.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import sys
import tempfile

import jsonschema
import openai

from running_server import RunningServer

ADDRESS = {"type": "object", "properties": {
    "street": {"type": "string", "maxLength": 30},
    "zip": {"type": "string", "pattern": "^[0-9]{5}(-[0-9]{4})?$"},
    "country": {"enum": ["FR", "NO", "JP"]}}, "required": ["street", "country"],
    "additionalProperties": False}
# Values have an end, so that an answer is complete whatever the model likes to say.
SCHEMAS = {
    "person": {"type": "object", "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 4},
        "home": {"$ref": "#/$defs/address"}}, "required": ["name", "age", "home"],
        "additionalProperties": False, "$defs": {"address": ADDRESS}},
    "shape": {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {
            "type": "number", "exclusiveMinimum": 0, "maximum": 100}},
         "required": ["kind", "radius"], "additionalProperties": False},
        {"type": "object", "properties": {"kind": {"const": "box"}, "sides": {
            "type": "array", "prefixItems": [{"type": "integer", "minimum": 1, "maximum": 9}] * 2,
            "items": False, "minItems": 2}},
         "required": ["kind", "sides"], "additionalProperties": False}]},
    "tree": {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "id": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100},
        "children": {"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/node"}}},
        "required": ["id"], "additionalProperties": False}}},
    "event": {"type": "object", "properties": {
        "when": {"type": "string", "format": "date"}, "id": {"type": "string", "format": "uuid"},
        "note": {"type": ["string", "null"], "maxLength": 20},
        "extra": {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": -5, "maximum": 5}]}},
        "required": ["when", "id", "note", "extra"], "additionalProperties": False},
    "list": {"type": "array", "minItems": 1, "maxItems": 3, "items": ADDRESS},
    "word": {"type": "string", "pattern": "^[a-z]{3,8}$"},
}
TOOLS = {
    "get_weather": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 20}, "days": {
            "type": "integer", "minimum": 1, "maximum": 7}}, "required": ["city", "days"],
        "additionalProperties": False},
    "send": {"type": "object", "properties": {
        "to": {"type": "array", "items": {"enum": ["ann", "bob"]}, "minItems": 1, "maxItems": 2},
        "address": ADDRESS, "urgent": {"type": "boolean"}}, "required": ["to", "urgent"],
        "additionalProperties": False},
}
PROMPTS = ("What is the weather in Oslo for the next two days?", "Tell ann about a circle.",
           "Write something.")
TOKENS = 400


def tools():
    return [{"type": "function", "function": {"name": name, "description": f"To {name}.",
                                              "parameters": parameters}}
            for name, parameters in TOOLS.items()]


# What is asked for: fields of the request, whether text and calls are allowed, whether many calls are.
def schema_only(schema):
    return {"response_format": response_format(schema)}, {"text"}, 0


def any_tool(schema):
    return {"tools": tools(), "tool_choice": "required"}, {"calls"}, 99


def one_tool(schema):
    return {"tools": tools(), "tool_choice": "required", "parallel_tool_calls": False}, {"calls"}, 1


def named_tool(schema):
    return {"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "send"}}}, {"calls"}, 1


def schema_or_tool(schema):
    return {"tools": tools(), "response_format": response_format(schema)}, {"text", "calls"}, 99


ASKS = (schema_only, any_tool, one_tool, named_tool, schema_or_tool)


def response_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def valid(text, schema):
    jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.FormatChecker(),
                        cls=jsonschema.Draft202012Validator)


def answers_of(client, fields, stream):
    """(text, calls, finish_reason) of each choice."""
    if not stream:
        choices = client.chat.completions.create(**fields).choices
    else:
        with client.chat.completions.stream(**fields) as events:
            try:
                for _ in events:
                    pass
                choices = events.get_final_completion().choices
            except openai.LengthFinishReasonError as error:
                choices = error.completion.choices
    return [(choice.message.content or "", choice.message.tool_calls or [], choice.finish_reason)
            for choice in choices]


def judge(answer, schema, allowed, most_calls, named):
    text, calls, reason = answer
    if reason == "length":
        return "cut"
    if calls:
        assert "calls" in allowed and len(calls) <= most_calls, f"{len(calls)} calls"
        assert not text.strip(), "text beside calls"
        for call in calls:
            assert not named or call.function.name == "send", call.function.name
            valid(call.function.arguments, TOOLS[call.function.name])
        return "calls"
    assert "text" in allowed, f"no call: {text!r}"
    valid(text, schema)
    return "text"


def combination(client, model, thinking, stream, ask, n):
    counts = collections.Counter()
    for i, (name, schema) in enumerate(SCHEMAS.items()):
        fields, allowed, most_calls = ask(schema)
        fields |= {"model": model, "n": n, "max_tokens": TOKENS, "seed": i, "temperature": 1.0,
                   "messages": [{"role": "user", "content": PROMPTS[i % len(PROMPTS)]}],
                   "extra_body": {"chat_template_kwargs": {"enable_thinking": thinking}}}
        answers = answers_of(client, fields, stream)
        counts["missing"] += n - len(answers)
        for answer in answers:
            try:
                counts[judge(answer, schema, allowed, most_calls, ask is named_tool)] += 1
            except (AssertionError, ValueError, KeyError, jsonschema.ValidationError) as error:
                counts["wrong"] += 1
                print(f"WRONG {name}: {answer!r}\n  {error}", flush=True)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantou", required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    total = collections.Counter()
    with tempfile.TemporaryDirectory() as folder, \
            RunningServer(args.mantou, args.model, f"{folder}/log") as server, \
            concurrent.futures.ThreadPoolExecutor(4) as pool:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=600)
        model = client.models.list().data[0].id
        cells = list(itertools.product((True, False), (False, True), ASKS, (1, 3)))
        runs = [pool.submit(combination, client, model, *cell) for cell in cells]
        for (thinking, stream, ask, n), each in zip(cells, runs):
            counts = each.result()
            total += counts
            print(f"thinking {thinking!s:5}  stream {stream!s:5}  n {n}  {ask.__name__:14}  "
                  + "  ".join(f"{kind} {count}" for kind, count in sorted(counts.items()) if count), flush=True)
        health = len(answers_of(client, {"model": model, "max_tokens": 1, "messages": [
            {"role": "user", "content": "hi"}]}, False))
    print("all: " + "  ".join(f"{kind} {count}" for kind, count in sorted(total.items()) if count))
    answered = total["text"] + total["calls"]
    return 0 if health == 1 and not total["wrong"] and not total["missing"] and total["cut"] <= answered / 20 else 1


if __name__ == "__main__":
    sys.exit(main())
