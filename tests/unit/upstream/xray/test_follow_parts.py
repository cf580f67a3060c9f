"""Parts of following a reply by themselves: what is lent, what is asked again, what is lost and from where on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from espalier.errors import UpstreamError
from espalier.upstream.xray import follow
from espalier.upstream.xray.follow import _ReplyRun, following
from espalier.upstream.xray.replay import BROKEN, SamplerReplay, StepVerdict
from espalier.upstream.xray.sampler.candidates import UndecidedDraw
from espalier.upstream.xray.wire.reply import OutputSoFar
from tests.unit.upstream.xray.test_sampler_steps import OFF

EOG = frozenset([3])


class Lender:
    """A ServerTokens that lends states. held: the grammars whose states are out."""

    pieces = SimpleNamespace(eog=EOG)

    def __init__(self) -> None:
        self.held: list[str] = []

    def borrow(self, grammar: str) -> Any:
        self.held.append(grammar)
        return SimpleNamespace()

    def give_back(self, grammar: str, states: Any) -> None:
        assert states is not None
        self.held.remove(grammar)


@pytest.mark.parametrize("grammar", ["root ::= .", ""])
@pytest.mark.parametrize("fails", [False, True])
def test_the_states_of_a_grammar_are_lent_for_as_long_as_the_reply_is_followed(
    grammar: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: Any = Lender()
    monkeypatch.setattr(follow, "read_settings", lambda _: replace(OFF, grammar=grammar))
    monkeypatch.setattr(_ReplyRun, "__init__", lambda self, *given: None)
    monkeypatch.setattr(_ReplyRun, "followed", lambda self: list(known.held))

    def read() -> None:
        with following(OutputSoFar(settings={}), known, None, count=1) as held:
            assert held == ([grammar] if grammar else [])  # type: ignore[comparison-overlap]
            if fails:
                raise ZeroDivisionError

    if fails:
        with pytest.raises(ZeroDivisionError):
            read()
    else:
        read()
    assert known.held == []


@pytest.mark.parametrize(
    ("place", "more", "ends"),
    [(4, {}, EOG), (3, {}, None), (4, {"finish": "length"}, None), (4, {"is_stopped_by_word": True}, None)],
)
def test_the_last_token_of_a_text_that_ended_by_itself_is_one_that_ends_it(
    place: int, more: dict[str, Any], ends: Any
) -> None:
    run: Any = SimpleNamespace(_told=OutputSoFar(**{"count": 5, "finish": "stop", **more}), _known=Lender())
    assert _ReplyRun._ends(run, place) == ends


@pytest.mark.parametrize(
    ("is_lost", "reason", "thinks", "contradicts"),
    [(True, "", False, True), (False, "", False, False), (True, "why", False, False), (True, "", True, False)],
)
def test_a_reply_contradicts_the_server_only_where_nothing_else_explains_that_it_is_lost(
    is_lost: bool, reason: str, thinks: bool, contradicts: bool
) -> None:
    replay: Any = SimpleNamespace(finish=list, reason="", is_lost=is_lost)
    run: Any = SimpleNamespace(
        _told=OutputSoFar(ids={2: 9}), _settings=OFF, _prompt=[], _asked=0, _states=None, _reason=reason, _thinks=thinks
    )
    made = _ReplyRun._made(run, replay, "unknown from here on", more=2, after=1)
    assert made.is_lost == contradicts
    assert [step.token for step in made.steps] == [follow.NO_ID, 9]
    assert made.reason == "unknown from here on"


class Probed:
    """A server that is asked for levels. tells: what its answers are read as, in turn."""

    def __init__(self, *tells: Any) -> None:
        self.tells, self.fresh = list(tells), list[bool]()

    def probed(self, history: Any, probe: Any, *, count: int, is_fresh: bool) -> Any:
        self.fresh.append(is_fresh)
        return self.tells.pop(0)


@pytest.mark.parametrize(
    ("tells", "more", "level", "fresh"),
    [
        (["a level"], {}, "a level", [False]),
        ([None, "a level"], {}, "a level", [False, True]),
        ([None, None], {}, None, [False, True]),
        (["a level"], {"needs": False}, None, []),
        (["a level"], {"is_lost": True}, None, []),
        (["a level"], {"upgrades": 0}, None, []),
        (["a level"], {"reported": None}, None, []),
        (["a level"], {"probe": None}, None, []),
    ],
)
def test_the_level_is_asked_for_where_it_is_needed_and_once_more_without_the_servers_cache(
    tells: list[Any], more: dict[str, Any], level: Any, fresh: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"needs": True, "is_lost": False, "upgrades": 2, "reported": "reported", "probe": "a probe", **more}
    monkeypatch.setattr(follow, "probe_of", lambda *_: given["probe"])
    monkeypatch.setattr(follow, "level_of", lambda entry, *_: entry)
    server = Probed(*tells)
    known = SimpleNamespace(pieces=SimpleNamespace(pieces=[]))
    run: Any = SimpleNamespace(
        _again=server, _prompt=[1], _known=known, _upgrades=given["upgrades"], _count=9, _asked=0
    )
    replay: Any = SimpleNamespace(
        is_lost=given["is_lost"], needs_level=lambda reported: given["needs"], tokens=lambda: [2]
    )
    assert _ReplyRun._level(run, replay, given["reported"]) == level  # type: ignore[arg-type]
    assert server.fresh == fresh
    assert run._asked == len(fresh)
    assert run._upgrades == given["upgrades"] - bool(fresh)


def replay(**chain: Any) -> SamplerReplay:
    made: Any = SimpleNamespace(start="start", settings=OFF, **chain)
    return SamplerReplay(made, None, [])


def test_a_step_without_a_report_is_not_decided() -> None:
    here = replay()
    assert not here.decides(1, None)
    here.give_up("no more")
    assert here.decides(1, None), "a report would not help any more"


def path(outcome: Any, *, is_checked: bool, before: Any) -> Any:
    return SimpleNamespace(verdict=StepVerdict(outcome, is_checked=is_checked), before=before, place=None)


@pytest.mark.parametrize(("reason", "outcomes"), [("too many", ["accepted", "accepted"]), (BROKEN, ["accepted"])])
def test_what_contradicts_the_replay_takes_back_steps_that_no_later_one_confirms(
    reason: str, outcomes: list[str]
) -> None:
    here = replay()
    start = SimpleNamespace(verdict=None, before=None)
    first = path("accepted", is_checked=True, before=start)
    second = path("accepted", is_checked=False, before=first)
    here._tokens = [(token, None, follow.WHOLE, None) for token in (5, 6)]
    here._paths = here._last = [second]
    here._lose(2, reason)
    assert [step.verdict.outcome for step in here.finish()] == [*outcomes, *["unknown"] * (2 - len(outcomes))]
    assert here.reason == reason
    here._lose(0, "another")
    assert here.reason == reason, "the first reason stays"


def test_without_a_possibility_left_only_confirmed_steps_stay() -> None:
    here = replay()
    start = SimpleNamespace(verdict=None, before=None)
    second = path("accepted", is_checked=False, before=path("accepted", is_checked=True, before=start))
    here._tokens = [(token, None, follow.WHOLE, None) for token in (5, 6)]
    here._paths, here._last = [], [second]
    here._lose(2, "refused by the grammar")
    assert [step.verdict.outcome for step in here.finish()] == ["accepted", "unknown"]


class Splits:
    """A server that splits prompts, or is away."""

    def __init__(self, ids: list[int] | None) -> None:
        self.ids = ids

    def prompt_ids(self, prompt: str) -> list[int]:
        if self.ids is None:
            raise UpstreamError("the server is away")
        return self.ids


@pytest.mark.parametrize(
    ("again", "more", "why"),
    [
        (Splits([1, 2]), {}, ""),
        (Splits([1, 2]), {"prompt_count": 2}, ""),
        (Splits([1, 2]), {"prompt_count": 3}, "its text splits into other tokens"),
        (Splits([1, 2]), {"has_prompt": False}, "the reply tells the prompt of the first outputs only"),
        (Splits(None), {}, "the server is away"),
        (None, {}, "the server is not asked for more"),
    ],
)
@pytest.mark.parametrize("is_needed", [False, True])
def test_without_the_prompts_tokens_nothing_is_asked_and_what_needs_them_says_so(
    again: Any, more: dict[str, Any], why: str, is_needed: bool
) -> None:
    run: Any = SimpleNamespace(_told=OutputSoFar(prompt="a prompt", **more), _again=again, _prompt=[], _reason="")
    _ReplyRun._read_prompt(run, is_needed=is_needed)
    assert run._prompt == ([] if why else [1, 2])
    assert run._again is (None if why else again)
    said = f"penalties look at the prompt's tokens, which are not known: {why}"
    assert run._reason == (said if why and is_needed else "")


def test_a_step_whose_draw_is_the_servers_is_checked() -> None:
    draws = [SimpleNamespace(token=token, after=f"after {token}") for token in (5, 6)]
    here = replay(draw=lambda *_: draws)
    found = here._steps("start", "reported", 5)  # type: ignore[arg-type]
    assert [(verdict.outcome, verdict.is_checked, after) for verdict, after in found] == [("accepted", True, "after 5")]
    assert here._steps("start", "reported", 7) == []  # type: ignore[arg-type]
    assert len(here._steps("start", "reported", None)) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(("error", "decides"), [(UndecidedDraw(), False), (UpstreamError("it is wrong"), True)])
def test_a_step_that_cannot_be_told_is_asked_for_and_one_that_is_wrong_is_not(error: Exception, decides: bool) -> None:
    def fails(*_: Any) -> Any:
        raise error

    here = SamplerReplay(SimpleNamespace(start="start", settings=replace(OFF, mirostat=2), draw=fails), None, [])  # type: ignore[arg-type]
    assert here.decides(1, "reported") == decides  # type: ignore[arg-type]
    assert here.fits(1, "reported"), "nothing speaks against it"  # type: ignore[arg-type]
    assert here.predict("reported") is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prefill", "states", "again", "taken", "why"),
    [
        ("", SimpleNamespace(has_tokens=True), None, [], ""),
        ("ab", None, None, [], ""),
        ("ab", SimpleNamespace(has_tokens=False), None, [(-1, b"ab")], ""),
        ("ab", SimpleNamespace(has_tokens=True), Splits([1, 0]), [(1, b"one"), (0, b"zero")], ""),
        ("ab", SimpleNamespace(has_tokens=True), Splits(None), [], "the server is away"),
        ("ab", SimpleNamespace(has_tokens=True), None, [], "the server is not asked for more"),
    ],
)
def test_what_a_grammar_has_taken_before_the_first_token_is_split_where_it_names_tokens(
    prefill: str, states: Any, again: Any, taken: Any, why: str
) -> None:
    known = SimpleNamespace(pieces=SimpleNamespace(pieces=[b"zero", b"one"]))
    run: Any = SimpleNamespace(
        _told=OutputSoFar(prefill=prefill), _states=states, _again=again, _known=known, _reason=""
    )
    assert _ReplyRun._prefill(run) == taken
    assert run._reason == (f"the tokens of the generation prompt are not known: {why}" if why else "")
