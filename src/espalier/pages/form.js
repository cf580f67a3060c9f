/* The form: examples, the request body as text, and errors beside their fields. Numbers and JSON are sent as they were
   typed, so that nothing is rounded. */

import { h, visible } from "./inspector.js";
import { messages, setTurns, turns } from "./talk.js";

const $ = (id) => document.getElementById(id);

const EXAMPLES = {
  json: `{
  "type": "object",
  "properties": {
    "name": {"type": "string"},
    "email": {
      "type": "string",
      "format": "email"
    },
    "age": {
      "type": "integer",
      "minimum": 0,
      "maximum": 150
    }
  },
  "required": ["name", "email", "age"],
  "additionalProperties": false
}`,
  grammar: `root ::= "Name: " name "\\nAge: " age
name ::= word (" " word)+
word ::= [A-Z] [a-z]{1,12}
age  ::= [1-9] [0-9]?`,
  regex: "[A-Z][a-z]{2,12} [A-Z][a-z]{2,12}, [1-9][0-9] years old",
  choice: "positive\nneutral\nnegative",
  tools: `[
  {
    "type": "function",
    "function": {
      "name": "get_weather",
      "description": "The weather of a city",
      "parameters": {
        "type": "object",
        "properties": {
          "city": {"type": "string"}
        },
        "required": ["city"],
        "additionalProperties": false
      }
    }
  }
]`,
  spec: `{
  "kind": "all_of",
  "members": [
    {
      "kind": "regex",
      "pattern": "[A-Za-z ,.]{20,200}"
    },
    {"kind": "ban", "phrases": ["fox"]}
  ]
}`,
};
const LABELS = {
  json: "The schema", grammar: "The grammar, from its rule root on", regex: "The pattern of the whole text",
  choice: "One per line: the text is one of them", tools: "As in OpenAI’s API; the model must call one of them",
  spec: "An object with its kind, as the page on constraints lists them",
};
const ROWS = { json: 12, grammar: 6, regex: 3, choice: 4, tools: 12, spec: 12 };

/* [name in the request, label, initial value, hint] */
const NUMBERS = [
  ["temperature", "Temperature", "", "1"], ["top_p", "Top p", "", "1"], ["top_k", "Top k", "", "off"],
  ["min_p", "Min p", "", "0"], ["repetition_penalty", "Rep. penalty", "", "1"],
  ["max_tokens", "Max tokens", "200", "no limit"], ["seed", "Seed", "6", "random"], // the seed of example.json
];
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const OURS = new Set(["messages", "stream", "stream_options", "structured_outputs", "n"]);

/* An invalid input, found before anything is sent. field: the id of the input. */
export class Wrong extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

// ---------------------------------------------------------------- the editor

const written = { ...EXAMPLES }; // by kind, so that nothing is lost when another is chosen
let kind = "";

function choose(next) {
  if (kind in EXAMPLES) written[kind] = $("editor").value;
  kind = next;
  $("editor-box").hidden = !(kind in EXAMPLES);
  $("words-box").hidden = kind !== "wordlist";
  compareOrNot();
  if (kind in EXAMPLES) {
    $("editor").value = written[kind];
    $("editor").rows = ROWS[kind];
    $("editor-label").textContent = LABELS[kind];
  }
  clearFault("constraint");
}

/* Whether there is something that "with and without" can compare. */
function compareOrNot() {
  $("both").disabled = kind === "none" && !$("bans").value.trim() && !$("safety").value;
}

export function prepare() {
  for (const [name, label, value, hint] of NUMBERS) {
    $("numbers").append(h("div", { class: "field" },
      h("label", { for: name }, label),
      h("input", { id: name, inputmode: "decimal", value, placeholder: hint, spellcheck: "false", "aria-describedby": `${name}-fault` }),
      h("p", { class: "fault", id: `${name}-fault`, role: "alert" })));
  }
  $("kind").addEventListener("change", () => choose($("kind").value));
  for (const id of ["bans", "safety"]) $(id).addEventListener("input", compareOrNot);
  $("example").addEventListener("click", () => {
    $("editor").value = EXAMPLES[kind];
    $("editor").focus();
  });
  choose($("kind").value);
}

/* presets: as /espalier/presets lists them. */
export function offerPresets(presets) {
  const chosen = $("preset").dataset.wanted ?? $("preset").value;
  delete $("preset").dataset.wanted;
  $("preset").replaceChildren(h("option", { value: "" }, "None"), ...presets.map((one) =>
    h("option", { value: one.id, disabled: one.problem !== null }, one.problem === null ? one.id : `${one.id} (not usable)`)));
  $("preset").value = presets.some((one) => one.id === chosen && one.problem === null) ? chosen : "";
  $("preset-field").hidden = presets.length === 0;
  const describe = () => {
    const found = presets.find((one) => one.id === $("preset").value);
    $("preset-note").replaceChildren(...visible(found ? found.description : ""));
  };
  $("preset").onchange = describe;
  describe();
}

// ---------------------------------------------------------------- the request

const text = (value) => JSON.stringify(value);

function checkedJson(field, source, what) {
  try {
    return JSON.parse(source);
  } catch (error) {
    throw new Wrong(field, `${what} is not JSON: ${error.message}`);
  }
}

/* The text of an object whose values are JSON texts already. */
const object = (parts) => `{${[...parts].map(([name, value]) => `${text(name)}:${value}`).join(",")}}`;

function constraint(body, ours) {
  const source = $("editor").value;
  if (kind in EXAMPLES && !source.trim()) throw new Wrong("editor", "The constraint is empty.");
  if (kind === "json" || kind === "grammar" || kind === "regex") body.set("structured_outputs", object([[kind, text(source)]]));
  if (kind === "choice") {
    body.set("structured_outputs", object([[kind, text(source.split("\n").filter((line) => line !== ""))]]));
  }
  if (kind === "object") body.set("structured_outputs", object([["json_object", "true"]]));
  if (kind === "tools") {
    if (!Array.isArray(checkedJson("editor", source, "The list of tools"))) throw new Wrong("editor", "The tools are a list: [{\"type\": \"function\", …}].");
    body.set("tools", source);
    body.set("tool_choice", text("required"));
  }
  if (kind === "wordlist") {
    const top = $("top").value.trim();
    if (top && !/^\d+$/.test(top)) throw new Wrong("top", "The number of words must be a whole number.");
    ours.set("constraint", object([["kind", text("wordlist")], ["lang", text($("lang").value.trim())], ["top", top ? text(Number(top)) : "null"]]));
  }
  if (kind === "spec") {
    const found = checkedJson("editor", source, "The constraint");
    if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Wrong("editor", "The constraint must be an object with a `kind`.");
    ours.set("constraint", source);
  }
  const bans = $("bans").value.split("\n").filter((line) => line !== "");
  if (bans.length) body.set("bad_words", text(bans));
  if ($("safety").value) ours.set("safety", text($("safety").value));
}

function others(body, ours) {
  const source = $("others").value.trim();
  if (!source) return;
  const found = checkedJson("others", source, "This");
  if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Wrong("others", "This must be an object with request fields.");
  for (const [name, value] of Object.entries(found)) {
    if (OURS.has(name) || body.has(name)) throw new Wrong("others", `${name} is said by this page already.`);
    if (name !== "espalier") body.set(name, text(value));
    else for (const [own, inner] of Object.entries(value ?? {})) {
      if (ours.has(own)) throw new Wrong("others", `espalier.${own} is said by this page already.`);
      ours.set(own, text(inner));
    }
  }
}

/* The name of the chosen constraint. */
export const constraintName = () => $("kind").selectedOptions[0].textContent;

/* Whether a text without the constraint happens to be what it asks for, as far as this page can tell: true, false, null. */
export function wouldDo(said) {
  if (kind === "choice") return $("editor").value.split("\n").includes(said);
  if (kind !== "json") return null;
  try {
    JSON.parse(said);
    return null; // it is JSON, and only the server knows whether it is valid
  } catch {
    return false;
  }
}

/* The body of a request, as text. isFree: without the constraint, and without a trace. seed: where none is typed. Throws
   Wrong. */
export function request({ isFree = false, seed = null } = {}) {
  if (!$("prompt").value.trim()) throw new Wrong("prompt", "The prompt is empty.");
  const said = messages($("system").value, $("prompt").value);
  const body = new Map([["messages", text(said)], ["stream", "true"], ["stream_options", text({ include_usage: true })]]);
  const ours = new Map(isFree ? [] : [["trace", text("full")], ["stream_steps", "true"]]);
  if (!isFree) constraint(body, ours);
  if ($("preset").value) ours.set("preset", text($("preset").value));
  for (const [name, label] of NUMBERS) {
    const value = $(name).value.trim();
    if (value && !NUMBER.test(value)) throw new Wrong(name, `${label} is a number.`);
    if (value) body.set(name, value);
  }
  if (seed !== null && !body.has("seed")) body.set("seed", text(seed));
  const stops = $("stop-texts").value.split("\n").filter((line) => line !== "");
  if (stops.length) body.set("stop", text(stops));
  others(body, ours);
  return object(ours.size ? [...body, ["espalier", object(ours)]] : body);
}

// ---------------------------------------------------------------- a link

const STATE = ["prompt", "system", "kind", "editor", "lang", "top", "bans", "safety", "preset", ...NUMBERS.map(([name]) => name), "stop-texts", "others"];

/* What the form asks for, and the turns before, as the fragment of an address; the API key is no part of it. isBoth: whether
   it is asked for with and without the constraint. */
export function asFragment(isBoth) {
  const said = Object.fromEntries(STATE.map((id) => [id, $(id).value]).filter(([id, value]) => value !== "" || id === "max_tokens"));
  if (turns().length) said.turns = turns();
  if (isBoth) said.both = true;
  const bytes = new TextEncoder().encode(JSON.stringify(said));
  return `#s=${btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join("")).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

/* Fills the form from a fragment, and returns what it says; null if it is none of ours. Only texts are taken, and only for
   fields that there are. */
export function fromFragment(fragment) {
  if (!fragment.startsWith("#s=")) return null;
  let said;
  try {
    const bytes = Uint8Array.from(atob(fragment.slice(3).replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    said = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return null; // cut, or another's
  }
  if (said === null || typeof said !== "object") return null;
  if ([...$("kind").options].some((one) => one.value === said.kind)) $("kind").value = said.kind;
  choose($("kind").value);
  for (const id of STATE) {
    if (id === "kind" || id === "preset" || typeof (said[id] ?? "") !== "string") continue;
    if (id !== "editor") $(id).value = said[id] ?? "";
    else if (kind in EXAMPLES && said.editor) $(id).value = said.editor;
  }
  if ($("safety").selectedIndex < 0) $("safety").value = "";
  compareOrNot();
  if (typeof said.preset === "string") $("preset").dataset.wanted = said.preset;
  for (const [id, box] of [["system", "system-box"], ["bans", "ban-box"], ["safety", "ban-box"], ["stop-texts", "more-box"], ["others", "more-box"]]) {
    if ($(id).value) $(box).open = true;
  }
  setTurns(said.turns);
  return { isBoth: said.both === true };
}

// ---------------------------------------------------------------- faults

/* Input -> the place where its errors are shown. */
const PLACES = { editor: "constraint", lang: "constraint", top: "constraint" };

const CONSTRAINT = /^(structured_outputs|tools|tool_choice|espalier\.constraint|constraint|schema|grammar|pattern|options|root|kind)\b/;

/* The id of the input that a field of the request comes from, "" for none. */
function inputOf(param) {
  if (!param) return "";
  const first = param.split(/[.[]/)[0];
  if (first === "messages") return /^messages\[0\]/.test(param) && $("system").value.trim() ? "system" : "prompt";
  if (CONSTRAINT.test(param)) return kind === "wordlist" ? (/top/.test(param) ? "top" : "lang") : kind in EXAMPLES ? "editor" : "";
  if (kind === "wordlist" && (first === "lang" || first === "top")) return first;
  if (param === "espalier.preset") return "preset";
  if (first === "bad_words") return "bans";
  if (param.startsWith("espalier.safety")) return "safety";
  if (NUMBERS.some(([name]) => name === first)) return first;
  if (first === "stop") return "stop-texts";
  if ($("others").value.includes(`"${first}"`)) return "others";
  return kind === "spec" ? "editor" : ""; // a field of some kind of constraint
}

function clearFault(place) {
  $(`${place}-fault`)?.replaceChildren();
}

export function clearFaults() {
  document.querySelectorAll("#ask .fault").forEach((node) => node.replaceChildren());
  document.querySelectorAll("#ask [aria-invalid]").forEach((node) => node.removeAttribute("aria-invalid"));
}

/* Shows the error's message and moves the focus to the field. */
export function showFault(error) {
  const id = error instanceof Wrong ? error.field : inputOf(error.param);
  const place = PLACES[id] ?? id;
  const node = $(`${place}-fault`) ?? $("general-fault");
  const about = [error.param && `field ${error.param}`, error.code, error.status >= 400 && `status ${error.status}`].filter(Boolean).join(" · ");
  node.replaceChildren(h("span", {}, visible(error.message)), about ? h("small", {}, visible(about)) : "");
  const input = id && $(id);
  if (!input) return;
  input.setAttribute("aria-invalid", "true");
  input.closest("details")?.setAttribute("open", "");
  input.focus({ preventScroll: true });
  input.closest(".field").scrollIntoView({ block: "nearest" });
}
