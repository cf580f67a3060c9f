/* One plain sentence about a trace: what the model wanted first and did not get, and what the constraint cost. inspector.js
   and about.js precede this file in the same module. It knows no thresholds: scale is [[least nats, word], ...], from
   trace/measure.py. */

const stepWord = (i) => (i === 0 ? "at the first token" : `at step ${i}`);

/* The nodes of the sentence; none where nothing was generated. */
export function sentence(trace, scale) {
  const { steps, summary, metadata: meta } = trace;
  const total = steps.length || summary.total_steps || 0;
  if (!total) return [];
  if (!meta.constraint) return ["No constraint held: the model wrote what it wanted."];
  const tax = totalTax(trace);
  const cost = Number.isFinite(tax.nats)
    ? `the constraint cost ${tax.limit}${tax.nats.toFixed(tax.nats < 10 ? 1 : 0)} nats in all, which is ${wordOf(tax.nats / total, scale)}.`
    : "the constraint forced a token that the model held for impossible.";
  if (!steps.some((step) => step.pre_masking.length)) return [`In ${many(total, "token")} ${cost}`];
  const blocked = steps.flatMap((step, i) => (isForbidden(step) && step.pre_masking.length ? [i] : []));
  if (!blocked.length) return ["The model’s top choice was never blocked; ", cost];
  const [i] = blocked, step = steps[i], wish = step.pre_masking[0];
  const rest = blocked.length - 1;
  const after = rest ? `After that its top choice was blocked at ${count(rest)} of ${many(total - i - 1, "token")}; ` : "After that it agreed: ";
  return [i ? `For ${many(i, "token")} the model got its top choice. It then wanted ` : "The model wanted ", chip(wish), ` (${prob(wish.prob)}); the constraint pushed it to `,
    chip(step.token), ` ${stepWord(i)}. ${after}`, cost];
}
