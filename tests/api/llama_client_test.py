#!/usr/bin/env python3
"""llama-server's native routes of a running server, and /metrics as Prometheus's own client reads it.

    mantou serve MODEL &
    python tests/api/llama_client_test.py --base-url http://127.0.0.1:8080

Needs the `prometheus-client` package. Any model will do. llama-server itself passes the checks, too
(--metrics --slots), but for those of what only mantou has, which are left out there.
"""

import json
import sys
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from checks import check, run

PROMPT = "One, two, three,"
FINAL = {"index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted",
         "tokens_evaluated", "generation_settings", "prompt", "has_new_line", "truncated",
         "stop_type", "stopping_word", "tokens_cached", "timings"}


class Context:
    def __init__(self, base_url):
        self.root = base_url.rstrip("/").removesuffix("/v1")
        self.is_mantou = "mantou:" in self.get("/metrics")[1]

    def open(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode(), dict(reply.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), dict(error.headers)

    def get(self, path):
        return self.open(path)

    def post(self, path, **body):
        status, text, _ = self.open(path, body)
        assert status == 200, text
        return json.loads(text)

    # With ignore_eos the length of an answer is n_predict, whatever the model.
    def complete(self, **fields):
        return self.post("/completion", **{"prompt": PROMPT, "temperature": 0, "n_predict": 8,
                                           "ignore_eos": True, **fields})

    def stream(self, **fields):
        _, text, headers = self.open("/completion", {"prompt": PROMPT, "temperature": 0,
                                                     "n_predict": 8, "ignore_eos": True,
                                                     "stream": True, **fields})
        assert headers["Content-Type"].startswith("text/event-stream"), headers
        lines = [line for line in text.split("\n") if line and not line.startswith(":")]
        assert all(line.startswith("data: ") for line in lines), lines
        return [json.loads(line[6:]) for line in lines]

    def families(self):
        return {family.name: family
                for family in text_string_to_metric_families(self.get("/metrics")[1])}


@check
def completion_is_one_object(context):
    reply = context.complete()
    assert FINAL <= set(reply), FINAL - set(reply)
    assert reply["stop"] is True and reply["stop_type"] == "limit"
    assert reply["tokens_predicted"] == 8 == reply["timings"]["predicted_n"]
    assert reply["tokens_cached"] == reply["tokens_evaluated"] + 7
    assert reply["prompt"].endswith(PROMPT)
    assert reply["timings"]["cache_n"] + reply["timings"]["prompt_n"] == reply["tokens_evaluated"]


@check
def stream_is_the_same_text(context):
    whole = context.complete(return_tokens=True)
    events = context.stream(return_tokens=True)
    assert "".join(event["content"] for event in events) == whole["content"]
    assert sum((event["tokens"] for event in events), []) == whole["tokens"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert FINAL <= set(events[-1])


@check
def stop_word_is_named(context):
    text = context.complete()["content"].strip()
    word = text[1:3]
    reply = context.complete(stop=["not there", word])
    assert reply["stop_type"] == "word" and reply["stopping_word"] == word
    assert word not in reply["content"]


@check
def probabilities(context):
    reply = context.complete(n_probs=3, return_tokens=True)
    assert len(reply["completion_probabilities"]) == 8
    for entry, token in zip(reply["completion_probabilities"], reply["tokens"]):
        assert entry["id"] == token == entry["top_logprobs"][0]["id"]
        assert entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 3
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"]


@check
def progress_and_timings(context):
    events = context.stream(return_progress=True, timings_per_token=True, cache_prompt=False)
    first = events[0]["prompt_progress"]
    assert set(first) == {"total", "cache", "processed", "time_ms"}
    assert first["total"] == events[-1]["tokens_evaluated"]
    for event in events[:-1]:
        if "prompt_progress" not in event:
            assert event["timings"]["predicted_n"] == event["tokens_predicted"]


@check
def response_fields(context):
    reply = context.complete(response_fields=["content", "timings/predicted_n"])
    assert set(reply) == {"content", "timings/predicted_n"}


@check
def prompts_of_tokens(context):
    tokens = context.post("/tokenize", content=PROMPT, add_special=True)["tokens"]
    text = context.complete()["content"]
    assert context.complete(prompt=tokens)["content"] == text
    assert context.complete(prompt=[PROMPT])["content"] == text


@check
def forbidden_token(context):
    first = context.complete(return_tokens=True)["tokens"][0]
    for bias in ([[first, False]], {str(first): False}, [[first, -100]]):
        assert context.complete(return_tokens=True, logit_bias=bias)["tokens"][0] != first


@check
def grammar_and_schema(context):
    reply = context.complete(grammar='root ::= "yes" | "no"', n_predict=16, ignore_eos=False)
    assert reply["content"] in ("yes", "no")
    reply = context.complete(json_schema={"enum": ["red", "green"]}, n_predict=16,
                             ignore_eos=False)
    assert json.loads(reply["content"]) in ("red", "green")


@check
def tokenize_and_back(context):
    for text in ("Hello world", "naïve 🍕 text", ""):
        tokens = context.post("/tokenize", content=text)["tokens"]
        assert context.post("/detokenize", tokens=tokens)["content"].lstrip(" ") == text
        pieces = context.post("/tokenize", content=text, with_pieces=True)["tokens"]
        assert [piece["id"] for piece in pieces] == tokens


@check
def apply_template(context):
    prompt = context.post("/apply-template",
                          messages=[{"role": "user", "content": "a question"}])["prompt"]
    assert "a question" in prompt


@check
def errors(context):
    status, text, _ = context.open("/completion", {"n_predict": 1})
    error = json.loads(text)["error"]
    assert status == 400 == error["code"] and error["type"] == "invalid_request_error"
    assert "prompt" in error["message"]


@check
def props_and_slots(context):
    props = json.loads(context.get("/props")[1])
    slots = json.loads(context.get("/slots")[1])
    assert len(slots) == props["total_slots"]
    assert [slot["id"] for slot in slots] == list(range(len(slots)))
    assert all(slot["n_ctx"] == props["default_generation_settings"]["n_ctx"] for slot in slots)
    assert "params" in props["default_generation_settings"] and props["build_info"]
    status, text, _ = context.get("/slots?fail_on_no_slot=1")
    assert status == 200, text


@check
def metrics_are_well_formed(context):
    _, _, headers = context.get("/metrics")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers
    families = context.families()
    assert families and all(family.documentation and family.type != "unknown"
                            for family in families.values())
    for family in families.values():
        if family.type == "histogram":
            check_histogram(family)


def check_histogram(family):
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
    bounds = [float(sample.labels["le"]) for sample in buckets]
    counts = [sample.value for sample in buckets]
    assert bounds == sorted(bounds) and bounds[-1] == float("inf")
    assert counts == sorted(counts)
    (count,) = [sample.value for sample in family.samples if sample.name.endswith("_count")]
    assert count == counts[-1]


def totals(context):
    """What may only rise, by name and labels."""
    values = {}
    for family in context.families().values():
        for sample in family.samples:
            if family.type == "counter" or (family.type == "histogram"
                                            and not sample.name.endswith("_sum")):
                values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return values


@check
def counters_rise(context):
    before = totals(context)
    context.complete(n_predict=5)
    after = totals(context)
    assert before.keys() <= after.keys()
    assert all(after[key] >= value for key, value in before.items())
    name = ("llamacpp:tokens_predicted_total", ())
    assert after[name] == before[name] + 5


@check
def own_metrics_and_stats(context):
    if not context.is_mantou:
        return
    families = context.families()
    for name in ("num_requests_running", "kv_cache_usage_perc", "prefix_cache_hits",
                 "request_success", "time_to_first_token_seconds", "inter_token_latency_seconds"):
        assert "mantou:" + name in families, sorted(families)
    stats = json.loads(context.get("/stats")[1])
    (generated,) = families["mantou:generation_tokens"].samples
    assert stats["tokens"]["generated"] == generated.value
    assert stats["requests"]["running"] == 0 and stats["rows"] == []


if __name__ == "__main__":
    sys.exit(run(__doc__, Context))
