// The Anthropic endpoints of a running server, through the npm package @anthropic-ai/sdk.
//
//     npm ci && MANTOU_URL=http://127.0.0.1:8080 npm test
//
// Any model will do: what is checked does not depend on its words.
import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";

let sent = 0; // requests
const client = new Anthropic({
  baseURL: (process.env.MANTOU_URL ?? "http://127.0.0.1:8080").replace(/\/$/, ""),
  apiKey: "none",
  fetch: (...request) => (sent++, fetch(...request)),
});
const messages = [{ role: "user", content: "Count from one to ten in words." }];
const ask = { model: "claude-any", messages, max_tokens: 24, temperature: 0 };
const tools = [
  {
    name: "add",
    description: "Adds.",
    input_schema: {
      type: "object",
      properties: { a: { type: "integer", minimum: 0, maximum: 99 }, b: { enum: [1, 2] } },
      required: ["a", "b"],
      additionalProperties: false,
    },
  },
];

const input_tokens = ({ input_tokens, cache_creation_input_tokens, cache_read_input_tokens }) =>
  input_tokens + (cache_creation_input_tokens ?? 0) + (cache_read_input_tokens ?? 0);
// All of a message that does not differ from one to the next.
const said = (message) => ({
  content: message.content.map(({ id, ...block }) => block),
  stop_reason: message.stop_reason,
  stop_sequence: message.stop_sequence,
  output_tokens: message.usage.output_tokens,
  input_tokens: input_tokens(message.usage),
});

test("a stream adds up to the whole message", async () => {
  for (const fields of [{}, { system: "Be brief." }, { tools, tool_choice: { type: "tool", name: "add" }, max_tokens: 200 }]) {
    const whole = await client.messages.create({ ...ask, ...fields });
    const final = await client.messages.stream({ ...ask, ...fields }).finalMessage();
    assert.deepEqual(said(final), said(whole));
  }
});

test("a call is made and answered", async () => {
  const forced = { ...ask, tools, tool_choice: { type: "any", disable_parallel_tool_use: true }, max_tokens: 200 };
  const message = await client.messages.create(forced);
  const calls = message.content.filter((block) => block.type === "tool_use");
  assert.equal(message.stop_reason, "tool_use");
  assert.equal(calls.length, 1);
  assert.ok(Number.isInteger(calls[0].input.a) && [1, 2].includes(calls[0].input.b));
  const next = await client.messages.create({
    ...ask,
    tools,
    messages: [
      ...messages,
      { role: "assistant", content: message.content },
      { role: "user", content: [{ type: "tool_result", tool_use_id: calls[0].id, content: "3" }] },
    ],
  });
  assert.ok(["end_turn", "max_tokens", "tool_use"].includes(next.stop_reason));
});

test("tokens are counted as they are used", async () => {
  const counted = await client.messages.countTokens({ model: "claude-any", messages, tools });
  const used = await client.messages.create({ ...ask, tools, max_tokens: 1 });
  assert.equal(counted.input_tokens, input_tokens(used.usage));
});

test("structured output follows the schema", async () => {
  const schema = {
    type: "object",
    properties: { rain: { enum: ["yes", "no"] } },
    required: ["rain"],
    additionalProperties: false,
  };
  const message = await client.messages.create({
    ...ask, max_tokens: 64, output_config: { format: { type: "json_schema", schema } },
  });
  assert.equal(message.stop_reason, "end_turn");
  assert.ok(["yes", "no"].includes(JSON.parse(message.content[0].text).rain));
});

test("refusals name the field and are not tried again", async () => {
  for (const [fields, param] of [
    [{ temperature: 6 }, "temperature"],
    [{ max_tokens: 0 }, "max_tokens"],
    [{ messages: [] }, "messages"],
    [{ tool_choice: { type: "some" } }, "tool_choice.type"],
  ]) {
    for (const stream of [false, true]) {
      sent = 0;
      await assert.rejects(client.messages.create({ ...ask, ...fields, stream }), (error) => {
        assert.ok(error instanceof Anthropic.BadRequestError);
        assert.equal(error.error.error.type, "invalid_request_error");
        assert.ok(error.message.includes(`'${param}`), error.message);
        assert.ok(error.requestID);
        return true;
      });
      assert.equal(sent, 1);
    }
  }
});

test("leaving a stream frees the engine", async () => {
  const stream = client.messages.stream({ ...ask, max_tokens: 100_000, ignore_eos: true });
  await new Promise((resolve) => stream.on("streamEvent", resolve));
  stream.abort();
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  assert.equal((await client.messages.create({ ...ask, max_tokens: 1 })).usage.output_tokens, 1);
});
