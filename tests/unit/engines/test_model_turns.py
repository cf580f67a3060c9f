"""A stream that nobody reads may be ended by the garbage collector anywhere, in the middle of another step too."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import espalier
from espalier.engines.local.model_turns import ModelTurns


def abandon(engine: espalier.LoadedEngine) -> None:
    """Begin a stream and leave it in a cycle, which only the garbage collector finds."""
    events = iter(engine.stream("Hi", max_tokens=50))
    next(events)
    cycle: list[Any] = [events]
    cycle.append(cycle)


@pytest.mark.parametrize("step", [0, 3])
def test_a_stream_collected_in_the_middle_of_anothers_step_does_not_hang(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with espalier.load("fake") as engine:
        alone = engine.generate("Hello", max_tokens=8, seed=1).text
        model: Any = engine.engine.model  # type: ignore[attr-defined]
        extend, calls = model.extend, 0

        def collecting(work: Any) -> Any:
            nonlocal calls
            if calls == step:
                gc.collect()
            calls += 1
            return extend(work)

        gc.disable()
        try:
            abandon(engine)
            monkeypatch.setattr(model, "extend", collecting)
            texts: list[str] = []
            reading = threading.Thread(
                target=lambda: texts.append(engine.generate("Hello", max_tokens=8, seed=1).text), daemon=True
            )
            reading.start()
            reading.join(timeout=60)
        finally:
            gc.enable()
        assert texts == [alone], "the run went on"
        assert not model._sequences, "both have ended"


def test_an_end_within_a_turn_waits_until_it_is_over() -> None:
    turns, said = ModelTurns(), list[str]()
    with turns:
        turns.end(lambda: said.append("end"))
        said.append("turn")
    assert said == ["turn", "end"]
    turns.end(lambda: said.append("at once"))
    assert said[-1] == "at once"


def test_an_end_that_fails_is_not_the_fault_of_whose_turn_it_is(caplog: pytest.LogCaptureFixture) -> None:
    turns, said = ModelTurns(), list[str]()

    def fail() -> None:
        raise OSError("no")

    with turns:
        turns.end(fail)
        turns.end(lambda: said.append("the other"))
    assert said == ["the other"]
    assert "could not be closed" in caplog.text
    with pytest.raises(OSError, match="no"):
        turns.end(fail)
    with turns:  # it is free again
        pass
