/* Shared by all pages: rendering of tokens, and the inspector, which shows for each token what the model wanted, what the
   constraint allowed and what was taken. Text from a model or a trace is inserted as text nodes and attributes, never as
   HTML. The trace page has this file inlined, the playground imports it. */

// ---------------------------------------------------------------- elements

const SVG = document.querySelector("svg").namespaceURI;

function build(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}
export const h = (tag, attrs, ...children) => build(document.createElement(tag), attrs, children);
export const s = (tag, attrs, ...children) => build(document.createElementNS(SVG, tag), attrs, children);

// ---------------------------------------------------------------- numbers

export const count = (n) => n.toLocaleString("en-US");
export const many = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

/* One form for all probabilities, so that a column has one unit: percent with one digit after the point. */
export function prob(p) {
  if (p === null || p === undefined) return "none";
  if (p <= 0) return "0.0%";
  if (p >= 1) return "100.0%";
  return p < 0.0005 ? "<0.1%" : p >= 0.9995 ? ">99.9%" : `${(100 * p).toFixed(1)}%`;
}

/* One form for nats, bits and logarithms: two digits after the point. */
export function num(x) {
  if (Math.abs(x) < 0.005) return Math.abs(x) < 5e-10 ? "0.00" : x < 0 ? ">−0.01" : "<0.01";
  return x.toFixed(2).replace("-", "−");
}
export const nats = (x, infinite) => (x === null || x === undefined ? infinite : `${num(x)} nats`);
/* The word for a tax per token. scale: [[least nats, word], ...], from trace/measure.py. */
export const wordOf = (x, scale) => scale.filter(([least]) => x >= least).at(-1)[1];
export const bits = (x) => `${num(x / Math.LN2)} bits`;

// ---------------------------------------------------------------- visible text

const NAMED = new Map([["\n", "↵"], ["\r", "␍"], ["\t", "⇥"], [" ", "·"]]);
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zs}\p{Zl}\p{Zp}]/u;
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/* The number of bytes of the UTF-8 character at i, 0 if it is incomplete. */
function width(bytes, i) {
  const b = bytes[i];
  const n = b < 0x80 ? 1 : b >= 0xc2 && b < 0xe0 ? 2 : b >= 0xe0 && b < 0xf0 ? 3 : b >= 0xf0 && b < 0xf5 ? 4 : 0;
  if (!n || i + n > bytes.length) return 0;
  try {
    strict.decode(Uint8Array.from(bytes.slice(i, i + n)));
    return n;
  } catch {
    return 0;
  }
}

/* [kind, text] runs; kinds: text, space, line, code (an invisible character), byte (an incomplete character). */
function runs(bytes, text) {
  const out = [];
  const add = (kind, piece) => {
    const last = out[out.length - 1];
    if (last && last[0] === kind && (kind === "text" || kind === "space")) last[1] += piece;
    else out.push([kind, piece]);
  };
  const character = (c) => {
    if (c === "\n") add("line", "↵");
    else if (NAMED.has(c)) add("space", NAMED.get(c));
    else if (HIDDEN.test(c)) {
      const code = c.codePointAt(0);
      add("code", code < 32 ? String.fromCodePoint(0x2400 + code) : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`);
    } else add("text", out.length === 0 && /^\p{M}/u.test(c) ? `◌${c}` : c);
  };
  if (bytes.length === 0) for (const c of text) character(c);
  for (let i = 0; i < bytes.length;) {
    const n = width(bytes, i);
    if (n) character(strict.decode(Uint8Array.from(bytes.slice(i, i + n))));
    else add("byte", bytes[i].toString(16).toUpperCase().padStart(2, "0"));
    i += n || 1;
  }
  return out;
}

/* Characters whose bytes are spread over several tokens: step -> character. */
function sharedCharacters(steps) {
  const found = new Map();
  let bytes = [], owners = [];
  const flush = () => {
    for (let i = 0; i < bytes.length;) {
      const n = width(bytes, i);
      if (n > 1 && owners[i] !== owners[i + n - 1]) {
        const c = strict.decode(Uint8Array.from(bytes.slice(i, i + n)));
        for (let j = i; j < i + n; j++) found.set(owners[j], c);
      }
      i += n || 1;
    }
    bytes = [];
    owners = [];
  };
  steps.forEach((step, i) => {
    if (step.token.is_special) flush();
    else for (const b of step.token.bytes) bytes.push(b), owners.push(i);
  });
  flush();
  return found;
}

export const plain = (bytes, text) => runs(bytes, text).map((r) => r[1]).join("");

/* The nodes of a token. lines: break the line where the token does. */
export function glyphs(token, { lines = false } = {}) {
  if (token.is_special) return [token.text ? plain([], token.text) : "end"];
  const parts = runs(token.bytes, token.text);
  if (!parts.length) return [h("span", { class: "g" }, "∅")];
  return parts.map(([kind, text]) => {
    if (kind === "text") return text;
    const span = h("span", { class: kind === "byte" ? "g hex" : kind === "code" ? "g code" : "g" }, text);
    return kind === "line" && lines ? [span, h("br")] : span;
  });
}

/* Ids of special tokens seen so far; candidates are not marked as special. */
const special = new Set();

export const chip = (token, extra = "") => {
  const is_special = token.is_special ?? special.has(token.id);
  return h("span", { class: `chip ${is_special ? "pill" : ""} ${extra}` }, glyphs({ ...token, is_special }));
};

/* A text with invisible characters made visible. Line ends, tabs and blanks are kept. */
export function visible(text) {
  const out = [];
  for (const c of text) {
    if (c === "\n" || c === "\t" || c === " " || !HIDDEN.test(c)) {
      if (typeof out[out.length - 1] === "string") out[out.length - 1] += c;
      else out.push(c);
    } else out.push(h("span", { class: "g code" }, runs([], c)[0][1]));
  }
  return out;
}

// ---------------------------------------------------------------- properties of a step

export const BINS = [0.01, 0.1, 0.5, 0.9, 0.99];
export const BIN_NAMES = ["under 1%", "1–10%", "10–50%", "50–90%", "90–99%", "over 99%"];
export const bin = (mass) => BINS.filter((b) => (mass || 0) >= b).length;
const topChoice = (step) => step.pre_masking[0] || null;
export const isForbidden = (step) => step.was_changed ?? (Boolean(topChoice(step)) && !topChoice(step).allowed);

/* The removed mass; for a step with only bounds, the lower one. */
export const massOf = (step) => Math.max(0, (step.bounds ? step.bounds[0] : step.removed_mass) || 0);
/* In nats; Infinity if all mass was removed. */
export const taxOf = (step) =>
  step.bounds ? -Math.log1p(-massOf(step)) : step.tax_nats === null || step.tax_nats === undefined ? Infinity : Math.max(0, step.tax_nats);
/* The most expensive step, the first of equals; null if none cost anything. */
export function worstStep(steps) {
  const worst = steps.reduce((most, step, i) => (taxOf(step) > taxOf(steps[most]) ? i : most), 0);
  return steps.length && taxOf(steps[worst]) > 0 ? worst : null;
}
/* Whether the number of allowed tokens is known: a reply or a log alone does not tell, and then it is 0. */
const knowsAllowed = (step) => !(step.bounds && !step.allowed_count);
/* The text before a figure of removed mass: empty if it is exact. */
export const limitOf = (step) => (step.bounds ? (step.bounds[1] > 0 ? "at least " : "") : step.exactness === "bounded" ? "at most " : "");

function describe(step, i) {
  const said = [`Step ${i}`, step.token.is_special ? `special ${step.token.text || "end"}` : plain(step.token.bytes, step.token.text)];
  if (massOf(step) >= BINS[0]) said.push(`${limitOf(step)}${prob(massOf(step))} removed`);
  if (isForbidden(step)) said.push("top choice blocked");
  if (step.was_rejected) said.push("first draw rejected");
  if (step.is_unknown) said.push("not known whether a draw was rejected");
  if (step.was_forced) said.push("forced");
  return said.join(", ");
}

// ---------------------------------------------------------------- the panel

export const tag = (text, kind) => h("span", { class: `tag ${kind}` }, text);

function story(step) {
  const wish = topChoice(step);
  const taken = chip(step.token);
  if (!wish) return ["Only measures were recorded for this step, not the model’s candidates."];
  const wanted = [chip(wish), ` (${prob(wish.prob)})`];
  const choice = !knowsAllowed(step) ? "the number of allowed tokens is not known" : step.allowed_count === 1 ? "the only token allowed" : `one of ${count(step.allowed_count)} allowed`;
  if (step.was_rejected && step.rejected) {
    return [chip(step.rejected), " was drawn first, and the constraint refused it. ", taken, ` was drawn instead: ${choice}.`];
  }
  const how = step.was_forced ? " was put there without a draw: " : " was taken: ";
  if (!wish.allowed) return ["The model wanted ", wanted, ", which the constraint forbids. ", taken, how, choice, "."];
  if (wish.id !== step.token.id && step.is_unknown) return ["The model’s top choice was ", wanted, ", and ", taken, " was taken. Whether the constraint refused it is not known."];
  if (wish.id !== step.token.id) return ["The model’s top choice ", wanted, " was allowed, but ", taken, step.was_forced ? " was forced." : " was drawn."];
  const rest = massOf(step) >= BINS[0] ? ` The constraint removed ${limitOf(step)}${prob(massOf(step))} of the other candidates’ probability.` : "";
  return ["The model wanted ", wanted, step.was_forced ? ", which was forced anyway." : " and got it.", rest];
}

/* One row per token, one column per stage, so that a token's way through the stages is a line. */
function stages(step) {
  const rows = new Map();
  const row = (c) => rows.get(c.id) || rows.set(c.id, { token: c, keep: false }).get(c.id);
  const put = (name, listed, keep) => listed.forEach((c, rank) => {
    const r = row(c);
    r[name] = c;
    r.keep ||= rank < keep;
  });
  put("wanted", step.pre_masking, 7);
  put("allowed", step.post_grammar, 7);
  put("sampled", step.post_chain, 4);
  row(step.resampled).keep = true;
  if (step.rejected) row(step.rejected).keep = true;
  return [...rows.values()];
}

function bar(candidate) {
  const cell = h("td", { class: "p", title: String(candidate.prob) }, h("span", {}, prob(candidate.prob)));
  cell.style.setProperty("--p", Math.max(0, Math.min(1, candidate.prob || 0)));
  return cell;
}

function table(step, everything) {
  const rows = stages(step);
  if (rows.length <= 1 && !step.pre_masking.length) return null;
  const complete = step.post_chain.reduce((sum, c) => sum + c.prob, 0) > 0.9999;
  const cell = (text, title) => h("td", { class: "p none", title }, text);
  const drawn = rows.filter((r) => everything || r.keep).map((r) => {
    const isTaken = r.token.id === step.token.id;
    const isRefused = Boolean(step.rejected) && r.token.id === step.rejected.id && !isTaken;
    const barred = [r.wanted, r.allowed].some((c) => c && !c.allowed) || isRefused;
    const name = h("th", { scope: "row" }, chip(r.token, barred ? "struck" : ""),
      isTaken && tag("taken", "good"), isRefused && tag("refused", "bad"));
    const allowed = barred ? h("td", { class: "p word" }, "forbidden") : r.allowed ? bar(r.allowed) : cell("–", "Not among the most probable of this stage");
    const sampled = barred ? cell("") : r.sampled && r.sampled.prob > 0 ? bar(r.sampled)
      : complete ? cell("cut", "Cut by the samplers") : cell("–", "Not among the most probable of this stage");
    return h("tr", { class: [isTaken && "taken", barred && "barred"].filter(Boolean).join(" ") },
      name, r.wanted ? bar(r.wanted) : cell("–", "Not among the model’s most probable"), allowed, sampled);
  });
  const head = (text, note) => h("th", { scope: "col" }, text, h("small", {}, note));
  const hidden = rows.length - drawn.length;
  const more = hidden > 0 || everything
    ? h("button", { type: "button", class: "link", id: "more" }, everything ? "Show fewer" : `Show ${many(hidden, "more token")}`) : null;
  return h("div", {}, h("table", {},
    h("thead", {}, h("tr", {}, head("Token", ""), head("Wanted", "by the model"), head("Allowed", knowsAllowed(step) ? count(step.allowed_count) : "not known"), head("Sampled from", "after samplers"))),
    h("tbody", {}, drawn)), rows.length > 8 ? more : null);
}

function measures(step) {
  const items = [];
  const item = (label, value, note) => items.push(h("div", {}, h("dt", {}, label), h("dd", {}, value, note && h("small", {}, ` ${note}`))));
  const [tax, limit] = [taxOf(step), limitOf(step)];
  const top = step.bounds && prob(Math.max(0, Math.min(1, step.bounds[1])));
  item("Removed mass", limit + prob(massOf(step)), step.bounds && step.bounds[1] > 0 ? `and at most ${top}` : `${prob(Math.exp(-tax))} left`);
  item("Tax", Number.isFinite(tax) ? limit + nats(tax) : "∞", Number.isFinite(tax) ? bits(tax) : null);
  const isMeasured = knowsAllowed(step);
  item("Entropy before", isMeasured ? nats(step.entropy_before, "none") : "not known");
  item("Entropy after", isMeasured ? nats(step.entropy_after, "none") : "not known");
  if (step.z_sampled === null) item("Mass when sampled", isMeasured ? "none" : "not known", isMeasured ? "nothing drawn" : null);
  else item("Mass when sampled", prob(step.z_sampled), "z_sampled");
  item("Allowed", isMeasured ? many(step.allowed_count, "token") : "not known");
  item("Probability", step.token.logprob === null ? "0" : prob(Math.exp(step.token.logprob)),
    step.token.logprob === null ? "log −∞" : `log ${num(step.token.logprob)}`);
  item("Token id", String(step.token.id));
  item("Bytes", step.token.bytes.length ? h("code", {}, step.token.bytes.map((b) => b.toString(16).toUpperCase().padStart(2, "0")).join(" ")) : "none");
  item("Exactness", step.bounds ? "bounded" : step.exactness, step.bounds ? "estimated, not measured" : step.exactness === "bounded" ? "only the top is known" : null);
  if (step.rule) item("Rule", h("code", {}, step.rule));
  return h("dl", { class: "measures" }, items);
}

function blame(step) {
  if (!step.blame) return null;
  const b = step.blame;
  const item = (label, value) => value !== undefined && value !== null && h("div", {}, h("dt", {}, label), h("dd", {}, h("code", {}, String(value))));
  return h("section", { class: "blame" },
    h("h3", {}, "Why it was refused"),
    h("p", {}, b.reason),
    h("dl", {}, item("by", b.member), item("rule", b.rule), item("at", b.position), item("expected", b.expected),
      b.offset ? item("after", many(b.offset, "viable byte")) : null));
}

/* For a composition: the mass that each member was the first to refuse. */
function shares(step) {
  const found = Object.entries(step.removed_by || {}).filter(([, mass]) => mass > 0);
  if (!found.length) return null;
  return h("section", { class: "blame shares" },
    h("h3", {}, "Removed by"),
    h("dl", {}, found.map(([name, mass]) => h("div", {}, h("dt", {}, prob(mass)), h("dd", {}, h("code", {}, name))))));
}

// ---------------------------------------------------------------- around the tokens

const swatch = (kind, text = "ab") => h("span", { class: `tok ${kind}`, "aria-hidden": "true" }, text);

/* scale: the legend of the colours; by default that of the removed mass. */
export function drawLegend(node, steps, scale = massScale()) {
  const key = (mark, text) => h("span", { class: "key" }, mark, text);
  node.replaceChildren(scale,
    h("span", { class: "marks" },
      key(swatch("forb"), "top choice blocked"),
      steps.some((t) => t.was_rejected) && key(swatch("rej"), "first draw rejected"),
      steps.some((t) => t.is_unknown) && key(swatch("unsure"), "not known whether a draw was rejected"),
      steps.some((t) => t.was_forced) && key(swatch("forced"), "forced"),
      steps.some((t) => t.token.is_special) && key(swatch("pill", "end"), "special token")),
  );
}

export const drawScale = (label, names, kind) => h("span", { class: "scale" },
  h("span", { class: "note" }, label), names.map((name, i) => h("span", { class: `step ${kind}${i}` }, name)));
const massScale = () => drawScale("Removed mass", BIN_NAMES, "b");

/* more: further keys of a page, each as [keys, action]. */
export function drawKeys(node, more = []) {
  const kbd = (text) => h("kbd", {}, text);
  node.replaceChildren(kbd("←"), kbd("→"), " token ", kbd("↑"), kbd("↓"), " line ", kbd("n"), kbd("p"),
    more.length ? " next, previous " : " next, previous blocked ", kbd("Enter"), " pin ",
    ...more.flatMap(([keys, text]) => [...keys.map(kbd), ` ${text} `]));
}

export const tile = (label, value, note, kind = "") =>
  h("div", { class: `stat ${kind}` }, h("div", { class: "label" }, label), h("div", { class: "value" }, value), h("div", { class: "note" }, note));

/* The verdict of an independent judge, as [label, value, note, kind] of a tile. */
export function verdictTile(verdict) {
  const judged = verdict && verdict.valid !== null && verdict.valid !== undefined;
  const word = !judged ? "Not judged" : verdict.valid ? "✓ Valid" : "✕ Not valid";
  const judge = verdict && verdict.judge ? `${judged ? "judged by" : "judge:"} ${verdict.judge}` : "no independent judge ran";
  return ["Verdict", word, judge, !judged ? "" : verdict.valid ? "good" : "bad"];
}

const KINDS = {
  json_schema: "JSON Schema", json_object: "Any JSON object", gbnf: "GBNF grammar", regex: "Regular expression", choice: "Choices",
  after: "After a marker", free: "Free text", soft_json: "Soft JSON mode", wordlist: "Word list", soft_wordlist: "Soft word list",
};
/* A kind without a name of its own here is shown by its id: "all_of" as "All of". */
export const kindName = (kind) => KINDS[kind] || kind.charAt(0).toUpperCase() + kind.slice(1).replaceAll("_", " ");

export const FINISHES = {
  stop: "Ended by the model (stop)", length: "Cut off at the token limit (length)",
};

// ---------------------------------------------------------------- the inspector

const TYPING = "input, textarea, select, [contenteditable]";

/* The chips of a text and the panel beside them. list, panel: their elements. onShow: called with the step on show when
   it changes; onPin: with the pinned step, -1 for none. keys: further keys of the page, each with its action.

   Steps are added as they arrive; the newest is shown until the user selects one. */
export function inspector({ list, panel, onShow = () => {}, onPin = () => {}, keys = {} }) {
  const narrow = matchMedia("(max-width: 899px)");
  const steps = [];
  let chips = [];
  let forbidden = [];
  let stops = null; // where the jumps go, if not to what was forbidden
  let paint = (step) => `b${bin(massOf(step))}`;
  let shared = new Map(); // step -> the character of which it spells a part
  let sharedOf = 0; // for how many steps
  let cursor = 0; // where the keyboard is
  let pinned = -1; // chosen by click, Enter or the address; stays under the pointer's moves
  let hovered = -1;
  let current = -1; // the one on show
  let drawn = -1;
  let everything = false; // whether the table shows all candidates
  let isTouched = false; // whether somebody has chosen what is shown

  function node(step, i) {
    const marks = [
      `tok ${paint(step)}`, isForbidden(step) && "forb", step.was_rejected && "rej", step.is_unknown && "unsure",
      step.was_forced && "forced", step.token.is_special && "pill",
    ];
    return h("span", {
      class: marks.filter(Boolean).join(" "), role: "option", id: `t${i}`, "data-i": i, tabindex: "-1",
      "aria-selected": "false", "aria-label": describe(step, i),
    }, glyphs(step.token, { lines: true }));
  }

  function add(added) {
    const all = document.createDocumentFragment();
    for (const step of added) {
      const i = steps.push(step) - 1;
      if (step.token.is_special) special.add(step.token.id);
      if (isForbidden(step)) forbidden.push(i);
      chips.push(node(step, i));
      all.append(chips[i], h("wbr"));
    }
    list.append(all);
    if (chips.length && !chips.some((c) => c.tabIndex === 0)) chips[cursor].tabIndex = 0;
  }

  /* Shows the newest step, unless somebody is looking at another. */
  function follow() {
    if (isTouched || !chips.length) return show();
    place(chips.length - 1);
    show();
  }

  /* Where a look at a whole text begins: at the most expensive step. */
  function settle() {
    if (!isTouched && chips.length) place(worstStep(steps) ?? forbidden[0] ?? 0);
    show();
  }

  function clear() {
    steps.length = 0;
    chips = [];
    forbidden = [];
    stops = null;
    special.clear();
    sharedOf = 0;
    [cursor, pinned, hovered, current, drawn] = [0, -1, -1, -1, -1];
    isTouched = false;
    list.replaceChildren();
    panel.replaceChildren();
  }

  /* Gives every token another colour: next says which class is a step's. */
  function repaint(next) {
    steps.forEach((step, i) => chips[i].classList.replace(paint(step), next(step)));
    paint = next;
  }

  /* out: whether a step stands back; hit: whether it was found; found: where the jumps go, null for what was forbidden. */
  function mark(out, hit, found) {
    chips.forEach((one, i) => {
      one.classList.toggle("out", out(i));
      one.classList.toggle("hit", hit(i));
    });
    stops = found;
    if (chips.length) drawPanel(current);
  }

  function place(to) {
    chips[cursor].tabIndex = -1;
    cursor = to;
    chips[cursor].tabIndex = 0;
  }

  function spelledTogether(i) {
    if (sharedOf !== steps.length) shared = sharedCharacters(steps);
    sharedOf = steps.length;
    return shared.get(i);
  }

  function drawPanel(i) {
    const step = steps[i];
    if (!step) return panel.replaceChildren(h("p", { class: "note" }, "No token to show."));
    const button = (id, text, label, disabled) => h("button", { type: "button", id, "aria-label": label, title: label, disabled }, text);
    const focused = panel.contains(document.activeElement) ? document.activeElement.id : "";
    const isFolded = panel.classList.contains("folded");
    const there = stops ?? forbidden;
    const what = stops ? "match" : "step whose top choice was blocked";
    const head = h("div", { class: "head" },
      h("h2", {}, "Step ", h("b", {}, String(i)), ` of 0–${count(steps.length - 1)}`, pinned >= 0 && tag("pinned", "plain")),
      h("div", { class: "nav" },
        button("back", "‹", "Previous token", i === 0), button("on", "›", "Next token", i === steps.length - 1),
        button("forb-back", "‹‹", `Previous ${what}`, !there.some((j) => j < i)),
        button("forb-on", "››", `Next ${what}`, !there.some((j) => j > i)),
        h("button", { type: "button", id: "fold", class: "fold", "aria-expanded": String(!isFolded), "aria-controls": "panel-body" },
          isFolded ? "More" : "Less")));
    const tags = [
      isForbidden(step) && tag("top choice blocked", "bad"), step.was_rejected && tag("first draw rejected", "bad"),
      step.is_unknown && tag("rejection not known", "plain"),
      step.was_forced && tag("forced", "plain"), step.token.is_special && tag("special token", "plain"),
      (step.bounds || step.exactness === "bounded") && tag("bounded, not exact", "plain"),
    ].filter(Boolean);
    const scroll = i === drawn ? panel.scrollTop : 0;
    const character = spelledTogether(i);
    panel.replaceChildren(head,
      h("div", { class: "taken-now" }, chip(step.token, `big tok b${bin(massOf(step))}`), tags),
      h("p", { class: "story" }, story(step),
        character !== undefined && [" These bytes are part of ", h("span", { class: "chip" }, plain([], character)), "."]),
      h("div", { id: "panel-body", class: "body" }, table(step, everything), blame(step), shares(step), measures(step)));
    panel.scrollTop = scroll;
    drawn = i;
    const again = focused && panel.querySelector(`#${focused}`);
    if (again && !again.disabled) again.focus({ preventScroll: true });
  }

  function show() {
    const next = pinned >= 0 ? pinned : hovered >= 0 ? hovered : cursor;
    chips[current]?.classList.remove("now");
    current = next;
    chips[current]?.classList.add("now");
    drawPanel(current);
    onShow(current);
  }

  function move(to, focus = true) {
    if (!chips.length) return;
    isTouched = true;
    place(Math.max(0, Math.min(chips.length - 1, to)));
    hovered = -1;
    if (pinned >= 0) pin(cursor);
    else show();
    if (focus) chips[cursor].focus({ preventScroll: true });
    reveal(chips[cursor]);
  }

  function pin(i) {
    if (pinned >= 0) {
      chips[pinned].classList.remove("pinned");
      chips[pinned].setAttribute("aria-selected", "false");
    }
    pinned = i;
    isTouched = true;
    if (i >= 0) {
      chips[i].classList.add("pinned");
      chips[i].setAttribute("aria-selected", "true");
    }
    onPin(i);
    show();
  }

  /* Chooses a step as a click does; the same again lets it go. */
  function choose(i, focus = true) {
    const again = pinned === i;
    pin(-1);
    move(i, focus);
    if (!again) pin(i);
  }

  /* Scrolls a token into sight, also from behind the panel where that lies over the text. */
  function reveal(target) {
    const box = target.getClientRects()[0];
    const bottom = narrow.matches ? panel.getBoundingClientRect().top : innerHeight;
    if (!box || (box.top >= 48 && box.bottom <= bottom - 12)) return;
    scrollBy({ top: box.top - bottom / 2, behavior: "instant" });
  }

  /* The nearest token of the line above (-1) or below (+1). */
  function line(direction) {
    const from = chips[cursor].getClientRects()[0];
    const middle = (box) => box.left + box.width / 2;
    let best = -1, bestGap = Infinity, bestSide = Infinity;
    for (let i = cursor + direction; i >= 0 && i < chips.length; i += direction) {
      const box = chips[i].getClientRects()[0];
      const gap = direction * (box.top - from.top);
      if (gap < from.height / 2) continue;
      if (gap > bestGap + from.height / 2) break;
      const side = Math.abs(middle(box) - middle(from));
      if (side < bestSide) [best, bestGap, bestSide] = [i, gap, side];
    }
    return best < 0 ? (direction < 0 ? 0 : chips.length - 1) : best;
  }

  function jump(direction, focus = true) {
    const at = current;
    const there = stops ?? forbidden;
    const found = direction > 0 ? there.find((i) => i > at) : there.findLast((i) => i < at);
    if (found === undefined) return;
    move(found, focus);
  }

  let waiting = 0;
  function hover(i) {
    if (i === hovered) return;
    hovered = i;
    if (i >= 0) isTouched = true;
    if (pinned >= 0 || waiting) return;
    waiting = requestAnimationFrame(() => {
      waiting = 0;
      if (pinned < 0 && chips.length) show();
    });
  }

  const IN_TEXT = {
    ArrowLeft: () => move(cursor - 1), ArrowRight: () => move(cursor + 1), Home: () => move(0), End: () => move(chips.length - 1),
    ArrowUp: () => move(line(-1)), ArrowDown: () => move(line(1)),
    Enter: () => pin(pinned === cursor ? -1 : cursor), " ": () => pin(pinned === cursor ? -1 : cursor),
  };
  const ANYWHERE = { n: () => jump(1), "/": () => jump(1), p: () => jump(-1), N: () => jump(-1), Escape: () => pinned >= 0 && pin(-1), ...keys };
  const BUTTONS = {
    back: () => move(current - 1, false), on: () => move(current + 1, false),
    "forb-back": () => jump(-1), "forb-on": () => jump(1),
    more: () => { everything = !everything; drawPanel(current); },
    fold: () => { panel.classList.toggle("folded"); drawPanel(current); },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !chips.length || event.target.closest?.(TYPING)) return;
    const action = (list.contains(event.target) && Object.hasOwn(IN_TEXT, event.key) && IN_TEXT[event.key])
      || (Object.hasOwn(ANYWHERE, event.key) && ANYWHERE[event.key]);
    if (!action) return;
    event.preventDefault();
    action();
  });
  const under = (event) => {
    const found = event.target.closest?.("[data-i]");
    return found ? Number(found.dataset.i) : -1;
  };
  list.addEventListener("pointermove", (event) => hasMoved(event) && under(event) >= 0 && hover(under(event)));
  list.addEventListener("pointerleave", () => hover(-1));
  list.addEventListener("click", (event) => under(event) >= 0 && choose(under(event)));
  panel.addEventListener("click", (event) => {
    const id = event.target.closest("button")?.id;
    if (id && Object.hasOwn(BUTTONS, id)) BUTTONS[id]();
  });

  return {
    add, clear, follow, settle, show, choose, hover, jump, repaint, mark, go: move, focus: () => chips[cursor]?.focus(),
    get current() { return current; },
    get forbidden() { return forbidden; },
  };
}

/* Real moves only: scrolling under a resting pointer must not select another token. */
export const hasMoved = (event) => event.pointerType !== "touch" && (event.movementX !== 0 || event.movementY !== 0);
