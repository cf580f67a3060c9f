"""Send the same requests to a llama-server and to ours, and print a table of status codes and shapes.

    python scripts/compare_llama_server.py http://127.0.0.1:8080 http://127.0.0.1:8010

A shape is the set of paths of a reply, list items as `[]`. Only requests whose status or shape differ have a note.
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
    ("wrong type", CHAT, ASK | {"temperature": "hot"}),
    ("temperature -1", CHAT, ASK | {"temperature": -1}),
    ("no messages", CHAT, {"messages": []}),
    ("image", CHAT, ASK | {"messages": [{"role": "user", "content": [IMAGE]}]}),
    ("too long", CHAT, ASK | {"messages": [{"role": "user", "content": "x " * 9000}]}),
    ("completions", COMPLETIONS, {"prompt": "hi", "max_tokens": 4}),
    ("echo", COMPLETIONS, {"prompt": "hi", "max_tokens": 4, "echo": True}),
    ("suffix", COMPLETIONS, {"prompt": "hi", "max_tokens": 4, "suffix": "x"}),
    ("best_of", COMPLETIONS, {"prompt": "hi", "max_tokens": 4, "best_of": 2}),
    ("completion", OWN, TEXT),
    ("n_predict 0", OWN, TEXT | {"n_predict": 0}),
    ("n_probs", OWN, TEXT | {"n_probs": 2}),
    ("grammar", OWN, TEXT | {"grammar": 'root ::= "a"'}),
    ("bad grammar", OWN, TEXT | {"grammar": "root ::="}),
    ("grammar and schema", OWN, TEXT | {"grammar": 'root ::= "a"', "json_schema": {}}),
    ("prompt too long", OWN, TEXT | {"prompt": "x " * 9000}),
    ("ids", OWN, TEXT | {"prompt": [1, 2, 3]}),
    ("tokenize", "/tokenize", {"content": "hi"}),
    ("detokenize", "/detokenize", {"tokens": [1, 2]}),
    ("apply-template", "/apply-template", {"messages": ASK["messages"]}),
    ("models", "/v1/models", None),
    ("health", "/health", None),
    ("props", "/props", None),
    ("slots", "/slots", None),
    ("lora", "/lora-adapters", None),
    ("metrics", "/metrics", None),
    ("no such route", "/v1/nothing", None),
)


def asked(base: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
    """The status and the reply, None where it is no JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{base}{path}", data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=120) as reply:
            status, raw = reply.status, reply.read()
    except urllib.error.HTTPError as error:
        status, raw = error.code, error.read()
    try:
        return status, json.loads(raw)
    except ValueError:
        return status, None


def paths(value: Any, at: str = "") -> Iterator[str]:
    """Every path of a JSON value."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from paths(one, f"{at}.{name}" if at else name)
    elif isinstance(value, list):
        for one in value[:1]:
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


if __name__ == "__main__":
    sys.stdout.write("| request | route | llama-server | ours | shape of ours |\n|---|---|---|---|---|\n")
    for one in REQUESTS:
        sys.stdout.write(row(*one, sys.argv[1], sys.argv[2]) + "\n")
