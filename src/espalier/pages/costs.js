/* Costs by JSON path and by grammar rule, and the most expensive tokens. inspector.js precedes this file in the same
   module. The figures come from the steps, or from the summary if the steps were not kept. */

const WORST_TOKENS = 10;
const COLUMNS = [["key", "Where"], ["tokens", "Tokens"], ["tax_nats", "Tax, nats"], ["mean", "Per token"], ["removed_mass", "Mean removed"]];
const ALL_ROWS = 12;

/* Rows of one table: { key, tokens, tax_nats, removed_mass, mean, at }; at: the set of its steps, null where unknown. */
function grouped(steps, keyOf) {
  const rows = new Map();
  steps.forEach((step, i) => {
    const key = keyOf(step, i);
    if (key === null || key === undefined) return;
    const row = rows.get(key) || rows.set(key, { key, tokens: 0, tax_nats: 0, removed_mass: 0, at: new Set() }).get(key);
    row.tokens += 1;
    row.tax_nats += taxOf(step);
    row.removed_mass += massOf(step);
    row.at.add(i);
  });
  return [...rows.values()].map((row) => ({ ...row, removed_mass: row.removed_mass / row.tokens, mean: row.tax_nats / row.tokens }));
}

function told(table) {
  return Object.entries(table || {}).map(([key, { tokens, tax_nats, removed_mass }]) => {
    const tax = tax_nats === null ? Infinity : tax_nats;
    return { key, tokens, tax_nats: tax, removed_mass, mean: tax / tokens, at: null };
  });
}

/* The available tables, as { kind: rows }. paths: the JSON pointer of each step, or null. */
export function costTables(steps, paths, summary) {
  const byPath = steps.length && paths ? grouped(steps, (_, i) => paths[i]) : told(summary.by_path);
  const byRule = steps.length ? grouped(steps, (step) => step.rule) : told(summary.by_rule);
  return Object.fromEntries(Object.entries({ path: byPath, rule: byRule }).filter(([, rows]) => rows.length));
}

const nameOf = (kind, key) => (kind === "path" && key === "" ? "(keys and punctuation)" : key);
const natsOf = (tax) => (Number.isFinite(tax) ? num(tax) : "∞");

/* Draws into node. select: called with the name and the steps of a row, or null. */
export function drawCosts(node, tables, isBounded, select) {
  const kinds = Object.keys(tables);
  let kind = kinds[0], by = "tax_nats", isRising = false, isWhole = false, chosen = null;

  function heads() {
    return COLUMNS.map(([name, label]) => {
      const isBy = by === name;
      const button = h("button", { type: "button", class: "sort" }, label, h("span", { "aria-hidden": "true" }, isBy ? (isRising ? " ▲" : " ▼") : ""));
      button.addEventListener("click", () => {
        [by, isRising] = [name, isBy ? !isRising : name === "key"];
        draw(name);
      });
      return h("th", { scope: "col", "data-by": name, "aria-sort": isBy ? (isRising ? "ascending" : "descending") : "none" }, button);
    });
  }

  function line(row, most) {
    const isChosen = chosen === row.key;
    const name = row.at === null ? h("code", {}, visible(nameOf(kind, row.key)))
      : h("button", { type: "button", class: "place", "aria-pressed": String(isChosen), title: "Show only its tokens" }, h("code", {}, visible(nameOf(kind, row.key))));
    if (row.at !== null) name.addEventListener("click", () => select(isChosen ? null : { kind, key: row.key, name: nameOf(kind, row.key), has: (i) => row.at.has(i) }));
    const tax = h("td", { class: "p" }, h("span", {}, natsOf(row.tax_nats)));
    tax.style.setProperty("--p", Number.isFinite(row.tax_nats) ? row.tax_nats / (most || 1) : 1);
    return h("tr", { class: isChosen && "chosen" }, h("th", { scope: "row" }, name), h("td", {}, count(row.tokens)), tax, h("td", {}, natsOf(row.mean)), h("td", {}, prob(row.removed_mass)));
  }

  function draw(focusOn) {
    const order = (a, b) => (by === "key" ? (a.key < b.key ? -1 : 1) : a[by] === b[by] ? 0 : a[by] - b[by]);
    const rows = [...tables[kind]].sort((a, b) => (isRising ? order(a, b) : order(b, a)));
    const most = Math.max(0, ...rows.map((row) => row.tax_nats).filter(Number.isFinite));
    const shownRows = isWhole ? rows : rows.slice(0, ALL_ROWS);
    const words = { path: "JSON path", rule: "rule" };
    const kindButtons = kinds.length < 2 ? null : h("div", { class: "choose", role: "group", "aria-label": "Table by" }, kinds.map((one) => {
      const button = h("button", { type: "button", "data-kind": one, "aria-pressed": String(one === kind) }, `By ${words[one]}`);
      button.addEventListener("click", () => {
        [kind, isWhole] = [one, false];
        draw();
        node.querySelector(`[data-kind="${one}"]`).focus();
      });
      return button;
    }));
    const more = rows.length > ALL_ROWS && h("button", { type: "button", class: "link" }, isWhole ? "Show fewer" : `Show all ${count(rows.length)}`);
    if (more) more.addEventListener("click", () => {
      isWhole = !isWhole;
      draw();
      node.querySelector("button.link").focus();
    });
    node.replaceChildren(
      h("div", { class: "row" }, h("h2", {}, `Cost by ${words[kind]}`), kindButtons),
      h("div", { class: "scroll" }, h("table", { class: "costs" },
        h("caption", { class: "sr" }, `Tax and removed mass by ${words[kind]}`),
        h("thead", {}, h("tr", {}, heads())), h("tbody", {}, shownRows.map((row) => line(row, most))))),
      ...[isBounded && h("p", { class: "note" }, "Some steps have only bounds: these sums are lower bounds."), more].filter(Boolean));
    if (focusOn) node.querySelector(`[data-by="${focusOn}"] button`).focus();
  }

  /* Says which row's tokens are shown; group: what select was told. */
  function choose(group) {
    chosen = group && group.kind ? group.key : null;
    if (group && group.kind) kind = group.kind;
    const focused = node.contains(document.activeElement) ? document.activeElement.textContent : null;
    draw();
    if (focused !== null) [...node.querySelectorAll("button")].find((one) => one.textContent === focused)?.focus();
  }

  draw();
  return { choose };
}

/* The most expensive tokens, each a link to its step. */
export function drawWorst(node, steps, summary, paths, go) {
  const taxed = steps.map((step, i) => [taxOf(step), i]).filter(([tax]) => tax > 0).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const rows = steps.length
    ? taxed.slice(0, WORST_TOKENS).map(([tax, i]) => ({ i, tax, token: steps[i].token, path: paths?.[i], limit: limitOf(steps[i]) }))
    : (summary.worst_tokens || []).map((one) => ({ i: null, step: one.step, tax: one.tax_nats ?? Infinity, token: { bytes: [], text: one.text }, path: one.path, limit: "" }));
  if (!rows.length) return false;
  node.replaceChildren(h("div", { class: "row" }, h("h2", {}, "Most expensive tokens")), h("ol", { class: "worst" }, rows.map((row) => {
    const at = row.i ?? row.step;
    const label = [chip(row.token), h("small", { class: "at" }, `step ${at}`), h("span", { class: "cost" }, row.limit, natsOf(row.tax), h("small", {}, " nats"))];
    const place = row.path !== null && row.path !== undefined && h("code", { class: "where" }, visible(nameOf("path", row.path)));
    if (row.i === null) return h("li", {}, h("span", { class: "entry" }, label), place);
    const link = h("a", { class: "entry", href: `#t${row.i}` }, label);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      go(row.i);
    });
    return h("li", {}, link, place);
  })));
  return true;
}
