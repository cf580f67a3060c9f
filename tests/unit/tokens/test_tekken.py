"""Damaged tekken files, which mistral-common reads as far as it needs them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from espalier.errors import VocabError
from espalier.tokens.tekken import read_tekken


def test_a_tekken_file_that_names_no_end_of_a_text_was_a_value_error_of_its_library() -> None:
    class NoEnd:
        n_words = 3
        special_ids = frozenset({0})

        @property
        def eos_id(self) -> int:
            raise ValueError("Unknown control token </s>")

        def id_to_piece(self, token: int) -> str:
            return "<unk>"

    with pytest.raises(VocabError, match="Unknown control token") as told:
        read_tekken(NoEnd(), None)
    assert "</s>" in (told.value.hint or "")


@pytest.mark.parametrize("rank", [float("nan"), float("inf"), "7", None])
@pytest.mark.parametrize("is_end", [False, True])
def test_a_tekken_file_with_a_rank_that_is_no_number_was_an_error_of_python(rank: Any, is_end: bool) -> None:
    damaged = SimpleNamespace(n_words=3, special_ids={0, rank}, eos_id=rank if is_end else 0, id_to_piece=str)
    with pytest.raises(VocabError, match="no whole number"):
        read_tekken(damaged, None)


@pytest.mark.parametrize("error", [KeyError("Invalid token for decoding: 1"), ValueError("no bytes"), IndexError(1)])
@pytest.mark.parametrize("special_ids", [{0}, {0, 1}])
def test_a_tekken_file_that_lacks_a_rank_was_a_key_error_of_its_library(error: Exception, special_ids: Any) -> None:
    def piece(token: int) -> Any:
        if token == 1:
            raise error
        return b"a"

    damaged = SimpleNamespace(n_words=3, special_ids=special_ids, eos_id=0, id_to_piece=piece, id_to_byte_piece=piece)
    with pytest.raises(VocabError, match="token 1 cannot be read"):
        read_tekken(damaged, None)
