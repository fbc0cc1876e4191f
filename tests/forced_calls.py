#!/usr/bin/env python3
"""One to four tool calls in each format, through the openai package, whole and streamed.

    pip install -r tests/api/requirements.txt
    tests/forced_calls.py --mantou build/test/mantou --model starter

Starts a server for each format. A grammar of one text makes any model write the calls as models of that
format write them (docs/text.md names them), with words before the first where the format has room for them.
What the package puts together must be the calls that were written.
"""
import argparse
import json
import sys
import tempfile

import openai

from running_server import RunningServer

ARGUMENTS = [{"city": "Paris", "days": 2}, {"city": "Saint \"Louis\"\nüber 🌍", "days": 0}, {},
             {"days": -1, "more": [1.5, None, {"deep": [True, "</tool_call>"]}]}]
TOOLS = [{"type": "function", "function": {"name": f"tool_{i}", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}
    for i in range(len(ARGUMENTS))]


def hermes(calls):
    return "\n".join("<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"
                     for name, arguments in calls)


def llama3(calls):
    return "; ".join(json.dumps({"name": name, "parameters": arguments}) for name, arguments in calls)


def mistral(calls):
    return "[TOOL_CALLS]" + json.dumps([{"name": name, "arguments": arguments} for name, arguments in calls])


def mistral_new(calls):
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments)}" for name, arguments in calls)


def qwen3_coder(calls):
    spell = lambda value: value if isinstance(value, str) else json.dumps(value)
    return "\n".join(
        f"<tool_call>\n<function={name}>\n"
        + "".join(f"<parameter={key}>\n{spell(value)}\n</parameter>\n" for key, value in arguments.items())
        + "</function>\n</tool_call>" for name, arguments in calls)


def minicpm(calls):
    spell = lambda value: f"<![CDATA[{value}]]>" if isinstance(value, str) else json.dumps(value)
    return "\n".join(
        f'<function name="{name}">'
        + "".join(f'<param name="{key}">{spell(value)}</param>' for key, value in arguments.items())
        + "</function>" for name, arguments in calls)


def gemma_value(value):
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, list):
        return "[" + ",".join(map(gemma_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def gemma(calls):
    return "".join(f"<|tool_call>call:{name}{gemma_value(arguments)}<tool_call|>" for name, arguments in calls)


# What a format is called, how it is written, and whether words may come before.
FORMATS = [("hermes", hermes, True), ("llama3", llama3, False), ("mistral", mistral, True),
           ("mistral", mistral_new, True), ("qwen3-coder", qwen3_coder, True), ("minicpm", minicpm, True),
           ("gemma", gemma, True)]


def check(client, model, text, before, calls, n):
    fields = {"model": model, "n": n, "tools": TOOLS, "max_tokens": 2000, "temperature": 0,
              "messages": [{"role": "user", "content": "Call them."}],
              "extra_body": {"guided_choice": [before + text]}}
    whole = client.chat.completions.create(**fields)
    with client.chat.completions.stream(**fields) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert len(done) == n * len(calls), f"{len(done)} events of calls that are done"
    for choice in (*whole.choices, *final.choices):
        made = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]
        assert made == calls, made
        assert choice.finish_reason == "tool_calls", choice.finish_reason
        assert (choice.message.content or "") == before, choice.message.content
    ids = [call.id for choice in whole.choices for call in choice.message.tool_calls]
    assert len(set(ids)) == len(ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantou", required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    failures = 0
    for name, spell, has_words in FORMATS:
        with tempfile.TemporaryDirectory() as folder, \
                RunningServer(args.mantou, args.model, f"{folder}/log", "--tool-call-parser", name) as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0,
                                   _strict_response_validation=True)
            model = client.models.list().data[0].id
            for count in range(1, len(ARGUMENTS) + 1):
                calls = [(f"tool_{i}", ARGUMENTS[i]) for i in range(count)]
                for before in ("", "I look.") if has_words else ("",):
                    try:
                        check(client, model, spell(calls), before, calls, n=2 if count == 2 else 1)
                    except Exception as error:
                        failures += 1
                        print(f"FAILED  {spell.__name__}, {count} calls behind {before!r}: {error}", flush=True)
        print(f"done    {spell.__name__}", flush=True)
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
