"""When a text ends, told token by token; and that runs which are forked or rolled back are as if begun anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import SamplingConfig, Vocab
from espalier.decoding.line_limit import LineLimit
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Job
from espalier.decoding.step.record import Watch
from espalier.decoding.text.run import EndRule, TextEnd, TextRun
from espalier.errors import BudgetExceeded
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream

A, B, C, D, EOS, OTHER_EOS, MARK, HALF = range(8)
VOCAB = Vocab.from_tokens([b"a", b"b", b"c", b"d", b"", b"", b"", "é".encode()[:1]], eos_ids=[EOS, OTHER_EOS])


class Done:
    """A constraint's matcher after its last token."""

    def __init__(self, *, is_accepting=False, is_finished=False):
        self.is_accepting, self.is_finished = is_accepting, is_finished

    def shortest_completion(self):
        return (A, EOS)


def new(*, max_tokens=9, spelled=None, on_budget="truncate", line_limit=None, **config):
    job = Job(
        vocab=VOCAB,
        prompt=(A,),
        matcher=None,
        chain=Chain(SamplingConfig(**config)),
        stream=RandomStream(0),
        max_tokens=max_tokens,
        watch=Watch("off"),
        spelled=spelled or {},
        options=Decoding(on_budget=on_budget),
        line_limit=line_limit,
    )
    return TextRun(EndRule(job))


def fed(run, *tokens):
    shown = "".join(run.take(token) for token in tokens[:-1])
    assert run.ending is None
    return shown + run.take(tokens[-1])


def test_a_text_ends_with_eos_a_stop_id_a_stop_text_or_at_its_length():
    run = new()
    assert fed(run, A, B, EOS) == "ab"
    assert run.ending == TextEnd("stop")
    assert fed(run := new(), A, OTHER_EOS) == "a"
    assert run.ending == TextEnd("stop")
    assert fed(run := new(stop_ids=[C]), A, C) == "a"
    assert run.ending == TextEnd("stop", C)
    assert fed(run := new(stop=["cd"]), A, C, D) == "a"
    assert run.ending == TextEnd("stop", "cd")
    assert fed(run := new(max_tokens=3), A, B, C) == "abc"
    assert run.ending == TextEnd("length")


def test_a_text_that_was_rolled_back_goes_on_whatever_the_time_is():
    times = iter([0.0, 0.0, *[9.0] * 9])
    run = new(line_limit=LineLimit(1.0, lambda: next(times)), spelled={MARK: b"\n"})
    assert fed(run, A, MARK, B) == "a\nb"
    assert run.ending is None
    run.rollback(1)
    assert run.ending is None
    assert fed(run, B, MARK) == "b\n"
    assert run.ending == TextEnd("length")


def test_the_reason_is_the_stop_where_that_comes_with_the_last_token():
    assert fed(run := new(max_tokens=2), A, EOS) == "a"
    assert run.ending == TextEnd("stop")
    assert fed(run := new(max_tokens=2, stop_ids=[B]), A, B) == "a"
    assert run.ending == TextEnd("stop", B)
    assert fed(run := new(max_tokens=2, stop=["b"]), A, B) == "a"
    assert run.ending == TextEnd("stop", "b")


def test_an_eos_that_is_a_stop_id_too_is_an_eos():
    fed(run := new(stop_ids=[EOS]), A, EOS)
    assert run.ending == TextEnd("stop")
    fed(run := new(stop_ids=[EOS], ignore_eos=True), A, EOS)
    assert run.ending == TextEnd("stop", EOS)


def test_an_ignored_eos_ends_nothing():
    run = new(ignore_eos=True)
    assert fed(run, A, EOS, B) == "ab"
    assert run.ending is None


def test_special_tokens_that_are_spelled_are_text_and_can_complete_a_stop_text():
    run = new(spelled={MARK: b"<m>", EOS: b"<end>"}, stop=["d>"])
    assert fed(run, A, MARK) == "a<m>"
    run.take(EOS)
    assert run.ending == TextEnd("stop", "d>")
    assert run.outcome(None).text == "a<m><en"


def test_what_is_held_back_is_the_tail_of_the_outcome():
    run = new(max_tokens=3, stop=["cd"])
    assert fed(run, A, HALF, C) == "a�"
    outcome = run.outcome(None, mask_seconds=0.5)
    assert (outcome.text, outcome.tail, outcome.tokens) == ("a�c", "c", (A, HALF, C))
    assert (outcome.finish, outcome.stop, outcome.is_complete, outcome.mask_seconds) == ("length", None, True, 0.5)


def test_a_stop_text_that_waited_for_a_longer_one_is_met_when_no_more_text_comes():
    run = new(max_tokens=3, stop=["b", "abcd"])
    assert fed(run, A, B, C) == ""
    assert run.ending == TextEnd("length")
    outcome = run.outcome(None)
    assert (outcome.text, outcome.stop) == ("a", "b")


def test_a_text_that_goes_on_has_no_outcome():
    run = new()
    run.take(A)
    with pytest.raises(AssertionError, match="goes on"):
        run.outcome(None)


@pytest.mark.parametrize(
    ("tokens", "matcher", "is_complete"),
    [
        ((A, EOS), Done(is_finished=True), True),
        ((A, B), Done(is_accepting=True), True),
        ((A, B), Done(), False),
        ((A, C), Done(is_accepting=True), False),  # a stop id hides what the matcher saw
    ],
)
def test_a_constrained_text_is_complete_after_its_eos_or_where_it_is_cut_while_it_may_end(tokens, matcher, is_complete):
    run = new(max_tokens=2, stop_ids=[C])
    fed(run, *tokens)
    assert run.outcome(matcher).is_complete is is_complete


def test_an_incomplete_text_at_its_length_is_an_error_where_that_is_asked_for():
    fed(run := new(max_tokens=2, on_budget="error"), A, B)
    with pytest.raises(BudgetExceeded, match="after 2 tokens"):
        run.outcome(Done())
    fed(run := new(max_tokens=2, on_budget="error"), A, B)
    assert run.outcome(Done(is_accepting=True)).finish == "length"


tokens = st.lists(st.sampled_from([A, B, C, D, MARK, HALF]), max_size=12)


@given(tokens, tokens, tokens)
def test_forked_and_rolled_back_runs_go_on_as_if_begun_anew(kept, undone, after):
    def begun():
        run = new(max_tokens=99, stop=["ad", "dcb"], spelled={MARK: b"bc"})
        return run, "".join(map(run.take, kept))

    run, _ = begun()
    other = run.fork()
    for token in undone:
        run.take(token)
    run.rollback(len(undone))
    anew, _ = begun()
    for one in (run, other):
        assert (one.tokens, one.ending) == (anew.tokens, anew.ending)
    shown = [[one.take(token) for token in after] for one in (run, other, anew)]
    assert shown[0] == shown[1] == shown[2]
    assert (run.tokens, run.ending) == (other.tokens, other.ending) == (anew.tokens, anew.ending)
