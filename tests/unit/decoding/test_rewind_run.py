"""One run that takes tokens back, at its limits: what it tries once no rewind is left, and what it may take back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import espalier
from espalier import Regex, Vocab
from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.decoding.rewinding.strategy import _RewindingRun, rewind_plan
from espalier.engines.fake import FakeStepModel
from espalier.engines.local.engine import LocalEngine
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits


def alphabet() -> espalier.LoadedEngine:
    """Wants a before b before c, wherever it is."""
    vocab = Vocab.bytes()
    row: Logits = np.zeros(vocab.width, dtype=np.float32)
    row[list(b"abcdef")] = np.arange(6, 0, -1, dtype=np.float32)
    model = FakeStepModel(lambda tokens: row.copy(), width=vocab.width)
    made = LocalEngine(name="alphabet", model=model, vocab=vocab, encode=lambda text, *, add_special: list(b": "))
    return espalier.LoadedEngine(made)


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_no_token_is_tried_any_more_once_as_many_went_back_as_may(most: int) -> None:
    """No text begins otherwise than with `a`, so what is tried after it goes back alone."""
    banned = AllOf(Regex("a[bcdef]"), Ban(["ab", "ac", "ad"], mode="rewind"))
    result = alphabet().generate("", constraint=banned, max_rewinds=most, temperature=0)
    assert result.text == "ae"
    assert result.trace is not None
    assert [rewind.text for rewind in result.trace.rewinds] == ["ab", "c", "d"][:most]


@pytest.mark.parametrize(
    ("held", "unsettled", "tried"),
    [(0, 3, []), (1, 3, [2]), (2, 3, [2, 3]), (3, 3, [2, 3, 4, 5]), (2, 2, [2, 3, 4, 5]), (2, 9, [2, 3])],
)
def test_what_was_shown_is_not_taken_back_where_the_matcher_would(held: int, unsettled: int, tried: list[int]) -> None:
    """Each token takes back as many as its id says, itself included; of the text's three, `held` are not shown."""
    mask = masks.empty(8)
    masks.set_bits_inplace(mask, (2, 3, 4, 5), True)
    matcher = SimpleNamespace(
        unsettled=unsettled, undoable=mask.copy, recall=lambda token: SimpleNamespace(count=token)
    )
    run: Any = SimpleNamespace(
        _waiting=[None] * held,
        _rewinding=matcher,
        generated=[0, 0, 0],
        _job=SimpleNamespace(vocab=SimpleNamespace(width=8)),
    )
    assert masks.allowed_ids(_RewindingRun._undoable(run), 8).tolist() == tried


@pytest.mark.parametrize("matcher", [None, SimpleNamespace()])
def test_a_matcher_that_takes_nothing_back_is_an_error_of_the_caller(matcher: Any) -> None:
    job: Any = SimpleNamespace(matcher=matcher)
    with pytest.raises(AssertionError, match="takes nothing back"):
        next(rewind_plan(job))
