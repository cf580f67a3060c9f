/* Draws two traces side by side, aligned by their tokens. The preceding files are in the same module, so their exports
   can be used. The chips and the panel of a step are the inspector's; the selection is a position in both texts. */
(() => {
  const $ = (id) => document.getElementById(id);
  const shown = JSON.parse($("trace-shown").textContent);
  const pair = ["a", "b"].map((name, k) => {
    const raw = $(`trace-${name}`).textContent;
    return { name, raw, trace: JSON.parse(raw), title: shown.titles[k], shown: shown.traces[k] };
  });
  const [a, b] = pair.map((one) => one.trace.steps);
  const longest = Math.max(a.length, b.length);
  const shortest = Math.min(a.length, b.length);

  // The first position at which the tokens differ; -1 if both texts are equal.
  let apart = 0;
  while (apart < shortest && a[apart].token.id === b[apart].token.id) apart++;
  if (apart === longest) apart = -1;

  // ---------------------------------------------------------------- totals

  function totals() {
    const said = pair.map(({ trace }) => ({ tax: totalTax(trace), mass: meanMass(trace), sum: trace.summary, meta: trace.metadata, steps: trace.steps }));
    const lengths = said.map(({ steps, sum }) => steps.length || sum.total_steps || 0);
    const taxes = said.map(({ tax }) => tax.nats);
    const signed = (x, say) => (Object.is(x, NaN) ? "–" : !Number.isFinite(x) ? (x > 0 ? "+∞" : "−∞") : x === 0 ? "0" : `${x > 0 ? "+" : "−"}${say(Math.abs(x))}`);
    const isBounded = said.some(({ tax }) => tax.limit);
    const row = (label, values, difference, mood = "") => h("tr", {}, h("th", { scope: "row" }, label), values.map((v) => h("td", {}, v)), h("td", { class: mood }, difference));
    const change = taxes[1] - taxes[0];
    const masses = said.map(({ mass }) => mass ?? 0);
    const counted = (name) => {
      const values = said.map(({ sum }) => sum[name] ?? 0);
      return [values.map(count), signed(values[1] - values[0], count)];
    };
    $("totals").append(h("div", { class: "scroll" }, h("table", { class: "totals" },
      h("thead", {}, h("tr", {}, h("td", {}), pair.map(({ title }) => h("th", { scope: "col" }, visible(title))), h("th", { scope: "col" }, "Difference"))),
      h("tbody", {},
        row("Grammar tax", said.map(({ tax }) => (Number.isFinite(tax.nats) ? `${tax.limit}${nats(tax.nats)}` : "∞ nats")),
          isBounded ? "not exact" : signed(change, nats), isBounded ? "" : change > 0 ? "more" : change < 0 ? "less" : ""),
        row("Mean removed mass", said.map(({ tax, mass }) => tax.limit + prob(mass)), isBounded ? "not exact" : signed(masses[1] - masses[0], prob)),
        row("Tokens", lengths.map(count), signed(lengths[1] - lengths[0], count)),
        row("Top choice blocked", ...counted("changed_steps")), row("First draw refused", ...counted("rejected_steps")),
        said.some(({ sum }) => sum.unknown_steps) && row("Rejection not known", ...counted("unknown_steps")), row("Forced", ...counted("forced_steps")),
        row("Strategy", said.map(({ meta }) => meta.strategy), ""),
        row("Verdict", said.map(({ meta }) => verdictTile(meta.verdict)[1]), "")))));
  }

  // ---------------------------------------------------------------- the texts

  let at = 0;
  let side = 0; // where the keyboard is
  const lists = pair.map(({ title }) => h("div", { class: "tokens", role: "listbox", "aria-label": `Tokens of ${title}`, "aria-orientation": "horizontal" }));
  const paint = COLOURS.tax.paint;

  const chips = pair.map(({ name, trace: { steps } }, k) => {
    steps.forEach((step) => step.token.is_special && special.add(step.token.id));
    const all = document.createDocumentFragment();
    const made = steps.map((step, i) => {
      const isFirst = i === apart;
      const marks = [`tok ${paint(step)}`, isForbidden(step) && "forb", step.was_rejected && "rej", step.is_unknown && "unsure", step.was_forced && "forced",
        step.token.is_special && "pill", isFirst && "first-apart", (apart < 0 || i < apart) && "same"];
      const label = describe(step, i) + (isFirst ? ", the first that differs" : "");
      const node = h("span", {
        class: marks.filter(Boolean).join(" "), role: "option", id: `${name}${i}`, "data-i": i, tabindex: "-1", "aria-selected": "false", "aria-label": label,
      }, glyphs(step.token, { lines: true }));
      all.append(node, h("wbr"));
      return node;
    });
    lists[k].append(all);
    return made;
  });

  function half(k) {
    const { title, trace } = pair[k];
    const step = trace.steps[at];
    const body = step ? [
      h("div", { class: "taken-now" }, chip(step.token, `big tok b${bin(massOf(step))}`)), h("p", { class: "story" }, story(step)),
      table(step, true), blame(step), measures(step),
    ] : [h("p", { class: "note" }, "This text has already ended.")];
    const node = h("div", { class: "side" }, h("h3", {}, visible(title)), body.filter(Boolean));
    node.querySelectorAll("button").forEach((one) => one.remove()); // all candidates are shown already
    return node;
  }

  function show(next, focus = false) {
    if (!longest) return;
    for (const made of chips) {
      made[at]?.classList.remove("pinned");
      made[at]?.setAttribute("aria-selected", "false");
      if (made[Math.min(at, made.length - 1)]) made[Math.min(at, made.length - 1)].tabIndex = -1;
    }
    at = Math.max(0, Math.min(longest - 1, next));
    for (const made of chips) {
      made[at]?.classList.add("pinned");
      made[at]?.setAttribute("aria-selected", "true");
      if (made.length) made[Math.min(at, made.length - 1)].tabIndex = 0;
    }
    $("step-head").replaceChildren("Step ", h("b", {}, String(at)), ` of 0–${count(a.length - 1)} and 0–${count(b.length - 1)}`,
      at === apart ? tag("the first that differs", "bad") : apart < 0 || at < apart ? tag("the same", "good") : "");
    $("sides").replaceChildren(half(0), half(1));
    back.disabled = at === 0;
    on.disabled = at === longest - 1;
    if (focus) (chips[side][at] ?? chips[1 - side][at])?.focus({ preventScroll: true });
  }

  const button = (text, label, act) => {
    const made = h("button", { type: "button", "aria-label": label, title: label }, text);
    made.addEventListener("click", act);
    return made;
  };
  const back = button("‹", "Previous token", () => show(at - 1));
  const on = button("›", "Next token", () => show(at + 1));
  const toApart = button("≠", "First token that differs", () => show(apart));
  toApart.disabled = apart < 0;
  $("nav").append(back, on, toApart);

  const KEYS = {
    ArrowLeft: () => show(at - 1, true), ArrowRight: () => show(at + 1, true), Home: () => show(0, true), End: () => show(longest - 1, true),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isInText = lists.some((list) => list.contains(event.target));
    const action = event.key === "d" && apart >= 0 ? () => show(apart, true) : isInText && Object.hasOwn(KEYS, event.key) && KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  lists.forEach((list, k) => {
    list.addEventListener("focusin", () => (side = k));
    list.addEventListener("click", (event) => {
      const found = event.target.closest("[data-i]");
      if (!found) return;
      side = k;
      show(Number(found.dataset.i), true);
    });
  });

  // ---------------------------------------------------------------- all of it

  $("lede").replaceChildren(...visible(shown.titles.join(" and ")));
  totals();
  const ending = a.length === b.length ? "" : ` ${apart === shortest ? "The shorter one has ended there." : ""}`;
  $("split-at").textContent = !longest ? "Neither trace has steps."
    : apart < 0 ? "Both texts are the same, token by token."
      : apart === 0 ? "They differ from the first token on." : `The first ${many(apart, "token")} ${apart === 1 ? "is" : "are"} the same; they part at step ${apart}.${ending}`;
  drawLegend($("legend"), [...a, ...b], COLOURS.tax.scale());
  const kbd = (text) => h("kbd", {}, text);
  $("keys").replaceChildren(kbd("←"), kbd("→"), " token ", kbd("d"), " first difference ");
  $("texts").append(...pair.map(({ title }, k) => h("div", { class: "side" }, h("h3", {}, visible(title)), chips[k].length ? lists[k] : h("p", { class: "note" }, "No tokens."))));
  $("abouts").append(...pair.map(({ title, trace, shown: own }) => {
    const list = h("dl", {});
    drawAbout(list, trace, own);
    // The rewinds link to steps on the page of a single trace.
    list.querySelectorAll("a").forEach((one) => one.replaceWith(...one.childNodes));
    return h("div", { class: "card" }, h("h3", {}, visible(title)), list);
  }));
  $("step").hidden = !longest;
  drawExports($("exports"), pair.flatMap(({ title, raw, trace }, k) => [
    [`Copy “${title}”`, () => copied(trace.text), "Copied."],
    [`“${title}” as JSON`, () => download(fileName(title, `-${"ab"[k]}.json`), "application/json", `${raw}\n`), "Saved."],
  ]));
  show(apart < 0 ? 0 : apart);
})();
