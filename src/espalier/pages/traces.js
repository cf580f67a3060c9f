/* The list of traces: filters, pages by cursor, links. The preceding files are in the same module. Data from the server is
   inserted as text nodes and attributes, never as HTML. */
(() => {
  const $ = (id) => document.getElementById(id);
  const { playground } = JSON.parse($("shown").textContent);
  const TIMES = ["since", "until"];
  const fields = [...$("filters").elements].filter((field) => field.name);
  const { guarded, open } = makeDoor($("list"), $("note"), () => show());
  let lastId = null;
  let asked = 0; // replies of earlier filters are not shown

  // ---------------------------------------------------------------- filters

  const two = (n) => String(n).padStart(2, "0");
  const local = (moment) => {
    const d = new Date(moment * 1000);
    return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}T${two(d.getHours())}:${two(d.getMinutes())}`;
  };

  function filters() {
    const query = new URLSearchParams();
    for (const { name, value } of fields) {
      const text = value.trim();
      if (text) query.set(name, TIMES.includes(name) ? String(new Date(text).getTime() / 1000) : text);
    }
    return query;
  }

  function fill() {
    const query = new URLSearchParams(location.search);
    for (const field of fields) {
      const text = query.get(field.name) ?? "";
      field.value = text && TIMES.includes(field.name) && Number.isFinite(Number(text)) ? local(Number(text)) : text;
    }
  }

  // ---------------------------------------------------------------- one trace

  const cell = (name, kind, ...children) => h("div", { class: kind }, h("span", { class: "name" }, name), ...children);

  function verdict(row) {
    const word = row.valid === null ? ["not judged", "plain"] : row.valid ? ["valid", "good"] : ["not valid", "bad"];
    return [tag(...word), row.flagged && row.valid !== false ? tag("flagged", "bad") : null];
  }

  /* A link cannot carry the key, and the key must not be in an address: with a key the page is downloaded as a file. */
  function pageLink(id) {
    const path = `traces/${encodeURIComponent(id)}/page`;
    if (!key.get()) return h("a", { href: path }, "Open the trace");
    const button = h("button", { type: "button", class: "link" }, "Save the trace's page");
    button.addEventListener("click", () => guarded(async () => {
      const address = URL.createObjectURL(new Blob([await getText(path)], { type: "text/html" }));
      h("a", { href: address, download: `trace-${id}.html` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    }));
    return button;
  }

  /* What the playground's form takes; a constraint that it has no field for is taken as JSON. */
  function formOf({ metadata }) {
    const said = { prompt: metadata.asked || metadata.prompt, kind: "none" };
    const { constraint, sampling } = metadata;
    const sources = { json_schema: ["json", "schema"], gbnf: ["grammar", "grammar"], regex: ["regex", "pattern"] };
    if (constraint) {
      const [kind, name] = sources[constraint.kind] ?? ["spec", null];
      const source = name ? constraint[name] : constraint;
      Object.assign(said, { kind, editor: typeof source === "string" ? source : JSON.stringify(source, null, 2) });
    }
    for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) {
      if (sampling?.[name] !== undefined && sampling[name] !== null) said[name] = String(sampling[name]);
    }
    return said;
  }

  function replayLink(id) {
    const button = h("button", { type: "button", class: "link" }, "Replay with …");
    button.addEventListener("click", () => guarded(async () => {
      const bytes = new TextEncoder().encode(JSON.stringify(formOf(await getJson(`traces/${encodeURIComponent(id)}`))));
      const coded = btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
      location.assign(`${playground}#s=${coded.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`);
    }));
    return button;
  }

  function rowOf(row) {
    const when = new Date(row.created * 1000);
    const title = row.title || (row.constraint_kind ? kindName(row.constraint_kind) : "none");
    const path = row.worst_path === null ? "" : `${row.worst_path} (${num(row.worst_tax_nats)})`;
    const tax = row.tax_nats === null ? "∞" : `${row.bounded_steps ? "≥ " : ""}${num(row.tax_nats)}`;
    return h("li", {},
      cell("Time", "when", h("time", { datetime: when.toISOString() }, when.toLocaleString())),
      cell("Model", "model", visible(row.model)),
      cell("Constraint", "what", h("span", { title: row.fingerprint ?? "" }, visible(title))),
      h("div", { class: "texts" },
        h("span", {}, visible(row.prompt || "prompt not kept")), h("code", {}, visible(row.text || "output not kept"))),
      cell("Verdict", "verdict", verdict(row)),
      cell("Tokens", "number", count(row.tokens)),
      cell("Tax, nats", "number", tax),
      cell("Worst path", "path", h("code", {}, visible(path))),
      h("div", { class: "deeds" },
        pageLink(row.id), playground !== null && row.prompt ? replayLink(row.id) : null,
        h("span", { class: "note" }, visible(FINISHES[row.finish_reason] ?? row.finish_reason), " · ", h("code", {}, visible(row.request_id)))));
  }

  // ---------------------------------------------------------------- the list

  async function list(after) {
    const mine = ++asked;
    const query = filters();
    query.set("limit", "50");
    if (after) query.set("after", after);
    const page = await getJson(`traces?${query}`);
    if (mine !== asked) return;
    const rows = page.data.map(rowOf);
    if (after) $("rows").append(...rows);
    else $("rows").replaceChildren(...rows);
    lastId = page.last_id ?? lastId;
    $("older").hidden = !page.has_more;
    open();
    const shown = $("rows").childElementCount;
    $("note").textContent = shown ? `${many(shown, "trace")}${page.has_more ? ", and there are older ones" : ""}` : "No trace is like that.";
  }

  const show = () => guarded(async () => {
    const query = filters();
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    await list(null);
  });

  $("filters").addEventListener("submit", (event) => {
    event.preventDefault();
    show();
  });
  $("filters").addEventListener("reset", () => setTimeout(show)); // the fields are empty only afterwards
  $("older").addEventListener("click", () => guarded(() => list(lastId)));
  fill();
  show();
})();
