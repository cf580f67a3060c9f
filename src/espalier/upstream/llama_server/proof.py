"""Has a llama-server show that it enforces a grammar or a schema before the first text is asked for.

llama-server goes on without a grammar that it cannot read. So a token that the constraint refuses is made the most
likely one, and must not come; and its reply has to name the grammar that it used. Once per grammar.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from espalier.constraints.base import Matcher
from espalier.errors import UpstreamError
from espalier.tokens.vocab import Vocab
from espalier.upstream.llama_server.client import LlamaServer

CANARY_BIAS = 10_000.0
"""Added to the logit of a token that the grammar refuses: without the grammar it would be taken for certain."""
MOST_PROVED = 256  # grammars that are remembered as enforced
OWN_SCHEMA = "json_schema "
BEGINS_JSON = frozenset(b' \t\n\r{["-0123456789tfn')


class Proofs:
    """What one server has shown. From any thread. name: of the server's model, for messages."""

    def __init__(self, server: LlamaServer, vocab: Vocab, name: str) -> None:
        self._server, self._vocab, self._name = server, vocab, name
        self._lock = threading.Lock()
        self._shown: OrderedDict[str, str] = OrderedDict()  # the constraint as it was sent -> the grammar of the reply

    def grammar(self, grammar: str, matcher: Matcher) -> None:
        """matcher: of the grammar, at its start. Raises UpstreamError where the server does not enforce it."""
        token = self._beginning_with({byte for byte in range(0x20, 0x7F) if not matcher.allows(byte)})
        if token is None:
            return  # everything may begin such a text; each piece of it is still held to the matcher
        self._show({"grammar": grammar}, token, grammar)

    def schema(self, schema: Any) -> str:
        """The grammar that the server itself makes of a schema. Raises InputError for a schema that it refuses,
        UpstreamError where it makes none or does not enforce it."""
        token = self._beginning_with({byte for byte in range(0x20, 0x7F) if byte not in BEGINS_JSON})
        if token is None:
            raise UpstreamError(f"no token of {self._name} shows whether it holds a schema")
        return self._show({"json_schema": schema}, token, None)

    def _show(self, asked: Mapping[str, Any], token: int, grammar: str | None) -> str:
        key = grammar or json.dumps(asked)
        with self._lock:
            if (shown := self._shown.get(key)) is not None:
                self._shown.move_to_end(key)
                return shown
        said = self._server.complete(
            {
                "prompt": [next(i for i, text in enumerate(self._vocab.tokens) if text)],
                "n_predict": 1,
                "seed": 1,
                "temperature": 1.0,
                "samplers": ["top_k", "temperature"],
                "top_k": 1,
                **asked,
                "logit_bias": [[token, CANARY_BIAS]],
                "return_tokens": True,
                "cache_prompt": False,
            }
        )
        used = used_grammar(said)
        has_come = said.get("tokens") == [token] or said["content"] == self._vocab.text_of(token)
        if has_come or not used or (grammar is not None and used != grammar):
            (what,) = asked
            raise UpstreamError(
                f"{self._name} does not enforce the {what} it is given",
                hint="its llama.cpp cannot read it: update the server, or run the model here",
            )
        with self._lock:
            self._shown[key] = used
            while len(self._shown) > MOST_PROVED:
                self._shown.popitem(last=False)
        return used

    def _beginning_with(self, first: set[int]) -> int | None:
        """A token of ASCII that begins with one of these bytes, None if there is none."""
        return next(
            (i for i, text in enumerate(self._vocab.tokens) if text and text[0] in first and text.isascii()), None
        )


def used_grammar(said: Mapping[str, Any]) -> str | None:
    """The grammar that a reply names as the one that was used; for a schema that a server of ours holds, which makes no
    grammar of it, OWN_SCHEMA and the schema."""
    settings = said.get("generation_settings")
    grammar = settings.get("grammar") if isinstance(settings, Mapping) else None
    if grammar == "" and isinstance(settings, Mapping) and settings.get("json_schema") is not None:
        return OWN_SCHEMA + json.dumps(settings["json_schema"])
    return grammar if isinstance(grammar, str) else None
