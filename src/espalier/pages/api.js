/* The page of the API: sends an example as it stands in its box, and shows what the server answers. The key is that of the
   playground's tab. Replies are inserted as text. */

const KEY = "espalier-key";
const MOST = 20_000; // characters of a reply that are shown
const SECONDS = 120;

const field = document.getElementById("key");
field.value = sessionStorage.getItem(KEY) || "";
field.addEventListener("input", () => (field.value ? sessionStorage.setItem(KEY, field.value) : sessionStorage.removeItem(KEY)));

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text; // no JSON: shown as it came
  }
}

async function send(form) {
  const [button, status, reply] = [form.querySelector("button"), form.querySelector("[role=status]"), form.querySelector("pre")];
  const body = form.querySelector("textarea")?.value;
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  if (field.value) headers.authorization = `Bearer ${field.value}`;
  button.disabled = true;
  status.textContent = "Waiting…";
  const start = performance.now();
  try {
    // Relative to this page, so that the server may be mounted below a path.
    const response = await fetch(form.dataset.path, { method: form.dataset.method, headers, body, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(1000 * SECONDS) });
    const text = pretty(await response.text());
    status.textContent = `Status ${response.status} after ${Math.round(performance.now() - start)} ms`;
    reply.textContent = text.length > MOST ? `${text.slice(0, MOST)}…` : text;
    reply.hidden = false;
  } catch (error) {
    status.textContent = `No reply: ${error.message}`;
  }
  button.disabled = false;
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  send(event.target);
});
