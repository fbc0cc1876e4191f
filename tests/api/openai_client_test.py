#!/usr/bin/env python3
"""The OpenAI endpoints of a running server, through the openai package as users have it.

    mantou serve MODEL &
    python tests/api/openai_client_test.py --base-url http://127.0.0.1:8080

Needs only the `openai` package. Any model will do: what is checked does not depend on its words.
Prints one line a check and exits with 1 when one failed.
"""

import math
import re
import sys
import threading
import time
import urllib.request

import openai

from checks import check, run
from openai_client import MESSAGES, Context, expect_refusal

@check
def models_are_listed_and_found(c):
    listed = c.client.models.list().data
    assert [model.object for model in listed] == ["model"]
    assert c.client.models.retrieve(c.model).id == c.model
    try:
        c.client.models.retrieve("no-such-model")
        raise AssertionError("an unknown model was found")
    except openai.NotFoundError:
        pass


@check
def health_is_exact(c):
    with urllib.request.urlopen(c.root + "/health") as reply:
        assert reply.read() == b'{"status": "ok"}'


@check
def a_chat_has_every_field(c):
    reply = c.chat()
    choice = reply.choices[0]
    assert reply.object == "chat.completion" and reply.id.startswith("chatcmpl-")
    assert choice.message.role == "assistant" and isinstance(choice.message.content, str)
    assert choice.finish_reason in ("stop", "length")
    usage = reply.usage
    assert usage.prompt_tokens > 0 and 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0
    assert reply._request_id


@check
def a_stream_says_the_same_as_the_whole_reply(c):
    whole = c.chat()
    chunks = list(c.chat(stream=True, stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks)
    *parts, usage = chunks
    assert usage.choices == [] and usage.usage.total_tokens == whole.usage.total_tokens
    assert all(chunk.usage is None for chunk in parts)
    assert parts[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in parts)
    assert text == whole.choices[0].message.content
    reasons = [chunk.choices[0].finish_reason for chunk in parts]
    assert reasons[-1] == whole.choices[0].finish_reason and not any(reasons[:-1])


@check
def the_accumulating_helper_accepts_the_stream(c):
    events, final = c.chat_stream(max_tokens=16)
    whole = c.chat(max_tokens=16)
    assert any(event.type == "content.delta" for event in events)
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason


@check
def logprobs_are_consistent(c):
    reply = c.chat(logprobs=True, top_logprobs=3, max_tokens=8)
    content = reply.choices[0].logprobs.content
    assert 0 < len(content) <= 8
    # Special tokens, which models without sense say, too, are no text.
    said = [bytes(entry.bytes) for entry in content if not re.fullmatch(r"<[^>]+>", entry.token)]
    assert b"".join(said).decode(errors="replace").strip() == reply.choices[0].message.content.strip()
    for entry in content:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        values = [top.logprob for top in entry.top_logprobs]
        assert values == sorted(values, reverse=True)
        # Greedy: the token chosen is the best one.
        assert entry.top_logprobs[0].bytes == entry.bytes
        assert math.isclose(values[0], entry.logprob, abs_tol=1e-6)
        assert sum(math.exp(value) for value in values) <= 1 + 1e-4
    streamed = [entry
                for chunk in c.chat(logprobs=True, top_logprobs=3, max_tokens=8, stream=True)
                if chunk.choices[0].logprobs
                for entry in chunk.choices[0].logprobs.content]
    assert [entry.token for entry in streamed] == [entry.token for entry in content]


@check
def stop_texts_end_the_answer_and_are_not_part_of_it(c):
    full = c.complete(max_tokens=32).choices[0].text
    assert len(full) > 6, "the model said too little for this check"
    stop = full[3:6]
    for stops in (stop, ["never said \u2603", stop]):
        reply = c.complete(max_tokens=32, stop=stops).choices[0]
        assert reply.finish_reason == "stop"
        assert reply.text == full[: full.index(stop)]
        chunks = list(c.complete(max_tokens=32, stop=stops, stream=True))
        assert "".join(chunk.choices[0].text for chunk in chunks) == reply.text
        assert chunks[-1].choices[0].finish_reason == "stop"


@check
def the_limit_ends_the_answer(c):
    reply = c.complete(max_tokens=3, extra_body={"ignore_eos": True})
    assert reply.choices[0].finish_reason == "length" and reply.usage.completion_tokens == 3
    reply = c.chat(max_tokens=9, max_completion_tokens=2, extra_body={"ignore_eos": True})
    assert reply.choices[0].finish_reason == "length" and reply.usage.completion_tokens == 2


@check
def a_seed_repeats_an_answer(c):
    answers = {c.chat(temperature=1.5, seed=7).choices[0].message.content for _ in range(2)}
    assert len(answers) == 1
    answers = {c.chat(temperature=1.5, seed=seed).choices[0].message.content
               for seed in range(4)}
    assert len(answers) > 1


@check
def a_bias_decides_the_token(c):
    texts = {c.complete(max_tokens=1, logit_bias={str(token): 100}).choices[0].text
             for token in (300, 400, 500)}
    assert len(texts) > 1
    logprobs = c.complete(max_tokens=1, logprobs=1, logit_bias={"300": 100}).choices[0].logprobs
    assert logprobs.token_logprobs[0] > -1e-3  # the distribution is the one after the bias


@check
def several_answers_have_seeds_of_their_own(c):
    ask = {"max_tokens": 8, "temperature": 1.5}
    whole = c.chat(n=3, seed=40, **ask)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    alone = [c.chat(seed=40 + i, **ask) for i in range(3)]
    texts = [choice.message.content for choice in whole.choices]
    assert texts == [reply.choices[0].message.content for reply in alone]
    assert whole.usage.completion_tokens == sum(reply.usage.completion_tokens for reply in alone)
    _, final = c.chat_stream(n=3, seed=40, **ask)
    assert [choice.message.content for choice in final.choices] == texts


@check
def replies_bring_the_headers_that_clients_look_for(c):
    raw = c.client.chat.completions.with_raw_response.create(
        **c.of_chat({"max_tokens": 2}), extra_headers={"x-request-id": "my-own-id"})
    assert raw.headers["x-request-id"] == "my-own-id" == raw.parse()._request_id
    assert raw.headers["content-type"].startswith("application/json"), raw.headers
    with c.client.chat.completions.with_streaming_response.create(
            **c.of_chat({"max_tokens": 2, "stream": True})) as raw:
        assert raw.headers["x-request-id"]
        assert raw.headers["content-type"].startswith("text/event-stream"), raw.headers
        assert list(raw.iter_lines())[-2:] == ["data: [DONE]", ""]


BAD_FIELDS = [
    ({"temperature": 6}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": -1}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"stop": 5}, "stop"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"seed": "x"}, "seed"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"content": "no role"}]}, "messages[0].role"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"extra_body": {"guided_regex": "a+("}}, "guided_regex"),
]


@check
def bad_fields_are_bad_requests_that_name_the_field(c):
    for fields, param in BAD_FIELDS:
        for stream in (False, True):
            expect_refusal(lambda: c.chat(stream=stream, **fields), param)


@check
def refusals_are_not_tried_again(c):
    sent = []
    with openai.OpenAI(base_url=c.root + "/v1", api_key="none", max_retries=2,
                       http_client=openai.DefaultHttpxClient(
                           event_hooks={"request": [sent.append]})) as client:
        for call, status in (
                (lambda: client.models.retrieve("no-such-model"), 404),
                (lambda: client.chat.completions.create(**c.of_chat({"temperature": 6})), 400),
                (lambda: client.completions.create(model=c.model, prompt="word " * 200_000), 400)):
            sent.clear()
            try:
                call()
                raise AssertionError("it was accepted")
            except openai.APIStatusError as error:
                assert error.status_code == status, error
            assert len(sent) == 1, (status, len(sent))


@check
def a_prompt_beyond_the_context_says_the_numbers(c):
    try:
        c.complete(prompt="word " * 1_000_000)
        raise AssertionError("it was accepted")
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded", error
        assert error.body["n_prompt_tokens"] > error.body["n_ctx"]


@check
def leaving_a_stream_frees_the_engine(c):
    stream = c.chat(stream=True, max_tokens=100_000, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    started = time.monotonic()
    c.chat(max_tokens=1)
    assert time.monotonic() - started < 30


@check
def several_clients_at_once_get_their_own_answers(c):
    expected = c.chat(max_tokens=8).choices[0].message.content
    answers = [None] * 4

    def ask(index):
        answers[index] = c.chat(max_tokens=8).choices[0].message.content

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 4


@check
def a_full_queue_refuses_and_recovers(c):
    # More answers than run at once and wait: whatever comes next finds no place.
    busy = c.chat(stream=True, n=128, max_tokens=100_000, extra_body={"ignore_eos": True})
    next(iter(busy))
    try:
        c.chat(max_tokens=1)
        raise AssertionError("it was accepted")
    except openai.RateLimitError as error:
        assert int(error.response.headers["retry-after"]) > 0
    busy.close()
    # With the package's own retries, as users have it.
    assert c.client.with_options(max_retries=5).chat.completions.create(
        **c.of_chat({"max_tokens": 1})).choices


if __name__ == "__main__":
    sys.exit(run(__doc__, Context))
