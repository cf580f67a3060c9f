/* Draws one trace: assembles the parts of the page. The preceding files are in the same module, so their exports can be
   used. */
(() => {
  const $ = (id) => document.getElementById(id);
  const raw = $("trace-data").textContent;
  const trace = JSON.parse(raw);
  const shown = JSON.parse($("trace-shown").textContent);
  const { steps, metadata: meta, summary } = trace;
  const paths = shown.paths && shown.paths.at.map((i) => (i < 0 ? null : shown.paths.names[i]));

  function remember(pinned) {
    // A page in a frame without an address (a notebook) cannot store it there.
    if (location.protocol === "about:") return;
    history.replaceState(null, "", pinned >= 0 ? `#t${pinned}` : location.pathname + location.search);
  }

  function fromAddress() {
    const i = /^#t(\d+)$/.test(location.hash) ? Number(location.hash.slice(2)) : -1;
    if (i < 0 || i >= steps.length) return false;
    go(i);
    return true;
  }

  function go(i) {
    if (!$(`t${i}`).classList.contains("pinned")) tokens.choose(i, false);
    else tokens.go(i, false);
  }

  function select(group) {
    view.only(group);
    if (group) tokens.go(steps.findIndex((_, i) => group.has(i)), false);
  }

  // ---------------------------------------------------------------- the overview

  const made = [many(steps.length || summary.total_steps || 0, "token")];
  if (meta.model) made.push(`by ${meta.model}`);
  $("lede").textContent = made.join(" ");
  $("sentence").append(...sentence(trace, shown.scale));
  $("sentence").hidden = !$("sentence").childNodes.length;
  drawStats($("stats"), trace);
  drawAbout($("about"), trace, shown);
  if (shown.findings.length) drawFindings($("findings"), shown.findings, steps.length, go);
  $("findings").hidden = !shown.findings.length;

  const tables = costTables(steps, paths, summary);
  let costs = null;
  if (Object.keys(tables).length) costs = drawCosts($("costs"), tables, steps.some((t) => t.bounds), select);
  $("costs").hidden = costs === null;
  $("worst").hidden = !drawWorst($("worst"), steps, summary, paths, go);
  $("where").hidden = $("costs").hidden && $("worst").hidden;

  const title = $("title").textContent;
  const copying = ["Copy the output", () => copied(trace.text), "Copied."];
  const whole = ["Trace as JSON", () => download(fileName(title, ".json"), "application/json", `${raw}\n`), "Saved."];
  if (!steps.length) {
    $("chart-card").hidden = true;
    $("split").replaceWith(h("section", { class: "card" }, h("h2", {}, "Output"),
      trace.text ? h("pre", { class: "whole", tabindex: "0" }, visible(trace.text)) : h("p", { class: "note" }, "Nothing was generated."),
      summary.total_steps ? h("p", { class: "note" }, "Only sums were recorded for this run, not its steps.") : null), $("where"));
    drawExports($("exports"), trace.text ? [copying, whole] : [whole]);
    return;
  }

  // ---------------------------------------------------------------- tokens and chart

  const view = viewer({
    steps, bar: $("view"), legend: $("legend"), tokens: () => tokens,
    onChange: (group) => {
      bars.draw();
      costs?.choose(group);
    },
  });
  const tokens = inspector({
    list: $("tokens"), panel: $("panel"), onPin: remember, keys: view.keys,
    onShow: () => {
      bars.place();
      view.tell();
    },
  });
  const bars = chart({
    box: $("chart-box"), svg: $("chart"), steps, isOut: view.isOut, current: () => tokens.current,
    onHover: tokens.hover, onChoose: (i) => tokens.choose(i, false),
  });

  // Where the panel lies over the output, it starts small.
  $("panel").classList.toggle("folded", matchMedia("(max-width: 899px)").matches);
  drawKeys($("keys"), VIEW_KEYS);
  tokens.add(steps);
  view.start();
  const running = $("running");
  running.addEventListener("click", () => {
    const isOn = running.getAttribute("aria-pressed") !== "true";
    running.setAttribute("aria-pressed", String(isOn));
    bars.sum(isOn);
  });
  drawExports($("exports"), [
    copying, whole,
    ["Steps as CSV", () => download(fileName(title, ".csv"), "text/csv;charset=utf-8", stepsCsv(steps, paths)), "Saved."],
    ["Chart as SVG", () => download(fileName(title, ".svg"), "image/svg+xml", standalone($("chart"))), "Saved."],
  ]);
  addEventListener("hashchange", fromAddress);
  new ResizeObserver(bars.draw).observe($("chart-box"));
  if (!fromAddress()) tokens.settle();
})();
