"""Packed masks: what the bits mean, and that nothing past the tokenizer's last id is ever allowed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.tokens import mask as masks

WIDTHS = st.integers(1, 200)  # most are no multiple of 32


@st.composite
def widths_and_ids(draw: st.DrawFn) -> tuple[int, list[int]]:
    width = draw(WIDTHS)
    return width, draw(st.lists(st.integers(0, width - 1), max_size=40))


@settings(deadline=None)
@given(widths_and_ids())
def test_a_mask_allows_the_ids_it_was_made_from_and_no_other(case: tuple[int, list[int]]) -> None:
    width, ids = case
    mask = masks.from_ids(ids, width)
    assert mask.dtype == np.int32
    assert mask.shape == (masks.words(width),)
    assert [i for i in range(-70, width + 70) if masks.test(mask, i)] == sorted(set(ids))
    assert masks.allowed_ids(mask, width).tolist() == sorted(set(ids))
    assert masks.count(mask) == len(set(ids))


@settings(deadline=None)
@given(widths_and_ids())
def test_every_way_to_build_a_mask_gives_the_same_bits(case: tuple[int, list[int]]) -> None:
    width, ids = case
    mask = masks.from_ids(np.array(ids, dtype=np.int64), width)
    assert np.array_equal(masks.from_bool(masks.unpack(mask, width)), mask)
    switched = masks.empty(width)
    masks.set_bits_inplace(switched, tuple(ids), on=True)
    assert np.array_equal(switched, mask)
    masks.set_bits_inplace(switched, tuple(ids), on=False)
    assert not switched.any()


def test_bit_order_is_least_significant_first_as_the_engines_have_it() -> None:
    assert masks.from_ids([0, 33], 64).tolist() == [1, 2]
    assert masks.from_ids([31], 32).tolist() == [-(2**31)]  # the sign bit is a bit like the others


@settings(deadline=None)
@given(widths_and_ids(), st.integers(1, 200))
def test_a_forbidden_logit_becomes_minus_infinity_and_an_allowed_one_stays(
    case: tuple[int, list[int]], logit_width: int
) -> None:
    width, ids = case
    logits = np.arange(logit_width, dtype=np.float32)  # (V,)
    masks.apply_inplace(logits, masks.from_ids(ids, width))
    wanted = [float(i) if i in ids else -np.inf for i in range(logit_width)]
    assert logits.tolist() == wanted


def test_ids_past_the_mask_are_forbidden_when_the_model_has_more_logits_than_the_tokenizer_has_tokens() -> None:
    logits = np.ones(100, dtype=np.float32)  # (V,)
    masks.apply_inplace(logits, masks.from_bool(np.ones(32, dtype=np.bool_)))
    assert np.isfinite(logits).tolist() == [True] * 32 + [False] * 68
    assert masks.unpack(masks.from_ids([3], 32), 100).sum() == 1


@settings(deadline=None)
@given(WIDTHS, st.integers(0, 260))
def test_padding_ids_left_on_by_an_engine_are_cleared(width: int, end: int) -> None:
    mask = masks.empty(width)
    mask[:] = -1  # every bit, those past the width too
    masks.clear_past_inplace(mask, end)
    assert masks.count(mask) == min(end, masks.words(width) * 32)
    assert not masks.unpack(mask, masks.words(width) * 32)[end:].any()


@pytest.mark.parametrize("token", [-1, 40, 64])
def test_an_id_outside_the_width_is_an_error_not_another_token(token: int) -> None:
    with pytest.raises(IndexError):
        masks.from_ids([token], 40)


@pytest.mark.parametrize("token", [-1, -40, 64, 1000])
def test_switching_a_bit_outside_the_mask_is_an_error_not_another_token(token: int) -> None:
    mask = masks.empty(40)
    with pytest.raises(IndexError):
        masks.set_bits_inplace(mask, (token,), on=True)
    assert not mask.any()


def test_an_empty_list_of_ids_allows_nothing() -> None:
    assert masks.from_ids([], 40).tolist() == [0, 0]
    assert masks.count(masks.empty(40)) == 0
