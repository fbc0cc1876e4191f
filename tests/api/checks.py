"""What the tests against a running server have in common: a list of checks, run one after another.

Prints one line a check; run() returns 1 when one failed.
"""

import argparse
import traceback

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def run(description, make_context):
    """make_context(base_url) gives what each check is called with."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", default="http://127.0.0.1:8080")
    parser.add_argument("--only", help="run the checks whose name holds this text")
    arguments = parser.parse_args()
    context = make_context(arguments.base_url)
    failures = 0
    for function in CHECKS:
        if arguments.only and arguments.only not in function.__name__:
            continue
        try:
            function(context)
            print(f"ok      {function.__name__}")
        except Exception:
            failures += 1
            print(f"FAILED  {function.__name__}\n{traceback.format_exc()}")
    print(f"{failures} failed")
    return 1 if failures else 0
