"""Parts of a running generation by themselves: which field an error names, how outputs are merged."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.decoding.options import Decoding
from espalier.errors import DeadEnd, LimitExceeded
from espalier.server.answering.generation import Generation, _merge_bursts, branches_field, impasse, too_costly


def asked(decoding: Decoding | None = None, *, constraint: Any = None, tools: Any = (), **names: str) -> Any:
    """A ParsedRequest, as far as its errors look at it. names: how the body calls fields."""
    request = SimpleNamespace(decoding=decoding or Decoding(), tools=tools)
    return SimpleNamespace(requests=[request], names=names, constraint=constraint)


@pytest.mark.parametrize(
    ("parsed", "field"),
    [
        (asked(), None),
        (asked(Decoding(strategy="smc", particles=8)), "particles"),
        (asked(Decoding(strategy="beam", num_beams=4), num_beams="best_of"), "best_of"),
        (asked(Decoding(strategy="beam", num_beams=2)), "num_beams"),
        (asked(Decoding(strategy="beam", num_beams=1)), None),
        (asked(Decoding(strategy="smc")), "espalier.strategy"),
        (asked(Decoding(strategy="smc"), strategy="mode"), "mode"),
    ],
)
def test_the_field_for_the_sequences_of_a_run_is_the_one_that_was_stated(parsed: Any, field: str | None) -> None:
    assert branches_field(parsed) == field


@pytest.mark.parametrize(
    ("parsed", "field"),
    [
        (asked(constraint="c", tools=("t",)), "constraint"),
        (asked(tools=("t",)), "tools"),
        (asked(Decoding(strategy="smc", particles=8)), "particles"),
        (asked(), "prompt"),
    ],
)
def test_an_error_names_what_is_most_likely_the_cause(parsed: Any, field: str) -> None:
    for error in (too_costly(parsed, LimitExceeded("much")), impasse(parsed, DeadEnd("no way"))):
        assert error.field == field
        assert error.__cause__ is not None
    assert too_costly(parsed, LimitExceeded("much", field="own")).field == "own"
    assert impasse(parsed, DeadEnd("no way", field="own", hint="do so")).hint == "do so"
    assert "another seed" in str(impasse(parsed, DeadEnd("no way")).hint)


@pytest.mark.parametrize(
    ("constraint", "tools", "kind"),
    [(None, (), None), (None, ("t",), "tool_calls"), ("regex", (), "regex"), ("regex", ("t",), "regex")],
)
def test_the_kind_of_a_generation_is_that_of_its_constraint(
    constraint: str | None, tools: Any, kind: str | None
) -> None:
    spec = None if constraint is None else SimpleNamespace(kind=constraint)
    generation: Any = SimpleNamespace(asked=asked(constraint=spec, tools=tools))
    assert Generation.kind.fget(generation) == kind  # type: ignore[attr-defined]


class Endless:
    """A run whose bursts never end. ended: whether its reader was stopped, which takes a while."""

    ended = False

    async def bursts(self) -> Any:
        try:
            yield ["begun"]
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            self.ended = True


class Fails:
    async def bursts(self) -> Any:
        yield ["one"]
        for _ in range(3):
            await asyncio.sleep(0)
        raise DeadEnd("no way")


def test_the_error_of_one_output_is_raised_once_the_readers_of_all_have_ended() -> None:
    other, texts = Endless(), set[str]()

    async def read() -> None:
        async for burst in _merge_bursts([Fails(), other]):  # type: ignore[list-item]
            texts.add(burst[0][1])  # type: ignore[arg-type]

    async def read_all() -> None:
        with pytest.raises(DeadEnd):
            await read()
        assert other.ended, "nothing is left behind"

    asyncio.run(read_all())
    assert texts == {"one", "begun"}
