"""What the engines of servers share when they are opened: the address and the key."""

from __future__ import annotations

from pathlib import Path

from espalier.engines.options import EngineOptions
from espalier.errors import InputError
from espalier.upstream.link import EXAMPLE, SILENCE, ServerLink

MOST_KEY = 4096  # bytes


def link_of(model: str, options: EngineOptions) -> ServerLink:
    """The link to the server of `options.url`, or else of `model`, if that is an address. Raises InputError."""
    url = options.url or (model if is_address(model) else None)
    if url is None:
        raise InputError("the address of the server is missing", hint=f"--url, {EXAMPLE}", field="url")
    return ServerLink(url, key=_key(options.key_file), silence=options.timeout or SILENCE)


def is_address(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _key(path: str | None) -> str | None:
    """The key in a file, without the newline at its end. Raises InputError, which never shows the key."""
    if path is None:
        return None
    try:
        with Path(path).expanduser().open("rb") as file:
            text = file.read(MOST_KEY + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise InputError(f"the key file {path!r} cannot be read: {reason}", field="key_file") from error
    if len(text) > MOST_KEY or not text.strip():
        raise InputError(f"the key file {path!r} holds no key", hint="one line", field="key_file")
    return text.decode("ascii", "replace").strip()
