"""The store against a model of it, lists in memory: traces, generation logs and presets, in any order of saving,
reading, deleting, retention, and closing and opening again."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from espalier.errors import InputError
from espalier.store.generations import GenerationFilter
from espalier.store.open import open_store
from espalier.store.retention import Limits, Retention
from espalier.store.trace_filter import TraceFilter
from tests.batch_jobs import Clock
from tests.examples import examples
from tests.traces import sample_trace

TRACE = sample_trace(2).to_json()
CALLERS = st.sampled_from(["anna", "ben"])
ANY_CALLER = st.sampled_from([None, "anna", "ben"])
NAMES = st.sampled_from(["fast", "slow", "é"])
WORDS = ("alpha", "beta", "gamma")


class StoreMachine(RuleBasedStateMachine):
    """The rows of each kind are lists of dicts, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.store = self.open()
        self.traces: list[dict[str, Any]] = []
        self.generations: list[dict[str, Any]] = []
        self.presets: dict[str, dict[str, Any]] = {}

    def open(self) -> Any:
        return open_store(f"sqlite:///{self.folder.name}/e.db", clock=self.clock)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(seconds=st.integers(-2, 20))
    def time_passes(self, seconds: int) -> None:
        """The clock of a machine may be set back."""
        self.clock.now += seconds

    @rule()
    def is_opened_again(self) -> None:
        self.store.close()
        self.store = self.open()

    @rule(caller=CALLERS, text=st.text(st.characters(exclude_categories=()), max_size=4))
    def saves_a_trace(self, caller: str, text: str) -> None:
        trace = {**TRACE, "text": text}
        trace_id = self.store.save_trace(trace, request_id=f"r-{len(self.traces)}", caller=caller, index=0)
        self.traces.append({"id": trace_id, "caller": caller, "trace": trace})

    @rule(caller=ANY_CALLER, number=st.integers(0, 20))
    def deletes_a_trace(self, caller: str | None, number: int) -> None:
        if not self.traces:
            assert not self.store.delete_trace("trc_" + "0" * 27, caller=caller)
            return
        row = self.traces[number % len(self.traces)]
        may = caller in (None, row["caller"])
        assert self.store.delete_trace(row["id"], caller=caller) == may
        if may:
            self.traces.remove(row)

    @rule(caller=ANY_CALLER, number=st.integers(0, 20))
    def reads_a_trace(self, caller: str | None, number: int) -> None:
        if self.traces:
            row = self.traces[number % len(self.traces)]
            expected = row["trace"] if caller in (None, row["caller"]) else None
            assert self.store.trace(row["id"], caller=caller) == expected

    @rule(caller=ANY_CALLER, size=st.integers(1, 4))
    def pages_through_traces(self, caller: str | None, size: int) -> None:
        listed: list[str] = []
        while page := self.store.traces(TraceFilter(caller=caller, after=listed[-1] if listed else None), limit=size):
            assert len(page) <= size
            listed += [row["id"] for row in page]
        expected = [row["id"] for row in self.traces if caller in (None, row["caller"])]
        assert listed == sorted(expected, reverse=True)

    @rule(caller=CALLERS, model=st.sampled_from(["m", "M", "n"]), words=st.lists(st.sampled_from(WORDS), max_size=3))
    def saves_a_generation(self, caller: str, model: str, words: list[str]) -> None:
        row = {"request_id": "r", "caller": caller, "model": model}
        texts = {"words": [" ".join(words)], "content": {"prompt": words}} if words else {}
        generation_id = self.store.save_generation({**row, **texts})
        whole = self.store.generation(generation_id, caller=caller)
        self.generations.append({**row, "id": generation_id, "created": whole["created"], "spoken": words})

    @rule(
        caller=ANY_CALLER,
        model=st.sampled_from([None, "m", "M"]),
        query=st.sampled_from([None, *WORDS, "alpha beta"]),
        seconds=st.none() | st.integers(0, 30),
        limit=st.integers(1, 5),
    )
    def searches(
        self, caller: str | None, model: str | None, query: str | None, seconds: int | None, limit: int
    ) -> None:
        since = None if seconds is None else self.clock.now - seconds - 0.5
        wanted = GenerationFilter(caller=caller, model=model, query=query, since=since)
        expected = [
            row["id"]
            for row in self.generations
            if caller in (None, row["caller"])
            and model in (None, row["model"])
            and set((query or "").split()) <= set(row["spoken"])
            and (since is None or row["created"] >= since)
        ]
        rows = self.store.generations(wanted, limit=limit)
        assert [row["id"] for row in rows] == sorted(expected, reverse=True)[:limit]

    @rule(number=st.integers(0, 20), caller=ANY_CALLER)
    def reads_a_generation(self, number: int, caller: str | None) -> None:
        if self.generations:
            row = self.generations[number % len(self.generations)]
            whole = self.store.generation(row["id"], caller=caller)
            assert (whole is not None) == (caller in (None, row["caller"]))
            if whole is not None:
                assert whole["content"] == ({"prompt": row["spoken"]} if row["spoken"] else None)

    @rule(name=NAMES, replaces=st.booleans(), temperature=st.floats(0, 2))
    def saves_a_preset(self, name: str, replaces: bool, temperature: float) -> None:
        preset = {"name": name, "description": "", "config": {"temperature": temperature}}
        if name in self.presets and not replaces:
            with pytest.raises(InputError, match="has a preset"):
                self.store.save_preset(preset)
            return
        self.store.save_preset(preset, replace=replaces)
        self.presets[name] = preset

    @rule(name=NAMES)
    def removes_a_preset(self, name: str) -> None:
        assert self.store.remove_preset(name) == (self.presets.pop(name, None) is not None)

    @rule(rows=st.none() | st.integers(1, 6), age=st.none() | st.integers(0, 30), batch=st.integers(1, 3))
    def retention_runs(self, rows: int | None, age: int | None, batch: int) -> None:
        limits = Limits(rows=rows, seconds=None if age is None else age + 0.5)
        bound = None if age is None else self.clock.now - age - 0.5
        retention = Retention(self.store.database, limits, clock=self.clock, batch=batch)
        expected = 0
        for name in ("traces", "generations"):
            held = sorted(getattr(self, name), key=lambda row: str(row["id"]))
            times = self._times(name)
            kept = [row for row in held if bound is None or times[row["id"]] >= bound][-rows if rows else 0 :]
            expected += len(held) - len(kept)
            setattr(self, name, kept)
        assert retention.over() == expected
        assert retention.run() == expected
        assert retention.over() == 0

    def _times(self, name: str) -> dict[str, float]:
        if name == "generations":
            return {row["id"]: row["created"] for row in self.generations}
        return {row["id"]: row["created"] for row in self.store.traces(TraceFilter(), limit=1000)}

    @invariant()
    def everything_is_there_and_nothing_else(self) -> None:
        listed = self.store.traces(TraceFilter(), limit=1000)
        assert sorted(row["id"] for row in listed) == sorted(row["id"] for row in self.traces)
        logged = self.store.generations(GenerationFilter(), limit=1000)
        assert sorted(row["id"] for row in logged) == sorted(row["id"] for row in self.generations)
        with_content = sum(bool(row["spoken"]) for row in self.generations)
        assert self.store.count_generations() == (len(self.generations), with_content)
        assert self.store.preset_names() == sorted(self.presets)
        assert {name: self.store.preset(name) for name in self.presets} == self.presets


StoreMachine.TestCase.settings = settings(max_examples=examples(20), stateful_step_count=25, deadline=None)
TestStore = StoreMachine.TestCase
