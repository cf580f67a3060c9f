/* How the tokens of a trace are shown: the meaning of colours, highlights and search. inspector.js precedes this file in
   the same module. It knows neither the chart nor the tables: it takes a group of steps, and reports when the highlights
   change. */

// ---------------------------------------------------------------- colours

/* free: the top choice was allowed; top choice blocked: it was not; rejected: a draw was refused; forced: there was none. */
export const STAGES = ["free", "top choice blocked", "rejected", "forced"];
export const stageOf = (step) => (step.was_forced ? 3 : step.was_rejected ? 2 : isForbidden(step) ? 1 : 0);

const CHANCES = [0.9, 0.5, 0.1, 0.01, 0.001];
const CHANCE_NAMES = ["over 90%", "50–90%", "10–50%", "1–10%", "0.1–1%", "under 0.1%"];
export const chanceOf = (step) => (step.token.logprob === null ? 0 : Math.exp(step.token.logprob));

export const COLOURS = {
  tax: { label: "Removed mass", paint: (step) => `b${bin(massOf(step))}`, scale: () => drawScale("Removed mass", BIN_NAMES, "b") },
  probability: {
    label: "Probability", paint: (step) => `q${CHANCES.filter((least) => chanceOf(step) < least).length}`,
    scale: () => drawScale("Probability", CHANCE_NAMES, "q"),
  },
  stage: { label: "Stage", paint: (step) => `s${stageOf(step)}`, scale: () => drawScale("Stage", STAGES, "s") },
};

export const FILTERS = {
  all: ["All", () => true],
  rejected: ["Rejected", (step) => step.was_rejected],
  unknown: ["Not known", (step) => step.is_unknown],
  forced: ["Forced", (step) => step.was_forced],
  changed: ["Top choice blocked", isForbidden],
};

// ---------------------------------------------------------------- search

/* The text of all tokens in small letters, and of each of its UTF-16 units the first and the last step that spell it. */
function spelling(steps) {
  const said = [], first = [], last = [];
  const put = (character, from, to) => {
    const small = character.toLowerCase(); // it may be longer than what it was
    said.push(small);
    for (let i = 0; i < small.length; i++) first.push(from), last.push(to);
  };
  let bytes = [], owners = [];
  const flush = () => {
    for (let i = 0; i < bytes.length;) {
      const n = width(bytes, i);
      put(n ? strict.decode(Uint8Array.from(bytes.slice(i, i + n))) : "\ufffd", owners[i], owners[i + (n || 1) - 1]);
      i += n || 1;
    }
    [bytes, owners] = [[], []];
  };
  steps.forEach((step, i) => {
    if (!step.token.is_special && step.token.bytes.length) {
      for (const b of step.token.bytes) bytes.push(b), owners.push(i);
      return;
    }
    flush();
    for (const c of step.token.text) put(c, i, i);
  });
  flush();
  return { text: said.join(""), first, last };
}

/* [first step, last step] of every place where the text stands, in any case of its letters; places may not overlap. */
export function occurrences(spelled, wanted) {
  const small = [...wanted].map((c) => c.toLowerCase()).join("");
  const found = [];
  if (!small) return found;
  for (let at = spelled.text.indexOf(small); at >= 0; at = spelled.text.indexOf(small, at + small.length)) {
    found.push([spelled.first[at], spelled.last[at + small.length - 1]]);
  }
  return found;
}

// ---------------------------------------------------------------- the controls

const cycled = (names, name) => names[(names.indexOf(name) + 1) % names.length];

/* A row of buttons of which one is pressed. choices: [name, label]. */
function chooser(label, choices, choose) {
  const buttons = choices.map(([name, text, note]) => {
    const made = h("button", { type: "button", "data-name": name, "aria-pressed": "false" }, text, note !== undefined && h("small", {}, ` ${note}`));
    made.addEventListener("click", () => choose(name));
    return made;
  });
  const press = (name) => buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.name === name)));
  return { node: h("div", { class: "choose", role: "group", "aria-label": label }, h("span", { class: "note", "aria-hidden": "true" }, label), buttons), press };
}

/* bar, legend: elements. tokens: the inspector, asked for when it is needed. onChange: told when what stands out changes. */
export function viewer({ steps, bar, legend, tokens, onChange }) {
  let colour = "tax", show = "all", group = null, wanted = "", spelled = null;
  let places = []; // where the jumps go: a step per match
  let isOut = () => false;

  const colours = chooser("Colour", Object.entries(COLOURS).map(([name, one]) => [name, one.label]), paint);
  const offered = Object.entries(FILTERS).filter(([name, [, passes]]) => name !== "unknown" || steps.some(passes));
  const counted = offered.map(([name, [label, passes]]) => [name, label, name === "all" ? undefined : count(steps.filter(passes).length)]);
  const filters = chooser("Show", counted, filter);
  const field = h("input", { type: "search", id: "search", placeholder: "Search", "aria-label": "Search the text", autocomplete: "off", spellcheck: "false", enterkeyhint: "search" });
  const said = h("span", { class: "note found", role: "status" });
  const step = (text, label, direction) => {
    const made = h("button", { type: "button", "aria-label": label, title: label }, text);
    made.addEventListener("click", () => next(direction, false));
    return made;
  };
  const back = step("‹", "Previous match", -1), on = step("›", "Next match", 1);
  const drop = h("button", { type: "button", class: "group", hidden: true });
  drop.addEventListener("click", () => {
    only(null);
    field.focus();
  });
  bar.append(colours.node, filters.node, h("div", { class: "find", role: "search" }, field, back, on, said, drop));

  function paint(name) {
    colour = name;
    colours.press(name);
    tokens().repaint(COLOURS[name].paint);
    drawLegend(legend, steps, COLOURS[name].scale());
  }

  function filter(name) {
    show = name;
    filters.press(name);
    apply();
  }

  /* Only the steps of a group, given as { name, has }, with what the filter lets through; null for no group. */
  function only(next) {
    group = next;
    drop.hidden = next === null;
    if (next) drop.replaceChildren(h("code", {}, ...visible(next.name)), " ×");
    if (next) drop.setAttribute("aria-label", `Show more than ${next.name}`);
    apply();
  }

  function apply() {
    const passes = FILTERS[show][1];
    const isIn = steps.map((one, i) => passes(one) && (group === null || group.has(i)));
    const isNarrowed = show !== "all" || group !== null;
    isOut = (i) => isNarrowed && !isIn[i];
    const hits = new Set();
    places = isIn.flatMap((one, i) => (one ? [i] : []));
    if (wanted) {
      spelled ??= spelling(steps);
      places = [];
      for (const [from, to] of occurrences(spelled, wanted)) {
        const range = Array.from({ length: to - from + 1 }, (_, k) => from + k);
        if (!range.some((i) => isIn[i])) continue;
        if (places.at(-1) !== from) places.push(from);
        range.forEach((i) => hits.add(i));
      }
    }
    tokens().mark(isOut, (i) => hits.has(i), isNarrowed || wanted ? places : null);
    tell();
    onChange(group);
  }

  function tell() {
    const isOn = show !== "all" || group !== null || wanted !== "";
    const at = places.indexOf(tokens().current);
    const word = wanted ? "match" : "step";
    const all = places.length === 1 ? `1 ${word}` : `${count(places.length)} ${word}${wanted ? "es" : "s"}`;
    const text = !isOn ? "" : !places.length ? `No ${word}` : at < 0 ? all : `${count(at + 1)} of ${all}`;
    if (said.textContent !== text) said.textContent = text;
    back.disabled = on.disabled = !isOn || !places.length;
  }

  /* To the next match, and from the last one to the first. */
  function next(direction, focus) {
    if (!places.length) return;
    const at = tokens().current;
    const isMore = direction > 0 ? places.some((i) => i > at) : places.some((i) => i < at);
    if (isMore) tokens().jump(direction, focus);
    else tokens().go(direction > 0 ? places[0] : places.at(-1), focus);
  }

  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 90);
  });
  function search() {
    clearTimeout(waiting);
    if (wanted === field.value) return false;
    wanted = field.value;
    apply();
    if (wanted && places.length && !places.includes(tokens().current)) next(1, false);
    return true;
  }
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      if (!search()) next(event.shiftKey ? -1 : 1, false);
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (!field.value) return tokens().focus();
      field.value = "";
      search();
    }
  });

  const move = (direction) => (show !== "all" || group || wanted ? next(direction, true) : tokens().jump(direction));
  const keys = {
    n: () => move(1), N: () => move(-1), p: () => move(-1),
    "/": () => (field.focus(), field.select()),
    f: () => filter(cycled(offered.map(([name]) => name), show)),
    c: () => paint(cycled(Object.keys(COLOURS), colour)),
  };
  return {
    keys, only, tell, isOut: (i) => isOut(i),
    start: () => {
      colours.press(colour);
      filters.press(show);
      drawLegend(legend, steps, COLOURS[colour].scale());
      tell();
    },
  };
}

export const VIEW_KEYS = [[["/"], "search"], [["f"], "filter"], [["c"], "colour"]];
