"""Verdicts in worker processes are those of this process, and those that take too long are unknown, with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from espalier import Choice, JsonObject, JsonSchema, Regex, Wordlist
from espalier.confined.pool import is_supported
from espalier.constraints import judging
from espalier.constraints.judging import ConfinedJudge
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge
from espalier.errors import Cancelled, Unavailable
from espalier.lexicon.files import WordFiles
from espalier.time_limit import time_limit
from tests.hostile.bodies import doubling

pytestmark = pytest.mark.skipif(not is_supported(), reason="this system cannot limit a process")
WORDS = WordFiles.standard()


def nested(levels: int) -> str:
    value: Any = "x"
    for _ in range(levels):
        value = {"c": value}
    return json.dumps(value)


@pytest.fixture(scope="module")
def patient() -> Iterator[ConfinedJudge]:
    """The first expression of a process with a property of Unicode takes 0.2 s, on a slow machine a second."""
    made = ConfinedJudge(seconds=20, quick=1, slow=1)
    made.start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def confined() -> Iterator[ConfinedJudge]:
    made = ConfinedJudge(seconds=0.4, quick=1, slow=1)
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (JsonSchema({"type": "object", "required": ["a"]}), '{"a": 1}'),
        (JsonSchema({"type": "object", "required": ["a"]}), "{}"),
        (JsonSchema({"type": "integer"}), "no JSON"),
        (JsonObject(), "{}"),
        (Choice(["a", "b"]), "c"),
        (Regex("[a-z]+"), "abc"),
        (Regex(r"\p{L}+"), "abc"),
        (Wordlist(["one", "two"]), "one two"),
        (JsonSchema(doubling(3)), nested(3)),
    ],
)
def test_a_verdict_is_the_same_elsewhere(patient: ConfinedJudge, spec: Spec, text: str) -> None:
    assert patient.judge(spec, text, WORDS, "me") == judge(spec, text, WORDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (JsonSchema(doubling(25)), nested(25)),
        (Regex("(a|a)*b|.*"), "a" * 2000),
        (JsonSchema({"type": "string", "pattern": "^(a|a)*b"}), json.dumps("a" * 2000)),
    ],
    ids=["doubling references", "regex", "pattern"],
)
def test_a_verdict_that_takes_too_long_is_unknown_and_says_why(confined: ConfinedJudge, spec: Spec, text: str) -> None:
    found = confined.judge(spec, text, WORDS, "hostile")
    assert found.valid is None
    assert found.errors == ("could not judge: judging the text takes longer than 0.4 s",)
    honest = confined.judge(JsonSchema({"type": "integer"}), "5", WORDS, "honest")
    assert honest.valid is True


def test_what_was_quick_does_not_wait_for_the_first_tries_of_others(
    patient: ConfinedJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict of a stream waited for half a second behind those of another request with sixteen outputs."""
    # Both calls count as quick, however slow the machine is.
    monkeypatch.setattr(judging, "QUICK_SECONDS", 10)
    monkeypatch.setattr(judging, "SURE_SECONDS", 10)
    known, new = JsonSchema({"type": "integer", "minimum": 3}), JsonSchema({"type": "integer", "minimum": 4})
    for _ in range(2):  # the first one also reads the schema
        assert patient.judge(known, "5", WORDS, "streaming").valid is True

    def is_busy(*args: Any, **options: Any) -> Any:
        raise Unavailable("busy")

    monkeypatch.setattr(patient._quick, "call", is_busy)
    assert patient.judge(known, "2", WORDS, "streaming").valid is False
    for spec, owner in ((new, "streaming"), (known, "another")):
        with pytest.raises(Unavailable, match="busy"):
            patient.judge(spec, "5", WORDS, owner)


def test_who_leaves_ends_the_verdict(patient: ConfinedJudge) -> None:
    looks = iter(range(1000))
    with pytest.raises(Cancelled), time_limit(None, cancelled=lambda: next(looks) > 3):
        patient.judge(Regex("(a|a)*b|.*"), "a" * 3000, WORDS, "leaving")


def test_what_was_slow_is_known_of_its_owner_alone() -> None:
    now = [0.0]
    made = ConfinedJudge(seconds=1, clock=lambda: now[0])
    made._remember("hostile", "spec")
    assert made._is_slow("hostile", "spec")
    assert not made._is_slow("honest", "spec")
    assert not made._is_slow("hostile", "another")
    now[0] = 61
    assert not made._is_slow("hostile", "spec")
    made.close()


def test_once_closed_it_says_so() -> None:
    made = ConfinedJudge()
    made.close()
    with pytest.raises(Unavailable):
        made.judge(Regex("a"), "a", WORDS, "")


def test_what_one_owner_was_judged_by_is_not_kept_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict came sooner where another key had used the same spec."""
    made: list[str] = []
    read = judging.Spec.from_json
    monkeypatch.setattr(judging.Spec, "from_json", lambda data: made.append(data["pattern"]) or read(data))
    purged: list[bool] = []
    monkeypatch.setattr(judging.re, "purge", lambda: purged.append(True))
    for owner in ("one of two", "one of two", "the other of two", "one of two"):
        given = {"spec": Regex("kept[0-9]").key(), "text": "kept1", "words": [], "owner": owner}
        assert judging.judged(given)["valid"]
    assert made == ["kept[0-9]"] * 2
    assert len(purged) == 3
