/* The side without the constraint: the same prompt and seed, streamed as text beside the tokens of the other. */

import { BINS, FINISHES, chip, isForbidden, many, massOf, prob, visible } from "./inspector.js";
import { wouldDo } from "./form.js";
import { generate } from "./stream.js";

const $ = (id) => document.getElementById(id);

export function clearFree() {
  $("free").hidden = $("held-head").hidden = $("parted").hidden = true;
  for (const id of ["free-text", "free-note", "free-fault", "parted"]) $(id).replaceChildren();
}

/* Generates it, and returns its text and whether it reasoned first; null after an error, which is shown on this side while
   the other goes on. */
export async function generateFree(body, signal) {
  let said = "", finish = null, usage = null, isReasoned = false;
  $("free").hidden = false;
  $("free-note").textContent = "Generating…";
  try {
    await generate(body, { signal, onChunk: (chunk) => {
      for (const choice of chunk.choices) {
        for (const piece of [choice.delta.reasoning, choice.delta.content]) if (piece) $("free-text").append(...visible(piece));
        said += choice.delta.content ?? "";
        isReasoned ||= Boolean(choice.delta.reasoning);
        finish = choice.finish_reason ?? finish;
      }
      usage = chunk.usage ?? usage;
    } });
  } catch (error) {
    $("free-note").textContent = "";
    if (signal.aborted) $("free-note").textContent = "Stopped.";
    else $("free-fault").replaceChildren(...visible(error.message));
    return null;
  }
  tellEnd({ text: said, finish_reason: finish, tokens: usage?.completion_tokens });
  return { text: said, isReasoned };
}

/* A text that is finished already, as example.json has it. */
export function showFree(free) {
  $("free").hidden = false;
  $("free-text").replaceChildren(...visible(free.text));
  tellEnd(free);
}

function tellEnd({ text: said, finish_reason: finish, tokens }) {
  const verdict = wouldDo(said) === false ? "not what the constraint asks for" : wouldDo(said) ? "what the constraint asks for" : "";
  $("free-note").textContent = [tokens && many(tokens, "token"), FINISHES[finish] ?? finish, verdict].filter(Boolean).join(" · ");
}

/* Says where the two texts part and why, or that they agree. steps, text: of the side with the constraint. */
export function tellParting(steps, text, free) {
  $("parted").hidden = free === null;
  if (free !== null) $("parted").replaceChildren(...parting(steps, text, free).flat());
}

function parting(steps, text, free) {
  if (text === free.text) return ["They agree: the constraint changed nothing here. Another seed may draw what it forbids."];
  const i = free.isReasoned ? -1 : partingStep(steps, free.text);
  if (i < 0) return ["The two texts differ."];
  const step = steps[i], [wish] = step.pre_masking;
  const where = i ? `They part at step ${i}: ` : "They part at the first token: ";
  if (wish && isForbidden(step)) return [where, "the model wanted ", chip(wish), ` (${prob(wish.prob)}), and the constraint pushed it to `, chip(step.token), "."];
  if (massOf(step) >= BINS[0]) return [where, `the constraint removed ${prob(massOf(step))} of the probability there, and `, chip(step.token), " was drawn from the rest."];
  return [where, "a different token was drawn; the constraint removed almost nothing there."];
}

/* The first step whose token the other text does not go on with; -1 if there is none. */
export function partingStep(steps, other) {
  let said = "";
  return steps.findIndex((step) => {
    const next = said + (step.token.is_special ? "" : step.token.text);
    const isSame = step.token.is_special ? said === other : other.startsWith(next);
    said = next;
    return !isSame;
  });
}
