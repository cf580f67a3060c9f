"""The limit of a thought that a server writes: where it is spent, and what closes it."""

from __future__ import annotations

import pytest

from espalier.chat.reasoning import REASONING
from espalier.engines.local.turns import PreparedTurn
from espalier.upstream.llama_server.thought_limit import ThoughtLimit

THINK = REASONING["think"]


def limit(most: int, *, inside: bool = False) -> ThoughtLimit:
    return ThoughtLimit(PreparedTurn(text="", before="", spec=None, reasoning=THINK, inside=inside), THINK, most)


@pytest.mark.parametrize(
    ("pieces", "spent"),
    [
        (["<think>", "a", "b"], True),
        ([" \n", "<thi", "nk>a"], True),
        (["<think>", "a", "</think>"], False),
        (["Hello", " there", " you"], False),
        (["<th", "anks", "."], False),
        (["<think>", "a"], False),
    ],
)
def test_a_thought_is_spent_after_its_tokens(pieces: list[str], spent: bool) -> None:
    thought = limit(3)
    for piece in pieces:
        thought.take(piece, 1)
    assert thought.is_spent is spent


@pytest.mark.parametrize(("text", "closing"), [("so", "</think>"), ("so <", "/think>"), ("so </thi", "nk>")])
def test_what_has_come_of_the_marker_is_not_written_again(text: str, closing: str) -> None:
    thought = limit(1, inside=True)
    thought.take(text, 1)
    assert thought.is_spent
    assert thought.close() == closing
    assert not thought.is_spent
