/* The overview of a trace: totals, request, decoding options and findings. inspector.js precedes this file in the same
   module. */

const LEVEL_NAMES = { summary: "only sums; the steps were not kept", steps: "every step", full: "every step, with full distributions beside the JSON", off: "nothing" };

const folded = (summary, text) => h("details", {}, h("summary", {}, summary), h("pre", { tabindex: "0" }, text));
const pair = (name, value) => h("span", { class: "pair" }, h("b", {}, name), ` ${value}`);

/* The tax of a whole trace, as { nats, limit }: nats may be Infinity; limit is the text before the figure. */
export function totalTax(trace) {
  const { steps, summary } = trace;
  const told = summary.total_tax_nats === null ? Infinity : summary.total_tax_nats;
  if (steps.some((t) => t.bounds)) return { nats: runningTax(steps).at(-1), limit: steps.some((t) => t.bounds?.[1] > 0) ? "at least " : "" };
  return { nats: told, limit: steps.some((t) => t.exactness === "bounded") ? "at most " : "" };
}

export function meanMass(trace) {
  const { steps, summary } = trace;
  if (!steps.some((t) => t.bounds)) return summary.mean_removed_mass;
  return steps.reduce((sum, t) => sum + massOf(t), 0) / steps.length;
}

export function drawStats(node, trace) {
  const { steps, summary: sum, metadata: meta } = trace;
  const total = steps.length || sum.total_steps || 0;
  const share = (n) => (total ? `${Math.round((100 * n) / total)}% of the steps` : "");
  const known = !steps.length || steps.some((t) => t.pre_masking.length || typeof t.was_changed === "boolean");
  const forced = steps.length ? steps.filter((t) => t.was_forced).length : sum.forced_steps;
  const tax = totalTax(trace);
  const isFinite = Number.isFinite(tax.nats);
  const tiles = [
    tile(...verdictTile(meta.verdict)),
    tile("Grammar tax", isFinite ? `${tax.limit}${nats(tax.nats)}` : "∞ nats", isFinite ? bits(tax.nats) : ""),
    tile("Mean removed mass", tax.limit + prob(meanMass(trace)), "of the model’s probability, per step"),
    tile("Top choice blocked", known ? count(sum.changed_steps ?? 0) : "not recorded", known ? share(sum.changed_steps ?? 0) : ""),
    sum.rejected_steps && tile("First draw rejected", count(sum.rejected_steps), share(sum.rejected_steps)),
    sum.unknown_steps && tile("Rejection not known", count(sum.unknown_steps), share(sum.unknown_steps)),
    forced && tile("Forced", count(forced), share(forced)),
    meta.closed_by_budget && tile("Closed by the budget", "yes", "closed within the token limit", "bad"),
    meta.rewinds?.length && tile("Undone", count(meta.rewinds.length), many(meta.rewinds.reduce((n, one) => n + one.tokens.length, 0), "token")),
  ];
  node.append(...tiles.filter(Boolean));
}

export function drawAbout(node, trace, shown) {
  const meta = trace.metadata;
  const item = (label, ...nodes) => node.append(h("div", {}, h("dt", {}, label), h("dd", {}, ...nodes)));
  const prompt = meta.prompt || "";
  if (prompt.length > 300 || prompt.split("\n").length > 6) item("Prompt", folded(`${prompt.trim().slice(0, 120)}…`, prompt));
  else item("Prompt", prompt ? h("span", { class: "prompt" }, prompt) : h("span", { class: "note" }, "none"));
  const spec = (label, bound) => {
    const name = kindName(bound.kind);
    const options = bound.options.map(([k, v]) => pair(k, v));
    item(label, bound.source ? folded(name, bound.source) : name, h("div", { class: "pairs" }, options));
  };
  if (!shown.constraint) item("Constraint", "none");
  else spec("Constraint", shown.constraint);
  for (const bias of shown.soft) spec("Bias", bias);
  const sampling = shown.sampling.filter(([, v]) => v !== "[]" && v !== "null" && v !== "false");
  const greedy = sampling.some(([k, v]) => k === "temperature" && Number(v) === 0);
  item("Decoding", h("div", { class: "pairs" }, pair("strategy", meta.strategy), shown.decoding.map(([k, v]) => pair(k, v)),
    meta.score !== null && meta.score !== undefined && pair("score", num(meta.score))));
  if (sampling.length) {
    item("Sampling", h("div", { class: "pairs" }, greedy && h("span", { class: "pair" }, "greedy"), sampling.map(([k, v]) => pair(k, v))));
  }
  if (meta.weighing) item("Weighing", h("div", { class: "pairs" }, weighing(meta.weighing)));
  item("Ended", FINISHES[meta.finish_reason] || meta.finish_reason, meta.closed_by_budget && "; the token limit decided how (closed by budget)");
  if (meta.rewinds?.length) item("Undone", h("details", {}, h("summary", {}, many(meta.rewinds.length, "rewind")), h("ul", { class: "faults" }, meta.rewinds.map(rewind))));
  if (meta.level && meta.level !== "steps") item("Recorded", LEVEL_NAMES[meta.level] || meta.level);
  if (meta.verdict?.errors?.length) item("Faults found", h("ul", { class: "faults" }, meta.verdict.errors.map((e) => h("li", {}, e))));
}

function weighing(found) {
  const known = [
    ["log weight", found.log_weight, nats], ["effective sample size", found.ess, num], ["particles", found.particles, count],
    ["acceptance", found.acceptance, prob], ["ln of the language’s mass", found.log_z, num], ["resampled", found.resamplings, (n) => many(n, "time")],
    ["target", found.target, String],
  ];
  return known.filter(([, v]) => v !== undefined).map(([name, v, say]) => pair(name, v === null ? "−∞" : say(v)));
}

function rewind(one) {
  const where = h("a", { href: `#t${one.step}` }, `step ${one.step}`);
  const why = one.blame && h("span", { class: "note" }, ` ${one.blame.reason}`);
  return h("li", {}, "at ", where, ": ", chip({ bytes: [], text: one.text, is_special: false }), ` (${many(one.tokens.length, "token")})`, why);
}

// ---------------------------------------------------------------- findings

const FINDINGS = 2; // that are shown at once: the output stays in the first screen
const SEVERITIES = { fault: ["fault", "bad"], cost: ["cost", "plain"], note: ["note", "plain"] };

/* Findings of a diagnosis, faults first, each with its remedies. go: shows a step. */
export function drawFindings(node, findings, total, go) {
  const rank = (one) => (Object.keys(SEVERITIES).indexOf(one.severity) + 4) % 4;
  const sorted = [...findings].sort((a, b) => rank(a) - rank(b));
  const told = new Set();
  node.replaceChildren(h("div", { class: "row" }, h("h2", {}, "Diagnosis"), h("p", { class: "note" }, many(findings.length, "finding"))),
    ...folding(sorted.map((one) => {
      const [word, mood] = SEVERITIES[one.severity] || [one.severity, "plain"];
      const steps = (one.steps || []).filter((i) => i >= 0 && i < total).map((i) => {
        const link = h("a", { href: `#t${i}` }, String(i));
        link.addEventListener("click", (event) => {
          event.preventDefault();
          go(i);
        });
        return [" ", link];
      });
      return h("li", { class: one.severity === "fault" ? "fault" : "" },
        h("p", {}, tag(word, mood), " ", h("b", {}, visible(one.message)), steps.length > 0 && h("span", { class: "note" }, " at step", steps)),
        remediesOf(one, told));
    })));
}

/* The remedies of a finding that no earlier one has named: the first, and the others folded. told: the texts so far. */
function remediesOf(one, told) {
  const fresh = (one.remedies ?? []).map((r) => r.text).filter((text) => !told.has(text));
  fresh.forEach((text) => told.add(text));
  const list = (texts) => h("ul", { class: "remedies" }, texts.map((text) => h("li", {}, visible(text))));
  return [fresh.length > 0 && list(fresh.slice(0, 1)),
    fresh.length > 1 && h("details", { class: "more" }, h("summary", {}, fresh.length > 2 ? `${count(fresh.length - 1)} more remedies` : "1 more remedy"), list(fresh.slice(1)))];
}

/* The first findings as a list, and the others in one that is folded. */
function folding(items) {
  const list = (some) => h("ul", { class: "findings" }, some);
  const rest = items.slice(FINDINGS);
  return [list(items.slice(0, FINDINGS)), rest.length > 0 && h("details", { class: "more" }, h("summary", {}, `${count(rest.length)} more`), list(rest))].filter(Boolean);
}
