/* The chart of a trace: a bar of tax per step, and a line for the running total. inspector.js precedes this file in the
   same module. It draws steps into an element, and reports the step under the pointer. */

const CHART = { height: 132, top: 14, bottom: 4, left: 34, right: 58 };
const UNITS = [0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];

/* After each step, the sum so far in nats. */
export function runningTax(steps) {
  let sum = 0;
  return steps.map((step) => (sum += taxOf(step)));
}

/* box, svg: elements. isOut: whether a step is dimmed. current: the step on show. */
export function chart({ box, svg, steps, isOut, current, onHover, onChoose }) {
  const totals = runningTax(steps);
  let columns = []; // per column: the step it stands for
  let slot = 1; // pixels per column
  let isSummed = true;

  function draw() {
    const wide = Math.max(160, box.clientWidth);
    const inner = wide - CHART.left - (isSummed ? CHART.right : 0);
    slot = Math.min(24, Math.max(1, inner / Math.max(1, steps.length)));
    const n = Math.min(steps.length, Math.floor(inner / slot));
    const lastOf = (c) => Math.max(Math.floor((c * steps.length) / n), Math.floor(((c + 1) * steps.length) / n) - 1);
    columns = [];
    for (let c = 0; c < n; c++) {
      // More steps than pixels: a column shows its step with the highest tax.
      let best = Math.floor((c * steps.length) / n);
      for (let i = best; i <= lastOf(c); i++) if (taxOf(steps[i]) > taxOf(steps[best])) best = i;
      columns.push(best);
    }
    const finite = columns.map((i) => taxOf(steps[i])).filter(Number.isFinite);
    const top = Math.max(1, ...finite) * 1.04;
    const floor = CHART.height - CHART.bottom;
    const y = (v, most = top) => floor - (Math.min(v, most) / most) * (floor - CHART.top);
    const gap = slot >= 8 ? 2 : slot >= 4 ? 1 : 0;
    const paths = [...BIN_NAMES, "out"].map(() => "");
    let marks = "";
    columns.forEach((i, c) => {
      const x = CHART.left + c * slot;
      const v = taxOf(steps[i]);
      if (v > 0) paths[isOut(i) ? BIN_NAMES.length : bin(massOf(steps[i]))] += `M${x} ${floor}V${y(v)}h${slot - gap}V${floor}z`;
      if (isForbidden(steps[i])) marks += `M${x} 2h${Math.max(1, slot - gap)}v3h-${Math.max(1, slot - gap)}z`;
    });
    const unitOf = (most) => UNITS.find((u) => most / u <= 4) || most;
    const grid = [];
    const end = CHART.left + inner;
    for (let v = unitOf(top); v <= top; v += unitOf(top)) {
      grid.push(s("line", { class: "grid", x1: CHART.left, x2: end, y1: y(v), y2: y(v) }), s("text", { x: CHART.left - 8, y: y(v) + 4, "text-anchor": "end" }, String(v)));
    }
    svg.setAttribute("viewBox", `0 0 ${wide} ${CHART.height}`);
    svg.setAttribute("height", CHART.height);
    svg.setAttribute("width", wide);
    svg.replaceChildren(
      ...grid, s("text", { x: CHART.left - 8, y: floor, "text-anchor": "end" }, "0"),
      s("rect", { id: "chart-at", x: -99, y: 0, width: Math.max(2, slot), height: CHART.height }),
      s("line", { class: "base", x1: CHART.left, x2: CHART.left + n * slot, y1: floor + 0.5, y2: floor + 0.5 }),
      ...paths.map((d, b) => s("path", { class: `bar b${b}`, d })), s("path", { class: "mark", d: marks }),
      ...(isSummed ? sum(lastOf, n, y, end) : []),
    );
    place();
  }

  /* The line goes as far as the sum is finite. */
  function sum(lastOf, n, y, end) {
    const known = totals.filter(Number.isFinite);
    const most = known.at(-1) || 0;
    if (!most || !n) return [];
    let d = `M${CHART.left} ${y(0, most)}`;
    for (let c = 0; c < n && Number.isFinite(totals[lastOf(c)]); c++) d += `L${CHART.left + (c + 1) * slot} ${y(totals[lastOf(c)], most)}`;
    const label = (v) => s("text", { class: "total", x: end + 8, y: y(v, most) + 4, "text-anchor": "start" }, v === most ? num(most) : String(v));
    const unit = UNITS.find((u) => most / u <= 3) || most;
    const below = [];
    for (let v = unit; v < most * 0.82; v += unit) below.push(label(v));
    return [s("path", { class: "sum", d }), ...below, label(most)];
  }

  function place() {
    const at = svg.querySelector("#chart-at");
    const i = current();
    if (!at || i < 0 || !columns.length) return;
    const c = columns.length === steps.length ? i : Math.min(columns.length - 1, Math.floor((i * columns.length) / steps.length));
    at.setAttribute("x", CHART.left + c * slot - (slot >= 4 ? 1 : 0));
  }

  function stepAt(event) {
    const c = Math.floor((event.clientX - svg.getBoundingClientRect().left - CHART.left) / slot);
    return c >= 0 && c < columns.length ? columns[c] : -1;
  }

  svg.addEventListener("pointermove", (event) => hasMoved(event) && onHover(stepAt(event)));
  svg.addEventListener("pointerleave", () => onHover(-1));
  svg.addEventListener("click", (event) => stepAt(event) >= 0 && onChoose(stepAt(event)));
  return {
    draw, place,
    sum: (next) => {
      isSummed = next;
      draw();
    },
  };
}
