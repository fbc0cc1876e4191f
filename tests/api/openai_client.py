"""What the checks of OpenAI's endpoints share: the openai package's client, as strict as it can be."""

import openai

MESSAGES = [{"role": "user", "content": "Count from one to ten in words."}]


class Context:
    def __init__(self, base_url):
        self.root = base_url.rstrip("/").removesuffix("/v1")
        # No retries: a refusal must come at once and be the right one. Replies that are not what the
        # package's types say are errors.
        options = {"base_url": self.root + "/v1", "api_key": "none", "max_retries": 0}
        self.client = openai.OpenAI(_strict_response_validation=True, **options)
        # For completions: the package's types do not know that finish_reason is null in a stream
        # before its end, nor that the first token of an echo has no logprob.
        self.lenient = openai.OpenAI(**options)
        self.model = self.client.models.list().data[0].id

    def chat(self, **fields):
        return self.client.chat.completions.create(**self.of_chat(fields))

    def chat_stream(self, **fields):
        """The package's own accumulator; gives its events and what it put together."""
        events = []
        with self.client.chat.completions.stream(**self.of_chat(fields)) as stream:
            try:
                events.extend(stream)
                return events, stream.get_final_completion()
            except openai.LengthFinishReasonError as error:  # how the helper reports max_tokens
                return events, error.completion

    def of_chat(self, fields):
        return {"model": self.model, "messages": MESSAGES, "max_tokens": 24, "temperature": 0,
                **fields}

    def complete(self, **fields):
        client = self.lenient if fields.keys() & {"stream", "echo"} else self.client
        return client.completions.create(
            **{"model": self.model, "prompt": "One, two, three,", "max_tokens": 24,
               "temperature": 0, **fields})

    def ids_of(self, text):
        """As the endpoint of completions tokenizes a prompt."""
        return self.client.post(self.root + "/tokenize", cast_to=object,
                                body={"content": text, "add_special": True})["tokens"]


def expect_refusal(call, param, *words):
    try:
        call()
    except openai.BadRequestError as error:
        assert error.param == param, (error.param, error.message)
        assert error.type == "invalid_request_error", error.type
        for word in (param, *words):
            assert word in error.message, (word, error.message)
        return
    raise AssertionError(f"{param} was accepted")
