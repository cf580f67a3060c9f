/* The door of a page whose script asks the server: where it wants an API key, a form takes the place of what is shown. */
function makeDoor(shown, note, show) {
  const field = h("input", {
    type: "password", id: "key", autocomplete: "off", spellcheck: "false", "aria-describedby": "key-note key-fault",
  });
  const fault = h("p", { class: "fault", id: "key-fault", role: "alert" });
  const form = h("form", { id: "door-form", autocomplete: "off", novalidate: true },
    h("label", { for: "key" }, "API key"), field,
    h("p", { class: "note", id: "key-note" }, "Kept in this tab until it is closed, and sent only to this server."),
    fault, h("button", { type: "submit", class: "primary" }, "Enter"));
  const door = h("section", { class: "card door", id: "door", "aria-labelledby": "door-head", hidden: true },
    h("h2", { id: "door-head" }, "This server requires an API key"), form);
  shown.before(door);

  function open() {
    door.hidden = true;
    shown.hidden = false;
  }

  /* Runs what asks the server; a fault is told in the note, and the want of a key opens the form. */
  async function guarded(work) {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Fault)) reportError(error);
      if (error.status === 401) {
        fault.textContent = key.get() ? error.message : "";
        door.hidden = false;
        shown.hidden = true;
        field.focus();
      } else note.replaceChildren(...[visible(error.message)].flat());
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    key.set(field.value.trim());
    field.value = "";
    show();
  });
  return { guarded, open };
}
