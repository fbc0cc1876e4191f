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

MESSAGES = [{"role": "user", "content": "Count from one to ten in words."}]


class Context:
    def __init__(self, base_url):
        self.root = base_url.rstrip("/").removesuffix("/v1")
        # No retries: a refusal must come at once and be the right one.
        self.client = openai.OpenAI(base_url=self.root + "/v1", api_key="none", max_retries=0)
        self.model = self.client.models.list().data[0].id

    def chat(self, **fields):
        return self.client.chat.completions.create(
            **{"model": self.model, "messages": MESSAGES, "max_tokens": 24, "temperature": 0,
               **fields})

    def complete(self, **fields):
        return self.client.completions.create(
            **{"model": self.model, "prompt": "One, two, three,", "max_tokens": 24,
               "temperature": 0, **fields})


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
    with c.client.chat.completions.stream(model=c.model, messages=MESSAGES, max_tokens=16,
                                          temperature=0) as stream:
        events = list(stream)
        try:
            final = stream.get_final_completion()
        except openai.LengthFinishReasonError as error:  # how the helper reports max_tokens
            final = error.completion
    assert any(event.type == "content.delta" for event in events)
    assert final.choices[0].message.content == c.chat(max_tokens=16).choices[0].message.content


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
def legacy_completions_and_their_logprobs(c):
    reply = c.complete(logprobs=2, max_tokens=6)
    assert reply.object == "text_completion" and reply.id.startswith("cmpl-")
    logprobs = reply.choices[0].logprobs
    count = len(logprobs.tokens)
    assert 0 < count <= 6
    assert count == len(logprobs.token_logprobs) == len(logprobs.top_logprobs)
    assert count == len(logprobs.text_offset) and logprobs.text_offset[0] == 0
    assert logprobs.text_offset == sorted(logprobs.text_offset)
    for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert math.isclose(top[token], value, abs_tol=1e-6) and 2 <= len(top) <= 3
    text = "".join(chunk.choices[0].text for chunk in c.complete(stream=True, max_tokens=6))
    assert text == reply.choices[0].text


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


BAD_FIELDS = [
    ({"temperature": 6}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": -1}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"n": 2}, "n"),
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
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"extra_body": {"guided_regex": "a+"}}, "guided_regex"),
]


@check
def bad_fields_are_bad_requests_that_name_the_field(c):
    for fields, param in BAD_FIELDS:
        for stream in (False, True):
            try:
                c.chat(stream=stream, **fields)
            except openai.BadRequestError as error:
                assert error.param == param, (fields, error.param)
                assert param in error.message, (fields, error.message)
                assert error.type == "invalid_request_error"
            else:
                raise AssertionError(f"{fields} was accepted")


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
    busy = c.chat(stream=True, max_tokens=100_000, extra_body={"ignore_eos": True})
    next(iter(busy))
    refusals, others = [], []

    def ask():
        try:
            c.chat(max_tokens=1)
        except openai.RateLimitError as error:
            refusals.append(error)
        except Exception as error:
            others.append(error)

    threads = [threading.Thread(target=ask) for _ in range(80)]
    for thread in threads:
        thread.start()
    waited = time.monotonic()
    while not refusals and time.monotonic() - waited < 30:
        time.sleep(0.05)
    busy.close()
    for thread in threads:
        thread.join()
    assert refusals and not others, (len(refusals), others[:1])
    assert all(error.response.headers["retry-after"] for error in refusals)
    assert c.chat(max_tokens=1).choices


if __name__ == "__main__":
    sys.exit(run(__doc__, Context))
