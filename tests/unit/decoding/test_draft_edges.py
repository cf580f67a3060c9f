"""Where drafts end or have nothing to gain: the tokens of `mask`, and no work that helps nobody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import espalier
from espalier import Regex
from espalier.decoding.drafting.continuations import Continuations, HistoryPosition
from espalier.decoding.drafting.kit import DraftKit
from espalier.decoding.drafting.pass_costs import PassCosts
from espalier.decoding.drafting.worth import Worth
from espalier.decoding.drafts import strategy
from espalier.decoding.drafts.forced import ForcedDrafter
from espalier.decoding.drafts.pace import MOST, Pace
from espalier.decoding.drafts.source import GRAMMAR, DraftSource, DraftText
from espalier.decoding.drafts.sources import SOURCES
from espalier.decoding.drafts.strategy import _DraftRun
from espalier.engines.fake import noise
from espalier.engines.local.engine import LocalEngine
from tests.unit.decoding.test_draft_run import OneWay, run
from tests.unit.decoding.test_jump import Counted, vocab_of

ACCENTS = {"constraint": Regex("(é){3}"), "raw": True, "trace": "off"}
"""Six tokens of which each alone is allowed: no merge holds these bytes."""


class Scripted:
    """Proposes the tokens of `script` that come next, or with `shift` other ones, and counts how often it is asked."""

    script: ClassVar[tuple[int, ...]] = ()
    shift: ClassVar[int] = 0
    asked: ClassVar[int] = 0

    def __init__(self, text: DraftText) -> None:
        self.text = text

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        Scripted.asked += 1
        at = len(self.text.tokens) + len(ahead)
        return [token if not self.shift else (token + self.shift) % 256 for token in self.script[at : at + most]]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    monkeypatch.setitem(SOURCES._builtin, "scripted", DraftSource(make=Scripted))
    monkeypatch.setattr(Scripted, "asked", 0)
    monkeypatch.setattr(Worth, "note", lambda self, seconds, tokens, *, drafted: None)
    return Scripted


@pytest.fixture
def eng() -> Iterator[Any]:
    vocab = vocab_of()
    model = Counted(lambda tokens: noise(tokens, vocab.width, 3.0), width=vocab.width)

    def encode(text: str, *, add_special: bool) -> list[int]:
        return [*text.encode()]

    with espalier.LoadedEngine(LocalEngine(name="noise", model=model, vocab=vocab, encode=encode)) as engine:
        yield engine


def passes_cost(monkeypatch: pytest.MonkeyPatch, each: float) -> None:
    """A pass takes a second, and `each` more for every further token."""
    listed = [1.0 + each * (size - 1) for size in range(32)]
    monkeypatch.setattr(PassCosts, "listed", lambda self: listed)


@pytest.mark.parametrize("most", range(1, 7))
def test_tokens_that_alone_are_allowed_end_where_the_text_does(
    eng: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes_cost(monkeypatch, 0.01)
    for ending in ({"max_tokens": most}, {"stop": ["é" * most]} if most < 4 else {}):
        asked = ACCENTS | ending
        drafted = eng.generate("p", strategy="draft", drafts=["forced"], **asked)
        alone = eng.generate("p", strategy="mask", **asked)
        assert (drafted.token_ids, drafted.text, drafted.finish_reason) == (
            alone.token_ids,
            alone.text,
            alone.finish_reason,
        )


def test_a_token_that_a_ban_leaves_alone_needs_no_pass(eng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    passes_cost(monkeypatch, 0.01)
    asked = {**ACCENTS, "constraint": Regex("(é|z){3}"), "logit_bias": {ord("z"): -float("inf")}}
    drafted = eng.generate("p", strategy="draft", drafts=["forced"], **asked)
    assert drafted.token_ids == eng.generate("p", strategy="mask", **asked).token_ids
    assert drafted.text == "ééé"
    assert drafted.drafting.passes == 1


@pytest.mark.parametrize("most", range(1, 8))
def test_a_wrong_draft_before_the_last_token_changes_nothing(
    eng: Any, scripted: type[Scripted], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "wanted", lambda self, rate, room, *, seconds=0.0, hit=1.0: room)
    asked = {"raw": True, "temperature": 0, "max_tokens": most, "trace": "off"}
    alone = eng.generate("p", strategy="mask", **asked)
    monkeypatch.setattr(scripted, "script", alone.token_ids)
    monkeypatch.setattr(scripted, "shift", 1)
    drafted = eng.generate("p", strategy="draft", drafts=["scripted"], **asked)
    assert drafted.token_ids == alone.token_ids
    assert (scripted.asked > 0) == (most > 3), "the first pass of all shows what one costs"


def test_a_draft_that_is_right_cuts_nothing_from_the_cache(
    eng: Any, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "wanted", lambda self, rate, room, *, seconds=0.0, hit=1.0: min(room, 4))
    asked = {"raw": True, "temperature": 0, "max_tokens": 30, "trace": "off"}
    monkeypatch.setattr(scripted, "script", eng.generate("p", strategy="mask", **asked).token_ids)
    monkeypatch.setattr(strategy, "FAIR", float("inf"))  # a decision on a busy machine takes long
    cuts: list[int] = []
    truncate = Counted.truncate
    monkeypatch.setattr(Counted, "truncate", lambda self, *given: cuts.append(given[1]) or truncate(self, *given))
    drafted = eng.generate("p", strategy="draft", drafts=["scripted"], **asked)
    assert drafted.drafting.accepted == drafted.drafting.drafted > 20
    assert cuts == []


def test_a_source_whose_drafts_cost_more_than_they_give_is_soon_asked_seldom(
    eng: Any, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes_cost(monkeypatch, 1.0)
    asked = {"raw": True, "temperature": 0, "max_tokens": 300, "trace": "off"}
    alone = eng.generate("p", strategy="mask", **asked)
    monkeypatch.setattr(scripted, "script", alone.token_ids)
    drafted = eng.generate("p", strategy="draft", drafts=["scripted"], **asked)
    assert drafted.token_ids == alone.token_ids
    assert 1 <= scripted.asked < len(alone.token_ids) / 10


def test_nothing_is_drafted_that_gains_nothing_even_if_it_costs_nothing() -> None:
    costs = PassCosts()
    for size in (1, *[8] * 6):
        costs.note(size, 1.0)
    pace = Pace(costs, 1, worth=1.0)
    assert pace.kept([0.0] * 3) == 0
    assert pace.kept([0.1, 0.0]) == 1


@given(
    st.lists(st.floats(0.3, 1.0), min_size=1, max_size=6),
    st.lists(st.floats(0.05, 1.0), max_size=8),
    st.floats(0.01, 0.4),
)
def test_what_a_further_source_adds_is_weighed_against_the_draft_so_far(
    before: list[float], rates: list[float], each: float
) -> None:
    costs = PassCosts()
    for size in (1, *[8] * 6):
        costs.note(size, 1.0 + each * (size - 1))
    pace = Pace(costs, 1)
    pace.added(before)

    def speed(count: int) -> float:
        """Tokens a second of the whole draft, with so many of the further tokens."""
        all_rates = [*before, *rates[:count]]
        gained = 1.0 + sum(float(np.prod(all_rates[:length])) for length in range(1, len(all_rates) + 1))
        return gained / costs.of(1 + len(all_rates))

    best = max(range(min(len(rates), MOST - len(before)) + 1), key=lambda count: (round(speed(count), 9), -count))
    assert pace.kept(rates) == best


def drafter_of_forced(way: str, tokens: list[int], before: str) -> ForcedDrafter:
    vocab = vocab_of()
    job: Any = SimpleNamespace(vocab=vocab, encode=vocab.encoder, matcher=OneWay([*way.encode()]), prompt=(1,))
    return ForcedDrafter(DraftText(job, [*before.encode("latin-1"), *tokens], Continuations()))


@pytest.mark.parametrize("before", ["", "\xa9", "\xa9\xa9"])
def test_what_is_forced_is_split_as_the_tokenizer_does_from_the_first_token_on(before: str) -> None:
    """The text so far may be empty, or end in the midst of a character that began in the prompt."""
    vocab = vocab_of()
    tokens = drafter_of_forced('name"ab', [], before).propose([], 9)
    assert [vocab.bytes_of(token) for token in tokens][:1] == [b"name"]


def test_a_run_that_waits_drafts_nothing() -> None:
    state = run(_next=9)
    assert _DraftRun.propose(state) == ()
    assert not state.is_awake


def test_what_the_last_tokens_share_with_what_is_forced_is_split_as_one_text() -> None:
    vocab = vocab_of()
    drafter = drafter_of_forced('":name"', [], "a")
    assert [vocab.bytes_of(token) for token in drafter.propose([], 9)][:2] == [b'":', b"name"]


def test_what_is_forced_after_a_special_token_is_split_as_the_beginning_of_a_text() -> None:
    """A special token has no bytes, and what stands before it is complete."""
    vocab = vocab_of()
    special = next(token for token in range(vocab.width) if not vocab.bytes_of(token))
    drafter = drafter_of_forced('":name"', [special], "a")
    assert [vocab.bytes_of(token) for token in drafter.propose([], 9)][:2] == [b'":', b"name"]


def test_a_proposal_that_was_only_heard_counts_for_the_token_that_was_taken_there() -> None:
    state: Any = run(_heard=[], _parts=[], _drafts=[], _sure={})
    state.text = SimpleNamespace(tokens=[7, 5])
    state._decide = lambda row: SimpleNamespace(token=9, prob=0.5, record=None)

    def advance(token: int, prob: float) -> str:
        state.text.tokens.append(token)
        return ""

    state._advance = advance
    state._judge = lambda step, right: _DraftRun._judge(state, step, right)
    known = state._seen.known
    for proposed in (9, 5):
        before = known.rate("lookup")
        state._heard = [("lookup", (proposed,))]
        assert _DraftRun.take_one(state, np.zeros(1, dtype=np.float32)).token == 9
        assert (known.rate("lookup") > before) == (proposed == 9)
        assert state.feed == (9,)


def test_a_pass_after_one_with_a_draft_counts_as_one_that_starts_anew() -> None:
    clock = iter([0.5, 2.0, 3.0, 9.0])
    noted: list[Any] = []
    state: Any = run(_passes=8, _cached=0, _has_drafted=False, _beside=0.25, text=SimpleNamespace(tokens=[]))
    state.job.clock = lambda: next(clock)
    state.job.kit = SimpleNamespace(
        last_pass=lambda: None,
        costs=SimpleNamespace(is_known=True, note=lambda *given, **said: noted.append((*given, said))),
    )
    _DraftRun.passed(state, 4, 0.0, 3)
    assert noted == [(4, 0.75, {"drafted": True, "switched": False})]
    assert state._is_drafts
    _DraftRun.passed(state, 1, 1.5)
    assert noted[1:] == [(1, 0.5, {"drafted": False, "switched": True})]
    assert state._is_drafts
    _DraftRun.passed(state, 1, 2.5)
    assert len(noted) == 2, "one of four without a draft"
    assert not state._is_drafts
    _DraftRun.passed(state, 1, 8.5)
    assert noted[2:] == [(1, 0.5, {"drafted": False, "switched": False})]


def test_a_source_with_nothing_to_add_to_a_draft_saves_nothing() -> None:
    """The source before it has a draft whose worth is not its own."""
    asked: list[tuple[str, float]] = []
    kit = DraftKit()
    for size in (1, *[8] * 6):
        kit.costs.note(size, 1.0 + size / 100)
    state: Any = run(_parts=[], feed=(1,))
    state.job.kit = kit
    state._drafters = {"first": None, GRAMMAR: None}
    state._sure = {GRAMMAR: SimpleNamespace(sure=[])}
    state._ask_source = lambda name, drafter, ahead, most: [5] * 3 if name == "first" else []
    state._was_asked = lambda name, saved: asked.append((name, saved))
    assert _DraftRun._draft_tokens(state, MOST) == (5, 5, 5)
    assert asked == [(GRAMMAR, 0.0)]
    state._sure[GRAMMAR].sure = [0.95, 0.95]
    state._ask_source = lambda name, drafter, ahead, most: [5] * 3 if name == "first" else [6, 6]
    assert _DraftRun._draft_tokens(state, MOST) == (5, 5, 5, 6, 6)
    assert asked[1][1] > 0


def test_a_place_is_the_last_two_tokens_and_what_may_follow() -> None:
    state: Any = run(_learns=True, _mask=np.ones(1, dtype=np.int32), is_awake=True, _now=lambda: 0.0)
    state._seen.place = None
    places: list[HistoryPosition] = []
    for tokens in ([], [3], [4, 3], [9, 4, 3], [3, 4]):
        state.text = SimpleNamespace(tokens=tokens)
        _DraftRun._learn(state)
        places.append(state._seen.place)
    first, one, two, again, other = places
    assert two == again, "what is before the last two makes no difference"
    assert len({first, one, two, other}) == 4
    assert one.near == two.near
    assert two.before == 4
