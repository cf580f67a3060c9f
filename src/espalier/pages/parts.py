"""Reads the files of this folder, and makes the policy that allows a page its own parts and nothing else."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files


@cache
def part(*names: str) -> str:
    """The text of files, one after the other. Scripts so joined are one module: each sees what earlier ones export."""
    return "".join(files("espalier.pages").joinpath(name).read_text("utf-8") for name in names)


def template(name: str) -> str:
    """A page with the head that all pages of traces and reports have. Its places are `{{title}}`, `{{style}}`,
    `{{policy}}` and those of the page."""
    return part("head.html", name)


def policy(style: str, script: str = "", *more: str) -> str:
    """A Content-Security-Policy for a page with this style, and with this script if there is one.

    more: further directives, such as `connect-src 'self'`.
    """
    scripts = [f"script-src '{_hash(script)}'"] if script else []
    own = [*scripts, f"style-src '{_hash(style)}'", *more, "img-src data:", "base-uri 'none'", "form-action 'none'"]
    return "; ".join(["default-src 'none'", *own])


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
