"""logit_bias, allowed_ids and min_tokens made ready for a vocabulary."""

import math

import numpy as np
import pytest

from espalier import SamplingConfig, Vocab
from espalier.errors import SamplingError
from espalier.sampling.fit import NOTHING_FITTED, check_ends, fit
from espalier.sampling.samplers.dry import resolve_breakers

VOCAB = Vocab.from_tokens([b"a", b"b", b"ab", b"c\n", b" c", b""], eos_ids=[5], width=8)
ROW = np.arange(8, dtype=np.float32)


def encode(text):
    return {"ab": [2], "a b": [0, 4], "aa": [0, 0], "": []}.get(text, [])


def made(**fields):
    return fit(SamplingConfig(**fields), VOCAB, encode)


def test_biases_are_added_by_id_and_by_the_tokens_of_a_text():
    out = made(logit_bias={"1": 2.5, "ab": -1, "a b": 10, "aa": 1}).apply(ROW)
    assert out.tolist() == [11, 3.5, 1, 3, 14, 5, 6, 7]
    assert ROW.tolist() == list(range(8))


def test_minus_infinity_bans_and_wins_over_a_finite_bias_for_the_same_token():
    fitted = made(logit_bias=((2, -math.inf), ("ab", 5.0)))
    assert fitted.apply(ROW)[2] == -math.inf
    assert [(name, np.flatnonzero(banned).tolist()) for name, banned in fitted.bans] == [("logit_bias", [2])]


def test_a_bias_beyond_float_range_bans_nothing_and_is_no_infinity():
    out = made(logit_bias={0: 1e300, 1: -1e300}).apply(ROW)
    assert np.isfinite(out).all()
    banned = np.full(8, -np.inf, dtype=np.float32)
    assert made(logit_bias={0: 1e300}).apply(banned)[0] == -math.inf


def test_allowed_ids_ban_all_others():
    fitted = made(allowed_ids=[1, 5])
    assert np.flatnonzero(fitted.apply(ROW) > -np.inf).tolist() == [1, 5]
    assert fitted.bans[0][0] == "allowed_ids"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"logit_bias": {8: 1.0}}, "logit_bias"),
        ({"logit_bias": {"zz": 1.0}}, "logit_bias"),
        ({"allowed_ids": [0, 8]}, "allowed_ids"),
    ],
)
def test_an_id_outside_the_vocabulary_and_a_text_without_tokens_are_refused_by_name(fields, field):
    with pytest.raises(SamplingError) as caught:
        made(**fields)
    assert caught.value.field == field


def test_nothing_asked_costs_nothing():
    assert made() is NOTHING_FITTED
    assert NOTHING_FITTED.apply(ROW) is ROW


def test_min_tokens_holds_back_the_end_and_stop_ids():
    assert made(min_tokens=3, stop_ids=[1]).ends == (5, 1)
    assert made(stop_ids=[1]).ends == ()


def test_breakers_are_tokens_that_hold_the_text_and_beginnings_of_it():
    assert resolve_breakers(("\n",), VOCAB) == {3: ((),)}
    assert resolve_breakers(("bab",), VOCAB) == {1: ((2,),), 2: ((2,),)}  # "b" or "ab", then "ab"
    assert resolve_breakers((" ca",), VOCAB) == {4: ((0,),)}
    assert resolve_breakers(("abc",), VOCAB) == {}  # no token spells the "c"
    special = Vocab.from_tokens([b"a", b"b", b""], eos_ids=[2], special_ids={2: "<a>"})
    assert resolve_breakers(("a",), special) == {0: ((),), 2: ((),)}


def test_finite_biases_of_one_token_never_add_up_to_a_ban():
    fitted = made(logit_bias=((2, -1e308), ("ab", -1e308), (1, 1e308), ("a b", 1e308)))
    assert fitted.bans == ()
    assert np.isfinite(fitted.apply(ROW)).all()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"allowed_ids": [1, 2]}, "allowed_ids"),
        ({"logit_bias": {5: -math.inf}}, "logit_bias"),
        ({"allowed_ids": [1, 5], "logit_bias": {5: -math.inf}}, "logit_bias"),
        ({"allowed_ids": [1, 5]}, None),
        ({"logit_bias": {5: -100.0}}, None),
        ({}, None),
    ],
)
def test_bans_of_every_end_are_refused_for_a_constraint(fields, field):
    fitted = made(**fields)
    if field is None:
        check_ends(fitted, VOCAB)
        return
    with pytest.raises(SamplingError, match="ends a text") as caught:
        check_ends(fitted, VOCAB)
    assert caught.value.field == field
