"""`Verb`: one thing that an agent can ask for, as data: its arguments, its output, and what it does.

A verb either asks for a generation (`Question`), which its caller runs, or answers at once. It knows no transport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from espalier.api.loaded import LoadedEngine
from espalier.engines.base import Result
from espalier.errors import NotAvailable
from espalier.harness.run import Generates
from espalier.sampling.presets.catalogue import Presets
from espalier.store.trace_filter import TraceFilter

Arguments: TypeAlias = Mapping[str, Any]
"""JSON values by name, valid under the verb's schema."""
Answer: TypeAlias = dict[str, Any]
"""JSON values, valid under the verb's output schema."""
JsonMapping: TypeAlias = Mapping[str, Any]


class Traces(Protocol):
    """Stored traces, as `store/` keeps them. Methods block."""

    def traces(self, wanted: TraceFilter, *, limit: int) -> Sequence[JsonMapping]: ...

    def trace(self, trace_id: str, *, caller: str | None) -> JsonMapping | None: ...


def untold(done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a verb is given beside its arguments. presets: looked up by name. traces: None where none are stored;
    caller: whose traces are seen, None for everybody's. runs: what test cases generate with, and `told` (work done,
    work in all) while they do; it raises Cancelled when nobody wants the answer any more. order, reasoning: the order
    of properties, and the markers of reasoning, where nothing states them."""

    engine: LoadedEngine
    presets: Presets
    runs: Generates
    traces: Traces | None = None
    caller: str | None = None
    order: str | None = None
    reasoning: str | None = None
    told: Callable[[int, int], None] = untold

    def stored(self) -> Traces:
        """Raises NotAvailable."""
        if self.traces is None:
            raise NotAvailable("no traces are stored here", hint="TRACE_LEVEL=asked and the argument trace: true")
        return self.traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A generation that a verb asks for. options: arguments of `make_request`. keeps_trace: whether the trace is
    stored. read: from the result and the id of its trace (None if it was not stored) to the answer; it raises
    GenerationError for a result that is not what was asked for."""

    prompt: str
    options: Mapping[str, Any]
    read: Callable[[Result, str | None], Answer]
    keeps_trace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """properties, required: the JSON Schema of the arguments. output: the schema of the answer's properties, all of
    which are there if they stand in `always`. asks: for a verb that generates; answers: for one that does not.
    runs: for a verb that answers after many generations, how many at most. is_read_only: it neither generates nor
    stores. reads_store: it waits for the database."""

    name: str
    title: str
    about: str
    properties: Mapping[str, Any]
    output: Mapping[str, Any]
    always: tuple[str, ...]
    required: tuple[str, ...] = ()
    asks: Callable[[Arguments, Desk], Question] | None = None
    answers: Callable[[Arguments, Desk], Answer] | None = None
    runs: Callable[[Arguments], int] | None = None
    is_read_only: bool = True
    reads_store: bool = False

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return _object(self.properties, self.required, is_open=False)

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer."""
        return _object(self.output, self.always, is_open=True)


def _object(properties: Mapping[str, Any], required: Sequence[str], *, is_open: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties), "required": list(required)}
    return schema if is_open else schema | {"additionalProperties": False}
