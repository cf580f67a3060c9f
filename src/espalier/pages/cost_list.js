/* What constraints cost: a row for each, with its trend; opened, its paths, and its source coloured by their share. The
   preceding files are in the same module. Data from the server is inserted as text nodes and attributes. */
(() => {
  const $ = (id) => document.getElementById(id);
  const form = $("filters");
  const { guarded, open } = makeDoor($("list"), $("note"), () => show());
  const DAY = 86400;
  let asked = 0; // replies for earlier windows are not shown

  function fill() {
    const query = new URLSearchParams(location.search);
    const days = query.get("days");
    if (days && [...form.days.options].some((option) => option.value === days)) form.days.value = days;
    form.model.value = query.get("model") ?? "";
  }

  function query() {
    const until = Date.now() / 1000;
    const asks = new URLSearchParams({ since: String(until - Number(form.days.value) * DAY), until: String(until) });
    if (form.model.value.trim()) asks.set("model", form.model.value.trim());
    return asks;
  }

  // ---------------------------------------------------------------- one constraint

  const total = (nats) => (nats >= 1000 ? count(Math.round(nats)) : num(nats));
  const percent = (share) => `${num(100 * share)} %`;
  const cell = (name, kind, ...children) => h("div", { class: kind }, h("span", { class: "name" }, name), ...children);
  const small = (...children) => h("small", {}, ...children);

  function trend(points) {
    const kept = points.filter((point) => point.answers > 0);
    if (!kept.length) return null;
    const means = kept.map((point) => point.tax / point.answers);
    const first = kept[0].at;
    const wide = Math.max(1, kept.at(-1).at - first);
    const most = Math.max(...means, 1e-9);
    const x = (at) => (kept.length === 1 ? 50 : 100 * (at - first) / wide);
    const y = (tax) => 30 - 28 * (tax / most);
    const marks = points.flatMap((point) => (point.marks.length
      ? [s("line", { x1: x(point.at), x2: x(point.at), y1: 0, y2: 32 }, s("title", {}, point.marks.join(", ")))] : []));
    const line = kept.map((point, i) => `${x(point.at).toFixed(1)},${y(means[i]).toFixed(1)}`).join(" ");
    const said = `Tax of an answer: first ${num(means[0])}, last ${num(means.at(-1))} nats`;
    return s("svg", { viewBox: "0 0 100 32", preserveAspectRatio: "none", role: "img", "aria-label": said },
      marks, kept.length === 1 ? s("circle", { cx: 50, cy: y(means[0]), r: 2 }) : s("polyline", { points: line }));
  }

  function change(row) {
    if (!row.change) return null;
    const { mean, low, high } = row.change;
    if (low === null) return small(`${mean >= 0 ? "+" : ""}${num(mean)} (few answers)`);
    const kind = low > 0 ? "dearer" : high < 0 ? "cheaper" : "";
    return h("small", { class: kind, title: "against the window before, 95 % interval" },
      `${mean >= 0 ? "+" : ""}${num(mean)} (${num(low)} to ${num(high)})`);
  }

  function rowOf(row) {
    const title = row.title || (row.fingerprint ? kindName(row.kind || "constraint") : "free text");
    const opener = row.fingerprint
      ? h("button", { type: "button", class: "link", "aria-expanded": "false" }, visible(title)) : h("strong", {}, title);
    const marks = row.trend.flatMap((point) => point.marks);
    const slower = row.seconds_per_token && row.free_seconds_per_token && row.fingerprint
      ? small(`${num(row.seconds_per_token / row.free_seconds_per_token)} of free text`) : null;
    const item = h("li", {},
      cell("Constraint", "what", opener,
        small(row.fingerprint ? h("code", {}, row.fingerprint) : null, marks.length ? ` · ${marks.join(", ")}` : null)),
      cell("Answers", "number", count(row.answers), small(many(row.tokens, "token"))),
      cell("Not valid", "number", count(row.invalid), row.cut ? small(`${count(row.cut)} cut`) : null),
      cell("Tax, nats", "number", total(row.tax_nats)),
      cell("An answer, nats", "number",
        row.tax_per_answer.mean === null ? "not known" : num(row.tax_per_answer.mean),
        row.tax_per_answer.p95 === null ? null : small(`95th: ${num(row.tax_per_answer.p95)}`), change(row)),
      cell("Changed", "number", percent(row.changed_rate)),
      cell("Time of a token", "number", row.seconds_per_token ? `${num(1000 * row.seconds_per_token)} ms` : "not known", slower),
      cell("Trend", "trend", trend(row.trend)));
    if (row.fingerprint) opener.addEventListener("click", () => guarded(() => toggle(item, opener, row)));
    return item;
  }

  // ---------------------------------------------------------------- its paths

  async function toggle(item, opener, row) {
    const shown = item.querySelector(".opened");
    opener.setAttribute("aria-expanded", String(!shown));
    if (shown) return shown.remove();
    const found = await getJson(`costs/${encodeURIComponent(row.fingerprint)}?${query()}`);
    item.append(h("div", { class: "opened" }, table(found, row), found.constraint ? source(found) : null));
  }

  function table(found, row) {
    const rows = found.paths.map((path) => h("tr", {},
      h("td", {}, h("a", { href: `traces?${new URLSearchParams({ constraint: row.fingerprint, path: path.path })}` },
        h("code", {}, visible(path.path)))),
      h("td", {}, h("span", { class: "share", "data-share": path.share }), percent(path.share)),
      h("td", { class: "number", "data-name": "Tax, nats" }, total(path.tax_nats)),
      h("td", { class: "number", "data-name": "Mass taken" }, percent(path.removed_mass)),
      h("td", {}, path.wanted.map((one) => h("div", {},
        "wanted ", h("code", {}, visible(one.wanted)), ` (${many(one.times, "time")}), came `, h("code", {}, visible(one.taken)))))));
    const shown = h("table", { class: "paths" },
      h("thead", {}, h("tr", {}, ["Path", "Share of the tax", "Tax, nats", "Mass taken", "What the model wanted instead"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows));
    for (const bar of shown.querySelectorAll(".share")) bar.style.width = `${Math.round(120 * Number(bar.dataset.share))}px`;
    return shown;
  }

  /* The constraint as text: the name of each property is coloured by its share of the tax. */
  function source(found) {
    const shares = new Map(found.paths.map((path) => [path.path, path.share]));
    const out = h("pre", { class: "source" });
    const schema = found.kind === "json_schema" ? found.constraint.schema : null;
    if (schema === null) {
      const text = Object.values(found.constraint).find((value) => typeof value === "string" && value !== found.kind);
      out.append(...[visible(text ?? JSON.stringify(found.constraint, null, 2))].flat());
      return out;
    }
    const walk = (value, path, inProperties, indent) => {
      const pad = "  ".repeat(indent + 1);
      if (Array.isArray(value)) {
        if (!value.some((one) => one && typeof one === "object")) return out.append(JSON.stringify(value));
        out.append("[");
        value.forEach((one, i) => {
          out.append(`${i ? "," : ""}\n${pad}`);
          walk(one, path, false, indent + 1);
        });
        return out.append(`\n${"  ".repeat(indent)}]`);
      }
      if (!value || typeof value !== "object") return out.append(JSON.stringify(value));
      const names = Object.keys(value);
      if (!names.length) return out.append("{}");
      out.append("{");
      names.forEach((name, i) => {
        const own = inProperties ? `${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}` : name === "items" ? `${path}/*` : path;
        const shown = JSON.stringify(name);
        out.append(`${i ? "," : ""}\n${pad}`);
        const share = inProperties ? shares.get(own) : undefined;
        if (share) {
          const mark = h("mark", { title: `${percent(share)} of the tax` }, shown);
          mark.style.setProperty("--heat", String(Math.min(85, Math.round(10 + 90 * share))));
          out.append(mark);
        } else out.append(shown);
        out.append(": ");
        walk(value[name], own, !inProperties && name === "properties", indent + 1);
      });
      return out.append(`\n${"  ".repeat(indent)}}`);
    };
    walk(schema, "", false, 0);
    return out;
  }

  // ---------------------------------------------------------------- the list

  async function list() {
    const mine = ++asked;
    const page = await getJson(`costs?${query()}`);
    if (mine !== asked) return;
    $("rows").replaceChildren(...page.data.map(rowOf));
    open();
    $("note").textContent = page.data.length ? many(page.data.length, "constraint") : "No answer was kept in this time.";
  }

  const show = () => guarded(async () => {
    const kept = new URLSearchParams({ days: form.days.value });
    if (form.model.value.trim()) kept.set("model", form.model.value.trim());
    history.replaceState(null, "", `?${kept}`);
    await list();
  });

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show();
  });
  fill();
  show();
})();
