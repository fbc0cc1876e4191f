#!/usr/bin/env python3
"""Compares rendered chat templates with transformers' own renderer, byte for byte.

  check_templates.py --driver BUILD/tests/text_driver --carrier MODEL.gguf [MODEL.gguf | FILE.jinja ...]

Every template (those of the models, of the files, and the small ones below) renders every
conversation below. The carrier lends its tokenizer to templates that come without one. Templates
that fail must fail in both; a template of ours that renders where transformers fails is reported,
but is no error: Python refuses some expressions that minijinja allows. Needs the Python packages
transformers and gguf. Exit code 1 on any difference.
"""
import argparse
import json
import pathlib
import subprocess
import sys

from transformers.utils import chat_template_utils

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather <now> & \"later\" – für Städte",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1},
        "precision": {"type": "number", "default": 0.1}}, "required": ["city"]}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather",
        "arguments": {"city": "Zürich", "days": 2, "precision": 1e-7, "exact": True, "note": None, "list": [1, 2.0]}}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


USER = say("user", "What is the capital of France?")
ASSISTANT = say("assistant", "Paris.")
CONVERSATIONS = [
    {"messages": [USER]},
    {"messages": [USER], "add_generation_prompt": False},
    {"messages": [say("system", "You are terse."), USER]},
    {"messages": [USER, ASSISTANT, say("user", "And of Spain?")]},
    {"messages": [say("system", "S"), USER, ASSISTANT, say("user", "x"), say("assistant", "y"), say("user", "z")]},
    {"messages": [USER, ASSISTANT], "add_generation_prompt": False},
    {"messages": [say("user", "  spaces \n around \t")]},
    {"messages": [say("user", "")]},
    {"messages": [say("user", "日本語 émoji 😀 \"quotes\" 'single' <html> & {{ braces }} {% tags %} \\n")]},
    {"messages": [USER], "tools": [TOOL]},
    {"messages": [say("system", "Use tools."), USER], "tools": [TOOL, TOOL]},
    {"messages": [USER, say("assistant", "", tool_calls=[CALL]), say("tool", "{\"t\": 21.5}", tool_call_id="call00001")], "tools": [TOOL]},
    {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, say("tool", "21", name="get_weather", tool_call_id="call00001"), say("assistant", "It is 21."), say("user", "Thanks")], "tools": [TOOL]},
    {"messages": [USER, say("assistant", "Let me see.", tool_calls=[CALL, CALL]), say("tool", "a", tool_call_id="call00001"), say("tool", "b", tool_call_id="call00001")], "tools": [TOOL]},
    {"messages": [USER, say("assistant", "<think>\nhm\n</think>\n\nParis."), say("user", "Sure?")]},
    {"messages": [USER, say("assistant", "Paris.", reasoning_content="France, so Paris."), say("user", "Sure?")]},
    {"messages": [USER], "kwargs": {"enable_thinking": False}},
    {"messages": [USER], "kwargs": {"enable_thinking": True, "reasoning_effort": "low", "custom": [1, {"a": None}]}},
    {"messages": [USER, say("assistant", "The capital is ")], "continue_final_message": True},
    {"messages": [USER, USER]},
    {"messages": [ASSISTANT, USER]},
    {"messages": [say("user", "a" * 5000), say("assistant", "b\n" * 300), say("user", "c")]},
]

# Left out, because they are known to differ: tiny and huge floats joined by ~, the % operator on
# strings, `| safe +`, attributes of strings that are Python methods, map('attr', ...) on mappings.
SMALL = [
    "{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }}{{ m.role }}{% endfor %}",
    "{{ messages | tojson }}", "{{ messages | tojson(indent=4) }}", "{{ tools | tojson(indent=2) }}", "{{ tools }}", "{{ messages }}",
    "{{ messages[0] | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
    "{{ messages[-1]['content'] | trim }}|{{ messages[-1].content | length }}|{{ messages[-1].content | upper }}",
    "{{ messages[::-1] | map(attribute='role') | join(',') }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
    "{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.s = ns.s ~ m.role ~ ns.n %}{% endfor %}{{ ns.s }}",
    "{% macro show(m, tag='x') %}<{{ tag }}>{{ m.content }}</{{ tag }}>{% endmacro %}{% for m in messages %}{{ show(m, tag=m.role) }}{% endfor %}",
    "{%- if messages[0].role == 'system' -%}  \n {{- messages[0].content -}} \n{%- else %}\n  none\n{% endif %}\n",
    "  {% if true %}\n  indented\n  {% endif %}\n  after\n",
    "{# comment #}\n{{ 'a' if messages is iterable else 'b' }}{{ messages is mapping }}{{ messages[0] is mapping }}{{ messages[0].content is string }}",
    "{{ x is defined }}{{ x is none }}{{ tools is none }}{{ none is none }}{{ 1 is number }}{{ true is boolean }}{{ 1.0 is float }}{{ 1 is integer }}",
    "{{ x }}|{{ x | default('d') }}|{{ '' | default('e', true) }}|{{ x.y is defined }}",
    "{{ [1, 2, 3] | sum }}{{ [3, 1, 2] | sort }}{{ [1, 2, 3] | first }}{{ [1, 2, 3] | last }}{{ range(3) | list }}{{ [1, 2] + [3] }}",
    "{{ 7 // 2 }}{{ 7 / 2 }}{{ 7 % 3 }}{{ 2 ** 10 }}{{ 1.0 }}{{ 0.1 + 0.2 }}{{ -7 // 2 }}{{ 10000000000000000000000 }}",
    "{{ 1e-7 }}{{ 123456789.123 }}{{ 1e16 }}{{ 5 | float }}{{ '3.5' | float }}{{ '7' | int }}{{ 3.7 | int }}{{ 3.14159 | round(2) }}",
    "{{ 'a,b,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a-b-c'.rsplit('-', 1) }}{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('c', 'd')) }}",
    "{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'Abc'.lower() }}|{{ 'abc'.capitalize() }}|{{ 'a b'.title() }}",
    "{{ 'abcabc'.replace('b', 'X') }}{{ 'abcabc'.replace('b', 'X', 1) }}{{ 'abc'.find('c') }}{{ 'abc'.find('z') }}{{ 'abcabc'.count('bc') }}{{ 'abc'[1:] }}{{ 'abc'[-1] }}{{ 'abc'[::-1] }}",
    "{{ 'a\nb\nc'.splitlines() }}{{ 'a' * 3 }}{{ 'x'.join(['a', 'b']) }}{{ 'a' ~ 1 ~ none ~ true }}{{ 'a' in 'abc' }}{{ 'q' not in ['a'] }}",
    "{{ 'b'.removeprefix('b') }}{{ 'abc'.removesuffix('c') }}{{ 'k=v'.partition('=') }}{{ '5'.zfill(3) }}{{ 'ab'.center(6, '*') }}{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3) }}",
    "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}{{ messages[0].keys() | list }}{{ messages[0].get('nope', 'd') }}{{ messages[0].get('nope') }}",
    "{% for k, v in (messages[0] | dictsort) %}{{ k }}{% endfor %}{{ messages[0] | items | list | length }}",
    "{% for a in [1, 2, 3, 4] if a % 2 == 0 %}{{ a }}{% else %}none{% endfor %}{% for a in [] %}x{% else %}empty{% endfor %}",
    "{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% set a, b = (1, 2) %}{{ a }}{{ b }}{% set text %}block {{ a }}{% endset %}{{ text }}{% with c = 3 %}{{ c }}{% endwith %}{% filter upper %}filtered{% endfilter %}",
    "{% raw %}{{ raw }}{% endraw %}{{ '{{' }}{{ \"it's\" }}{{ 'say \"hi\"' }}{{ ['it\\'s', \"a\\\"b\", 'n\\n'] }}",
    "{{ {'a': 1, 'b': none, 'c': [true, false], 'd': {'e': 1.5}} }}{{ ('a', 1) }}{{ (1,) }}{{ [] }}{{ {} }}",
    "{% generation %}tokens{% endgeneration %}{%- generation -%} x {%- endgeneration -%}",
    "{{ raise_exception('told so') }}", "{{ messages[0].role.nope.nope }}", "{{ 'a' + 1 }}", "{{ nothing() }}", "{{ 'a' | nofilter }}",
    "{% if messages[0]['content'] is not string %}list{% elif 'x' in messages[0]['content'] %}has x{% else %}no x{% endif %}",
    "{{ messages[0]['content'] | e }}{{ '<a>' | escape }}{{ '<a>' | safe }}{{ 'abc' | replace('b', '<') }}{{ 'a\n b' | indent(2) }}{{ 'a\nb' | indent(2, true) }}",
    "{{ (messages | length) > 1 and messages[0].role == 'user' or 'no' }}{{ not true }}{{ 1 if false }}|{{ 3 > 2 > 1 }}{{ 1 == 1.0 }}{{ 'a' < 'b' }}",
    "{{ [1, [2, [3]]] | string }}{{ true | string }}{{ none | string }}{{ 1.0 | string }}{{ 'x' | string }}{{ [1, 2, 3] | batch(2) | list }}",
    "{{ ['a', 'b', 'a'] | unique | list }}{{ [1, 2, 3] | max }}{{ [1, 2, 3] | min }}{{ [1, 2, 3] | reverse | list }}{{ 'abc' | reverse }}{{ ['x', 'y'] | join('-') }}",
    "{{ ['a', 'B'] | map('upper') | list }}{{ [0, 1, ''] | select | list }}{{ [0, 1, ''] | reject | list }}",
    "{{ dict(a=1, b='x') }}{{ dict(a=1).a }}{{ namespace(a=1).a }}{{ '%s-%d' | format('a', 3) }}{{ 'abc' | list }}{{ 'a b c' | wordcount }}",
    "{% set x = messages[0].tool_calls %}{% if x %}y{% else %}n{% endif %}{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ documents is none }}{{ custom }}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}>{{ loop.nextitem.role if loop.nextitem is defined }};{% endfor %}{{ loop is defined }}",
    "{% for m in messages recursive %}{{ loop.depth }}{% endfor %}{% call(x) echo() %}{{ x }}{% endcall %}{% macro echo() %}{{ caller('c') }}{% endmacro %}",
    "{{ messages[5].content }}", "{{ messages[0]['nope'] }}|{{ messages[0].nope }}", "{% include 'x' %}",
]


class Driver:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def reference(template, conversation, tokens):
    kwargs = {**tokens, **conversation.get("kwargs", {})}
    messages = chat_template_utils._normalize_chat_messages(conversation["messages"])
    resume = conversation.get("continue_final_message", False)
    rendered, _ = chat_template_utils.render_jinja_template(
        conversations=[messages], tools=conversation.get("tools"), chat_template=template,
        continue_final_message=resume, add_generation_prompt=conversation.get("add_generation_prompt", not resume), **kwargs)
    return rendered[0]


def templates_of(path, carrier):
    """(name, model, template, special tokens) of a GGUF file or a .jinja file."""
    if path.suffix != ".gguf":
        return path.name, carrier, path.read_text(), {"bos_token": "<s>", "eos_token": "</s>"}
    import gguf

    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"]
    special = {}
    for kind, key in ("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"):
        field = fields.get(f"tokenizer.ggml.{key}_token_id")
        if field is not None:
            special[f"{kind}_token"] = bytes(tokens.parts[tokens.data[field.contents()]]).decode()
    template = fields.get("tokenizer.chat_template")
    return path.name, path, template.contents() if template is not None else None, special


def check(driver, name, model, template, tokens, override):
    bad = same = failed = laxer = 0
    for index, conversation in enumerate(CONVERSATIONS):
        try:
            theirs, reason = reference(template, conversation, tokens), None
        except Exception as error:  # whatever Python makes of a template
            theirs, reason = None, f"{type(error).__name__}: {error}"
        request = {"template": template, **{k: tokens[k] for k in ("bos_token", "eos_token") if k in tokens}} if override else {}
        answer = driver.ask(model=str(model), op="render", **request, **conversation)
        ours = answer.get("text")
        same += ours is not None and ours == theirs
        failed += ours is None and theirs is None
        laxer += ours is not None and theirs is None
        if theirs is not None and ours != theirs:
            bad += 1
            if bad == 1:
                print(f"  {name}, conversation {index}:\n    ours {ours!r:.300} {answer.get('error', '')}\n    them {theirs!r:.300}")
        elif ours is not None and theirs is None and laxer == 1:
            print(f"  {name}, conversation {index}: transformers fails ({reason:.100}), ours {ours!r:.100}")
    print(f"{name}: {same} equal, {failed} fail in both, {laxer} only in transformers, {bad} differ")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", nargs="*", type=pathlib.Path)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--carrier", required=True, type=pathlib.Path)
    args = parser.parse_args()
    driver = Driver(args.driver)
    bad = 0
    for path in args.templates:
        name, model, template, tokens = templates_of(path, args.carrier)
        if template is None:
            print(f"{name}: has no template")
            continue
        bad += check(driver, name, model, template, tokens, override=path.suffix != ".gguf")
    for index, template in enumerate(SMALL):
        bad += check(driver, f"small {index}", args.carrier, template, {"bos_token": "<s>", "eos_token": "</s>"}, True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
