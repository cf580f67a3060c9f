"""What agents are told of a vocabulary is asked of the model that is there now."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from espalier import Vocab
from espalier.agents.looking import _analyze_vocabulary
from espalier.errors import InputError

VOCAB = Vocab.bytes()


def asked_of(vocab: Vocab) -> Any:
    engine = SimpleNamespace(vocab=vocab, encode=lambda text, add_special: [])
    desk: Any = SimpleNamespace(engine=SimpleNamespace(engine=engine, name="m"))
    return _analyze_vocabulary({"search_terms": ["a"]}, desk)


def test_a_term_was_looked_up_with_the_tokenizer_of_a_closed_model_of_the_same_vocabulary() -> None:
    is_open = True

    def encode(text: str) -> list[int]:
        if not is_open:
            raise InputError("the model of this vocabulary is closed")
        return list(text.encode())

    first = asked_of(replace(VOCAB, encoder=encode))
    is_open = False
    again = asked_of(replace(VOCAB, encoder=lambda text: list(text.encode())))
    assert again == first
    assert again["search_matches"]["a"]
