"""Finds the parts of a pattern that engines read differently: classes, anchors, look-around.

It looks at the text only, one token of the regex dialect at a time, and compiles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

TOKEN = re.compile(r"\\[pPkKuxc]?.|\[(?:\\.|[^\]\\])*\]|\(\?<?[=!]|\(\?[<P:]?|[*+?}]\?|.", re.DOTALL)

EVERYONE = ("transformers", "llamacpp", "gbnf", "llama-server", "vllm", "openai")
LLAMA = ("llama-server",)


def pattern_hazards(text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Code, message and engines of every hazard in a pattern, each once."""
    tokens = TOKEN.findall(text)
    for code, message, engines, sign in SIGNS:
        if any(sign.search(token) for token in tokens):
            yield code, message, engines
    if tokens[:1] != ["^"] or tokens[-1:] != ["$"] or _open_choice(tokens):
        message = "an unanchored pattern allows any text around its match (llama-server drops it)"
        yield "pattern-unanchored", message, EVERYONE


def _open_choice(tokens: list[str]) -> bool:
    """Whether a `|` stands outside every group: `^a|b$` is anchored on one side of each."""
    depth = 0
    for token in tokens:
        depth += token.startswith("(") - (token == ")")
        if token == "|" and depth == 0:
            return True
    return False


SIGNS: tuple[tuple[str, str, tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (code, message, engines, re.compile(pattern, re.DOTALL))
    for code, message, engines, pattern in (
        (
            "pattern-class",
            r"\d and \w are ASCII in ECMA-262, Unicode in Python and Rust; \s differs in all three; llama-server drops "
            "the pattern",
            EVERYONE,
            r"\\[dDwWsS]",
        ),
        ("pattern-property", r"\p{…} needs Unicode mode; Python and llama-server do not know it", EVERYONE, r"\\[pP]"),
        (
            "pattern-boundary",
            r"\b is not regular in every engine; llama-server drops the pattern",
            EVERYONE,
            r"^\\[bB]",
        ),
        ("pattern-look-around", "look-around is refused or dropped by most engines", EVERYONE, r"^\(\?<?[=!]"),
        ("pattern-back-reference", "a back-reference is not regular", EVERYONE, r"^\\[1-9k]"),
        (
            "pattern-lazy",
            "lazy repetition has no meaning in a grammar, and llama-server copies `+?` into one unchanged",
            LLAMA,
            r"^[*+?}]\?$",
        ),
    )
)
"""Code, message, engines, and the expression that finds it in one token of a pattern."""
