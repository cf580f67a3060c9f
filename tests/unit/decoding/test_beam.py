"""Beam search on toy models: against enumeration, against a beam search written anew, and at its edges."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from espalier import Choice, Regex, Vocab
from espalier.decoding.beam.strategy import beam_plan
from espalier.decoding.masking import mask_plan
from espalier.engines.fake import FakeStepModel
from espalier.engines.scheduling.drive import drive
from espalier.errors import BadLogits, DeadEnd
from tests.unit.decoding.beam_toys import (
    EOS,
    PROMPT,
    VOCAB,
    Toy,
    anything,
    ends_at,
    found,
    job,
    language,
    log_probs,
    reference,
    search,
)

words = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=8, unique=True)
ways = {
    "beams": st.integers(1, 6),
    "length_penalty": st.sampled_from([1.0, 0.0, 2.0, -1.0, 0.5]),
    "early_stopping": st.sampled_from([False, True, "never"]),
}


def equal(got, wanted):
    assert [tokens for tokens, _ in got] == [tokens for tokens, _ in wanted]
    assert [score for _, score in got] == pytest.approx([score for _, score in wanted], abs=1e-6)


@given(st.integers(0, 10**6), st.fixed_dictionaries(ways), st.integers(1, 7))
def test_without_a_constraint_it_is_the_beam_search_of_the_book(seed, options, longest):
    wanted = reference(log_probs(seed), anything, ends_at(), longest=longest, wanted=options["beams"], **options)
    model = Toy(seed, slots=options["beams"])
    _, ended = search(model, job(max_tokens=longest, num_return_sequences=options["beams"], **options))
    equal(found(ended), wanted)


@given(st.integers(0, 10**6), words, st.fixed_dictionaries(ways), st.integers(2, 7))
def test_under_a_constraint_masks_are_not_renormalised(seed, texts, options, longest):
    wanted = reference(log_probs(seed), language(texts), ends_at(), longest=longest, wanted=options["beams"], **options)
    model = Toy(seed, slots=options["beams"])
    asked = job(constraint=Choice(texts), max_tokens=longest, num_return_sequences=options["beams"], **options)
    _, ended = search(model, asked)
    equal(found(ended), wanted)
    for one in (ended, *ended.others):
        assert one.is_complete == (one.text in texts)
        assert one.finish == ("stop" if one.tokens[-1] == EOS else "length")


@given(st.integers(0, 10**6), st.sampled_from(["b", "ab", "ca", "aa"]), st.fixed_dictionaries(ways))
@example(891404, "ab", {"beams": 2, "length_penalty": 2.0, "early_stopping": True})  # a row's best all end
@example(860394, "ca", {"beams": 2, "length_penalty": 2.0, "early_stopping": "never"})
def test_stop_texts_end_a_text_as_eos_does(seed, stop, options):
    wanted = reference(log_probs(seed), anything, ends_at(stop), longest=6, wanted=options["beams"], **options)
    model = Toy(seed, slots=options["beams"])
    _, ended = search(model, job(stop=(stop,), max_tokens=6, num_return_sequences=options["beams"], **options))
    equal(found(ended), wanted)
    for one in (ended, *ended.others):
        text = VOCAB.decode(one.tokens).decode()
        assert one.text == text.split(stop)[0]
        assert one.stop == (stop if stop in text else None)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("constraint", [None, "a(a|b)*b?a"])
def test_with_beams_for_every_text_the_best_of_all_is_found(length_penalty, constraint):
    small = Vocab.from_tokens([b"a", b"b", b""], eos_ids=[2])
    allows = None if constraint is None else Regex(constraint)
    matches = re.compile(constraint or "[ab]*").fullmatch
    longest = 5
    for seed in range(5):
        gains = log_probs(seed, small)
        every = []
        for length in range(1, longest + 1):
            for tokens in itertools.product(range(3), repeat=length):
                text = small.decode(tokens).decode()
                if 2 in tokens[:-1] or (tokens[-1] != 2 and length < longest):
                    continue
                if tokens[-1] == 2 and not matches(text):
                    continue
                if tokens[-1] != 2 and not any(matches(text + end) for end in ("", "a", "b", "aa", "ba")):
                    continue
                total = sum(gains(tokens[:at])[token] for at, token in enumerate(tokens))
                every.append((tokens, total / length**length_penalty))
        every.sort(key=lambda one: -one[1])
        asked = job(
            vocab=small,
            constraint=allows,
            max_tokens=longest,
            beams=128,
            num_return_sequences=8,
            length_penalty=length_penalty,
            early_stopping="never",
        )
        _, ended = search(Toy(seed, slots=128, vocab=small), asked)
        equal(found(ended), every[:8])


@pytest.mark.parametrize("constraint", [None, Choice(["abab", "abca", "caab", "cc"])])
def test_one_beam_is_greedy_decoding(constraint):
    for seed in range(20):
        _, ended = search(Toy(seed, slots=1), job(constraint=constraint, beams=1, max_tokens=6))
        asked = job(constraint=constraint, max_tokens=6, temperature=0)
        *_, (_, greedy) = drive(Toy(seed, slots=1), [mask_plan(asked)])
        assert (ended.tokens, ended.text, ended.finish) == (greedy.tokens, greedy.text, greedy.finish)


def test_never_more_sequences_are_held_than_there_are_beams_and_the_prompt_is_read_once():
    model = Toy(3, slots=5)
    lengths = []
    extend = model.extend
    model.extend = lambda work: (lengths.append([len(item.tokens) for item in work]), extend(work))[1]
    search(model, job(beams=5, max_tokens=9))
    assert model.most_held == 5
    assert lengths[0] == [len(PROMPT)]
    assert all(sizes == [1] * len(sizes) for sizes in lengths[1:])  # nothing is computed twice
    assert len(lengths) == 9


def test_where_fewer_are_allowed_fewer_beams_go_on_and_no_text_comes_twice():
    model = Toy(1, slots=8)
    asked = job(constraint=Choice(["cc"]), beams=8, num_return_sequences=8, max_tokens=6)
    _, ended = search(model, asked)
    assert [one.text for one in (ended, *ended.others)] == ["cc"]
    assert model.most_held == 1


class After:
    """A filter that leaves nothing after a token."""

    name, priority = "after", 2

    def __init__(self, token, last=None):
        self.token, self.last = token, last

    def apply(self, logits, context):
        assert len(context.generated) == context.step
        assert self.last == (context.generated[-1] if context.generated else None)
        return np.full_like(logits, -np.inf) if self.last == self.token else logits

    def on_token(self, token):
        self.last = token

    def rollback(self, count):
        raise NotImplementedError

    def fork(self):
        return After(self.token, self.last)


@given(st.integers(0, 10**6), st.integers(0, 4), st.integers(2, 5))
def test_a_beam_with_no_way_on_dies_and_the_others_live(seed, token, beams):
    def allows(tokens, following):
        return not tokens or tokens[-1] != token

    options = {"beams": beams, "early_stopping": "never"}
    wanted = reference(log_probs(seed), allows, ends_at(), longest=5, wanted=beams, **options)
    asked = job(filters=[After(token)], max_tokens=5, num_return_sequences=beams, **options)
    if not wanted:
        with pytest.raises(DeadEnd):
            search(Toy(seed, slots=beams), asked)
        return
    _, ended = search(Toy(seed, slots=beams), asked)
    equal(found(ended), wanted)


def test_where_every_beam_dies_it_is_a_dead_end_and_nothing_is_held():
    model = Toy(1, slots=2)
    with pytest.raises(DeadEnd, match="after"):
        list(drive(model, [beam_plan(job(constraint=Choice(["cc"]), filters=[After(2)], beams=2))]))
    assert model.live == 0


def test_logits_that_are_no_numbers_are_an_error_and_nothing_is_held():
    def broken(tokens):
        row = np.zeros(VOCAB.width, dtype=np.float32)
        row[0] = np.nan if len(tokens) > 4 else 1
        row[EOS] = -20
        return row

    model = FakeStepModel(broken, width=VOCAB.width, slots=4)
    with pytest.raises(BadLogits, match="step 3"):
        list(drive(model, [beam_plan(job())]))
    assert model.live == 0


@given(st.integers(0, 10**6), st.integers(0, 8))
def test_stopping_it_in_the_middle_frees_every_sequence(seed, events):
    model = Toy(seed, slots=3)
    running = drive(model, [beam_plan(job(beams=3, constraint=Choice(["abcabc", "abcacc", "abcbca"])))])
    for _ in itertools.islice(running, events):
        pass
    running.close()
    assert model.live == 0


def test_a_seed_changes_nothing():
    assert search(Toy(5, slots=4), job(seed=1)) == search(Toy(5, slots=4), job(seed=2))


def test_ties_go_to_the_better_beam_and_then_to_the_lowest_id():
    model = FakeStepModel(lambda tokens: np.zeros(VOCAB.width, dtype=np.float32), width=VOCAB.width, slots=3)
    _, ended = search(model, job(beams=3, max_tokens=2, num_return_sequences=3))
    assert [tokens for tokens, _ in found(ended)] == [(0, 0), (0, 1), (0, 2)]
