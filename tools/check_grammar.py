#!/usr/bin/env python3
"""Answers bound to a JSON schema, against the official JSON Schema test suite.

    pip download --no-deps --no-binary :all: jsonschema==4.26.0 && tar xf jsonschema-4.26.0.tar.gz
    ninja -C build grammar_driver
    tools/check_grammar.py --suite jsonschema-4.26.0/json/tests/draft2020-12 \\
        --driver build/tests/grammar_driver --model MODEL

MODEL is a GGUF file, a model directory or a tokenizer.json: its vocabulary is what is masked.

Each instance is written down in several ways, as the suite's instances are values and a mask sees text:
compact, with spaces, with its members in other orders, whole numbers with and without a fraction. A
valid instance counts as rejected when all of these are, an invalid one as accepted when any is. Prints
a line for each file of the suite, what was wrong, and microseconds a mask.

Wrong accepts and wrong rejects that docs/text.md does not announce make it exit with 1.
"""
import argparse
import collections
import itertools
import json
import pathlib
import statistics
import subprocess
import sys

ORDERS = 24  # of an instance's members, at most

# What docs/text.md announces of formats and patterns: (words of the suite's description, why).
ANNOUNCED_ACCEPTS = (
    ("leap second", "leap seconds of any minute"),
    ("29 days in February (normal)", "a 29th of February in any year"),
    ("2021 is not a leap year", "a 29th of February in any year"),
    ("zero-width whitespace", "\\s and \\S do not count U+FEFF as white space"),
    ("a float is not an integer even without", "drafts after 4: 1.0 is an integer, written as 1"),
    ("an invalid JSON document", "contentMediaType is an annotation"),
    ("a validly-encoded invalid JSON document", "contentMediaType is an annotation"),
    ("an invalid base64 string", "contentEncoding is an annotation"),
)
ANNOUNCED_REJECTS = (
    ("a quoted string", "quoted names in e-mail addresses do not occur"),
    ("IPv6-address-literal", "addresses for domains in e-mail addresses do not occur"),
    ("mixed format with", "IPv6 addresses that end in an IPv4 one do not occur"),
    ("a long valid ipv6", "IPv6 addresses that end in an IPv4 one do not occur"),
    ("zero-width whitespace", "\\s and \\S do not count U+FEFF as white space"),
    ("no validation: invalid number", "$schema does not say which keywords hold"),
    ("ref valid, maxItems ignored", "all drafts are read as 2020-12: keywords beside $ref hold"),
)


class Driver:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, model], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, schema, texts):
        request = {"kind": "json_schema", "text": json.dumps(schema), "texts": texts}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the driver ended at {json.dumps(schema)}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit("the driver failed")


def orders(value):
    """The same value with the members of its objects in each order."""
    if isinstance(value, dict):
        for keys in itertools.permutations(value):
            for values in itertools.product(*(list(orders(value[key])) for key in keys)):
                yield dict(zip(keys, values))
    elif isinstance(value, list):
        for values in itertools.product(*(list(orders(item)) for item in value)):
            yield list(values)
    else:
        yield value


def with_numbers(value, change):
    if isinstance(value, dict):
        return {key: with_numbers(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [with_numbers(item, change) for item in value]
    return change(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def whole(number):
    return int(number) if number == number // 1 else number


def texts_of(value):
    if isinstance(value, (dict, list)):
        values = list(itertools.islice(orders(value), ORDERS))
    else:
        values = [value]
    texts = []
    for each in values:
        texts.append(json.dumps(each, ensure_ascii=False, separators=(",", ":")))
        texts.append(json.dumps(with_numbers(each, whole), ensure_ascii=False, separators=(",", ":")))
        texts.append(json.dumps(each, ensure_ascii=False))
        texts.append(json.dumps(each, separators=(",", ":")))
    return list(dict.fromkeys(texts))


def leaves(value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def has_format(schema):
    if isinstance(schema, dict):
        return "format" in schema or any(has_format(item) for item in schema.values())
    return isinstance(schema, list) and any(has_format(item) for item in schema)


def announced(table, description):
    return next((why for words, why in table if words in description), None)


def announced_reject(file, schema, value, description):
    """Why docs/text.md says that this valid instance is not written; None: it does not."""
    for leaf in leaves(value):
        if isinstance(leaf, str) and any(c < " " and c not in "\b\f\n\r\t" for c in leaf):
            return "control characters do not occur"
        if isinstance(leaf, (int, float)) and abs(leaf) > 2**53:
            return "numbers beyond 2^53 do not occur"
    if "format" not in file.parts[-2] and has_format(schema):
        return "format is enforced, here it is an annotation"
    return announced(ANNOUNCED_REJECTS, description)


def percentile(values, share):
    return statistics.quantiles(values, n=1000)[round(share * 10) - 1] if len(values) > 1 else values[0]


class Table:
    def __init__(self, root):
        self.root = root
        self.rows, self.wrong, self.announced = [], [], collections.Counter()
        self.refusals, self.mask_us, self.compile_us = collections.Counter(), [], []

    def check_file(self, driver, file):
        row = collections.Counter()
        for group in json.loads(file.read_text()):
            schema, tests = group["schema"], group["tests"]
            row["schemas"] += 1
            row["cases"] += len(tests)
            spelled = [texts_of(test["data"]) for test in tests]
            answer = driver.ask(schema, [text for texts in spelled for text in texts])
            if "refused" in answer:
                row["refused"] += 1
                row["cases refused"] += len(tests)
                continue
            self.compile_us.append((answer["compile_us"], json.dumps(schema)))
            results = iter(answer["results"])
            for test, texts in zip(tests, spelled):
                taken = []
                for text in texts:
                    result = next(results)
                    self.mask_us += result["mask_us"]
                    taken += [text] if result["accepted"] else []
                self.judge(row, file, group, test, taken)
        self.rows.append((file.relative_to(self.root).with_suffix("").as_posix(), row))

    def judge(self, row, file, group, test, taken):
        if test["valid"] == bool(taken):
            row["right"] += 1
            return
        if test["valid"]:
            kind = "wrong rejects"
            why = announced_reject(file, group["schema"], test["data"], test["description"])
        else:
            kind, why = "wrong accepts", announced(ANNOUNCED_ACCEPTS, test["description"])
        row[kind] += 1
        if why:
            row["announced"] += 1
            self.announced[f"{kind}: {why}"] += 1
        else:
            name = file.relative_to(self.root).as_posix()
            self.wrong.append(f"{kind}: {name}: {group['description']}: {test['description']}\n"
                              f"    {json.dumps(group['schema'])}\n    {json.dumps(test['data'])}"
                              f"{' as ' + taken[0] if taken else ''}")

    def show(self):
        names = ("schemas", "refused", "cases", "cases refused", "right", "wrong accepts",
                 "wrong rejects", "announced")
        width = max(len(name) for name, _ in self.rows)
        print(" " * width, *names, sep="  ")
        total = collections.Counter()
        for name, row in self.rows:
            total += row
            print(name.ljust(width), *(str(row[key]).rjust(len(key)) for key in names), sep="  ")
        print("all".ljust(width), *(str(total[key]).rjust(len(key)) for key in names), sep="  ")
        for why, count in self.announced.most_common():
            print(f"announced, {count} cases: {why}")
        print(*self.wrong, sep="\n")
        print(f"{len(self.mask_us)} masks: p50 {percentile(self.mask_us, 50):.1f} us, "
              f"p99 {percentile(self.mask_us, 99):.1f} us, largest {max(self.mask_us):.0f} us; "
              f"{len(self.compile_us)} schemas compiled: "
              f"p50 {percentile([us for us, _ in self.compile_us], 50):.0f} us; the slowest:")
        for us, schema in sorted(self.compile_us, reverse=True)[:3]:
            print(f"  {us:.0f} us {schema}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=pathlib.Path, required=True, help="tests/DRAFT of the suite")
    parser.add_argument("--driver", default="build/tests/grammar_driver")
    parser.add_argument("--model", required=True)
    parser.add_argument("--only", help="files whose name holds this text")
    args = parser.parse_args()
    driver, table = Driver(args.driver, args.model), Table(args.suite)
    for file in sorted(args.suite.rglob("*.json")):
        if not args.only or args.only in file.name:
            table.check_file(driver, file)
    driver.close()
    if not table.rows:
        raise SystemExit(f"{args.suite}: no tests")
    table.show()
    return 1 if table.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
