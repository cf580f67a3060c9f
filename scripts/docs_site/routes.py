"""Pages of the HTTP reference, made from the server's OpenAPI document. It knows no route by name."""

from __future__ import annotations

import json
from typing import Any

FOLDER = "reference/http"
NAMES = {"array": "list", "object": "object", "null": "null"}


def pages() -> dict[str, str]:
    """Path in the site -> text: the routes, the bodies, and the document itself."""
    from espalier.server.apps import create_app  # noqa: PLC0415  # imports the server
    from espalier.server.settings import settings_of  # noqa: PLC0415

    document = create_app(settings_of({})).openapi()
    models = document["components"]["schemas"]
    return {
        f"{FOLDER}/index.md": routes(document["paths"]),
        f"{FOLDER}/bodies.md": bodies(models),
        f"{FOLDER}/openapi.json": json.dumps(document, indent=1, ensure_ascii=False),
    }


def routes(paths: dict[str, Any]) -> str:
    """A section for each route: what it does, its parameters, its body, its statuses."""
    meanings = {code: one["description"] for code, one in first_of(paths).items() if code >= "400"}
    rows = [f"| {code} | {cell(meaning)} |" for code, meaning in sorted(meanings.items())]
    parts = [
        "# Routes\n\nThis page is made from the server's [OpenAPI document](openapi.json), which a running server gives"
        " at `/openapi.json`, with a page at `/docs`. [The server](../../server.md) tells what the fields mean.\n",
        "\n".join(["| status | meaning |", "|---|---|", *rows, ""]),
    ]
    for path, methods in sorted(paths.items()):
        for method, one in methods.items():
            parts.append(f"## {method.upper()} {path}\n")
            parts.append(f"{one.get('description') or one.get('summary') or ''}\n")
            if one.get("parameters"):
                parts.append("| parameter | in | type | |\n|---|---|---|---|")
                for field in one["parameters"]:
                    kind = type_of(field.get("schema", {}))
                    parts.append(f"| `{field['name']}` | {field['in']} | {kind} | {cell(field.get('description'))} |")
                parts.append("")
            if "requestBody" in one:
                parts.append(f"Body: {body_of(one['requestBody'])}\n")
            parts.append("Statuses: " + ", ".join(one["responses"]) + "\n")
    return "\n".join(parts)


def first_of(paths: dict[str, Any]) -> dict[str, Any]:
    """Status -> its reply, as the first route that has the status describes it."""
    found: dict[str, Any] = {}
    for methods in paths.values():
        for one in methods.values():
            found = one["responses"] | found
    return found


def body_of(request: dict[str, Any]) -> str:
    """A link to the type of a body, or the kinds of content that it may have."""
    if "$ref" in request:
        return type_of(request)
    return ", ".join(type_of(value.get("schema", {})) for value in request.get("content", {}).values())


def bodies(models: dict[str, Any]) -> str:
    """A table of fields for each type of the document."""
    parts = ["# Bodies\n\nThe types of requests and replies, made from the [OpenAPI document](openapi.json).\n"]
    for name, model in sorted(models.items()):
        parts.append(f"## {name}\n\n{model.get('description', '')}\n")
        if "properties" in model:
            parts.append("| field | type | |\n|---|---|---|")
            for field, schema in model["properties"].items():
                needed = "required. " if field in model.get("required", ()) else ""
                parts.append(f"| `{field}` | {type_of(schema)} | {needed}{cell(schema.get('description'))} |")
            parts.append("")
        elif "enum" in model:
            parts.append("One of " + ", ".join(f"`{one}`" for one in model["enum"]) + ".\n")
    return "\n".join(parts)


def type_of(schema: Any) -> str:
    """A short name of a schema, with links to the types that it names."""
    if not isinstance(schema, dict) or not schema:
        return "any"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](bodies.md#{name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(type_of(one) for one in schema[key]))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "any")
    if kind == "array":
        return "list of " + type_of(schema.get("items"))
    return " or ".join(kind) if isinstance(kind, list) else NAMES.get(kind, kind)


def cell(text: str | None) -> str:
    return " ".join((text or "").replace("|", "\\|").split())
