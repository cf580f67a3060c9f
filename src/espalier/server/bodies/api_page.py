"""The page `/docs`: every route with what it does, an example that can be pasted, and the fields of its body.

It is made from the OpenAPI document, needs nothing from elsewhere, and is read on a phone as well. Its script sends the
examples; without it, the page is complete but for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from espalier.pages import parts

METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
USER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
ASK = [{"role": "user", "content": "Generate user info"}]
CHAT = "/v1/chat/completions"
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    CHAT: {
        "messages": ASK,
        "max_tokens": 60,
        "seed": 6,
        "response_format": {"type": "json_schema", "json_schema": {"name": "user", "schema": USER}},
    },
    "/v1/completions": {"prompt": "My name is ", "max_tokens": 20, "structured_outputs": {"regex": "[A-Z][a-z]+"}},
    "/v1/responses": {
        "input": "Generate user info",
        "max_output_tokens": 60,
        "text": {"format": {"type": "json_schema", "name": "user", "schema": USER}},
    },
    "/v1/messages": {"messages": ASK, "max_tokens": 60},
    "/v1/messages/count_tokens": {"messages": ASK},
    "/completion": {"prompt": "yes or no? ", "n_predict": 8, "grammar": 'root ::= "yes" | "no"'},
    "/generate": {"inputs": "yes or no? ", "parameters": {"max_new_tokens": 8}},
    "/tokenize": {"content": "Generate user info"},
    "/detokenize": {"tokens": [72, 105]},
    "/api/chat": {"messages": ASK, "options": {"num_predict": 60}, "format": USER, "stream": False},
    "/api/generate": {"prompt": "Generate user info", "options": {"num_predict": 60}},
    "/apply-template": {"messages": ASK},
}
"""Bodies that any server of a chat model takes, by address. The model's name may be left out."""
REPLIES: Mapping[str, Mapping[str, Any]] = {
    CHAT: {
        "id": "chatcmpl-5d902f960cc8a7bd851bd1c3ad1ffdc3",
        "object": "chat.completion",
        "created": 1795879304,
        "model": "demo",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": '{"name": "Sofia Reyes", "age": 74}', "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 15, "total_tokens": 27},
    }
}
"""What the demo model answers to an example, without the fields that differ from run to run."""


def policy() -> str:
    """The Content-Security-Policy of the page: its own style and script, and requests to this server alone."""
    return parts.policy(parts.part("api.css"), parts.part("api.js"), "connect-src 'self'", "frame-ancestors 'none'")


def api_page(document: Mapping[str, Any], *, root: str) -> str:
    """The page, chat first. document: the OpenAPI document. root: the server's address as a reader's shell names it."""
    groups: dict[str, list[str]] = {}
    paths = sorted(document["paths"].items(), key=lambda route: route[0] != CHAT)
    for path, item in paths:
        for method, route in item.items():
            if method in METHODS:
                article = "".join(_route(document, path, method, route, root))
                groups.setdefault((route.get("tags") or ["other"])[0], []).append(article)
    names = "".join(f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name in groups)
    body = "".join(
        f'<section id="{_anchor(name)}"><h2>{escape(name)}</h2>{"".join(routes)}</section>'
        for name, routes in groups.items()
    )
    info = document["info"]
    return PAGE.format(
        title=escape(info["title"]),
        version=escape(info["version"]),
        names=names,
        body=body,
        style=parts.part("api.css"),
        script=parts.part("api.js"),
    )


def _route(document: Mapping[str, Any], path: str, method: str, route: Mapping[str, Any], root: str) -> Iterator[str]:
    statuses = ", ".join(sorted(route.get("responses", {})))
    yield f'<article><h3><b class="{method}">{method.upper()}</b> <code>{escape(path)}</code></h3>'
    about = escape(route.get("description") or route.get("summary") or "")
    yield "<p>" + re.sub("`([^`]+)`", r"<code>\1</code>", about) + "</p>"
    if (example := _example(path, method, root)) is not None:
        yield f'<pre tabindex="0">{escape(example)}</pre>'
        if path in REPLIES:
            reply = json.dumps(REPLIES[path], indent=1)
            yield f'<p class="note">The demo model answers:</p><pre tabindex="0">{escape(reply)}</pre>'
        yield _form(path, method)
    fields = list(_fields(document, route))
    if fields:
        rows = "".join(f"<li><code>{escape(name)}</code> <small>{escape(kind)}</small></li>" for name, kind in fields)
        yield f"<details><summary>{len(fields)} fields of the body</summary><ul>{rows}</ul></details>"
    yield f'<p class="note">Answers {escape(statuses)}</p></article>'


def _example(path: str, method: str, root: str) -> str | None:
    """A command for a shell; None for a route that needs an id, or a body that is not shown."""
    if method == "get" and "{" not in path:
        return f"curl -s {root}{path}"
    if method != "post" or path not in EXAMPLES:
        return None
    body = json.dumps(EXAMPLES[path], indent=1).replace("'", "'\\''")
    return f"curl -s {root}{path} -H 'content-type: application/json' -d '{body}'"


def _form(path: str, method: str) -> str:
    """Sends the example from the page."""
    body = ""
    if method == "post":
        text = json.dumps(EXAMPLES[path], indent=1)
        body = (
            f'<textarea aria-label="Body" spellcheck="false" rows="{text.count(chr(10)) + 1}">{escape(text)}</textarea>'
        )
    address = escape(path.removeprefix("/"), quote=True)
    return (
        '<details class="try"><summary>Try it</summary>'
        f'<form data-path="{address}" data-method="{method.upper()}">{body}'
        '<button type="submit">Send</button><span class="note" role="status"></span>'
        '<pre tabindex="0" hidden></pre></form></details>'
    )


def _fields(document: Mapping[str, Any], route: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    reference = route.get("requestBody", {}).get("$ref", "")
    schema = document["components"]["schemas"].get(reference.rpartition("/")[2], {})
    required = set(schema.get("required", ()))
    for name, member_schema in schema.get("properties", {}).items():
        yield name, _kind(member_schema) + (", required" if name in required else "")


def _kind(schema: Mapping[str, Any]) -> str:
    """The types that a field takes, in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    many = schema.get("anyOf") or schema.get("oneOf")
    if many:
        return " or ".join(dict.fromkeys(_kind(option) for option in many if option.get("type") != "null"))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    bounds = [f"{sign} {schema[name]}" for name, sign in BOUNDS.items() if name in schema]
    return " ".join([str(schema.get("type", "any value")), *bounds])


BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _anchor(name: str) -> str:
    return escape("".join(c if c.isalnum() else "-" for c in name), quote=True)


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title} {version}: the API</title><link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body><h1>{title} <small>{version}</small></h1>
<p>Every route with an example, which <b>Try it</b> sends to this server. Bodies and replies in full:
<a href="openapi.json">openapi.json</a>. <a href="./">Playground</a></p>
<p class="key"><label>API key, if this server asks for one: <input type="password" id="key" autocomplete="off"
spellcheck="false"></label></p>
<nav>{names}</nav>
{body}
<script type="module">{script}</script>
</body></html>
"""
