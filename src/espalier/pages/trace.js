/* Draws one trace. The page has inspector.js before this, in the same module: what it exports is at hand here. */
(() => {
  const trace = JSON.parse(document.getElementById("trace-data").textContent);
  const shown = JSON.parse(document.getElementById("trace-shown").textContent);
  const steps = trace.steps;
  const meta = trace.metadata;
  const $ = (id) => document.getElementById(id);

  // ---------------------------------------------------------------- head

  const KINDS = {
    json_schema: "JSON Schema", json_object: "any JSON object", gbnf: "GBNF grammar", regex: "Regular expression", choice: "Choice",
    all_of: "All of", free: "Free text", soft_json: "Soft JSON mode", soft_wordlist: "Soft word list",
  };
  function folded(summary, text) {
    return h("details", {}, h("summary", {}, summary), h("pre", { tabindex: "0" }, text));
  }

  function drawHead() {
    const made = [`${many(steps.length, "token")}`];
    if (meta.model) made.push(`by ${meta.model}`);
    $("lede").textContent = made.join(" ");

    const sum = trace.summary;
    const share = (n) => (steps.length ? `${Math.round((100 * n) / steps.length)}% of the steps` : "");
    const verdict = meta.verdict;
    const known = steps.some((t) => t.pre_masking.length);
    const forced = steps.filter((t) => t.was_forced).length;
    $("stats").append(
      tile(...verdictTile(verdict)),
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
    const current = tokens.current;
    if (!at || current < 0 || !columns.length) return;
    const c = columns.length === steps.length ? current : Math.min(columns.length - 1, Math.floor((current * columns.length) / steps.length));
    at.setAttribute("x", CHART.left + c * slot - (slot >= 4 ? 1 : 0));
  }

  function chartStep(event) {
    const x = event.clientX - $("chart").getBoundingClientRect().left - CHART.left;
    const c = Math.floor(x / slot);
    return c >= 0 && c < columns.length ? columns[c] : -1;
  }

  // ---------------------------------------------------------------- which token is shown

  const tokens = inspector({ list: $("tokens"), panel: $("panel"), onShow: placeChart, onPin: remember });

  function remember(pinned) {
    // A page inside a frame without an address (a notebook) has none to remember it in.
    if (location.protocol === "about:") return;
    history.replaceState(null, "", pinned >= 0 ? `#t${pinned}` : location.pathname + location.search);
  }

  function fromAddress() {
    const i = /^#t(\d+)$/.test(location.hash) ? Number(location.hash.slice(2)) : -1;
    if (i < 0 || i >= steps.length) return false;
    if (!document.getElementById(`t${i}`).classList.contains("pinned")) tokens.choose(i, false);
    return true;
  }

  drawHead();
  drawLegend($("legend"), steps);
  drawKeys($("keys"));
  tokens.add(steps);
  drawChart();
  $("chart").addEventListener("pointermove", (event) => hasMoved(event) && tokens.hover(chartStep(event)));
  $("chart").addEventListener("pointerleave", () => tokens.hover(-1));
  $("chart").addEventListener("click", (event) => {
    const i = chartStep(event);
    if (i >= 0) tokens.choose(i, false);
  });
  addEventListener("hashchange", fromAddress);
  new ResizeObserver(drawChart).observe($("chart-box"));
  if (!fromAddress()) tokens.settle();
  if (!steps.length) $("tokens").replaceWith(h("p", { class: "note" }, "Nothing was generated."));
})();
