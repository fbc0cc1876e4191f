#!/usr/bin/env python3
"""The Anthropic endpoints of a running server, through the anthropic package as users have it.

    mantou serve MODEL &
    python tests/api/anthropic_client_test.py --base-url http://127.0.0.1:8080

Needs only the `anthropic` package. Any model will do: what is checked does not depend on its words.
"""

import json
import sys
import threading
import time

import anthropic

from checks import check, run

MESSAGES = [{"role": "user", "content": "Count from one to ten in words."}]
TOOLS = [{"name": "get_weather", "description": "The weather of a city.",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}},
                           "required": ["city"]}}]
CALLED = [
    {"role": "user", "content": [{"type": "text", "text": "Weather in Paris?",
                                  "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "A tool knows.", "signature": "x"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1",
         "content": [{"type": "text", "text": "sunny"}]},
        {"type": "text", "text": "And what do I wear?"}]},
]


class Context:
    def __init__(self, base_url):
        root = base_url.rstrip("/").removesuffix("/v1")
        # With its two retries: the server must not cause any.
        self.client = anthropic.Anthropic(base_url=root, api_key="none")

    @staticmethod
    def fields(fields, **more_body):
        # The package no longer knows sampling parameters, but sends what it is told to.
        return {"model": "claude-any", "messages": MESSAGES, "max_tokens": 24,
                "extra_body": {"temperature": 0, **more_body}, **fields}

    def create(self, more_body=None, **fields):
        return self.client.messages.create(**self.fields(fields, **(more_body or {})))

    def stream(self, **fields):
        return self.client.messages.stream(**self.fields(fields))


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def input_tokens(usage):
    return (usage.input_tokens + usage.cache_creation_input_tokens
            + usage.cache_read_input_tokens)


def said(message):
    """All of a message that does not differ from one answer to the next."""
    blocks = [block.model_dump(exclude={"id"}) for block in message.content]
    return blocks, message.stop_reason, message.stop_sequence, message.usage.output_tokens, \
        input_tokens(message.usage)


@check
def a_message_has_every_field(c):
    message = c.create()
    assert message.id.startswith("msg_") and message.type == "message"
    assert message.role == "assistant" and message.model
    assert all(block.type == "text" for block in message.content)
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert 0 < message.usage.output_tokens <= 24 and input_tokens(message.usage) > 0
    assert message._request_id


@check
def a_stream_adds_up_to_the_whole_message(c):
    for fields in ({}, {"system": "Be brief."}, {"messages": CALLED, "tools": TOOLS},
                   {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 64}):
        with c.stream(**fields) as stream:
            events = list(stream)
            final = stream.get_final_message()
        assert said(final) == said(c.create(**fields)), fields
        assert events[0].type == "message_start" and events[-1].type == "message_stop"
        texts = "".join(event.text for event in events if event.type == "text")
        assert texts == text_of(final)
        assert stream.response.headers["request-id"]


@check
def raw_events_follow_the_grammar(c):
    names, index, open_block = [], -1, False
    for event in c.create(stream=True, max_tokens=8):
        names.append(event.type)
        if event.type == "content_block_start":
            index += 1
            assert event.index == index and not open_block
            open_block = True
        elif event.type == "content_block_delta":
            assert event.index == index and open_block
        elif event.type == "content_block_stop":
            assert event.index == index and open_block
            open_block = False
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    assert not open_block


@check
def tokens_are_counted_as_they_are_used(c):
    for fields in ({"messages": MESSAGES}, {"messages": MESSAGES, "system": "Be brief."},
                   {"messages": CALLED, "tools": TOOLS, "system": [
                       {"type": "text", "text": "x-anthropic-billing-header: cc_version=1;"},
                       {"type": "text", "text": "Be brief."}]}):
        counted = c.client.messages.count_tokens(model="claude-any", **fields)
        assert counted.input_tokens == input_tokens(c.create(**fields, max_tokens=1).usage)


@check
def the_system_prompt_is_read_once(c):
    system = "You know everything about boats. " * 40
    first = c.create(system=system, max_tokens=1).usage
    second = c.create(system=system, max_tokens=1,
                      messages=[{"role": "user", "content": "What is a keel?"}]).usage
    assert second.cache_read_input_tokens > input_tokens(first) // 2


@check
def stop_sequences_end_the_answer_and_are_named(c):
    ask = {"max_tokens": 32, "extra_body": {"temperature": 0, "ignore_eos": True}}
    full = text_of(c.create(**ask))
    assert len(full) > 6, "the model said too little for this check"
    stop = full[3:6]
    for stream in (False, True):
        fields = {**ask, "stop_sequences": ["never said \u2603", stop]}
        if stream:
            with c.stream(**fields) as events:
                message = events.get_final_message()
        else:
            message = c.create(**fields)
        assert message.stop_reason == "stop_sequence" and message.stop_sequence == stop
        assert text_of(message) == full[: full.index(stop)]


@check
def the_limit_ends_the_answer(c):
    message = c.create(max_tokens=2, more_body={"ignore_eos": True})
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 2


@check
def an_answer_begun_is_continued(c):
    begun = [*MESSAGES, {"role": "assistant", "content": "One, two, three,"}]
    message = c.create(messages=begun, max_tokens=8)
    assert not text_of(message).lstrip().startswith("One, two, three,")
    # The prompt ends with the beginning and opens no new turn.
    other = [*MESSAGES, {"role": "assistant", "content": "One, two, three, four, five, six,"}]
    assert input_tokens(c.create(messages=other, max_tokens=1).usage) > input_tokens(message.usage)


@check
def structured_output_is_json_of_the_schema(c):
    schema = {"type": "object", "properties": {"rain": {"enum": ["yes", "no"]}},
              "required": ["rain"], "additionalProperties": False}
    message = c.create(max_tokens=64,
                       output_config={"format": {"type": "json_schema", "schema": schema}})
    if message.stop_reason == "end_turn":
        assert json.loads(text_of(message))["rain"] in ("yes", "no")
    else:
        assert text_of(message).lstrip().startswith("{")


BAD_FIELDS = [
    ({"more_body": {"temperature": 6}}, "temperature"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": ""}}]}]}, "messages[0].content[0].type"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
    ({"thinking": {"type": "on"}}, "thinking.type"),
    ({"output_config": {"effort": "little"}}, "output_config.effort"),
]


def refused(call, kind, error_type):
    try:
        call()
    except kind as error:
        assert error.type == error_type, error.type
        assert error.request_id and error.body["request_id"] == error.request_id
        # The package counts its tries.
        assert error.response.request.headers["x-stainless-retry-count"] == "0"
        return error
    raise AssertionError("it was accepted")


@check
def bad_fields_are_bad_requests_that_name_the_field(c):
    for fields, param in BAD_FIELDS:
        for stream in (False, True):
            error = refused(lambda: c.create(stream=stream, **fields), anthropic.BadRequestError,
                            "invalid_request_error")
            assert f"'{param}" in error.api_message, (fields, error.api_message)


@check
def what_is_not_there_is_not_found(c):
    refused(lambda: c.client.messages.batches.list(), anthropic.NotFoundError, "not_found_error")


@check
def a_prompt_beyond_the_context_says_the_numbers(c):
    long = [{"role": "user", "content": "word " * 1_000_000}]
    error = refused(lambda: c.create(messages=long), anthropic.BadRequestError,
                    "invalid_request_error")
    assert error.api_message.startswith("prompt is too long: ")
    assert c.client.messages.count_tokens(model="any", messages=long).input_tokens > 500_000


@check
def leaving_a_stream_frees_the_engine(c):
    stream = c.create(stream=True, max_tokens=100_000, more_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    started = time.monotonic()
    c.create(max_tokens=1)
    assert time.monotonic() - started < 30


@check
def a_full_queue_refuses_and_recovers(c):
    client = c.client.with_options(max_retries=0)
    refusals, others, over = [], [], threading.Event()

    def ask():
        try:
            # Queued until another leaves, then written until somebody was refused.
            with client.messages.create(**c.fields({"stream": True, "max_tokens": 100_000},
                                                   ignore_eos=True)) as stream:
                for _ in stream:
                    if over.is_set():
                        break
        except anthropic.RateLimitError as error:
            refusals.append(error)
            over.set()
        except Exception as error:
            others.append(error)
            over.set()

    threads = [threading.Thread(target=ask) for _ in range(80)]
    for thread in threads:
        thread.start()
    over.wait(60)
    over.set()
    for thread in threads:
        thread.join()
    assert refusals and not others, (len(refusals), others[:1])
    assert all(error.type == "rate_limit_error" for error in refusals)
    assert all(error.response.headers["retry-after"] for error in refusals)
    assert c.create(max_tokens=1).usage.output_tokens == 1


if __name__ == "__main__":
    sys.exit(run(__doc__, Context))
