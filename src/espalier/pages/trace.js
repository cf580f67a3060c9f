"use strict";
/* Draws one trace. Everything that comes from the trace enters the page as text nodes and attributes, never as HTML. */
(() => {
  const trace = JSON.parse(document.getElementById("trace-data").textContent);
  const shown = JSON.parse(document.getElementById("trace-shown").textContent);
  const steps = trace.steps;
  const meta = trace.metadata;
  const $ = (id) => document.getElementById(id);
  const narrow = matchMedia("(max-width: 899px)");

  // ---------------------------------------------------------------- elements

  const SVG = document.querySelector("svg").namespaceURI;

  function build(node, attrs, children) {
    for (const [name, value] of Object.entries(attrs || {})) {
      if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(2).filter((c) => c !== null && c !== undefined && c !== false));
    return node;
  }
  const h = (tag, attrs, ...children) => build(document.createElement(tag), attrs, children);
  const s = (tag, attrs, ...children) => build(document.createElementNS(SVG, tag), attrs, children);

  // ---------------------------------------------------------------- numbers

  const sci = (x) => x.toExponential(1).replace("e+", "e").replace("-", x < 0 ? "−" : "-");
  const count = (n) => n.toLocaleString("en-US");
  const many = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

  function prob(p) {
    if (p === null || p === undefined) return "none";
    if (p <= 0) return "0";
    if (p >= 1) return "100%";
    if (p >= 0.9995) return ">99.9%";
    if (p >= 0.0995) return `${(100 * p).toFixed(1)}%`;
    return p >= 0.001 ? `${(100 * p).toFixed(2)}%` : sci(p);
  }

  function num(x) {
    const a = Math.abs(x);
    if (a < 5e-10) return "0";
    if (a < 0.001) return sci(x);
    return x.toFixed(a < 10 ? 3 : a < 1000 ? 1 : 0).replace("-", "−");
  }
  const nats = (x, infinite) => (x === null || x === undefined ? infinite : `${num(x)} nats`);
  const bits = (x) => `${num(x / Math.LN2)} bits`;

  // ---------------------------------------------------------------- text, made visible

  const NAMED = new Map([["\n", "↵"], ["\r", "␍"], ["\t", "⇥"], [" ", "·"]]);
  const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zs}\p{Zl}\p{Zp}]/u;
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  /* How many bytes the UTF-8 character at i takes, 0 where there is no whole one. */
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

  /* [kind, text] runs; kinds: text, space, line, code (a character nobody could see), byte (no whole character). */
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

  /* Characters that several tokens spell together: step -> the character. */
  function shared() {
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
  const whole = shared();

  const plain = (bytes, text) => runs(bytes, text).map((r) => r[1]).join("");

  /* The nodes of a token. lines: break the line where the token does. */
  function glyphs(token, { lines = false } = {}) {
    if (token.is_special) return [token.text ? plain([], token.text) : "end"];
    const parts = runs(token.bytes, token.text);
    if (!parts.length) return [h("span", { class: "g" }, "∅")];
    return parts.map(([kind, text]) => {
      if (kind === "text") return text;
      const span = h("span", { class: kind === "byte" ? "g hex" : kind === "code" ? "g code" : "g" }, text);
      return kind === "line" && lines ? [span, h("br")] : span;
    });
  }
  const special = new Set(steps.filter((t) => t.token.is_special).map((t) => t.token.id));
  const chip = (token, extra = "") => {
    const is_special = token.is_special ?? special.has(token.id);
    return h("span", { class: `chip ${is_special ? "pill" : ""} ${extra}` }, glyphs({ ...token, is_special }));
  };

  // ---------------------------------------------------------------- what a step is

  const BINS = [0.01, 0.1, 0.5, 0.9, 0.99];
  const BIN_NAMES = ["under 1%", "1–10%", "10–50%", "50–90%", "90–99%", "over 99%"];
  const bin = (mass) => BINS.filter((b) => (mass || 0) >= b).length;
  const favourite = (step) => step.pre_masking[0] || null;
  const isForbidden = (step) => Boolean(favourite(step)) && !favourite(step).allowed;
  const forbidden = steps.flatMap((step, i) => (isForbidden(step) ? [i] : []));

  function describe(step, i) {
    const said = [`Token ${i + 1}`, step.token.is_special ? `special ${step.token.text}` : plain(step.token.bytes, step.token.text)];
    if ((step.removed_mass || 0) >= BINS[0]) said.push(`${prob(step.removed_mass)} removed`);
    if (isForbidden(step)) said.push("favourite forbidden");
    if (step.was_rejected) said.push("first draw refused");
    if (step.was_forced) said.push("forced");
    return said.join(", ");
  }

  // ---------------------------------------------------------------- head

  const KINDS = {
    json_schema: "JSON Schema", json_object: "any JSON object", gbnf: "GBNF grammar", regex: "Regular expression", choice: "Choice",
    all_of: "All of", free: "Free text", soft_json: "Soft JSON mode", soft_wordlist: "Soft word list",
  };
  const FINISHES = {
    stop: "The model ended it (stop)", length: "Cut off at the token limit (length)",
  };

  function folded(summary, text) {
    return h("details", {}, h("summary", {}, summary), h("pre", { tabindex: "0" }, text));
  }

  function drawHead() {
    const made = [`${many(steps.length, "token")}`];
    if (meta.model) made.push(`by ${meta.model}`);
    $("lede").textContent = made.join(" ");

    const tile = (label, value, note, kind = "") =>
      h("div", { class: `stat ${kind}` }, h("div", { class: "label" }, label), h("div", { class: "value" }, value), h("div", { class: "note" }, note));
    const sum = trace.summary;
    const share = (n) => (steps.length ? `${Math.round((100 * n) / steps.length)}% of the steps` : "");
    const verdict = meta.verdict;
    const judged = verdict && verdict.valid !== null && verdict.valid !== undefined;
    const word = !judged ? "Not judged" : verdict.valid ? "✓ Valid" : "✕ Not valid";
    const judge = verdict && verdict.judge ? `${judged ? "judged by" : "judge:"} ${verdict.judge}` : "no independent judge ran";
    const known = steps.some((t) => t.pre_masking.length);
    const forced = steps.filter((t) => t.was_forced).length;
    $("stats").append(
      tile("Verdict", word, judge, !judged ? "" : verdict.valid ? "good" : "bad"),
      tile("Grammar tax", sum.total_tax_nats === null ? "∞ nats" : nats(sum.total_tax_nats), sum.total_tax_nats === null ? "" : bits(sum.total_tax_nats)),
      tile("Mean removed mass", prob(sum.mean_removed_mass), "of the model’s wish, per step"),
      tile("Favourite forbidden", known ? count(sum.changed_steps) : "not recorded", known ? share(sum.changed_steps) : ""),
    );
    if (sum.rejected_steps) $("stats").append(tile("First draw refused", count(sum.rejected_steps), share(sum.rejected_steps)));
    if (forced) $("stats").append(tile("Forced", count(forced), share(forced)));

    const about = $("about");
    const item = (label, ...nodes) => about.append(h("div", {}, h("dt", {}, label), h("dd", {}, ...nodes)));
    const prompt = meta.prompt || "";
    if (prompt.length > 300 || prompt.split("\n").length > 6) {
      item("Prompt", h("details", {}, h("summary", {}, `${prompt.trim().slice(0, 120)}…`), h("pre", { tabindex: "0" }, prompt)));
    } else item("Prompt", prompt ? h("span", { class: "prompt" }, prompt) : h("span", { class: "note" }, "none"));
    const spec = (label, bound) => {
      const name = KINDS[bound.kind] || bound.kind;
      const pairs = bound.options.map(([k, v]) => h("span", { class: "pair" }, h("b", {}, k), ` ${v}`));
      item(label, bound.source ? folded(name, bound.source) : name, h("div", { class: "pairs" }, pairs));
    };
    if (!shown.constraint) item("Constraint", "none");
    else spec("Constraint", shown.constraint);
    for (const bias of shown.soft) spec("Bias", bias);
    const sampling = shown.sampling.filter(([, v]) => v !== "[]" && v !== "null" && v !== "false");
    const greedy = sampling.some(([k, v]) => k === "temperature" && Number(v) === 0);
    item("Sampling", h("div", { class: "pairs" },
      h("span", { class: "pair" }, h("b", {}, "strategy"), ` ${meta.strategy}`),
      greedy && h("span", { class: "pair" }, "greedy"),
      sampling.map(([k, v]) => h("span", { class: "pair" }, h("b", {}, k), ` ${v.replace(/[["\]]/g, "").replace(/,\s*/g, ", ")}`))));
    item("Ended", FINISHES[meta.finish_reason] || meta.finish_reason);
    if (verdict && verdict.errors && verdict.errors.length) {
      item("Faults found", h("ul", { class: "faults" }, verdict.errors.map((e) => h("li", {}, e))));
    }
  }

  function drawLegend() {
    const key = (node, text) => h("span", { class: "key" }, node, text);
    const swatch = (kind, text = "ab") => h("span", { class: `tok ${kind}`, "aria-hidden": "true" }, text);
    $("legend").append(
      h("span", { class: "scale" }, h("span", { class: "note" }, "Removed mass"), BIN_NAMES.map((name, i) => h("span", { class: `step b${i}` }, name))),
      h("span", { class: "marks" },
        key(swatch("forb"), "favourite forbidden"),
        steps.some((t) => t.was_rejected) && key(swatch("rej"), "first draw refused"),
        steps.some((t) => t.was_forced) && key(swatch("forced"), "forced"),
        special.size > 0 && key(swatch("pill", "end"), "special token")),
    );
    const kbd = (text) => h("kbd", {}, text);
    $("keys").append(kbd("←"), kbd("→"), " token ", kbd("↑"), kbd("↓"), " line ", kbd("n"), kbd("p"), " next, previous forbidden ", kbd("Enter"), " pin");
  }

  // ---------------------------------------------------------------- tokens

  const list = $("tokens");
  let chips = [];

  function drawTokens() {
    const all = document.createDocumentFragment();
    chips = steps.map((step, i) => {
      const marks = [
        `tok b${bin(step.removed_mass)}`, isForbidden(step) && "forb", step.was_rejected && "rej", step.was_forced && "forced",
        step.token.is_special && "pill",
      ];
      const node = h("span", {
        class: marks.filter(Boolean).join(" "), role: "option", id: `t${i}`, "data-i": i, tabindex: "-1",
        "aria-selected": "false", "aria-label": describe(step, i),
      }, glyphs(step.token, { lines: true }));
      all.append(node, h("wbr"));
      return node;
    });
    if (chips.length) list.append(all);
    else list.replaceWith(h("p", { class: "note" }, "Nothing was generated."));
  }

  // ---------------------------------------------------------------- the chart

  const CHART = { height: 116, top: 12, bottom: 4, left: 34 };
  let columns = []; // per column: the step it stands for
  let slot = 1; // pixels per column

  function drawChart() {
    const box = $("chart-box");
    const wide = Math.max(120, box.clientWidth);
    const inner = wide - CHART.left;
    slot = Math.min(24, Math.max(1, inner / Math.max(1, steps.length)));
    const n = Math.min(steps.length, Math.floor(inner / slot));
    const tax = (i) => (steps[i].tax_nats === null ? Infinity : Math.max(0, steps[i].tax_nats));
    columns = [];
    for (let c = 0; c < n; c++) {
      // More steps than pixels: a column stands for the step in it that was taxed most.
      let best = Math.floor((c * steps.length) / n);
      for (let i = best; i < Math.floor(((c + 1) * steps.length) / n); i++) if (tax(i) > tax(best)) best = i;
      columns.push(best);
    }
    const finite = columns.map(tax).filter(Number.isFinite);
    const top = Math.max(1, ...finite) * 1.04;
    const floor = CHART.height - CHART.bottom;
    const y = (v) => floor - (Math.min(v, top) / top) * (floor - CHART.top);
    const gap = slot >= 8 ? 2 : slot >= 4 ? 1 : 0;
    const paths = BIN_NAMES.map(() => "");
    let marks = "";
    columns.forEach((i, c) => {
      const x = CHART.left + c * slot;
      const v = tax(i);
      if (v > 0) paths[bin(steps[i].removed_mass)] += `M${x} ${floor}V${y(v)}h${slot - gap}V${floor}z`;
      if (isForbidden(steps[i])) marks += `M${x} 2h${Math.max(1, slot - gap)}v3h-${Math.max(1, slot - gap)}z`;
    });
    const unit = [0.25, 0.5, 1, 2, 5, 10, 20, 50, 100].find((u) => top / u <= 4) || 200;
    const grid = [];
    for (let v = unit; v <= top; v += unit) {
      grid.push(s("line", { class: "grid", x1: CHART.left, x2: wide, y1: y(v), y2: y(v) }), s("text", { x: CHART.left - 8, y: y(v) + 4 }, String(v)));
    }
    const svg = $("chart");
    svg.setAttribute("viewBox", `0 0 ${wide} ${CHART.height}`);
    svg.setAttribute("height", CHART.height);
    svg.setAttribute("width", wide);
    svg.replaceChildren(
      ...grid, s("text", { x: CHART.left - 8, y: floor }, "0"),
      s("rect", { id: "chart-at", x: -99, y: 0, width: Math.max(2, slot), height: CHART.height }),
      s("line", { class: "base", x1: CHART.left, x2: CHART.left + n * slot, y1: floor + 0.5, y2: floor + 0.5 }),
      ...paths.map((d, b) => s("path", { class: `bar b${b}`, d })), s("path", { class: "mark", d: marks }),
    );
    placeChart();
  }

  function placeChart() {
    const at = $("chart-at");
    if (!at || current < 0 || !columns.length) return;
    const c = columns.length === steps.length ? current : Math.min(columns.length - 1, Math.floor((current * columns.length) / steps.length));
    at.setAttribute("x", CHART.left + c * slot - (slot >= 4 ? 1 : 0));
  }

  function chartStep(event) {
    const x = event.clientX - $("chart").getBoundingClientRect().left - CHART.left;
    const c = Math.floor(x / slot);
    return c >= 0 && c < columns.length ? columns[c] : -1;
  }

  // ---------------------------------------------------------------- the panel

  const tag = (text, kind) => h("span", { class: `tag ${kind}` }, text);

  function story(step) {
    const wish = favourite(step);
    const taken = chip(step.token);
    if (!wish) return ["Only measures were recorded for this step, not what the model wanted."];
    const wanted = [chip(wish), ` (${prob(wish.prob)})`];
    const choice = step.allowed_count === 1 ? "the only token allowed" : `one of ${count(step.allowed_count)} allowed`;
    if (step.was_rejected && step.rejected) {
      return [chip(step.rejected), " was drawn first, and the constraint refused it. ", taken, ` was drawn instead: ${choice}.`];
    }
    const how = step.was_forced ? " was put there without a draw: " : " was taken: ";
    if (!wish.allowed) return ["The model wanted ", wanted, ", which the constraint forbids. ", taken, how, choice, "."];
    if (wish.id !== step.token.id) return ["The model’s favourite ", wanted, " was allowed, but ", taken, step.was_forced ? " was forced." : " was drawn."];
    const rest = (step.removed_mass || 0) >= BINS[0] ? ` The constraint removed ${prob(step.removed_mass)} of what else it considered.` : "";
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
    const cell = h("td", { class: "p" }, h("span", {}, prob(candidate.prob)));
    cell.style.setProperty("--p", Math.max(0, Math.min(1, candidate.prob || 0)));
    return cell;
  }

  let everything = false;

  function table(step) {
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
      h("thead", {}, h("tr", {}, head("Token", ""), head("Wanted", "by the model"), head("Allowed", count(step.allowed_count)), head("Sampled from", "after samplers"))),
      h("tbody", {}, drawn)), rows.length > 8 ? more : null);
  }

  function measures(step) {
    const items = [];
    const item = (label, value, note) => items.push(h("div", {}, h("dt", {}, label), h("dd", {}, value, note && h("small", {}, ` ${note}`))));
    const left = step.tax_nats === null ? 0 : Math.exp(-step.tax_nats);
    const limit = step.exactness === "bounded" ? "at most " : "";
    item("Removed mass", limit + prob(Math.max(0, step.removed_mass)), `${prob(left)} left`);
    item("Tax", limit + nats(step.tax_nats, "∞"), step.tax_nats === null ? null : bits(step.tax_nats));
    item("Entropy before", nats(step.entropy_before, "none"));
    item("Entropy after", nats(step.entropy_after, "none"));
    item("Mass when sampled", step.z_sampled === null ? "none" : prob(step.z_sampled), step.z_sampled === null ? "nothing drawn" : "z_sampled");
    item("Allowed", many(step.allowed_count, "token"));
    item("Probability", step.token.logprob === null ? "0" : prob(Math.exp(step.token.logprob)),
      step.token.logprob === null ? "log −∞" : `log ${num(step.token.logprob)}`);
    item("Token id", String(step.token.id));
    item("Bytes", step.token.bytes.length ? h("code", {}, step.token.bytes.map((b) => b.toString(16).toUpperCase().padStart(2, "0")).join(" ")) : "none");
    item("Exactness", step.exactness === "bounded" ? "bounded" : step.exactness, step.exactness === "bounded" ? "only the top is known" : null);
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

  /* Of a composition: how much each member was the first to refuse. */
  function shares(step) {
    const found = Object.entries(step.removed_by || {}).filter(([, mass]) => mass > 0);
    if (!found.length) return null;
    return h("section", { class: "blame shares" },
      h("h3", {}, "Who removed it"),
      h("dl", {}, found.map(([name, mass]) => h("div", {}, h("dt", {}, prob(mass)), h("dd", {}, h("code", {}, name))))));
  }

  function drawPanel(i) {
    const panel = $("panel");
    const step = steps[i];
    if (!step) return panel.replaceChildren(h("p", { class: "note" }, "No token to show."));
    const button = (id, text, label, disabled) => h("button", { type: "button", id, "aria-label": label, title: label, disabled }, text);
    const focused = panel.contains(document.activeElement) ? document.activeElement.id : "";
    const head = h("div", { class: "head" },
      h("h2", {}, "Token ", h("b", {}, String(i + 1)), ` of ${count(steps.length)}`, pinned >= 0 && tag("pinned", "plain")),
      h("div", { class: "nav" },
        button("back", "‹", "Previous token", i === 0), button("on", "›", "Next token", i === steps.length - 1),
        button("forb-back", "‹‹", "Previous step whose favourite was forbidden", !forbidden.some((j) => j < i)),
        button("forb-on", "››", "Next step whose favourite was forbidden", !forbidden.some((j) => j > i)),
        h("button", { type: "button", id: "fold", class: "fold", "aria-expanded": String(!panel.classList.contains("folded")), "aria-controls": "panel-body" },
          panel.classList.contains("folded") ? "More" : "Less")));
    const tags = [
      isForbidden(step) && tag("favourite forbidden", "bad"), step.was_rejected && tag("first draw refused", "bad"),
      step.was_forced && tag("forced", "plain"), step.token.is_special && tag("special token", "plain"),
      step.exactness === "bounded" && tag("bounded, not exact", "plain"),
    ].filter(Boolean);
    const scroll = i === drawn ? panel.scrollTop : 0;
    panel.replaceChildren(head,
      h("div", { class: "taken-now" }, chip(step.token, `big tok b${bin(step.removed_mass)}`), tags),
      h("p", { class: "story" }, story(step), whole.has(i) && [" These bytes are part of ", h("span", { class: "chip" }, plain([], whole.get(i))), "."]),
      h("div", { id: "panel-body", class: "body" }, table(step), blame(step), shares(step), measures(step)));
    panel.scrollTop = scroll;
    drawn = i;
    if (focused && $(focused) && !$(focused).disabled) $(focused).focus({ preventScroll: true });
  }

  // ---------------------------------------------------------------- which token is shown

  let cursor = 0; // where the keyboard is
  let pinned = -1; // chosen by click, Enter or the address; stays under the pointer's moves
  let hovered = -1;
  let current = -1; // the one on show
  let drawn = -1;

  function show() {
    const next = pinned >= 0 ? pinned : hovered >= 0 ? hovered : cursor;
    chips[current]?.classList.remove("now");
    current = next;
    chips[current]?.classList.add("now");
    drawPanel(current);
    placeChart();
  }

  function remember() {
    // A page inside a frame without an address (a notebook) has none to remember it in.
    if (location.protocol === "about:") return;
    history.replaceState(null, "", pinned >= 0 ? `#t${pinned}` : location.pathname + location.search);
  }

  function move(to, focus = true) {
    if (!chips.length) return;
    const next = Math.max(0, Math.min(chips.length - 1, to));
    chips[cursor].tabIndex = -1;
    cursor = next;
    chips[cursor].tabIndex = 0;
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
    if (i >= 0) {
      chips[i].classList.add("pinned");
      chips[i].setAttribute("aria-selected", "true");
    }
    remember();
    show();
  }

  /* Scrolls a token into sight, also from behind the panel where that lies over the text. */
  function reveal(node) {
    const box = node.getClientRects()[0];
    const bottom = narrow.matches ? $("panel").getBoundingClientRect().top : innerHeight;
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

  function jump(direction) {
    const at = current;
    const found = direction > 0 ? forbidden.find((i) => i > at) : forbidden.findLast((i) => i < at);
    if (found !== undefined) move(found);
  }

  const IN_TEXT = {
    ArrowLeft: () => move(cursor - 1), ArrowRight: () => move(cursor + 1), Home: () => move(0), End: () => move(chips.length - 1),
    ArrowUp: () => move(line(-1)), ArrowDown: () => move(line(1)),
    Enter: () => pin(pinned === cursor ? -1 : cursor), " ": () => pin(pinned === cursor ? -1 : cursor),
  };
  const ANYWHERE = { n: () => jump(1), "/": () => jump(1), p: () => jump(-1), N: () => jump(-1), Escape: () => pinned >= 0 && pin(-1) };

  function listen() {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !chips.length) return;
      const action = (list.contains(event.target) && Object.hasOwn(IN_TEXT, event.key) && IN_TEXT[event.key])
        || (Object.hasOwn(ANYWHERE, event.key) && ANYWHERE[event.key]);
      if (!action) return;
      event.preventDefault();
      action();
    });
    const under = (event) => {
      const node = event.target.closest?.("[data-i]");
      return node ? Number(node.dataset.i) : -1;
    };
    let waiting = 0;
    const hover = (i) => {
      if (i === hovered) return;
      hovered = i;
      if (pinned >= 0 || waiting) return;
      waiting = requestAnimationFrame(() => {
        waiting = 0;
        if (pinned < 0) show();
      });
    };
    // Real moves only: scrolling under a pointer at rest is not a wish to see another token.
    const moved = (event) => event.pointerType !== "touch" && (event.movementX !== 0 || event.movementY !== 0);
    list.addEventListener("pointermove", (event) => moved(event) && under(event) >= 0 && hover(under(event)));
    list.addEventListener("pointerleave", () => hover(-1));
    list.addEventListener("click", (event) => {
      const i = under(event);
      if (i < 0) return;
      const again = pinned === i;
      pin(-1);
      move(i);
      if (!again) pin(i);
    });
    $("chart").addEventListener("pointermove", (event) => moved(event) && hover(chartStep(event)));
    $("chart").addEventListener("pointerleave", () => hover(-1));
    $("chart").addEventListener("click", (event) => {
      const i = chartStep(event);
      if (i >= 0) pin(-1), move(i, false), pin(i);
    });
    const buttons = {
      back: () => move(current - 1, false), on: () => move(current + 1, false),
      "forb-back": () => jump(-1), "forb-on": () => jump(1),
      more: () => { everything = !everything; drawPanel(current); },
      fold: () => { $("panel").classList.toggle("folded"); drawPanel(current); },
    };
    $("panel").addEventListener("click", (event) => {
      const id = event.target.closest("button")?.id;
      if (id && Object.hasOwn(buttons, id)) buttons[id]();
    });
    addEventListener("hashchange", fromAddress);
    new ResizeObserver(drawChart).observe($("chart-box"));
  }

  function fromAddress() {
    const i = /^#t(\d+)$/.test(location.hash) ? Number(location.hash.slice(2)) : -1;
    if (i < 0 || i >= chips.length) return false;
    pin(-1);
    move(i, false);
    pin(i);
    return true;
  }

  drawHead();
  drawLegend();
  drawTokens();
  drawChart();
  listen();
  if (chips.length) {
    const start = Math.max(0, forbidden[0] ?? 0);
    cursor = start;
    chips[start].tabIndex = 0;
  }
  if (!fromAddress()) show();
})();
