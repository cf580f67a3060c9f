"""The tree of tokens that holds a run's vectors: against a plain list of vectors for each sequence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.activations.capture.options import Activations
from espalier.activations.capture.tree import CaptureTree
from espalier.errors import GenerationError, InputError
from tests.examples import examples

PROMPT = (7, 8, 9)


def vectors_of(tokens, start, wanted):
    """What a causal model would give: a function of the tokens so far."""
    found = [[sum(tokens[: start + i + 1]), start + i] for i in wanted]
    return np.array(found, dtype=np.float32).reshape(1, len(wanted), 2)


@settings(max_examples=examples(200))
@given(data=st.data(), positions=st.sampled_from(["all", "prompt", "response", "last", "every 2"]))
def test_a_text_has_the_vectors_of_its_tokens_whatever_branches_did(data, positions):
    tree = CaptureTree(Activations(positions=positions, dtype="float32"), [0], len(PROMPT))
    texts = {0: []}
    places = {0: tree.start()}
    next_id = 1

    def extend(one, tokens):
        start = len(texts[one])
        wanted = tree.wanted(start, len(tokens))
        whole = [*texts[one], *tokens]
        places[one] = tree.grow(places[one], tokens, wanted, vectors_of(whole, start, wanted) if wanted else None)
        texts[one] = whole

    extend(0, PROMPT)
    for _ in range(data.draw(st.integers(0, 25))):
        one = data.draw(st.sampled_from(sorted(texts)))
        kind = data.draw(st.sampled_from(["extend", "fork", "cut"]))
        if kind == "extend":
            extend(one, data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=3)))
        elif kind == "fork" and len(texts) < 6:
            texts[next_id], places[next_id] = list(texts[one]), tree.fork(places[one])
            next_id += 1
        elif kind == "cut":
            length = data.draw(st.integers(len(PROMPT), len(texts[one])))
            texts[one], places[one] = texts[one][:length], tree.cut(places[one], length)
    for text in texts.values():
        expected = [i for i in range(len(text)) if tree.options.wanted(len(PROMPT))(i)]
        expected = expected[-1:] if positions == "last" else expected
        found, vectors = tree.vectors([*text, 99])  # the last token was not read
        assert list(found) == expected
        if expected:
            assert vectors["residual", 0].tolist() == [[sum(text[: i + 1]), i] for i in expected]
    held = {tuple(text[:end]) for text in texts.values() for end in range(1, len(text) + 1)}
    assert tree.size == len(held)  # rolled-back tokens have left nothing behind


def test_a_value_that_float16_cannot_hold_is_an_error_and_not_infinity():
    tree = CaptureTree(Activations(), [0], 1)
    tree.grow(tree.start(), [1], [0], np.full((1, 1, 2), np.inf, dtype=np.float16))
    with pytest.raises(GenerationError, match="beyond float16") as caught:
        tree.vectors([1])
    assert "bfloat16" in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"layers": "third"}, "layers"),
        ({"layers": [1.5]}, "layers"),
        ({"layers": []}, "layers"),
        ({"sites": ["head"]}, "sites"),
        ({"sites": []}, "sites"),
        ({"positions": "every 0"}, "positions"),
        ({"positions": 3}, "positions"),
        ({"dtype": "float64"}, "dtype"),
        ({"layer": 1}, "activations"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(fields, field):
    with pytest.raises(InputError) as caught:
        Activations.from_json(fields)
    assert caught.value.field == field


def test_layers_are_halves_or_numbers_from_either_end():
    assert Activations(layers="first_half").numbers(5) == (0, 1)
    assert Activations(layers="second_half").numbers(5) == (2, 3, 4)
    assert Activations(layers=[3, -1, 3]).numbers(5) == (3, 4)
    with pytest.raises(InputError, match="no layer 5"):
        Activations(layers=[5]).numbers(5)


def test_options_are_read_as_they_are_written():
    asked = Activations(layers=[0, -1], sites=("mlp", "residual"), positions="every 4", dtype="int8")
    assert Activations.from_json(asked.to_json()) == asked
    assert Activations.from_json(True) == Activations()
