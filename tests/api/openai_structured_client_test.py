#!/usr/bin/env python3
"""Answers bound to schemas, grammars and tools, of a running server, through the openai package.

    mantou serve MODEL &
    python tests/api/openai_structured_client_test.py --base-url http://127.0.0.1:8080

Needs only the `openai` package, whose pydantic checks the answers. Any model will do, one that was
never trained, too: what is asked for has an end.
"""

import json
import re
import sys
from typing import Annotated, Literal, Optional

import openai
from pydantic import BaseModel, Field

from checks import check, run
from openai_client import Context, expect_refusal

TOKENS = 400


class Part(BaseModel):
    name: Literal["bun", "filling", "paper"]
    grams: Annotated[int, Field(ge=0, le=500)]


class Order(BaseModel):
    kind: Literal["steamed", "fried"]
    parts: Annotated[list[Part], Field(max_length=2)]
    hot: bool
    table: Optional[Annotated[int, Field(ge=1, le=20)]]


class GetWeather(BaseModel):
    city: Literal["Paris", "Oslo"]
    days: Annotated[int, Field(ge=1, le=7)]


class Add(BaseModel):
    a: Annotated[int, Field(ge=0, le=99)]
    b: Annotated[int, Field(ge=0, le=99)]


MODELS = {"GetWeather": GetWeather, "Add": Add}
TOOLS = [openai.pydantic_function_tool(model) for model in MODELS.values()]
ONE_CALL = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False,
            "max_tokens": TOKENS}


def parse_chat(c, **fields):
    return c.client.chat.completions.parse(**c.of_chat({"max_tokens": TOKENS, **fields}))


def same_calls(ones, others):
    # Ids are new with each answer.
    return ([(call.function.name, call.function.arguments) for call in ones or []] ==
            [(call.function.name, call.function.arguments) for call in others or []])


def checked(call, names=tuple(MODELS)):
    assert call.type == "function" and call.id
    assert call.function.name in names, call
    MODELS[call.function.name].model_validate_json(call.function.arguments, strict=True)
    return call


@check
def a_schema_binds_the_answer(c):
    for seed in range(3):
        reply = parse_chat(c, response_format=Order, temperature=1.2, seed=seed)
        message = reply.choices[0].message
        assert reply.choices[0].finish_reason == "stop" and isinstance(message.parsed, Order)
        # No spelling that only a lenient reader would take.
        Order.model_validate_json(message.content, strict=True)


@check
def a_schema_binds_a_stream_and_each_of_several_answers(c):
    ask = {"response_format": Order, "max_tokens": TOKENS, "n": 3, "temperature": 1.2, "seed": 2}
    whole = parse_chat(c, **ask)
    _, final = c.chat_stream(**ask)
    assert len(whole.choices) == 3
    assert ([choice.message.content for choice in final.choices] ==
            [choice.message.content for choice in whole.choices])
    assert all(isinstance(choice.message.parsed, Order) for choice in final.choices)


@check
def a_json_object_is_one(c):
    reply = c.chat(response_format={"type": "json_object"}, max_tokens=60).choices[0]
    assert reply.message.content.lstrip().startswith("{")
    if reply.finish_reason == "stop":
        assert isinstance(json.loads(reply.message.content), dict)


DIGITS = r"[0-9]{3}-[0-9]{2}"
CHOICE = ["red", "green", "deep blue"]
GBNF = 'root ::= "<" [a-c]{2,4} ">"'
LARK = 'start: "<" /[a-c]{2,4}/ ">"'
SCHEMA = {"enum": ["yes", "no"]}
WAYS = [
    ({"guided_regex": DIGITS}, DIGITS),
    ({"guided_choice": CHOICE}, "|".join(CHOICE)),
    ({"guided_grammar": GBNF}, "<[a-c]{2,4}>"),
    ({"guided_grammar": LARK}, "<[a-c]{2,4}>"),
    ({"guided_json": SCHEMA}, '"(yes|no)"'),
    ({"guided_json": json.dumps(SCHEMA)}, '"(yes|no)"'),
    ({"grammar": GBNF}, "<[a-c]{2,4}>"),
    ({"json_schema": SCHEMA}, '"(yes|no)"'),
    ({"structured_outputs": {"regex": DIGITS}}, DIGITS),
    ({"structured_outputs": {"choice": CHOICE}}, "|".join(CHOICE)),
    ({"structured_outputs": {"grammar": GBNF}}, "<[a-c]{2,4}>"),
    ({"structured_outputs": {"json": SCHEMA}}, '"(yes|no)"'),
]


@check
def every_way_to_bind_an_answer(c):
    for fields, pattern in WAYS:
        for text in (c.chat(extra_body=fields).choices[0].message.content,
                     c.complete(extra_body=fields).choices[0].text):
            assert re.fullmatch(pattern, text), (fields, text)


@check
def what_cannot_be_enforced_is_refused_with_its_path(c):
    schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    expect_refusal(lambda: c.chat(response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}),
        "response_format", "not", "properties/a")
    expect_refusal(lambda: c.chat(extra_body={"guided_json": schema, "guided_regex": "a"}),
                   "guided_regex", "guided_json")
    expect_refusal(lambda: c.chat(extra_body={"guided_grammar": 'root ::= "a'}), "guided_grammar")
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    expect_refusal(lambda: c.chat(tools=[tool], tool_choice="required"), "tools", "not")


@check
def one_call_is_made(c):
    reply = parse_chat(c, **ONE_CALL)
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    [call] = choice.message.tool_calls
    assert isinstance(checked(call).function.parsed_arguments, (GetWeather, Add))
    for n in (1, 3):
        ask = {**ONE_CALL, "n": n, "seed": 4, "temperature": 1.2}
        whole = c.chat(**ask)
        events, final = c.chat_stream(**ask)
        for one, other in zip(whole.choices, final.choices, strict=True):
            assert same_calls(one.message.tool_calls, other.message.tool_calls)
            assert one.finish_reason == other.finish_reason == "tool_calls"
            checked(one.message.tool_calls[0])
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        assert len(done) == n


@check
def a_named_tool_is_called(c):
    named = {"type": "function", "function": {"name": "Add"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": "Add"}}]}}
    for choice in (named, allowed):
        reply = c.chat(**{**ONE_CALL, "tool_choice": choice}).choices[0]
        [call] = reply.message.tool_calls
        checked(call, ("Add",))
        assert reply.finish_reason in ("tool_calls", "stop")
    expect_refusal(lambda: c.chat(tools=TOOLS, tool_choice={
        "type": "function", "function": {"name": "subtract"}}), "tool_choice.function.name",
        "subtract")


@check
def several_calls_are_made(c):
    # Who may not end can only call once more, or write spaces: greedily some models do.
    ask = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 250, "temperature": 1.5,
           "seed": 3, "extra_body": {"min_tokens": 250}}
    whole = c.chat(**ask).choices[0]
    calls = whole.message.tool_calls
    assert len(calls) > 1
    for call in calls[:-1]:  # the last may be cut
        checked(call)
    assert len({call.id for call in calls}) == len(calls)
    _, final = c.chat_stream(**ask)
    assert same_calls(final.choices[0].message.tool_calls, calls)
    assert final.choices[0].finish_reason == whole.finish_reason == "length"
    first = c.chat(**{**ask, "parallel_tool_calls": False}).choices[0].message.tool_calls
    assert same_calls(first, calls[:1])


@check
def no_call_is_made(c):
    reply = c.chat(tools=TOOLS, tool_choice="none").choices[0]
    assert not reply.message.tool_calls and reply.finish_reason in ("stop", "length")


@check
def a_called_tool_is_answered(c):
    call = c.chat(**ONE_CALL).choices[0].message
    for content in ("3", [{"type": "text", "text": "3"}]):
        reply = c.chat(tools=TOOLS, tool_choice="none", messages=[
            {"role": "user", "content": "What do you know?"}, call,
            {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": content}])
        assert reply.choices[0].finish_reason in ("stop", "length")


if __name__ == "__main__":
    sys.exit(run(__doc__, Context))
