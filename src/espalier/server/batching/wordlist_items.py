"""The body of an item of a word-list server's job: its messages, and the parameters of the whole job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from espalier.server.bodies.wordlist_server import read_wordlist_body
from espalier.server.http.errors import BadRequest

DEFAULTS: Mapping[str, Any] = {"max_tokens": 512, "num_beams": 10, "length_penalty": 1.0}
PER_ITEM = "per_item"
"""The option with which values of items count."""
OWN = ("model", "messages", "custom_id")


def wordlist_item_body(item: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The whole body. Without `per_item`, the item gives its model and messages alone, as in that server. Raises
    InvalidWordlistBody and BadRequest for what is no item."""
    if not isinstance(item, Mapping):
        raise BadRequest("an item is a JSON object with model and messages")
    read_wordlist_body(item)  # the item itself must be valid, whatever of it is used
    job = {name: value for name, value in options.items() if name != PER_ITEM}
    if options.get(PER_ITEM):
        job |= {name: value for name, value in item.items() if value is not None}
    body: dict[str, Any] = {**DEFAULTS} | job | {name: item[name] for name in OWN if name in item}
    drawn = any(body.get(name) is not None for name in ("temperature", "top_p", "top_k"))
    if drawn and "num_beams" not in job:
        del body["num_beams"], body["length_penalty"]  # beam search draws nothing: who asks for sampling gets it
    return body
