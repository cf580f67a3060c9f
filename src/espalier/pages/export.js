/* Exports: files, and text to the clipboard. inspector.js precedes this file in the same module. A file is a Blob made by
   the page: nothing is sent anywhere, and the page's policy forbids it. */

const CSV_COLUMNS = [
  "step", "token_id", "text_json", "stage", "logprob", "removed_mass", "removed_at_most", "tax_nats", "cumulative_tax_nats",
  "entropy_before", "entropy_after", "allowed_count", "was_rejected", "was_forced", "was_changed", "exactness", "path", "rule",
  "rejected_json", "verdict",
];

/* RFC 4180. A model's text is a JSON string: line ends stay visible, and spreadsheets see no formula. */
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
    t.rejected ? JSON.stringify(t.rejected.text) : "", t.is_unknown ? "unknown" : t.was_rejected ? "rejected" : "accepted",
  ]);
  return [CSV_COLUMNS, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/* The chart as a standalone file: computed colours are inlined, and a background is added. */
export function standalone(svg) {
  const copy = svg.cloneNode(true);
  const seen = [svg, ...svg.querySelectorAll("*")];
  // As attributes: the page's policy forbids inline styles.
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

/* Whether the text was copied. A frame may have no access to the clipboard; then execCommand is tried. */
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

/* The row of buttons. deeds: [label, action, message when done]; an action that returns false has failed. */
export function drawExports(node, deeds) {
  const said = h("span", { class: "note", role: "status" });
  node.append(...deeds.map(([label, act, done]) => {
    const button = h("button", { type: "button" }, label);
    button.addEventListener("click", async () => {
      said.textContent = (await act()) === false ? "The browser blocked it." : done;
    });
    return button;
  }), said);
}

/* A file's name from a page's title. */
export const fileName = (title, suffix) => `${title.normalize("NFKD").replace(/[^\w]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40).toLowerCase() || "trace"}${suffix}`;
