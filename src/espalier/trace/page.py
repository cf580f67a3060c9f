"""Render a trace, or two side by side, as one self-contained HTML page.

The input is the JSON of a trace (`Trace.to_json()`), so this module knows neither the records nor how the numbers are
made. The templates are `pages/trace.html` and `pages/pair.html` with the styles and scripts named below; only
`_document` inserts anything into them.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from espalier.pages.parts import part, policy, template
from espalier.sampling.config import SamplingConfig
from espalier.trace.files import as_json
from espalier.trace.measure import SCALE
from espalier.trace.paths import document_start, json_paths

TITLE_LIMIT = 80
FRAME_HEIGHT = 760
"""Pixels: totals, chart and some lines of output, without filling a notebook's whole screen."""

SOURCE_FIELDS = {
    "json_schema": "schema",
    "gbnf": "grammar",
    "regex": "pattern",
    "choice": "options",
    "soft_wordlist": "wordlist",
}
"""Constraint kind -> the field with the text that a person wrote. Other kinds are shown as JSON."""

SHARED_SCRIPTS = ("inspector.js", "view.js", "chart.js", "costs.js", "export.js", "about.js")
"""In this order: a script sees what earlier ones export, and calls later ones only once all are loaded."""
SCRIPTS, STYLES = (*SHARED_SCRIPTS, "sentence.js", "trace.js"), ("inspector.css", "trace.css")
PAIR_SCRIPTS, PAIR_STYLES = (*SHARED_SCRIPTS, "pair.js"), (*STYLES, "pair.css")

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def render(data: Mapping[str, Any], *, title: str | None = None, findings: Sequence[Mapping[str, Any]] = ()) -> str:
    """The page of a trace, given as `Trace.to_json()`. The default title is the request's first line.

    findings: what a diagnosis found, each as `Finding.to_json()`.
    """
    parts = {"title": title or _title(data), "data": data, "shown": _prepare_data(data) | {"findings": list(findings)}}
    return _document("trace.html", styles=STYLES, scripts=SCRIPTS, parts=parts)


def render_pair(
    a: Mapping[str, Any], b: Mapping[str, Any], titles: tuple[str, str] = ("A", "B"), *, title: str | None = None
) -> str:
    """Two traces side by side on one page, to compare token by token; each as `Trace.to_json()`.

    titles: what to call each, for example "with the schema" and "without".
    """
    parts = {
        "title": title or _title(a),
        "a": a,
        "b": b,
        "shown": {"titles": [str(title) for title in titles], "traces": [_prepare_data(a), _prepare_data(b)]},
    }
    return _document("pair.html", styles=PAIR_STYLES, scripts=PAIR_SCRIPTS, parts=parts)


def _document(source: str, *, styles: Sequence[str], scripts: Sequence[str], parts: Mapping[str, Any]) -> str:
    return fill_template(source, styles=styles, scripts=scripts, parts=parts)[0]


def fill_template(
    source: str, *, styles: Sequence[str], scripts: Sequence[str], parts: Mapping[str, Any], connects: bool = False
) -> tuple[str, str]:
    """Fill a template: strings are HTML-escaped, everything else is embedded as JSON. connects: whether its script asks
    its own server. Returns the page and its Content-Security-Policy."""
    style, script = part(*styles), part(*scripts)
    allowed = policy(style, script, *(["connect-src 'self'"] if connects else []))
    filled = {"policy": html.escape(allowed, quote=True), "style": style, "script": script}
    for name, value in parts.items():
        filled[name] = html.escape(_visible(value), quote=True) if isinstance(value, str) else _embed_json(value)
    # One pass: text of the trace that looks like a placeholder is not substituted again.
    return _PLACE.sub(lambda match: filled[match[1]], template(source)), allowed


def frame(page: str) -> str:
    """A page for a notebook: an iframe that may run its own script and offer downloads, and reach nothing else."""
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" title="Espalier trace" '
        f'srcdoc="{html.escape(page, quote=True)}" '
        f'style="width:100%;height:{FRAME_HEIGHT}px;border:0" loading="lazy"></iframe>'
    )


def _prepare_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Data that JavaScript would change if it parsed it (big integers, order of keys), and data it would have to
    compute: the paths of the tokens."""
    metadata = data["metadata"]
    soft = [_source(constraint) for constraint in metadata.get("soft", ())]
    decoding = {k: v for k, v in metadata.get("decoding", {}).items() if k != "strategy"}
    return {
        "scale": SCALE,
        "sampling": _option_texts(_not_default(metadata["sampling"])),
        "decoding": _option_texts(decoding),
        "constraint": _source(metadata["constraint"]),
        "soft": soft,
        "paths": _paths(data),
    }


def _not_default(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ from the defaults, as their JSON says them."""
    usual = as_json(SamplingConfig().to_json())
    return {name: value for name, value in as_json(sampling).items() if name not in usual or usual[name] != value}


def _option_texts(options: Mapping[str, Any]) -> list[list[str]]:
    return [[k, v if isinstance(v, str) else json.dumps(v)] for k, v in as_json(options).items()]


def _paths(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON pointer of each token's first byte: a list of `names`, and per token an index `at` into it or -1. None
    if there is no document. Same rules as `TraceSummary.by_path`."""
    text = str(data["text"]).encode("utf-8", "replace").decode()  # half a character cannot be encoded
    start = document_start(data["metadata"]["constraint"], text)
    if start is None:
        return None
    tokens = [step["token"] for step in data["steps"]]
    paths = json_paths(
        (
            str(token["text"]).encode("utf-8", "replace") if start and token["is_special"] else bytes(token["bytes"])
            for token in tokens
        ),
        start,
    )
    names = {name: index for index, name in enumerate(dict.fromkeys(path for path in paths if path is not None))}
    return {"names": list(names), "at": [-1 if path is None else names[path] for path in paths]}


def _source(constraint: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if constraint is None:
        return None
    plain = as_json(constraint)
    kind = str(plain.pop("kind", "constraint"))
    field = SOURCE_FIELDS.get(kind)
    source = plain.pop(field, plain) if field else plain
    rest = {} if source is plain else plain
    text = source if isinstance(source, str) else json.dumps(source, ensure_ascii=False, indent=2) if source else ""
    options = [[k, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)] for k, v in rest.items()]
    return {"kind": kind, "source": text, "options": options}


def _title(data: Mapping[str, Any]) -> str:
    prompt = data["metadata"].get("asked") or data["metadata"]["prompt"]
    first = next((line.strip() for line in str(prompt).splitlines() if line.strip()), "")
    short = first if len(first) <= TITLE_LIMIT else first[: TITLE_LIMIT - 1].rstrip() + "…"
    return short or "Trace of one generation"


def _visible(text: str) -> str:
    """Replace what HTML cannot hold: control characters and lone surrogates become U+FFFD."""
    return "".join("\ufffd" if ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 else c for c in text)


def _embed_json(value: Any) -> str:
    """JSON that is safe inside a <script>: ASCII (U+2028 and surrogates are escaped), without `<`, `>` and `&`."""
    text = json.dumps(as_json(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
