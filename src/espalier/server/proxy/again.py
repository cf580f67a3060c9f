"""Asks a llama-server for single positions of a reply that is traced. It knows no client and no reply."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from espalier.errors import UpstreamError
from espalier.upstream.llama_server.client import LlamaServer
from espalier.upstream.xray.level import Probe
from espalier.upstream.xray.wire.request import Asked

PROBES = 3


class NoEntry(UpstreamError):
    """A position without probabilities."""


class AsksAgain:
    """The Again of one request. It never names a slot: a pinned slot has given other requests' distributions under
    load."""

    def __init__(self, server: LlamaServer, parsed: Asked) -> None:
        self._server = server
        self._more = {name: parsed.body[name] for name in ("lora",) if name in parsed.body}

    def prompt_ids(self, prompt: str) -> list[int]:
        return self._server.tokenize(prompt, add_special=False)

    def entry(self, tokens: Sequence[int], *, count: int, is_fresh: bool) -> Any:
        body = {
            # A token of whole characters is forced, since others get no entry.
            "prompt": list(tokens), "n_predict": 1, "n_probs": count, "grammar": 'root ::= "a"', "temperature": 0,
            "cache_prompt": not is_fresh, "return_tokens": True, **self._more,
        }  # fmt: skip
        return self._first_entry(body)

    def probed(self, tokens: Sequence[int], probe: Probe, *, count: int, is_fresh: bool) -> Any:
        body = {
            "prompt": list(tokens), "n_predict": 1, "n_probs": count, "cache_prompt": not is_fresh, **self._more,
            **probe.settings(),
        }  # fmt: skip
        for seed in range(PROBES - 1):  # another token may be drawn, and end inside a character
            with contextlib.suppress(NoEntry):
                return self._first_entry(body | {"seed": seed})
        return self._first_entry(body | {"seed": PROBES})

    def _first_entry(self, body: Mapping[str, Any]) -> Any:
        entries = self._server.complete(body).get("completion_probabilities")
        if not isinstance(entries, list) or not entries:
            raise NoEntry("the server gives no probabilities for this position")
        return entries[0]
