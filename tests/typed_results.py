"""What type checkers know of results: `tests/unit/test_typed_results.py` has them read this file. It is not run."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypedDict, assert_type

import espalier


@dataclass
class User:
    name: str
    age: int


class Mood(Enum):
    GOOD = "good"


class Point(TypedDict):
    x: int


def check(eng: espalier.LoadedEngine) -> None:
    assert_type(eng.generate("Who?", User), espalier.Result[User])
    assert_type(eng.generate("Who?", constraint=User, seed=1).parsed, User | None)
    assert_type(eng.generate("How many?", int).parsed, int | None)
    assert_type(eng.generate("Is it?", bool).parsed, bool | None)
    assert_type(eng.generate("How?", Mood).parsed, Mood | None)
    assert_type(eng.generate("Where?", Point).parsed, Point | None)
    assert_type(eng.generate("Who?", list[User]).parsed, list[User] | None)
    assert_type(eng.generate([{"role": "user", "content": "Who?"}], User), espalier.Result[User])
    assert_type(eng.generate(["Who?", "And who?"], User), list[espalier.Result[User]])
    assert_type(espalier.generate("Who?", User, max_tokens=60).parsed, User | None)
    # What has no type of its own gives any value.
    assert_type(eng.generate("Who?", {"type": "object"}), espalier.Result[Any])
    assert_type(eng.generate("Who?", espalier.Regex("a+")), espalier.Result[Any])
    assert_type(eng.generate("Who?", regex="a+"), espalier.Result[Any])
    assert_type(eng.generate("Who?", choice=["a", "b"], temperature=0), espalier.Result[Any])
    assert_type(eng.generate("Who?"), espalier.Result)
    assert_type(eng.generate("Who?", Literal["a", "b"]), espalier.Result[Any])
    eng.generate("How many?", int | None)
    events: Iterator[Any] = eng.stream("Who?", User)
    for _ in events:
        pass
    eng.generate("Who?", User, sampling=espalier.SamplingConfig(temperature=0), seed=3)
