"""For tests/schemathesis: keeps answers short, which would otherwise take most of its time."""
import schemathesis

MOST = {"n": 2, "n_cmpl": 2, "best_of": 2, "min_tokens": 1, "max_tokens": 3, "max_completion_tokens": 3, "n_predict": 3}
MOST_PROMPTS = 4


@schemathesis.hook
def before_call(_context, case, _arguments):
    if not isinstance(case.body, dict):
        return
    for name, most in MOST.items():
        value = case.body.get(name)
        if type(value) is int and (value > most or value == -1):
            case.body[name] = most
    prompts = case.body.get("prompt")
    if isinstance(prompts, list) and MOST_PROMPTS < len(prompts) <= 1024:  # more are refused
        case.body["prompt"] = prompts[:MOST_PROMPTS - 1] + prompts[-1:]
