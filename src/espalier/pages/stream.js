/* Client of the server: JSON requests and event streams. The API key is kept in this tab's session storage and sent as a
   header, never in an address. It knows nothing of the page. */

const KEY = "espalier-key";

export const key = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/* An error of the server or the connection. param: the field of the request; status: 0 if there was no answer. */
export class Fault extends Error {
  constructor(message, { param = null, code = null, status = 0 } = {}) {
    super(message);
    Object.assign(this, { param, code, status });
  }
}

function told(body, status) {
  const error = body && typeof body === "object" ? body.error : null;
  if (!error || typeof error !== "object") return new Fault(`The server answered with status ${status}.`, { status });
  return new Fault(String(error.message), { param: error.param ?? null, code: error.code ?? null, status });
}

/* A successful response. The address is relative to the page's, so that the server may be mounted below a path. */
async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault(`The server cannot be reached: ${error.message}`);
  }
  if (response.ok) return response;
  const text = await response.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    body = null; // told says the status
  }
  throw told(body, response.status);
}

export const getJson = async (path) => (await ask(path)).json();
export const getText = async (path) => (await ask(path)).text();
export const remove = (path) => ask(path, { method: "DELETE" });

/* The state from /ready, which also has one when it answers 503. */
export async function getState() {
  const response = await fetch("ready", { cache: "no-store", redirect: "error" });
  return response.json();
}

/* Posts a body, given as text, and calls onChunk for every chunk until the end. Aborting the signal closes the
   connection, and the server stops generating. Throws Fault, AbortError. */
export async function generate(body, { signal, onChunk }) {
  const response = await ask("v1/chat/completions", {
    method: "POST", body, signal, headers: { "content-type": "application/json" },
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await read(reader);
    if (done) throw new Fault("The stream ended early: the server, or something in between, cut it off.");
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ")) continue; // a comment, which says that it is still there
      const data = part.slice(6);
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw told(chunk, 200);
      onChunk(chunk);
    }
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault(`The connection broke: ${error.message}`);
  }
}
