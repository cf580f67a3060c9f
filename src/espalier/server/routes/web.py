"""`GET /`: the playground page for browsers, and its files, and `GET /espalier/presets`.

The page is public and contains nothing about this server; it calls the other routes with the reader's key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.constraints.joining.presets import preset_parts
from espalier.errors import EspalierError
from espalier.pages import parts
from espalier.sampling.presets.catalogue import Presets
from espalier.server.http.errors import READING_ERRORS, NotFound, documented
from espalier.server.http.wire import JsonResponse
from espalier.server.process.deps import cheap_caller_of, count_public, process_of
from espalier.trace.measure import SCALE
from espalier.wording import in_words

HTML, CSS, JS, SVG, JSON = "text/html", "text/css", "text/javascript", "image/svg+xml", "application/json"
PARTS: Mapping[str, str] = {
    "inspector.css": CSS,
    "playground.css": CSS,
    "inspector.js": JS,
    "stream.js": JS,
    "form.js": JS,
    "free.js": JS,
    "talk.js": JS,
    "scale.js": JS,
    "playground.js": JS,
    "icon.svg": SVG,
    "example.json": JSON,
}
"""The files of the page with their types. No other file of the package can be requested."""
MADE: Mapping[str, str] = {"scale.js": f"/* What `wordOf` takes. */\nexport const SCALE = {json.dumps(SCALE)};\n"}
"""Files that are made from what Python knows."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
"""Nothing from other origins, nothing inline, no eval; with trusted types, no model output can become HTML."""
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}
"""no-cache: cached but revalidated by ETag, so that no browser mixes the files of two versions."""

RUNNING = "Ollama is running"
"""What Ollama replies at `/`, letter by letter: clients and health checks compare it."""
router = APIRouter()


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def playground(request: Request) -> Response:
    """The playground page for browsers, which ask for HTML; anything else gets the words by which clients of Ollama
    know that there is a server. Below a prefix there is only the page."""
    count_public(request)
    if not request.app.root_path and "text/html" not in request.headers.get("accept", ""):
        return Response(RUNNING, media_type="text/plain")
    return _answer(request, "playground.html", HTML)


@router.api_route("/playground/{name}", methods=["GET", "HEAD"], include_in_schema=False)
async def part(request: Request, name: str) -> Response:
    """One file of the page."""
    count_public(request)
    if name not in PARTS:
        raise NotFound()
    return _answer(request, name, PARTS[name])


@router.api_route("/favicon.ico", methods=["GET", "HEAD"], include_in_schema=False)
async def icon(request: Request) -> Response:
    """The icon, which browsers request for every page."""
    count_public(request)
    return _answer(request, "icon.svg", SVG)


@router.get("/espalier/presets", tags=["espalier"], responses=documented(*READING_ERRORS))
async def list_presets(request: Request) -> Response:
    """The names that `espalier.preset` takes; `problem` says why one cannot be used."""
    caller = cheap_caller_of(request)
    process = process_of(request)

    def work() -> dict[str, Any]:  # it reads files
        presets = process.presets
        return {"object": "list", "data": [_preset(presets, name) for name in presets.names()]}

    return JsonResponse(await process.pools.replies.run(work, owner=caller.name))


def _preset(presets: Presets, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": name, "object": "preset", "description": "", "problem": None}
    try:
        preset = presets.get(name)
    except EspalierError:
        return row | {"problem": "its file is broken"}  # the error contains a path of this machine
    try:
        preset_parts(preset)
    except EspalierError as error:
        row["problem"] = in_words(error.message, "http")
    return row | {"description": preset.description}


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    content: bytes
    tag: str


@cache
def _file(name: str) -> File:
    content = (MADE.get(name) or parts.part(name)).encode()
    return File(content=content, tag=f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"')


def _answer(request: Request, name: str, kind: str) -> Response:
    file = _file(name)
    headers = {**HEADERS, "etag": file.tag}
    given = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if file.tag in given:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=kind, headers=headers)
