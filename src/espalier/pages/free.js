/* The side without the constraint: the same prompt and seed, streamed as text beside the tokens of the other. */

import { FINISHES, chip, isForbidden, many, visible } from "./inspector.js";
import { wouldDo } from "./form.js";
import { generate } from "./stream.js";

const $ = (id) => document.getElementById(id);

export function clearFree() {
  $("free").hidden = $("held-head").hidden = $("parted").hidden = true;
  for (const id of ["free-text", "free-note", "free-fault", "parted"]) $(id).replaceChildren();
}

/* Generates it. An error is shown on this side, and the other goes on. */
export async function generateFree(body, signal) {
  let said = "", finish = null, usage = null;
  $("free").hidden = false;
  $("free-note").textContent = "Generating…";
  try {
    await generate(body, { signal, onChunk: (chunk) => {
      for (const choice of chunk.choices) {
        for (const piece of [choice.delta.reasoning, choice.delta.content]) if (piece) $("free-text").append(...visible(piece));
        said += choice.delta.content ?? "";
        finish = choice.finish_reason ?? finish;
      }
      usage = chunk.usage ?? usage;
    } });
  } catch (error) {
    $("free-note").textContent = "";
    if (signal.aborted) $("free-note").textContent = "Stopped.";
    else $("free-fault").replaceChildren(...visible(error.message));
    return;
  }
  const verdict = wouldDo(said) === false ? "not what the constraint asks for" : wouldDo(said) ? "what the constraint asks for" : "";
  $("free-note").textContent = [usage && many(usage.completion_tokens, "token"), FINISHES[finish] ?? finish, verdict].filter(Boolean).join(" · ");
}

/* Says where the constraint first moved the model. steps: of the side with the constraint. */
export function tellParting(steps) {
  const i = steps.findIndex((step) => isForbidden(step) && step.pre_masking.length);
  const [wish] = i < 0 ? [] : steps[i].pre_masking;
  $("parted").hidden = false;
  if (!wish) $("parted").replaceChildren("The model’s top choice was never blocked.");
  else $("parted").replaceChildren(`At step ${i} the model wanted `, chip(wish), "; the constraint pushed it to ", chip(steps[i].token), ".");
}
