"""Requests of every kind of constraint and of compositions, and for each an oracle that is none of ours. Both sides
import it: the tests, and the programs that run inside vLLM's environment.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

from tests.toy_engines import ASKED, Oracle

COLOURS = ("red", "green", "blue", "dark", "light", "and", "the")
REGEX = "[A-Z][a-z]{2,6}( [A-Z][a-z]{2,6})?"
SHORT = {"kind": "regex", "pattern": "[a-z]{2,4}"}
SUMS = 'root ::= [0-9]{1,2} ("+" [0-9]{1,2}){1,3}'


def _is_words(text: str) -> bool:
    return bool(text.strip()) and all(word.lower() in COLOURS for word in re.findall("[A-Za-z]+", text))


MIXED: Mapping[str, tuple[Mapping[str, Any], Oracle]] = {
    **ASKED,
    "wordlist": (
        {
            "constraint": {
                "kind": "all_of",
                "members": [{"kind": "wordlist", "words": list(COLOURS)}, {"kind": "regex", "pattern": "[^\\n]{3,24}"}],
            }
        },
        lambda text: _is_words(text) and 3 <= len(text) <= 24,
    ),
    "all_of": (
        {
            "constraint": {
                "kind": "all_of",
                "members": [{"kind": "regex", "pattern": REGEX}, {"kind": "ban", "phrases": ["an", "The"]}],
            }
        },
        lambda text: re.fullmatch(REGEX, text) is not None and "an" not in text and "The" not in text,
    ),
    "any_of": (
        {"constraint": {"kind": "any_of", "members": [SHORT, {"kind": "choice", "options": ["Maybe", "never!"]}]}},
        lambda text: text in ("Maybe", "never!") or re.fullmatch("[a-z]{2,4}", text) is not None,
    ),
    "grammar with bans": (
        {"grammar": SUMS, "bad_words": ["7", "+1"]},
        lambda text: (
            re.fullmatch(r"\d{1,2}(\+\d{1,2}){1,3}", text) is not None and "7" not in text and "+1" not in text
        ),
    ),
    "small schema": (
        {
            "json_schema": {
                "type": "object",
                "properties": {"ok": {"type": "boolean"}},
                "required": ["ok"],
                "additionalProperties": False,
            }
        },
        lambda text: isinstance(json.loads(text).get("ok"), bool),
    ),
}
"""Kinds whose texts always end."""

PROMPTS = ("Generate user info", "Once upon a time", "Write a word.", "What is 3 + 4?")


def mixed(count: int, seed: int, *, greedy: bool | None = None, long: bool = False) -> list[dict[str, Any]]:
    """Requests of all kinds in turn, and a tenth without a constraint: kind, prompt, params, the object for us. greedy:
    None for both. long: prompts of many tokens, which begin alike, and free texts that fill the cache."""
    rng = random.Random(seed)
    kinds = [*MIXED, None] if count > len(MIXED) else list(MIXED)
    found = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        prompt = rng.choice(PROMPTS)
        if long:
            prompt = "It was a long day and nobody knew why. " * rng.randint(4, 9) + prompt
        is_greedy = rng.random() < 0.5 if greedy is None else greedy
        params = {"temperature": 0.0 if is_greedy else 1.0, "max_tokens": 160 if kind or long else 8}
        found.append(
            {"kind": kind, "prompt": prompt, "params": params, "asked": dict(MIXED[kind][0]) if kind else None}
        )
    return found


def verdict(kind: str | None, text: str, finish: str) -> str:
    """What is wrong with an answer, "" if nothing is. A text that was cut has no verdict of its own."""
    if kind is None:
        return ""
    if finish != "stop":
        return f"{kind}: it ended by {finish}: {text!r}"
    try:
        return "" if MIXED[kind][1](text) else f"{kind}: {text!r}"
    except ValueError as error:
        return f"{kind}: {text!r}: {error}"
