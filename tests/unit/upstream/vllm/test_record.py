"""What is known of each token of a vLLM, held to distributions that are worked out here."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Choice
from espalier.tokens.vocab import Vocab
from espalier.upstream.vllm.record import FollowedConstraint, is_masked, needs_scores, trace_of
from espalier.upstream.vllm.reply import ListedOutput, ListedStep, ListedToken
from espalier.upstream.vllm.request import read_request
from espalier.upstream.vllm.server import VllmFacts

VOCAB = Vocab.from_tokens([b"a", b"b", b"c", b"ab", b"d", b"<end>"], eos_ids=[5], special_ids=[5])
FACTS = VllmFacts(version="0.32.0", model="m", most=3, is_raw=True, masks_first=True)
REQUEST = read_request(
    "/v1/completions", json.dumps({"prompt": "p", "structured_outputs": {"choice": ["ab"]}}).encode()
)
OURS = read_request("/v1/completions", json.dumps({"prompt": "p", "vllm_xargs": {"espalier": "{}"}}).encode())


def listed(probs: Sequence[float], token: int, most: int) -> ListedStep:
    """A position as vLLM lists it: the token, then the best."""
    order = [token, *(one for one in np.argsort(probs)[::-1].tolist() if one != token)][:most]
    rows = [ListedToken(VOCAB.text_of(one), math.log(probs[one]) if probs[one] else -math.inf, one) for one in order]
    return ListedStep(rows[0], tuple(rows))


def masked(probs: Sequence[float], allowed: Sequence[int]) -> list[float]:
    total = sum(probs[one] for one in allowed)
    return [value / total if token in allowed else 0.0 for token, value in enumerate(probs)]


def output(steps: list[ListedStep]) -> ListedOutput:
    ids = [step.token.id for step in steps]
    return ListedOutput(ids=ids, steps=steps, prompt_ids=[0], finish="stop", model="m")  # type: ignore[arg-type]


WANTED = [[0.1, 0.5, 0.2, 0.05, 0.1, 0.05], [0.2, 0.6, 0.1, 0.03, 0.04, 0.03], [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]]
ALLOWED, TAKEN = [[0, 3], [1], [5]], [0, 1, 5]


def test_under_a_mask_of_vllms_the_two_lists_tell_the_tax() -> None:
    left = [listed(masked(probs, allowed), one, 3) for probs, allowed, one in zip(WANTED, ALLOWED, TAKEN, strict=True)]
    scores = [listed(probs, one, 4) for probs, one in zip(WANTED, TAKEN, strict=True)]
    told = output(left)
    assert is_masked(told, REQUEST, FACTS)
    assert needs_scores(told, REQUEST, FACTS)
    trace = trace_of(told, REQUEST, FACTS, FollowedConstraint(vocab=VOCAB), scores=scores)
    assert (trace.text, trace.setup["steps"]["bounded"]) == ("ab", 3)
    for step, probs, allowed in zip(trace.steps, WANTED, ALLOWED, strict=True):
        removed = 1 - sum(probs[one] for one in allowed)
        assert step.bounds is not None
        assert step.bounds[0] <= removed <= step.bounds[1]
        assert step.bounds[1] - step.bounds[0] < 0.011
        assert step.allowed_count == len(allowed)
        assert step.logprob == pytest.approx(math.log(probs[step.token_id]))
        assert {one.id for one in step.pre_masking if one.allowed} <= set(allowed)
        assert {one.id for one in step.pre_masking if not one.allowed}.isdisjoint(allowed)
        assert step.was_changed is (int(np.argmax(probs)) not in allowed)
        assert {one.id for one in step.post_grammar} == set(allowed)
    assert trace.steps[2].is_special
    assert trace.steps[2].bytes == b""


def test_without_scores_a_mask_hides_what_the_model_wanted_and_the_trace_says_so() -> None:
    trace = trace_of(output([listed(masked(WANTED[0], [0, 3]), 0, 3)]), REQUEST, FACTS, FollowedConstraint())
    (step,) = trace.steps
    assert (step.exactness, step.is_unknown, step.bounds, step.pre_masking) == ("untraceable", True, (0.0, 1.0), ())
    assert "--refill" in step.note
    assert "--refill" in trace.setup["reason"]


def followed() -> FollowedConstraint:
    return FollowedConstraint(matcher=Compiler(VOCAB).compile(Choice(("ab",))).matcher(), vocab=VOCAB)


@pytest.mark.parametrize("most", [2, 3, 4, 6])
def test_under_our_processor_the_constraint_is_followed_and_the_bounds_hold_the_truth(most: int) -> None:
    steps = [listed(probs, one, most) for probs, one in zip(WANTED, TAKEN, strict=True)]
    told = output(steps)
    assert not is_masked(told, OURS, FACTS)
    assert not needs_scores(told, OURS, FACTS)
    trace = trace_of(told, OURS, FACTS, followed())
    for step, probs, allowed in zip(trace.steps, WANTED, ALLOWED, strict=True):
        removed = 1 - sum(probs[one] for one in allowed)
        least, most_removed = step.bounds or (step.removed_mass, step.removed_mass)
        assert least - 1e-6 <= removed <= most_removed + 1e-6
        assert step.allowed_count == len(allowed)
        assert step.exactness == ("exact" if most_removed - least < 1e-6 else "bounded")
    assert trace.steps[1].exactness == "exact"  # one token is allowed, and listed


def test_random_distributions_lie_within_their_bounds() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        probs = random.dirichlet(np.full(6, 0.3)).tolist()
        for most in (1, 2, 4):
            trace = trace_of(output([listed(probs, 3, most)]), OURS, FACTS, followed())
            (step,) = trace.steps
            least, greatest = step.bounds or (step.removed_mass, step.removed_mass)
            assert least - 1e-6 <= 1 - probs[0] - probs[3] <= greatest + 1e-6


def test_a_token_that_the_constraint_does_not_allow_here_ends_what_is_known() -> None:
    steps = [listed(WANTED[0], 0, 3), listed(WANTED[1], 2, 3), listed(WANTED[2], 0, 3)]
    trace = trace_of(output(steps), OURS, FACTS, followed())
    assert trace.steps[0].allowed_count == 2
    assert [step.allowed_count for step in trace.steps[1:]] == [0, 0]
    assert "refuses a token that was taken" in trace.steps[2].note
    assert trace.steps[2].bounds == (0.0, pytest.approx(1 - WANTED[2][0]))


def test_without_a_vocabulary_the_trace_says_that_it_is_not_known() -> None:
    trace = trace_of(output([listed(WANTED[0], 1, 3)]), OURS, FACTS, FollowedConstraint(why="no vocabulary"))
    (step,) = trace.steps
    assert step.bounds == (0.0, pytest.approx(0.5))
    assert step.was_changed is None
    assert "no vocabulary" in step.note
    assert [one.id for one in step.pre_masking] == [1, 2, 0]


def test_probabilities_after_processors_are_not_taken_for_the_models() -> None:
    facts = VllmFacts(version="0.32.0", model="m", most=3, is_raw=False, masks_first=False)
    told = output([listed(masked(WANTED[0], [0, 3]), 0, 3)])
    assert needs_scores(told, OURS, facts)
    trace = trace_of(told, OURS, facts, followed(), scores=[listed(WANTED[0], 0, 4)])
    (step,) = trace.steps
    assert step.logprob == pytest.approx(math.log(0.1))
    assert step.was_changed is None
    assert "--logprobs-mode" in step.note


def test_a_reply_that_was_cut_says_how_many_tokens_it_lists() -> None:
    told: Any = output([listed(WANTED[0], 1, 3)])
    told.ids.append(2)
    told.finish, told.is_cut = None, True
    trace = trace_of(told, OURS, FACTS, FollowedConstraint())
    assert trace.finish_reason == "cancelled"
    assert "names 2 tokens and lists 1" in trace.setup["reason"]
