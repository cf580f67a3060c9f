"""Send the same requests to a llama-server and to ours, and print docs/compared.md: status codes and shapes.

    python scripts/compare_llama_server.py http://127.0.0.1:8080 http://127.0.0.1:8010

A shape is the set of paths of a reply, list items and the chunks of a stream as `[]`. Only requests whose status or
shape differ have a note. tests/integration/upstream/test_compared_page.py holds the page to both servers.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

ASK = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0}
TEXT = {"prompt": "hi", "n_predict": 4, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CHAT, COMPLETIONS, OWN = "/v1/chat/completions", "/v1/completions", "/completion"
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}
DATE = {"type": "object", "properties": {"d": {"type": "string", "format": "date"}}, "required": ["d"]}
MOOD = {"type": "object", "properties": {"mood": {"enum": ["calm", "glad"]}}, "required": ["mood"]}
LOOK_UP = {"type": "function", "function": {"name": "look_up", "parameters": MOOD}}
CUT_CALL = {"id": "aB3dE6gH9", "type": "function", "function": {"name": "look_up", "arguments": '{"mood": "ca'}}
SENT_BACK = [
    *ASK["messages"],  # type: ignore[misc]
    {"role": "assistant", "content": None, "tool_calls": [CUT_CALL]},
    {"role": "tool", "tool_call_id": "aB3dE6gH9", "content": "it was cut"},
]
FRONT_END = {
    "truncation_length": 2048,
    "keep_alive": "5m",
    "response_mode": "stream",
    "banned_strings": [],
    "grammar_string": "",
    "tool_ids": [],
    "tfs_z": 1,
    "typical_p": 1,
}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
RESPONSE = {"input": "hi", "max_output_tokens": 16, "temperature": 0}
MESSAGE = {"model": "demo", **ASK}
REQUESTS: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("chat", CHAT, ASK),
    ("unknown field", CHAT, ASK | {"nonsense": 1}),
    ("a typo", CHAT, ASK | {"temprature": 1}),
    ("a constraint's typo", CHAT, ASK | {"response_fromat": {"type": "json_object"}}),
    ("hints", CHAT, ASK | {"store": True, "user": "a", "service_tier": "auto"}),
    ("another model", CHAT, ASK | {"model": "gpt-9"}),
    ("stop empty", CHAT, ASK | {"stop": ""}),
    ("max_tokens 0", CHAT, ASK | {"max_tokens": 0}),
    ("max_tokens -1", CHAT, ASK | {"max_tokens": -1, "stop": ["e"]}),
    ("logprobs true", CHAT, ASK | {"logprobs": True, "top_logprobs": 2}),
    ("logprobs 5", CHAT, ASK | {"logprobs": 5}),
    ("json_object", CHAT, ASK | {"response_format": {"type": "json_object"}}),
    ("format date", CHAT, ASK | {"response_format": {"type": "json_schema", "json_schema": {"schema": DATE}}}),
    ("tools", CHAT, ASK | {"tools": [TOOL]}),
    ("tool_choice alone", CHAT, ASK | {"tool_choice": "auto"}),
    ("prefill", CHAT, ASK | {"messages": [*ASK["messages"], {"role": "assistant", "content": "I "}]}),  # type: ignore[misc]
    ("stream_options alone", CHAT, ASK | {"stream_options": {"include_usage": True}}),
    ("n 2", CHAT, ASK | {"n": 2}),
    ("a front end's body", CHAT, ASK | FRONT_END),
    ("20 unknown fields", CHAT, ASK | {f"extra_{count}": count for count in range(20)}),
    ("Hugging Face's format", CHAT, ASK | {"response_format": {"type": "json_object", "value": MOOD}}),
    ("grammar on chat", CHAT, ASK | {"grammar": 'root ::= "a"'}),
    ("a required call", CHAT, ASK | {"tools": [LOOK_UP], "tool_choice": "required", "max_tokens": 200}),
    ("a cut call sent back", CHAT, ASK | {"messages": SENT_BACK, "tools": [LOOK_UP]}),
    ("stream", CHAT, ASK | {"stream": True}),
    ("stream with usage", CHAT, ASK | STREAM),
    ("timings_per_token", CHAT, ASK | STREAM | {"timings_per_token": True}),
    ("wrong type", CHAT, ASK | {"temperature": "hot"}),
    ("temperature -1", CHAT, ASK | {"temperature": -1}),
    ("no messages", CHAT, {"messages": []}),
    ("image", CHAT, ASK | {"messages": [{"role": "user", "content": [IMAGE]}]}),
    ("too long", CHAT, ASK | {"messages": [{"role": "user", "content": "x " * 9000}]}),
    ("completions", COMPLETIONS, {"prompt": "hi", "max_tokens": 4}),
    ("echo", COMPLETIONS, {"prompt": "hi", "max_tokens": 4, "echo": True}),
    ("log probabilities of the prompt", COMPLETIONS, {"prompt": "hi", "max_tokens": 4, "echo": True, "logprobs": 1}),
    ("stream", COMPLETIONS, {"prompt": "hi", "max_tokens": 4} | STREAM),
    ("suffix", COMPLETIONS, {"prompt": "hi", "max_tokens": 4, "suffix": "x"}),
    ("best_of", COMPLETIONS, {"prompt": "hi", "max_tokens": 4, "best_of": 2}),
    ("completion", OWN, TEXT),
    ("n_predict 0", OWN, TEXT | {"n_predict": 0}),
    ("n_probs", OWN, TEXT | {"n_probs": 2}),
    ("n_probs 50", OWN, TEXT | {"n_probs": 50}),
    ("samplers by letters", OWN, TEXT | {"samplers": "kmt"}),
    ("unknown samplers", OWN, TEXT | {"samplers": ["top_k", "adaptive_p", "tfs_z", "temperature"]}),
    ("timings_per_token", OWN, TEXT | {"stream": True, "timings_per_token": True}),
    ("grammar", OWN, TEXT | {"grammar": 'root ::= "a"'}),
    ("bad grammar", OWN, TEXT | {"grammar": "root ::="}),
    ("grammar and schema", OWN, TEXT | {"grammar": 'root ::= "a"', "json_schema": {}}),
    ("prompt too long", OWN, TEXT | {"prompt": "x " * 9000}),
    ("ids", OWN, TEXT | {"prompt": [1, 2, 3]}),
    ("tokenize", "/tokenize", {"content": "hi"}),
    ("detokenize", "/detokenize", {"tokens": [1, 2]}),
    ("apply-template", "/apply-template", {"messages": ASK["messages"]}),
    ("models", "/v1/models", None),
    ("a base URL without /v1", "/models", None),
    ("a base URL without /v1", "/chat/completions", ASK),
    ("a base URL without /v1", "/responses", RESPONSE),
    ("a response", "/v1/responses", RESPONSE),
    ("a streamed response", "/v1/responses", RESPONSE | {"stream": True}),
    ("tokens of a response", "/v1/responses/input_tokens", {"input": "hi"}),
    ("tokens of a chat", "/v1/chat/completions/input_tokens", ASK),
    ("a message", "/v1/messages", MESSAGE),
    ("a streamed message", "/v1/messages", MESSAGE | {"stream": True}),
    ("tokens of a message", "/v1/messages/count_tokens", MESSAGE),
    ("embeddings", "/v1/embeddings", {"input": "hi"}),
    ("rerank", "/v1/rerank", {"query": "a", "documents": ["b"]}),
    ("infill", "/infill", {"input_prefix": "a", "input_suffix": "b"}),
    ("Ollama's models", "/api/tags", None),
    ("Ollama's chat", "/api/chat", {"model": "demo", "messages": ASK["messages"], "stream": False}),
    ("TGI's generate", "/generate", {"inputs": "hi", "parameters": {"max_new_tokens": 4}}),
    ("vLLM's tokenizer", "/tokenizer_info", None),
    ("health", "/health", None),
    ("props", "/props", None),
    ("slots", "/slots", None),
    ("lora", "/lora-adapters", None),
    ("metrics", "/metrics", None),
    ("no such route", "/v1/nothing", None),
)
HEAD = """# Beside llama-server

Made by `python scripts/compare_llama_server.py`, llama-server first, on `models/demo/demo.gguf`;
[server.md](server.md#beside-llama-server) says why, [clients](reference/clients.md) has the same for whole SDKs.

| request | route | llama-server | ours | shape of ours |
|---|---|---|---|---|
"""


def asked(base: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
    """The status and the reply: the JSON of each chunk of a stream; None where there is no JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{base}{path}", data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=120) as reply:
            status, raw = reply.status, reply.read()
    except urllib.error.HTTPError as error:
        status, raw = error.code, error.read()
    chunks = [line[6:] for line in raw.splitlines() if line.startswith(b"data: {")]
    try:
        return status, [json.loads(chunk) for chunk in chunks] if chunks else json.loads(raw)
    except ValueError:
        return status, None


def paths(value: Any, at: str = "") -> Iterator[str]:
    """Every path of a JSON value."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from paths(one, f"{at}.{name}" if at else name)
    elif isinstance(value, list):
        for one in value:
            yield from paths(one, f"{at}[]")
    else:
        yield at


def short(path: str, others: set[str]) -> str:
    """The beginning of a path that the other reply has no path with, as one name for many."""
    parts = path.split(".")
    for count in range(1, len(parts)):
        begin = ".".join(parts[:count])
        if not any(one == begin or one.startswith((f"{begin}.", f"{begin}[")) for one in others):
            return begin
    return path


def row(name: str, path: str, body: dict[str, Any] | None, theirs: str, ours: str) -> str:
    """One line of the table."""
    (their_status, their_reply), (our_status, our_reply) = asked(theirs, path, body), asked(ours, path, body)
    left, right = set(paths(their_reply)), set(paths(our_reply))
    lacks = sorted({short(path, right) for path in left - right})
    more = sorted({short(path, left) for path in right - left})
    notes = []
    if their_status == our_status:
        notes = [
            f"{what} {', '.join(f'`{one}`' for one in found[:6])}{' …' if len(found) > 6 else ''}"
            for what, found in (("lacks", lacks), ("adds", more))
            if found
        ]
    elif isinstance(our_reply, dict) and isinstance(error := our_reply.get("error"), dict):
        notes = [f"ours: {str(error.get('message'))[:90]}"]
    return f"| {name} | `{path}` | {their_status} | {our_status} | {'; '.join(notes).replace('|', '/')} |"


def page(theirs: str, ours: str) -> str:
    """docs/compared.md. theirs, ours: the addresses of the servers."""
    return HEAD + "".join(f"{row(*request, theirs, ours)}\n" for request in REQUESTS)


if __name__ == "__main__":
    sys.stdout.write(page(sys.argv[1], sys.argv[2]))
