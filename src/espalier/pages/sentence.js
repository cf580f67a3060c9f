/* One plain sentence about a trace: which token cost most and why, and what the constraint cost in all. inspector.js and
   about.js precede this file in the same module. It knows no thresholds: scale is [[least nats, word], ...], from
   trace/measure.py. */

/* The nodes of the sentence; none where nothing was generated. */
export function sentence(trace, scale) {
  const { steps, summary, metadata: meta } = trace;
  const total = steps.length || summary.total_steps || 0;
  if (!total) return [];
  if (!meta.constraint) return ["No constraint held: the model wrote what it wanted."];
  const tax = totalTax(trace);
  const word = wordOf(tax.nats / total, scale);
  const cost = Number.isFinite(tax.nats) ? `${tax.limit}${nats(tax.nats)}` : "∞ nats";
  const i = worstStep(steps);
  if (i === null && !summary.worst_tokens?.length) return [`The constraint cost nothing in ${many(total, "token")}: it allowed what the model wanted.`];
  if (i === null || !steps[i].pre_masking.length) return [`In ${many(total, "token")} the constraint cost ${cost}, which is ${word}.`];
  const step = steps[i], [wish] = step.pre_masking;
  const share = Number.isFinite(taxOf(step)) ? `${limitOf(step)}${num(taxOf(step))} of ${cost} in all` : "the model held it for impossible";
  const why = isForbidden(step) ? ["the model wanted ", chip(wish), ` (${prob(wish.prob)}), and the constraint pushed it to `, chip(step.token)]
    : ["the model got ", chip(step.token), `, and the constraint removed ${limitOf(step)}${prob(massOf(step))} of the probability of other tokens`];
  const blocked = steps.filter((one) => isForbidden(one)).length;
  const rest = blocked ? `Its top choice was blocked at ${count(blocked)} of ${many(total, "token")}; ` : "Its top choice was never blocked; ";
  return [i ? `The most expensive token is at step ${i}: ` : "The most expensive token is the first: ", why, ` (${share}). `, rest, `the cost is ${word}.`].flat();
}
