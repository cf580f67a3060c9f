// npm's `openai`, `ai` (over @ai-sdk/openai-compatible) and `ollama`.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, streamText, tool } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { z } from "zod";

const baseURL = `${process.env.BASE_URL}/v1`;
const model = process.env.MODEL ?? "demo";
const messages = [{ role: "user", content: "Generate user info" }];
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const ai = createOpenAICompatible({ name: "espalier", baseURL, apiKey: "none", supportsStructuredOutputs: true })(model);
const place = { type: "object", properties: { city: { enum: ["Rome", "Oslo"] } }, required: ["city"], additionalProperties: false };
const look = { type: "function", function: { name: "look_up", description: "Finds a place.", parameters: place } };
const llama = new Ollama({ host: process.env.BASE_URL });
const options = { num_predict: 80, temperature: 0 };
const person = z.object({ mood: z.enum(["calm", "glad"]), age: z.number().int() });
const short = { maxOutputTokens: 100, maxRetries: 0, temperature: 0 };

function expect(holds, ...shown) {
  if (!holds) throw new Error(shown.map((one) => JSON.stringify(one)).join(" ").slice(0, 800));
}

async function chat() {
  const found = await client.chat.completions.create({ model, messages, max_tokens: 8, temperature: 0 });
  expect(found.choices[0].message.role === "assistant", found);
}

async function stream() {
  const reply = client.chat.completions.stream({ model, messages, max_tokens: 8, temperature: 0, stream_options: { include_usage: true } });
  expect((await reply.finalChatCompletion()).choices.length === 1);
}

async function structured() {
  const schema = { type: "object", properties: { mood: { enum: ["calm", "glad"] } }, required: ["mood"], additionalProperties: false };
  const response_format = { type: "json_schema", json_schema: { name: "person", strict: true, schema } };
  const found = await client.chat.completions.parse({ model, messages, max_tokens: 60, temperature: 0, response_format });
  expect(["calm", "glad"].includes(JSON.parse(found.choices[0].message.content).mood), found);
}

async function tools() {
  const first = await client.chat.completions.create({ model, messages, tools: [look], tool_choice: "required", max_tokens: 80, temperature: 0 });
  const message = first.choices[0].message;
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" };
  await client.chat.completions.create({ model, messages: [...messages, message, result], tools: [look], max_tokens: 4 });
}

async function responses() {
  const found = await client.responses.create({ model, input: "Generate user info", max_output_tokens: 16, temperature: 0 });
  expect(found.output.length > 0, found);
}

async function errors() {
  try {
    await client.chat.completions.create({ model, messages: [{ role: "user", content: "x ".repeat(9000) }] });
  } catch (error) {
    expect(error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded", error);
    return;
  }
  throw new Error("an overlong prompt is an error");
}

async function cancellation() {
  const reply = await client.chat.completions.create({ model, messages, max_tokens: 300, stream: true });
  for await (const _ of reply) { reply.controller.abort(); break; }
  await chat();
}

async function ai_text() {
  const found = await generateText({ model: ai, prompt: "Generate user info", ...short });
  expect(typeof found.text === "string", found);
  const reply = streamText({ model: ai, prompt: "Generate user info", ...short });
  for await (const _ of reply.textStream) { /* read to the end */ }
  expect(["stop", "length"].includes(await reply.finishReason), await reply.finishReason);
}

async function ai_object() {
  const found = await generateObject({ model: ai, schema: person, prompt: "Generate user info", ...short });
  expect(["calm", "glad"].includes(found.object.mood), found);
}

async function ai_tools() {
  const look_up = tool({ description: "Finds a place.", inputSchema: z.object({ city: z.enum(["Rome", "Oslo"]) }),
                         execute: async ({ city }) => `${city} is sunny` });
  const found = await generateText({ model: ai, prompt: "Where?", tools: { look_up }, toolChoice: "required", ...short });
  expect(found.toolResults.length > 0, found);
  const history = [{ role: "user", content: "Where?" }, ...found.response.messages];
  await generateText({ model: ai, messages: history, tools: { look_up }, toolChoice: "none", ...short, maxOutputTokens: 4 });
}

async function ai_errors() {
  try {
    await generateText({ model: ai, prompt: "x ".repeat(9000), ...short });
  } catch (error) {
    expect(APICallError.isInstance(error) && error.statusCode === 400 && /maximum context length/.test(error.message), error);
    return;
  }
  throw new Error("an overlong prompt is an error");
}

async function ai_cancellation() {
  const stop = new AbortController();
  const reply = streamText({ model: ai, prompt: "Generate user info", maxOutputTokens: 300, abortSignal: stop.signal });
  for await (const _ of reply.textStream) { stop.abort(); }
  await ai_text();
}

async function ollama_chat() {
  const whole = await llama.chat({ model, messages, options });
  let text = "";
  let last = null;
  for await (const part of await llama.chat({ model, messages, options, stream: true })) { text += part.message.content; last = part; }
  expect(last.done && last.eval_count > 0 && text === whole.message.content, text, whole);
}

async function ollama_structured() {
  const format = { type: "object", properties: { mood: { enum: ["calm", "glad"] } }, required: ["mood"], additionalProperties: false };
  const found = await llama.generate({ model, prompt: "Generate user info", format, options });
  expect(["calm", "glad"].includes(JSON.parse(found.response).mood), found);
}

async function ollama_tools() {
  const asked = [{ role: "user", content: "What is the weather in Rome?" }];
  const { message } = await llama.chat({ model, messages: asked, tools: [look], options });
  for (const call of message.tool_calls ?? []) expect(["Rome", "Oslo"].includes(call.function.arguments.city), call);
  const result = { role: "tool", tool_name: "look_up", content: "sunny" };
  await llama.chat({ model, messages: [...asked, message, result], tools: [look], options: { num_predict: 4 } });
}

async function ollama_models() {
  const { models } = await llama.list();
  expect((await llama.show({ model: models[0].name })).capabilities.includes("completion"), models);
  expect((await llama.version()).version !== undefined);
  expect((await llama.pull({ model, stream: false })).status === "success");
}

async function ollama_errors() {
  try {
    await llama.chat({ model, messages, format: "yaml" });
  } catch (error) {
    expect(error.name === "ResponseError" && error.status_code === 400 && /format/.test(error.message), error);
    return;
  }
  throw new Error("a wrong format is an error");
}

async function ollama_cancellation() {
  const reply = await llama.chat({ model, messages, options: { num_predict: 300 }, stream: true });
  try {
    for await (const _ of reply) reply.abort();
  } catch (error) {
    expect(error.name === "AbortError", error);
  }
  await ollama_chat();
}

for (const check of [ollama_chat, ollama_structured, ollama_tools, ollama_models, ollama_errors, ollama_cancellation, chat, stream, structured, tools, responses, errors, cancellation, ai_text, ai_object, ai_tools, ai_errors, ai_cancellation]) {
  let fault = null;
  try { await check(); } catch (error) { fault = String(error.stack ?? error).slice(0, 1500); }
  console.log(JSON.stringify({ check: check.name, fault }));
}
