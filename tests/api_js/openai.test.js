// The OpenAI endpoints of a running server, through the npm package openai as users have it.
//
//     npm ci && MANTOU_URL=http://127.0.0.1:8080 npm test
//
// Any model will do: what is checked does not depend on its words.
import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const root = (process.env.MANTOU_URL ?? "http://127.0.0.1:8080").replace(/\/$/, "");
let sent = 0; // requests
const client = new OpenAI({
  baseURL: `${root}/v1`,
  apiKey: "none",
  maxRetries: 2,
  fetch: (...request) => (sent++, fetch(...request)),
});
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Count from one to ten in words." }];
const ask = { model, messages, max_tokens: 24, temperature: 0 };

const Order = z.object({
  kind: z.enum(["steamed", "fried"]),
  parts: z.array(z.object({ name: z.enum(["bun", "filling"]), grams: z.number().int().min(0).max(500) })).max(2),
  hot: z.boolean(),
  table: z.number().int().min(1).max(20).nullable(),
});
const Add = z.object({ a: z.number().int().min(0).max(99), b: z.number().int().min(0).max(99) });
const Weather = z.object({ city: z.enum(["Paris", "Oslo"]), days: z.number().int().min(1).max(7) });
const arguments_of = { add: Add, get_weather: Weather };
const tools = [
  zodFunction({ name: "add", parameters: Add }),
  zodFunction({ name: "get_weather", parameters: Weather }),
];

// All of a reply that does not differ from one to the next.
const said = (completion) =>
  completion.choices.map(({ index, message, finish_reason }) => ({
    index,
    finish_reason,
    content: message.content ?? "",
    calls: (message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]),
  }));

test("a stream adds up to the whole reply, of several answers, too", async () => {
  for (const n of [1, 3]) {
    const fields = { ...ask, n, seed: 5, temperature: 1.2 };
    const whole = await client.chat.completions.create(fields);
    assert.equal(whole.choices.length, n);
    const stream = client.chat.completions.stream({ ...fields, stream_options: { include_usage: true } });
    const final = await stream.finalChatCompletion();
    assert.deepEqual(said(final), said(whole));
    assert.deepEqual((await stream.totalUsage()).completion_tokens, whole.usage.completion_tokens);
  }
});

test("chunks come one by one", async () => {
  const chunks = [];
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) chunks.push(chunk);
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.ok(chunks.at(-1).choices[0].finish_reason);
});

test("a schema binds the answer", async () => {
  const fields = { ...ask, max_tokens: 400, response_format: zodResponseFormat(Order, "order") };
  const whole = await client.chat.completions.parse(fields);
  Order.parse(whole.choices[0].message.parsed);
  const final = await client.chat.completions.stream(fields).finalChatCompletion();
  assert.deepEqual(final.choices[0].message.parsed, whole.choices[0].message.parsed);
});

test("a call is made", async () => {
  const forced = { ...ask, max_tokens: 300, tools, tool_choice: "required", parallel_tool_calls: false };
  for (const n of [1, 2]) {
    const whole = await client.chat.completions.parse({ ...forced, n });
    for (const { message, finish_reason } of whole.choices) {
      assert.equal(finish_reason, "tool_calls");
      assert.equal(message.tool_calls.length, 1);
      const called = message.tool_calls[0].function;
      arguments_of[called.name].parse(called.parsed_arguments);
    }
    const final = await client.chat.completions.stream({ ...forced, n }).finalChatCompletion();
    assert.deepEqual(said(final), said(whole));
  }
});

test("the package runs the tool that was called", async () => {
  let got;
  const runner = client.chat.completions.runTools({
    ...ask,
    max_tokens: 300,
    tools: [
      {
        type: "function",
        function: {
          name: "add",
          description: "Adds.",
          parameters: z.toJSONSchema(Add),
          parse: (text) => Add.parse(JSON.parse(text)),
          function: ({ a, b }) => ((got = a + b), String(a + b)),
        },
      },
    ],
    tool_choice: { type: "function", function: { name: "add" } },
  });
  await runner.done();
  assert.equal(await runner.finalFunctionToolCallResult(), String(got));
});

test("prompts in a list, echoed and scored", async () => {
  const prompt = ["One, two, three,", "def add(a, b):"];
  const plain = await client.completions.create({ model, prompt, max_tokens: 6, temperature: 0 });
  const echoed = await client.completions.create({ model, prompt, max_tokens: 6, temperature: 0, echo: true });
  assert.deepEqual(
    echoed.choices.map((choice) => choice.text),
    plain.choices.map((choice, i) => prompt[i] + choice.text),
  );
  const scored = await client.completions.create({ model, prompt, max_tokens: 0, echo: true, logprobs: 1 });
  for (const { text, logprobs } of scored.choices) {
    assert.ok(logprobs.tokens.join("").endsWith(text));
    assert.equal(logprobs.token_logprobs[0], null);
    assert.ok(logprobs.token_logprobs.slice(1).every((value) => value <= 0));
  }
});

test("refusals name the field and are not tried again", async () => {
  const refusals = [
    [{ ...ask, temperature: 6 }, "temperature"],
    [{ ...ask, n: 129 }, "n"],
    [{ ...ask, messages: [] }, "messages"],
    [{ ...ask, tool_choice: "required" }, "tool_choice"],
  ];
  for (const [fields, param] of refusals) {
    for (const stream of [false, true]) {
      sent = 0;
      await assert.rejects(client.chat.completions.create({ ...fields, stream }), (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError);
        assert.equal(error.param, param);
        assert.ok(error.requestID);
        return true;
      });
      assert.equal(sent, 1);
    }
  }
});

test("leaving a stream frees the engine", async () => {
  const stream = await client.chat.completions.create({
    ...ask, stream: true, max_tokens: 100_000, ignore_eos: true, // a field of the server's own
  });
  for await (const _ of stream) break;
  const { data, response } = await client.chat.completions.create({ ...ask, max_tokens: 1 }).withResponse();
  assert.equal(data.usage.completion_tokens, 1);
  assert.ok(response.headers.get("x-request-id"));
});
