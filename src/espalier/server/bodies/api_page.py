"""The page `/docs`: every route with what it does, an example that can be pasted, and the fields of its body.

It is made from the OpenAPI document alone, needs no script and nothing from elsewhere, and is read on a phone as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
USER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
ASK = [{"role": "user", "content": "Generate user info"}]
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "/v1/chat/completions": {"messages": ASK, "max_tokens": 60, "structured_outputs": {"json": USER}},
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


def api_page(document: Mapping[str, Any], *, root: str) -> str:
    """document: the OpenAPI document. root: the address of the server as a reader's shell names it."""
    groups: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method, route in item.items():
            if method in METHODS:
                made = "".join(_route(document, path, method, route, root))
                groups.setdefault((route.get("tags") or ["other"])[0], []).append(made)
    names = "".join(f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name in groups)
    body = "".join(
        f'<section id="{_anchor(name)}"><h2>{escape(name)}</h2>{"".join(routes)}</section>'
        for name, routes in groups.items()
    )
    info = document["info"]
    return PAGE.format(title=escape(info["title"]), version=escape(info["version"]), names=names, body=body)


def _route(document: Mapping[str, Any], path: str, method: str, route: Mapping[str, Any], root: str) -> Iterator[str]:
    statuses = ", ".join(sorted(route.get("responses", {})))
    yield f'<article><h3><b class="{method}">{method.upper()}</b> <code>{escape(path)}</code></h3>'
    about = escape(route.get("description") or route.get("summary") or "")
    yield "<p>" + re.sub("`([^`]+)`", r"<code>\1</code>", about) + "</p>"
    if (example := _example(path, method, root)) is not None:
        yield f'<pre tabindex="0">{escape(example)}</pre>'
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
<meta name="color-scheme" content="light dark"><title>{title} {version}: the API</title>
<style>
:root{{--paper:#faf8f3;--card:#fff;--ink:#24231f;--soft:#66635a;--line:#e5e1d6;--leaf:#2c6a4b;--rust:#a1331c}}
@media(prefers-color-scheme:dark){{:root{{--paper:#151613;--card:#1d1e1a;--ink:#e9e6dc;--soft:#a5a195;--line:#33342e;
--leaf:#7fc4a0;--rust:#f09a80}}}}
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:60rem;padding:16px;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}}
h1{{font-size:1.5rem;margin:0 0 .5rem;color:var(--leaf)}}h2{{font-size:1.15rem;margin:1.6rem 0 .6rem}}
h3{{font-size:1rem;margin:0}}h3 b{{font-size:.8rem;color:var(--leaf)}}h3 b.delete{{color:var(--rust)}}
a,summary{{color:var(--leaf)}}nav{{display:flex;flex-wrap:wrap;gap:4px 16px}}p{{margin:.4rem 0}}
article{{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px;margin:0 0 10px}}
code,pre{{font:.85rem/1.5 ui-monospace,Menlo,Consolas,monospace}}
pre{{margin:.5rem 0;padding:10px 12px;background:var(--paper);border:1px solid var(--line);border-radius:8px;
white-space:pre-wrap;max-height:24rem;overflow:auto}}
summary{{cursor:pointer;padding:4px 0}}ul{{margin:.3rem 0;padding:0;list-style:none;columns:2 18rem}}
small,.note{{color:var(--soft);font-size:.85rem}}
</style></head>
<body><h1>{title} <small>{version}</small></h1>
<p>Bodies and replies in full: <a href="openapi.json">openapi.json</a>. With a key, add
<code>-H "authorization: Bearer $KEY"</code> to the examples. <a href="./">Playground</a></p>
<nav>{names}</nav>
{body}
</body></html>
"""
