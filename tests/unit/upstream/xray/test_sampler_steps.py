"""Each sampler of llama.cpp by itself, against its definition in plain Python: what is kept, and at what weight."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from espalier.upstream.xray.distribution import ReportedTokens
from espalier.upstream.xray.sampler import steps
from espalier.upstream.xray.sampler.candidates import ServerCandidates, UndecidedDraw
from espalier.upstream.xray.sampler.chain import ServerChain, _mirostat_1, _mirostat_2
from espalier.upstream.xray.sampler.history import biased, penalised
from espalier.upstream.xray.sampler.settings import SamplerSettings
from espalier.upstream.xray.wire.alignment import is_cut, with_entries
from espalier.upstream.xray.wire.reply import is_last

OFF = SamplerSettings(
    grammar="", triggers=None, seed=1, samplers=(), temperature=1.0, dynatemp_range=0.0, dynatemp_exponent=1.0,
    top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, top_n_sigma=-1.0, min_keep=0, xtc_probability=0.0, xtc_threshold=0.1,
    repeat_last_n=64, repeat_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, dry_multiplier=0.0,
    dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=-1, dry_sequence_breakers=(), mirostat=0, mirostat_tau=5.0,
    mirostat_eta=0.1, bias=(), most=-1, reason="",
)  # fmt: skip
"""No sampler changes anything."""


def candidates(logits: Sequence[float], *, rest: float = -math.inf, is_sorted: bool = False) -> ServerCandidates:
    """Tokens 10, 11, 12 and so on."""
    ids = np.arange(10, 10 + len(logits), dtype=np.int64)
    return ServerCandidates(ids, np.array(logits, dtype=np.float32), is_sorted=is_sorted, rest=rest)


def with_probs(*probs: float, **more: Any) -> ServerCandidates:
    return candidates([math.log(prob) for prob in probs], **more)


def kept(found: Sequence[ServerCandidates]) -> list[list[int]]:
    return [one.ids.tolist() for one in found]


def drawn_logits(seed: int, count: int = 9) -> list[float]:
    return [random.Random(seed * 100 + place).gauss(0, 2) for place in range(count)]


def ranked(logits: Sequence[float]) -> list[int]:
    return sorted(range(len(logits)), key=lambda place: -logits[place])


def softmax(logits: Sequence[float]) -> list[float]:
    weights = [math.exp(logit) for logit in logits]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("k", [0, 1, 3, 9, 12])
def test_top_k_keeps_the_best(seed: int, k: int) -> None:
    logits = drawn_logits(seed)
    found = steps.top_k(candidates(logits), replace(OFF, top_k=k))
    assert [sorted(ids) for ids in kept(found)] == [sorted(10 + place for place in ranked(logits)[: k or 9])]


def test_top_k_with_unlisted_tokens_is_decided_only_where_none_can_come_among_the_best() -> None:
    for k, rest, is_decided in ((2, -2.0, True), (3, -2.0, True), (3, 0.0, False), (3, 1.0, False), (4, -2.0, False)):
        given, settings = candidates([2.0, 1.0, 0.0], rest=rest), replace(OFF, top_k=k)
        if is_decided:
            assert kept(steps.top_k(given, settings)) == [[10, 11, 12][:k]]
        else:
            with pytest.raises(UndecidedDraw):
                steps.top_k(given, settings)
    with pytest.raises(UndecidedDraw):
        steps.top_k(candidates([2.0, 1.0, 1.0]), replace(OFF, top_k=2))
    assert kept(steps.top_k(candidates([2.0, -math.inf, -math.inf]), replace(OFF, top_k=2))) == [[10, 11]]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("least", [0, 1, 4])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 0.999])
def test_top_p_keeps_the_fewest_that_reach_the_sum(seed: int, least: int, p: float) -> None:
    logits = drawn_logits(seed)
    order, sums = ranked(logits), np.cumsum(sorted(softmax(logits), reverse=True))
    count = max(int(np.flatnonzero(sums >= p)[0]) + 1, least)
    for is_sorted in (False, True):
        given = candidates(sorted(logits, reverse=True) if is_sorted else logits, is_sorted=is_sorted)
        found = steps.top_p(given, replace(OFF, top_p=p, min_keep=least))
        assert kept(found) == [[10 + (rank if is_sorted else order[rank]) for rank in range(count)]]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("least", [0, 1, 4])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_min_p_keeps_what_has_a_share_of_the_best_ones_probability(seed: int, least: int, is_sorted: bool) -> None:
    for p in (0.01, 0.2, 0.7):
        logits = sorted(drawn_logits(seed), reverse=True) if is_sorted else drawn_logits(seed)
        order, edge = ranked(logits), max(logits) + math.log(p)
        count = max(sum(logit >= edge for logit in logits), least)
        found = steps.min_p(candidates(logits, is_sorted=is_sorted), replace(OFF, min_p=p, min_keep=least))
        assert [sorted(ids) for ids in kept(found)] == [sorted(10 + place for place in order[:count])]


def test_min_p_at_the_edge_may_keep_or_drop_the_last_one_that_is_equal_to_it() -> None:
    edge = float(np.float32(0.0) + np.float32(math.log(0.25)))
    settings = replace(OFF, min_p=0.25)
    assert kept(steps.min_p(candidates([0.0, edge, edge, -5.0], is_sorted=True), settings)) == [[10, 11], [10, 11, 12]]
    assert kept(steps.min_p(candidates([-5.0, 0.0, edge, -0.1]), settings)) == [[11, 12, 13], [11, 13]]
    with pytest.raises(UndecidedDraw):
        steps.min_p(candidates([0.0, -0.5], rest=edge), settings)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("least", [0, 1, 2, 3, 6])
@pytest.mark.parametrize("p", [0.1, 0.6, 0.95])
def test_typical_keeps_the_fewest_near_the_entropy_that_pass_the_sum(seed: int, least: int, p: float) -> None:
    logits = drawn_logits(seed)
    probs = softmax(logits)
    entropy = -sum(prob * math.log(prob) for prob in probs)
    order = sorted(range(len(logits)), key=lambda place: abs(-math.log(probs[place]) - entropy))
    sums = np.cumsum([probs[place] for place in order])
    count = max(int(np.flatnonzero(sums > p)[0]) + 1, least)
    found = steps.typical(candidates(logits), replace(OFF, typical_p=p, min_keep=least))
    assert kept(found) == [[10 + place for place in order[:count]]]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sigmas", [0.3, 0.9, 1.5, 2.5])
def test_top_n_sigma_keeps_what_is_within_so_many_deviations_of_the_best(seed: int, sigmas: float) -> None:
    logits = drawn_logits(seed)
    edge = max(logits) - sigmas * statistics.pstdev(logits)
    found = steps.top_n_sigma(candidates(logits), replace(OFF, top_n_sigma=sigmas))
    best = [place for place in ranked(logits) if logits[place] >= edge]
    for one in found:
        assert one.ids[: len(best)].tolist() == [10 + place for place in best]
        assert one.logits[: len(best)].tolist() == pytest.approx([logits[place] for place in best])
        assert (one.logits[len(best) :] == -np.inf).all()
    refused = steps.top_n_sigma(candidates([*logits, -math.inf]), replace(OFF, top_n_sigma=sigmas))
    assert [one.logits[: len(best)].tolist() for one in refused] == [one.logits[: len(best)].tolist() for one in found]


def test_typical_keeps_all_where_more_are_to_be_kept_than_there_are() -> None:
    (found,) = steps.typical(candidates([1.0, 0.0, -2.0]), replace(OFF, typical_p=0.5, min_keep=4))
    assert sorted(found.ids.tolist()) == [10, 11, 12]


def test_top_p_is_decided_where_the_last_listed_token_reaches_the_sum() -> None:
    logits = np.log(np.array([0.5, 0.3], dtype=np.float32))
    given = ServerCandidates(np.array([10, 11]), logits, is_sorted=True, rest=math.log(0.1), whole_mass=1.0)
    assert kept(steps.top_p(given, replace(OFF, top_p=0.7))) == [[10, 11]]
    with pytest.raises(UndecidedDraw):
        steps.top_p(given, replace(OFF, top_p=0.9))


def test_temperature_0_takes_the_first_of_equal_ones_and_knows_no_zero() -> None:
    for logits, best in (([2.0, 2.0], 0), ([-1.0, -3.0], 0), ([-3.0, -1.0, -1.0], 1)):
        (found,) = steps.temperature(candidates(logits), replace(OFF, temperature=0.0))
        assert np.flatnonzero(found.logits > -np.inf).tolist() == [best]
        assert found.logits[best] == logits[best]
        assert found.rest == -math.inf


def test_a_token_without_weight_is_not_drawn_at_either_end() -> None:
    here = chain()
    for weights, chance, tokens in (
        ([0.5, 0.5, 0.0, 0.0], 1.0, [11]),
        ([0.0, 0.5, 0.5], 0.0, [11]),
        ([0.5, 0.5], 0.5 + 1e-6, [11, 10]),
        ([0.5, 0.5], 0.5 - 1e-6, [10, 11]),
    ):
        found = here._chosen(candidates([0.0] * len(weights)), np.array(weights), chance, here.start)
        assert [draw.token for draw in found] == tokens


def test_top_p_is_undecided_where_an_unlisted_token_is_as_good_as_the_last_that_is_kept() -> None:
    logits = np.log(np.array([0.5, 0.2], dtype=np.float32))
    for rest, is_decided in ((float(logits[1]), False), (float(logits[1]) - 0.1, True)):
        given = ServerCandidates(np.array([10, 11]), logits, is_sorted=True, rest=rest, whole_mass=1.0)
        if is_decided:
            assert kept(steps.top_p(given, replace(OFF, top_p=0.6))) == [[10, 11]]
        else:
            with pytest.raises(UndecidedDraw):
                steps.top_p(given, replace(OFF, top_p=0.6))


def test_typical_is_undecided_where_a_token_has_no_weight_at_all() -> None:
    with pytest.raises(UndecidedDraw):
        steps.typical(candidates([1.0, 0.0, -math.inf]), replace(OFF, typical_p=0.5))


def test_top_n_sigma_at_the_edge_may_keep_or_drop_the_one_that_is_equal_to_it() -> None:
    for shift in (0.0, 3.0):
        given = candidates([1.0 + shift, shift, shift - 1.0, shift])
        found = steps.top_n_sigma(given, replace(OFF, top_n_sigma=math.sqrt(2)))
        live = [sorted(one.ids[one.logits > -np.inf].tolist()) for one in found]
        assert sorted(live) == [[10], [10, 11, 13]]
    settings = replace(OFF, top_n_sigma=1.0)
    assert kept(steps.top_n_sigma(candidates([1.0], rest=0.5), settings)) == [[10]]
    assert kept(steps.top_n_sigma(candidates([1.0, 0.0], rest=-1.0), OFF)) == [[10, 11]]
    with pytest.raises(UndecidedDraw):
        steps.top_n_sigma(candidates([1.0, 0.0], rest=-1.0), settings)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("heat", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_dynamic_temperature_is_by_the_entropy_of_all(seed: int, heat: float, exponent: float) -> None:
    logits, reach = drawn_logits(seed), 0.6
    probs = softmax(logits)
    share = -sum(prob * math.log(prob) for prob in probs) / math.log(len(probs))
    low, high = max(0.0, heat - reach), heat + reach
    value = low + (high - low) * share**exponent
    settings = replace(OFF, temperature=heat, dynatemp_range=reach, dynatemp_exponent=exponent)
    (found,) = steps.temperature(candidates(logits), settings)
    assert found.logits.tolist() == pytest.approx([logits[place] / value for place in ranked(logits)], rel=1e-4)


def test_temperature_divides_what_unlisted_tokens_can_have_as_well() -> None:
    (found,) = steps.temperature(candidates([2.0, 1.0], rest=0.5), replace(OFF, temperature=0.5))
    assert (found.logits.tolist(), found.rest) == ([4.0, 2.0], 1.0)


def test_temperature_0_keeps_the_best_alone() -> None:
    (found,) = steps.temperature(candidates([0.0, 2.0, 1.0]), replace(OFF, temperature=0.0))
    assert found.logits.tolist() == [-math.inf, 2.0, -math.inf]
    for given in (candidates([0.0, 2.0], rest=2.0), candidates([2.0, 2.0 - 1e-6])):
        with pytest.raises(UndecidedDraw):
            steps.temperature(given, replace(OFF, temperature=0.0))


def test_xtc_leaves_out_all_but_the_last_of_the_probable_ones() -> None:
    settings = replace(OFF, samplers=("xtc",), xtc_probability=0.5, xtc_threshold=0.15)
    given = with_probs(0.1, 0.4, 0.2, 0.3)
    assert kept(steps.xtc(given, settings, np.float32(0.4))) == [[12, 10]]
    assert steps.xtc(given, settings, np.float32(0.4))[0].is_sorted
    assert kept(steps.xtc(given, settings, np.float32(0.5))) == [[12, 10]], "as the server does at the very chance"
    assert kept(steps.xtc(given, settings, np.float32(0.6))) == [[10, 11, 12, 13]]
    assert kept(steps.xtc(given, replace(settings, min_keep=3), np.float32(0.4))) == [[11, 13, 12, 10]]
    with pytest.raises(UndecidedDraw):
        steps.xtc(with_probs(0.1, 0.45, 0.15, 0.3), settings, np.float32(0.4))
    assert steps.draws_xtc(given, settings)
    assert not steps.draws_xtc(with_probs(1.0), settings)
    assert not steps.draws_xtc(given, OFF)


@pytest.mark.parametrize("repeat", [1.0, 1.5])
def test_penalties_are_by_how_often_a_token_is_there(repeat: float) -> None:
    settings = replace(
        OFF, samplers=("penalties",), repeat_penalty=repeat, presence_penalty=0.5, frequency_penalty=0.25
    )
    found = penalised(candidates([2.0, -2.0, 1.0]), settings, [10, 11, 11, 11, 99])
    assert found.logits.tolist() == pytest.approx([2.0 / repeat - 0.75, -2.0 * repeat - 1.25, 1.0])
    assert penalised(candidates([2.0]), replace(settings, repeat_last_n=1), [10, 99]).logits.tolist() == [2.0]
    assert penalised(candidates([2.0]), OFF, [10]).logits.tolist() == [2.0]


def test_an_unlisted_token_that_is_raised_may_come_to_the_top() -> None:
    given = candidates([2.0, 1.0], rest=0.0)
    assert biased(given, replace(OFF, bias=((10, -1.0), (50, 2.0), (60, 0.5), (70, -9.0), (50, 1.0)))).rest == 3.0
    assert biased(given, replace(OFF, bias=((70, -9.0),))).rest == 0.0
    assert biased(given, replace(OFF, bias=((10, -1.0),))).logits.tolist() == [1.0, 1.0]
    settings = replace(OFF, samplers=("penalties",), repeat_penalty=0.5, presence_penalty=0.25)
    assert penalised(candidates([2.0], rest=1.0), settings, [99]).rest == 1.75
    assert penalised(candidates([2.0], rest=-1.0), settings, [99]).rest == pytest.approx(-0.75)


def chain(**more: Any) -> ServerChain:
    return ServerChain(replace(OFF, **more), width=100)


@pytest.mark.parametrize(
    ("chance", "tokens"),
    [
        (0.1, [10]),
        (0.5 - 1e-5, [10]),
        (0.5 - 1e-6, [10, 12]),
        (0.5, [10, 12]),
        (0.5 + 1e-6, [10, 12]),
        (0.5 + 1e-5, [12]),
        (0.6, [12]),
        (0.8, [12, 13]),
        (0.8 + 1e-6, [12, 13]),
        (1.0, [13]),
    ],
)
def test_a_draw_at_the_edge_of_two_tokens_may_be_either_and_none_without_weight(
    chance: float, tokens: list[int]
) -> None:
    weights = np.array([0.5, 0.0, 0.3, 0.2])
    here = chain()
    found = here._chosen(candidates([0.0] * 4), weights, chance, here.start)
    assert sorted(draw.token for draw in found) == tokens


def listed(*logprobs: float, width: int = 0) -> ReportedTokens:
    """Tokens 0, 1, 2 and so on, of `width` tokens; of as many as are listed without."""
    return ReportedTokens(
        ids=np.arange(len(logprobs)), logprobs=np.array(logprobs, dtype=np.float32), width=width or len(logprobs)
    )


def test_a_draw_is_undecided_where_unlisted_tokens_have_a_share_or_no_token_has_one() -> None:
    here = chain()
    assert here.draw(listed(-0.5, -1.0), here.start, [])
    with pytest.raises(UndecidedDraw):
        here.draw(listed(-0.5, -1.0, width=3), here.start, [])
    with pytest.raises(UndecidedDraw):
        here.draw(listed(-0.5, -1.0), here.start, [], np.array([False, False]))


def test_logits_are_at_their_level_and_unlisted_ones_below_the_last() -> None:
    found = chain()._candidates(listed(-0.5, -1.0, width=3), None, level=4.0)
    assert found.logits.tolist() == [3.5, 3.0]
    assert 3.0 - 1e-6 < found.rest < 3.0
    assert found.whole_mass == pytest.approx(math.exp(4.0))
    refused = chain()._candidates(listed(-0.5, -1.0, width=3), np.array([False, True, True]))
    assert (refused.logits.tolist(), refused.whole_mass) == ([-math.inf, -1.0], None)


def test_tokens_are_gone_through_by_id_where_no_sampler_sorts_them() -> None:
    given = ReportedTokens(ids=np.array([5, 2]), logprobs=np.array([-0.5, -1.0], dtype=np.float32), width=2)
    assert chain()._candidates(given, None).ids.tolist() == [2, 5]
    for name, more in (
        ("top_k", {"top_k": 1}),
        ("top_p", {"top_p": 0.5}),
        ("typ_p", {"typical_p": 0.5}),
        ("top_n_sigma", {"top_n_sigma": 1.0}),
        ("temperature", {"dynatemp_range": 0.5}),
    ):
        assert chain(samplers=(name,), **more)._candidates(given, None).ids.tolist() == [5, 2], name
        assert chain(**more)._candidates(given, None).ids.tolist() == [2, 5], "it is not in the chain"
    assert chain(mirostat=2)._candidates(given, None).ids.tolist() == [5, 2]


def test_a_draw_with_too_many_possibilities_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = float(np.float32(math.log(0.25)))
    here, given = chain(samplers=("min_p",), min_p=0.25), listed(0.0, edge, -5.0)
    assert here.draw(given, here.start, [])
    monkeypatch.setattr("espalier.upstream.xray.sampler.chain.MOST_OPTIONS", 1)
    with pytest.raises(UndecidedDraw):
        here.draw(given, here.start, [])


def test_xtc_takes_a_number_where_it_may_leave_something_out() -> None:
    here = chain(samplers=("xtc",), xtc_probability=0.5, xtc_threshold=0.1)
    for given, chances in ((listed(-0.5, -1.0), 1), (listed(0.0), 0)):
        assert {draw.after.chances for draw in here.draw(given, here.start, [])} == {chances}


def reported_tokens(*ids: int, is_whole: bool) -> Any:
    """A ReportedTokens, as far as `is_level` looks at it."""

    class Given:
        pass

    given: Any = Given()
    given.ids, given.is_whole = np.array(ids), is_whole
    return given


def test_a_repeat_penalty_changes_no_listed_token_where_none_is_in_the_history() -> None:
    some, whole = reported_tokens(1, 2, is_whole=False), reported_tokens(1, 2, is_whole=True)
    high, low = chain(repeat_penalty=1.2), chain(repeat_penalty=0.8)
    assert high.is_level(some, [3, 4])
    assert not high.is_level(some, [3, 2])
    assert not high.is_level(whole, [3])
    assert high.is_level(whole, [])
    assert not low.is_level(some, [3])
    assert low.is_level(some, [])


@pytest.mark.parametrize("mu", [0.5, 1.5, 2.5, 3.5, 9.0])
def test_mirostat_2_keeps_what_surprises_less_than_the_limit(mu: float) -> None:
    probs = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625], dtype=np.float32)
    assert _mirostat_2(probs, mu) == [max(1, sum(-math.log2(prob) <= mu for prob in probs))]


def test_mirostat_2_at_the_limit_may_keep_one_more() -> None:
    probs = np.array([0.5, 0.25, 0.125, 0.125], dtype=np.float32)
    assert _mirostat_2(probs, 2.0) == [1, 2]
    assert _mirostat_2(probs, 2.0 + 6e-5) == [2]
    assert _mirostat_2(probs, 2.0 + 2e-5) == [1, 2]


@pytest.mark.parametrize("mu", [2.0, 4.0, 6.0])
def test_mirostat_1_keeps_as_many_as_zipfs_law_makes_of_the_limit(mu: float) -> None:
    weights = [1 / place**1.3 for place in range(1, 60)]
    probs = np.array([weight / sum(weights) for weight in weights], dtype=np.float32)
    logs = [(math.log((i + 1) / i), math.log(probs[i - 1] / probs[i])) for i in range(1, len(probs))]
    s_hat = sum(t * b for t, b in logs) / sum(t * t for t, _ in logs)
    k = (((s_hat - 1) * 2**mu) / (1 - 100 ** (1 - s_hat))) ** (1 / s_hat)
    found = _mirostat_1(probs, mu, 100)
    assert min(max(int(k), 1), len(probs)) in found
    assert len(found) == 1
    with pytest.raises(UndecidedDraw):
        _mirostat_1(probs[:1], mu, 100)


@pytest.mark.parametrize("text", ["a", "é", "€", "😀", "a€", "€€", "x😀"])
def test_a_token_that_ends_inside_a_character_has_no_entry(text: str) -> None:
    spelled = text.encode()
    pieces = [spelled[at : at + 1] for at in range(len(spelled))]
    ends = {len(text[:count].encode()) for count in range(1, len(text) + 1)}
    assert with_entries(pieces) == [at + 1 in ends for at in range(len(spelled))]
    assert with_entries([b"0123456789" + piece for piece in (spelled, spelled[:-1])])[0]
    assert not is_cut(b"")


@pytest.mark.parametrize(
    ("chunk", "ends"),
    [
        ({"stop": True}, True),
        ({"stop": False}, False),
        ({}, False),
        ({"choices": []}, False),
        ({"choices": [{"finish_reason": None}]}, False),
        ({"choices": [{}]}, False),
        ({"choices": [{"finish_reason": "stop"}]}, True),
        ({"choices": ["no object", {"finish_reason": "length"}]}, True),
        ({"choices": {"finish_reason": "stop"}}, False),
    ],
)
def test_a_chunk_ends_a_text_where_it_says_why(chunk: dict[str, Any], ends: bool) -> None:
    assert is_last(chunk) == ends
