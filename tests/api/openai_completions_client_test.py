#!/usr/bin/env python3
"""OpenAI's /v1/completions of a running server, through the openai package as users have it.

    mantou serve MODEL &
    python tests/api/openai_completions_client_test.py --base-url http://127.0.0.1:8080

Needs only the `openai` package. Any model will do: what is checked does not depend on its words.
Where two ways of computing the same are compared, other replies of the server are the reference:
one request for each prompt, and the tokens as they were chosen.
"""

import itertools
import math
import sys

from checks import check, run
from openai_client import Context, expect_refusal

PROMPTS = ["One, two, three,", "The capital of France is", "def add(a, b):"]


def texts_of(reply):
    return [choice.text for choice in reply.choices]


def streamed_texts(chunks, count):
    texts, reasons = [""] * count, [None] * count
    for chunk in chunks:
        for choice in chunk.choices:
            assert reasons[choice.index] is None, "a choice went on after its end"
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
    return texts, reasons


@check
def logprobs_of_an_answer(c):
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
    streamed = [chunk.choices[0].logprobs
                for chunk in c.complete(stream=True, logprobs=2, max_tokens=6)
                if chunk.choices[0].logprobs]
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        joined = list(itertools.chain.from_iterable(getattr(part, name) for part in streamed))
        assert joined == getattr(logprobs, name), name


@check
def a_stream_says_the_same_as_the_whole_reply(c):
    whole = c.complete(max_tokens=6)
    texts, reasons = streamed_texts(c.complete(stream=True, max_tokens=6), 1)
    assert texts == texts_of(whole) and reasons == [whole.choices[0].finish_reason]


@check
def several_answers_to_several_prompts(c):
    alone = [c.complete(prompt=prompt, max_tokens=6, seed=3 + i, temperature=1.2)
             for prompt in PROMPTS for i in range(2)]
    expected = [reply.choices[0].text for reply in alone]
    ask = {"prompt": PROMPTS, "n": 2, "max_tokens": 6, "seed": 3, "temperature": 1.2}
    whole = c.complete(**ask)
    assert [choice.index for choice in whole.choices] == list(range(6))
    assert texts_of(whole) == expected
    assert whole.usage.completion_tokens == sum(reply.usage.completion_tokens for reply in alone)
    # A prompt is counted once, whatever n is.
    assert whole.usage.prompt_tokens == sum(reply.usage.prompt_tokens for reply in alone[::2])
    *parts, usage = c.complete(**ask, stream=True, stream_options={"include_usage": True})
    texts, reasons = streamed_texts(parts, 6)
    assert texts == expected
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage.choices == [] and usage.usage.total_tokens == whole.usage.total_tokens


@check
def prompts_of_token_ids(c):
    ids = [c.ids_of(prompt) for prompt in PROMPTS]
    expected = texts_of(c.complete(prompt=PROMPTS, max_tokens=6))
    assert texts_of(c.complete(prompt=ids, max_tokens=6)) == expected
    assert texts_of(c.complete(prompt=ids[0], max_tokens=6)) == expected[:1]
    assert c.complete(prompt=ids[0], max_tokens=1).usage.prompt_tokens == len(ids[0])


@check
def an_echo_begins_with_the_prompt(c):
    plain = texts_of(c.complete(prompt=PROMPTS, max_tokens=6))
    expected = [prompt + text for prompt, text in zip(PROMPTS, plain)]
    assert texts_of(c.complete(prompt=PROMPTS, max_tokens=6, echo=True)) == expected
    chunks = c.complete(prompt=PROMPTS, max_tokens=6, echo=True, stream=True)
    assert streamed_texts(chunks, len(PROMPTS))[0] == expected


@check
def a_prompt_is_scored_without_an_answer(c):
    for tops in (0, 2):
        reply = c.complete(echo=True, max_tokens=0, logprobs=tops)
        choice, logprobs = reply.choices[0], reply.choices[0].logprobs
        assert choice.text == "One, two, three," and choice.finish_reason == "length"
        assert reply.usage.completion_tokens == 0
        assert reply.usage.prompt_tokens == len(logprobs.tokens) == len(c.ids_of(choice.text))
        assert "".join(logprobs.tokens).endswith(choice.text)  # a token of the beginning may precede
        assert logprobs.token_logprobs[0] is None, "nothing stands before the first token"
        assert all(value <= 0 for value in logprobs.token_logprobs[1:])
        if tops == 0:
            assert logprobs.top_logprobs is None
            continue
        assert logprobs.top_logprobs[0] is None
        for token, value, top in list(zip(logprobs.tokens, logprobs.token_logprobs,
                                          logprobs.top_logprobs))[1:]:
            assert math.isclose(top[token], value, abs_tol=1e-6)
            assert max(top.values()) >= value and 2 <= len(top) <= 3


@check
def scores_are_those_the_tokens_were_chosen_with(c):
    # logprobs: true is mlx-lm's form, which tells the ids.
    chosen = c.lenient.post("/completions", cast_to=object, body={
        "model": c.model, "prompt": PROMPTS[0], "max_tokens": 6, "temperature": 0,
        "logprobs": True, "top_logprobs": 1})["choices"][0]["logprobs"]["content"]
    prompt = c.ids_of(PROMPTS[0])
    scored = c.complete(prompt=prompt + [token["id"] for token in chosen], echo=True, max_tokens=0,
                        logprobs=1).choices[0].logprobs
    assert len(scored.tokens) == len(prompt) + len(chosen)
    for token, value in zip(chosen, scored.token_logprobs[len(prompt):]):
        # Steps of other lengths sum up in another order.
        assert math.isclose(token["logprob"], value, abs_tol=0.05), (token, value)


@check
def scores_do_not_depend_on_what_is_scored_beside(c):
    ask = {"echo": True, "max_tokens": 0, "logprobs": 1}
    together = c.complete(prompt=PROMPTS, **ask)
    for choice, prompt in zip(together.choices, PROMPTS):
        alone = c.complete(prompt=prompt, **ask).choices[0].logprobs
        assert choice.logprobs.tokens == alone.tokens
        for one, other in zip(choice.logprobs.token_logprobs[1:], alone.token_logprobs[1:]):
            assert math.isclose(one, other, abs_tol=0.05), (one, other)


@check
def bad_prompts_are_named(c):
    for prompt, param in (([], "prompt"), ("", "prompt"), ([1, "x"], "prompt[1]"),
                          (["x", ""], "prompt[1]"), ([[1], [-1]], "prompt[1][0]"),
                          ([2**31 - 1], "prompt[0]"), (["x"] * 1025, "prompt"), (5, "prompt")):
        expect_refusal(lambda: c.complete(prompt=prompt), param)
    expect_refusal(lambda: c.complete(n=2, best_of=3), "best_of")
    expect_refusal(lambda: c.complete(suffix="x"), "suffix")
    expect_refusal(lambda: c.complete(logprobs=21), "logprobs")


if __name__ == "__main__":
    sys.exit(run(__doc__, Context))
