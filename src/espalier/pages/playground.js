/* The playground: generates, shows tokens as they arrive, and lists stored traces. Data from the server is inserted as text
   nodes and attributes, never as HTML; the page's policy enforces that. */

import {
  FINISHES, count, drawKeys, drawLegend, h, inspector, kindName, many, nats, prob, tag, tile, verdictTile, visible, wordOf,
} from "./inspector.js";
import { asFragment, clearFaults, constraintName, fromFragment, offerPresets, prepare, request, showFault } from "./form.js";
import { clearFree, generateFree, showFree, tellParting } from "./free.js";
import { SCALE } from "./scale.js";
import { Fault, generate, getJson, getState, getText, key, remove } from "./stream.js";
import { addTurn, setTurns } from "./talk.js";

const $ = (id) => document.getElementById(id);
const STATE_SECONDS = 5;
const narrow = matchMedia("(max-width: 899px)");
const tokens = inspector({ list: $("tokens"), panel: $("panel") });

// ---------------------------------------------------------------- one output

let steps = [];
let pending = []; // steps that are not drawn yet
let isDrawing = false;
let run = null; // of the generation that is shown: when things happened, and what the server said at the end

function begin() {
  steps = [];
  pending = [];
  tokens.clear();
  for (const id of ["text", "reasoning", "calls", "faults", "warnings", "after"]) $(id).replaceChildren();
  for (const id of ["reasoning-box", "calls-box", "faults", "warnings", "contract", "next"]) $(id).hidden = true;
  clearFree();
  $("example-note").hidden = true;
  $("empty").hidden = false;
  $("status").textContent = "";
  for (const id of ["stats", "legend", "tokens", "panel", "text-box", "keys"]) $(id).hidden = true;
  run = { sent: performance.now(), first: null, last: null, usage: null, report: null, finish: null, calls: [], text: "" };
}

function draw() {
  isDrawing = false;
  const added = pending;
  const isFirst = steps.length === 0;
  pending = [];
  steps.push(...added);
  tokens.add(added);
  for (const id of ["stats", "legend", "tokens", "panel", "text-box", "keys"]) $(id).hidden = false;
  $("empty").hidden = true;
  tokens.follow();
  if (isFirst && narrow.matches && running) $("stats").scrollIntoView({ block: "start" });
  if (isFirst || added.some((t) => t.was_rejected || t.was_forced || t.token.is_special)) drawLegend($("legend"), steps);
  drawStats();
}

function soon() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => isDrawing && draw());
}

const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`);

function rate(n, ms) {
  const found = (1000 * n) / Math.max(1, ms);
  return found.toFixed(found < 10 ? 1 : 0);
}

function drawStats() {
  const sum = (name) => steps.reduce((total, step) => total + Math.max(0, step[name] ?? 0), 0);
  const isInfinite = steps.some((step) => step.tax_nats === null);
  const forbidden = tokens.forbidden.length;
  const tiles = [
    run.report ? tile(...verdictTile(run.report.verdict)) : tile("Verdict", "–", run.finish === null ? "at the end" : ""),
    tile("Removed mass", prob(steps.length ? sum("removed_mass") / steps.length : 0), `mean; top choice blocked at ${many(forbidden, "step")}`),
    tile("Grammar tax", isInfinite ? "∞ nats" : nats(sum("tax_nats")), steps.length ? `in total: ${wordOf(isInfinite ? Infinity : sum("tax_nats") / steps.length, SCALE)}` : ""),
    tile("Tokens", count(steps.length), run.usage ? `after ${count(run.usage.prompt_tokens)} of the prompt` : ""),
    run.first !== null && tile("First token", seconds(run.first - run.sent), "seen from here"),
    run.last !== null && tile("Speed", `${rate(steps.length, run.last - run.sent)}/s`, "tokens, the first one’s wait included"),
  ];
  $("stats").replaceChildren(...tiles.filter(Boolean));
}

function append(id, box, said) {
  $(box).hidden = false;
  $(id).append(...visible(said));
}

function take(chunk) {
  const now = performance.now();
  const came = (chunk.espalier?.steps ?? []).filter((step) => step.index === 0);
  if (came.length) {
    if (run.first === null) refreshState();
    run.first ??= now;
    run.last = now;
    pending.push(...came);
    soon();
  }
  for (const choice of chunk.choices) {
    if (choice.index !== 0) continue;
    if (choice.delta.content) append("text", "text-box", choice.delta.content), run.text += choice.delta.content;
    if (choice.delta.reasoning) append("reasoning", "reasoning-box", choice.delta.reasoning);
    for (const call of choice.delta.tool_calls ?? []) takeCall(call);
    if (choice.finish_reason) run.finish = choice.finish_reason;
  }
  if (chunk.espalier?.outputs) {
    run.report = chunk.espalier.outputs[0];
    run.contract = chunk.espalier.contract;
    run.warnings = chunk.espalier.warnings ?? [];
  }
  if (chunk.usage) run.usage = chunk.usage;
}

function takeCall(call) {
  const known = (run.calls[call.index] ??= { name: "", arguments: "" });
  known.name += call.function.name ?? "";
  known.arguments += call.function.arguments ?? "";
  $("calls").replaceChildren();
  append("calls", "calls-box", run.calls.map((one) => `${one.name}(${one.arguments})`).join("\n"));
}

function drawEnd() {
  const report = run.report;
  const errors = report?.verdict?.errors ?? [];
  $("faults").replaceChildren(...errors.map((error) => h("li", {}, visible(error))));
  if (report?.fault) $("faults").append(h("li", {}, visible(report.fault)));
  $("faults").hidden = !$("faults").childElementCount;
  $("warnings").replaceChildren(...(run.warnings ?? []).map((one) => h("li", {}, visible(one))));
  $("warnings").hidden = !$("warnings").childElementCount;
  const parts = [FINISHES[run.finish] ?? run.finish, Number.isSafeInteger(report?.seed) && `seed ${report.seed}`, report?.stop_reason && `stopped by ${JSON.stringify(report.stop_reason)}`];
  $("after").replaceChildren(...visible(parts.filter(Boolean).join(" · ")));
  if (report?.trace_id) $("after").append(" · ", pageOf(report.trace_id));
  drawContract(run.contract ?? []);
}

/* How every keyword of the schema is enforced, as the server reports it. */
function drawContract(rows) {
  const line = (found) => Object.values(found).filter((value) => value !== "").join("  ");
  $("contract").hidden = rows.length === 0;
  $("contract-rows").replaceChildren(...visible(rows.map(line).join("\n")));
}

let running = null; // the AbortController of what is being generated

function busy(controller) {
  running = controller;
  $("go").disabled = controller !== null;
  $("stop").disabled = controller === null;
  $("ask").setAttribute("aria-busy", String(controller !== null));
}

let isBoth = false; // whether the next run has a side without the constraint

function choose(both) {
  isBoth = both;
  $("both").setAttribute("aria-pressed", String(both));
}

async function start(both) {
  if (running) return;
  choose(both);
  clearFaults();
  const seed = both ? crypto.getRandomValues(new Uint32Array(1))[0] >>> 1 : null; // both sides share one
  let body, freeBody, free = null;
  try {
    body = request({ seed });
    freeBody = both ? request({ seed, isFree: true }) : null;
  } catch (error) {
    begin(); // an earlier verdict is not of this form
    showFault(error);
    return;
  }
  begin();
  run.asked = { user: $("prompt").value, under: constraintName() };
  const mine = new AbortController();
  busy(mine);
  $("status").textContent = "Generating…";
  $("held-head").hidden = !both;
  $("empty").hidden = both;
  let said = "";
  const beside = both ? generateFree(freeBody, mine.signal) : null;
  try {
    await generate(body, { signal: mine.signal, onChunk: take });
    free = await beside;
    said = `Done: ${many(steps.length + pending.length, "token")}.`;
  } catch (error) {
    const isStopped = mine.signal.aborted;
    said = isStopped ? `Stopped after ${many(steps.length + pending.length, "token")}.` : "Failed.";
    if (!isStopped) fail(error, showFault);
    mine.abort(); // the other side too
    await beside;
    run.finish ??= isStopped ? "Stopped; the server has stopped too" : "Cut off by an error";
  }
  if (document.activeElement === $("stop")) $("go").disabled = false, $("go").focus();
  busy(null);
  if (pending.length || isDrawing) draw();
  if (steps.length) {
    tokens.settle();
    drawStats();
    drawEnd();
    if (both) tellParting(steps, run.text, free);
    $("next").hidden = !run.text;
  }
  $("empty").hidden = steps.length > 0 || both;
  $("status").textContent = said;
  refreshState();
  refreshTraces();
}

/* Shows a run that is finished already: what the form asks for at first, with and without its constraint. */
async function showExample() {
  let example;
  try {
    example = await getJson("playground/example.json");
  } catch {
    return; // the page serves without it
  }
  if (run) return; // somebody was faster
  begin();
  pending = example.steps;
  run.finish = example.finish_reason;
  run.report = { verdict: example.verdict, seed: example.seed };
  draw();
  tokens.settle();
  append("text", "text-box", example.text);
  drawEnd();
  $("held-head").hidden = false;
  showFree(example.free);
  tellParting(example.steps, example.text, { text: example.free.text, isReasoned: false });
  $("example-note").hidden = false;
  $("status").textContent = "An example";
}

/* Shows an error through `shown`; a rejected key opens the key form. An error that is not the server's is a fault of this
   page, and is also logged to the browser's console. */
function fail(error, shown) {
  if (!(error instanceof Fault)) {
    shown(new Fault(`This page has failed: ${error.message}`));
    reportError(error);
  } else if (error.status === 401) showDoor(key.get() ? error.message : "");
  else shown(error);
}

// ---------------------------------------------------------------- stored traces

let lastId = null;
let asked = 0; // replies to earlier questions are not shown

function pageOf(id) {
  if (!key.get()) return h("a", { href: `traces/${encodeURIComponent(id)}/page`, target: "_blank", rel: "noopener noreferrer" }, "page of this trace");
  // A link cannot carry the key, and the key must not be in an address: the page is downloaded as a file.
  const button = h("button", { type: "button", class: "link" }, "save the page of this trace");
  button.addEventListener("click", () => guarded(async () => {
    const page = await getText(`traces/${encodeURIComponent(id)}/page`);
    const address = URL.createObjectURL(new Blob([page], { type: "text/html" }));
    h("a", { href: address, download: `trace-${id}.html` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }));
  return button;
}

function traceFault(error) {
  $("recent-note").replaceChildren(...visible(error.message));
}

async function guarded(work) {
  try {
    await work();
  } catch (error) {
    fail(error, traceFault);
  }
}

/* What is known of the draws: rows of older versions lack some counts. */
function drawsOf(trace) {
  const { rejected_steps: rejected, unknown_steps: unknown, bounded_steps: bounded } = trace;
  return [
    rejected !== null && `${unknown ? "at least " : ""}${rejected} rejected`,
    unknown > 0 && `${unknown} not known`, bounded > 0 && `${bounded} with bounds only`,
  ].filter(Boolean).join(", ");
}

function row(trace) {
  const look = h("button", { type: "button" }, "Look");
  const gone = h("button", { type: "button", "aria-label": `Delete the trace ${trace.id}` }, "Delete");
  const sure = h("button", { type: "button", class: "sure" }, "Delete for good");
  const keep = h("button", { type: "button" }, "Keep");
  const asks = h("span", { class: "asks", role: "group", "aria-label": "Delete this trace for good?", hidden: true }, "Delete this trace for good?", sure, keep);
  const ask = (isAsked) => {
    asks.hidden = !isAsked;
    gone.hidden = isAsked;
    (isAsked ? keep : gone).focus();
  };
  const when = trace.created === undefined ? "" : new Date(typeof trace.created === "number" ? trace.created * 1000 : trace.created).toLocaleString();
  const node = h("li", {},
    h("span", { class: "when" }, visible(when)),
    h("span", { class: "what" }, visible(trace.constraint_kind ? kindName(trace.constraint_kind) : "No constraint")),
    h("span", { class: "numbers" }, `${many(trace.tokens, "token")}, ${nats(trace.tax_nats, "∞ nats")}, ${prob(trace.removed_mass)} removed`),
    h("span", { class: "numbers" }, drawsOf(trace)),
    trace.valid === null ? tag("not judged", "plain") : trace.valid ? tag("valid", "good") : tag("not valid", "bad"),
    h("span", { class: "note" }, visible(FINISHES[trace.finish_reason] ?? trace.finish_reason)),
    h("span", { class: "deeds" }, look, pageOf(trace.id), gone, asks),
    h("p", { class: "heads" }, h("span", { class: "asked" }, visible(trace.prompt || "prompt not known")), " → ", h("code", {}, visible(trace.text ?? ""))));
  look.addEventListener("click", () => guarded(() => showKept(trace.id)));
  gone.addEventListener("click", () => ask(true));
  keep.addEventListener("click", () => ask(false));
  sure.addEventListener("click", () => guarded(async () => {
    await remove(`traces/${encodeURIComponent(trace.id)}`);
    const near = node.nextElementSibling ?? node.previousElementSibling;
    node.remove();
    (near?.querySelector("button") ?? $("refresh")).focus();
    if (!$("traces").childElementCount) await listTraces(null);
  }));
  return node;
}

async function showKept(id) {
  if (running) throw new Fault("Stop the generation first.");
  const trace = await getJson(`traces/${encodeURIComponent(id)}`);
  begin();
  pending = trace.steps;
  run.finish = trace.metadata.finish_reason;
  run.report = { verdict: trace.metadata.verdict, seed: trace.metadata.sampling?.seed, trace_id: id };
  draw();
  tokens.settle();
  append("text", "text-box", trace.text);
  drawEnd();
  $("status").textContent = "A stored trace.";
  $("output-head").scrollIntoView({ block: "start" });
}

async function listTraces(after) {
  const mine = ++asked;
  const list = await getJson(`traces?limit=10${after ? `&after=${encodeURIComponent(after)}` : ""}`);
  if (mine !== asked) return;
  const rows = list.data.map(row);
  if (after) $("traces").append(...rows);
  else $("traces").replaceChildren(...rows);
  lastId = list.last_id;
  $("older").hidden = !list.has_more;
  $("recent-note").textContent = $("traces").childElementCount ? "" : "None yet.";
}

let keepsTraces = true;

async function refreshTraces() {
  if (!keepsTraces) return;
  try {
    await listTraces(null);
  } catch (error) {
    keepsTraces = !(error instanceof Fault && error.status === 404);
    fail(error, traceFault);
  }
}

// ---------------------------------------------------------------- the server

let about = { model: null, version: null, state: null };

function drawServer() {
  const { model, version, state } = about;
  const known = { ok: ["ready", "good"], full: ["full", "bad"], closing: ["closing", "bad"] };
  const [word, mood] = state === null ? ["not reached", "bad"] : known[state.status] ?? ["loading", "plain"];
  const busyness = state && state.running !== undefined ? `${count(state.running)} running, ${count(state.waiting)} waiting` : "";
  $("server").replaceChildren(
    tag(word, mood), model ? h("b", {}, visible(model)) : "",
    version ? h("span", {}, visible(`${version.engine ?? ""} · Espalier ${version.version}`)) : "", h("span", {}, busyness));
}

async function refreshState() {
  try {
    about.state = await getState();
  } catch {
    about.state = null; // shown as a server that cannot be reached
  }
  drawServer();
}

function showDoor(said) {
  $("door").hidden = false;
  $("work").hidden = true;
  $("recent").hidden = true;
  $("forget").hidden = true;
  about.model = null;
  drawServer();
  $("key-fault").replaceChildren(...visible(said));
  $("key").toggleAttribute("aria-invalid", said !== "");
  $("key").focus();
}

/* Loads everything that needs the key. Traces and output of another key are removed. */
async function enter() {
  let models;
  try {
    models = await getJson("v1/models");
    offerPresets((await getJson("espalier/presets")).data);
  } catch (error) {
    fail(error, (shown) => ($("door").hidden ? showFault(shown) : $("key-fault").replaceChildren(...visible(shown.message))));
    return;
  }
  about.model = models.data[0].id;
  $("door").hidden = true;
  $("work").hidden = false;
  $("recent").hidden = false;
  $("forget").hidden = !key.get();
  keepsTraces = true;
  drawServer();
  await refreshTraces();
}

function open(fragment) {
  const found = fromFragment(fragment);
  if (found) choose(found.isBoth);
}

prepare();
open(location.hash);
if (!location.hash) showExample();
$("panel").classList.toggle("folded", narrow.matches); // where it lies over the text, it starts small
drawKeys($("keys"));
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  start(false);
});
$("both").addEventListener("click", () => start(true));
$("next").addEventListener("click", () => {
  addTurn({ ...run.asked, assistant: run.text });
  begin();
  $("empty").hidden = false;
  $("status").textContent = "";
  $("prompt").value = "";
  $("prompt").focus();
});
$("anew").addEventListener("click", () => {
  setTurns([]);
  $("prompt").focus();
});
$("ask").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  start(isBoth);
});
$("link").addEventListener("click", async () => {
  history.replaceState(null, "", asFragment(isBoth));
  try {
    await navigator.clipboard.writeText(location.href);
    $("link-note").textContent = "Copied: the link holds the conversation, the prompt, the constraint and the settings, and no key.";
  } catch {
    $("link-note").textContent = "The link is in the address bar: this browser does not let the page copy it.";
  }
});
addEventListener("hashchange", () => open(location.hash));
$("stop").addEventListener("click", () => running?.abort());
$("refresh").addEventListener("click", () => {
  keepsTraces = true;
  refreshTraces();
});
$("older").addEventListener("click", () => guarded(() => listTraces(lastId)));
$("door-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set($("key").value.trim());
  $("key").value = "";
  enter();
});
$("forget").addEventListener("click", () => {
  running?.abort();
  key.set("");
  setTurns([]);
  begin();
  $("empty").hidden = false;
  $("status").textContent = "";
  asked++; // a list that is on its way is of the key that is gone
  $("traces").replaceChildren();
  offerPresets([]);
  showDoor("");
});

async function watch() {
  await refreshState();
  try {
    about.version = await getJson("version");
  } catch (error) {
    fail(error, (shown) => showFault(shown));
  }
  drawServer();
  await enter();
  setInterval(() => document.visibilityState === "visible" && refreshState(), STATE_SECONDS * 1000);
}

watch();
