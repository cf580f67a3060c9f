/* The turns of a conversation that came before the prompt in the form. Each is what the user wrote, what the model answered,
   and the name of the constraint that held. Texts are inserted as text nodes. It knows no request but its messages. */

import { h, visible } from "./inspector.js";

const $ = (id) => document.getElementById(id);
const MOST = 200; // turns that are taken from a link

let said = []; // { user, assistant, under }

export const turns = () => said;

/* The messages of a request: the system message, the turns so far, and the prompt. */
export function messages(system, prompt) {
  const before = said.flatMap((turn) => [{ role: "user", content: turn.user }, { role: "assistant", content: turn.assistant }]);
  const first = system.trim() ? [{ role: "system", content: system }] : [];
  return [...first, ...before, { role: "user", content: prompt }];
}

export function addTurn(turn) {
  said.push(turn);
  draw();
  $("turns").scrollTop = $("turns").scrollHeight;
}

/* Takes the turns of a link; anything else than texts is left out. */
export function setTurns(given) {
  const isTurn = (one) => one !== null && typeof one === "object" && ["user", "assistant", "under"].every((name) => typeof one[name] === "string");
  said = Array.isArray(given) ? given.filter(isTurn).slice(0, MOST).map(({ user, assistant, under }) => ({ user, assistant, under })) : [];
  draw();
}

/* Takes the turns from one on away; its prompt is what the form asks again. */
function backTo(i) {
  $("prompt").value = said[i].user;
  said = said.slice(0, i);
  draw();
  $("prompt").focus();
}

function draw() {
  $("talk").hidden = said.length === 0;
  $("prompt-label").textContent = said.length ? "Your next turn" : "Prompt";
  $("turns").replaceChildren(...said.map((turn, i) => {
    const back = h("button", { type: "button", class: "link", "aria-label": `Go back to turn ${i + 1}` }, "Go back here");
    back.addEventListener("click", () => backTo(i));
    return h("li", {},
      h("p", { class: "who" }, "You", back), h("pre", {}, visible(turn.user)),
      h("p", { class: "who" }, "Model", h("span", { class: "under" }, visible(turn.under))), h("pre", {}, visible(turn.assistant)));
  }));
}
