"""llama.cpp's sample grammars, and texts of theirs to walk over."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from benchmarks.tekken import Tekken
from espalier.constraints.matching.automaton import compile_grammar
from espalier.constraints.spec import Gbnf
from espalier.grammar.builtin import GRAMMARS
from espalier.grammar.parser import parse
from espalier.grammar.sample import SentenceSampler

JOINED = {"english": " ", "japanese": " ", "list": "", "arithmetic": "", "c": ""}
"""Grammars whose sentences joined by this are a sentence again: the sampler's own are short."""


def sampled(made: Tekken, name: str, source: str, count: int) -> list[int]:
    """The tokens of a text of the grammar, `count` at most."""
    rng, sampler = Random(0), SentenceSampler(parse(source))
    if name not in JOINED:
        text = max((sampler.draw(rng, max_size=8 * count) for _ in range(200)), key=len)
        return made.encode(text)[:count]
    parts: list[str] = []
    total = 0
    while total < count:
        part = sampler.draw(rng, max_size=3 * count)
        if part:
            parts.append(part)
            total += len(made.encode(part))
    return made.encode(JOINED[name].join(parts))[:count]


FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "gbnf"


def sources(folder: Path = FOLDER) -> dict[str, str]:
    """llama.cpp's sample grammars by name; where they are not there, our built-in ones."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.gbnf"))}
    return found or {name: str(GRAMMARS.load(name)) for name in GRAMMARS}


def ours(made: Tekken, source: str) -> Any:
    return compile_grammar(parse(source), Gbnf(source), made.vocab, made.trie)
