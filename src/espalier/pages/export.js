/* What can be taken out of a page: files, and text to the clipboard. The page has inspector.js before this, in the same
   module. A file is a Blob that the page makes itself: nothing is sent anywhere, and its policy forbids that it could. */

const CSV_COLUMNS = [
  "step", "token_id", "text_json", "stage", "logprob", "removed_mass", "removed_at_most", "tax_nats", "cumulative_tax_nats",
  "entropy_before", "entropy_after", "allowed_count", "was_rejected", "was_forced", "was_changed", "exactness", "path", "rule",
  "rejected_json",
];

/* RFC 4180. Text of a model is in JSON's quotes: line ends stay visible, and no spreadsheet takes it for a formula. */
export function stepsCsv(steps, paths) {
  const totals = runningTax(steps);
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "number" && !Number.isFinite(value) ? "inf" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const named = (text) => (typeof text === "string" && /^[=+\-@\t\r]/.test(text) ? JSON.stringify(text) : text);
  const rows = steps.map((t, i) => [
    t.step, t.token.id, JSON.stringify(t.token.text), STAGES[stageOf(t)], t.token.logprob === null ? "-inf" : t.token.logprob,
    massOf(t), t.bounds ? t.bounds[1] : t.removed_mass, taxOf(t), totals[i], ...(knowsAllowed(t) ? [t.entropy_before, t.entropy_after, t.allowed_count] : [null, null, null]),
    t.was_rejected, t.was_forced, isForbidden(t), t.bounds ? "bounded" : t.exactness, named(paths?.[i]), named(t.rule),
    t.rejected ? JSON.stringify(t.rejected.text) : "",
  ]);
  return [CSV_COLUMNS, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/* The drawing by itself: its colours are those that are seen, and it has a ground to stand on. */
export function standalone(svg) {
  const copy = svg.cloneNode(true);
  const seen = [svg, ...svg.querySelectorAll("*")];
  // As attributes: the page's policy has no place for styles.
  [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
    const style = getComputedStyle(seen[i]);
    const names = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "font-family", "font-size"];
    if (node !== copy) for (const name of names) node.setAttribute(name, style.getPropertyValue(name));
    node.removeAttribute("class");
  });
  copy.querySelector("#chart-at")?.remove();
  copy.removeAttribute("aria-labelledby");
  copy.removeAttribute("id");
  copy.setAttribute("xmlns", SVG);
  const ground = getComputedStyle(svg.closest(".card") || document.body).backgroundColor;
  copy.prepend(s("rect", { width: "100%", height: "100%", fill: ground }));
  return new XMLSerializer().serializeToString(copy);
}

export function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = h("a", { href: address, download: name });
  document.body.append(link); // some browsers follow only links that stand in a page
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/* Whether it was copied. A frame may not be let to the clipboard; then the old way is tried. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea", { class: "sr", "aria-hidden": "true", tabindex: "-1" });
    const before = document.activeElement;
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    before?.focus();
    return done;
  }
}

/* The row of buttons. deeds: [label, what it does, what is said then]; one that returns false has failed. */
export function drawExports(node, deeds) {
  const said = h("span", { class: "note", role: "status" });
  node.append(...deeds.map(([label, act, done]) => {
    const button = h("button", { type: "button" }, label);
    button.addEventListener("click", async () => {
      said.textContent = (await act()) === false ? "This browser refuses it here." : done;
    });
    return button;
  }), said);
}

/* A file's name from a page's title. */
export const fileName = (title, suffix) => `${title.normalize("NFKD").replace(/[^\w]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40).toLowerCase() || "trace"}${suffix}`;
