"""Trace flags: files that record a run, and how much of each step they keep."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

import typer

from espalier.cli import output
from espalier.errors import InputError
from espalier.trace.recorders.protocol import Recorder
from espalier.trace.records import LEVELS, TraceLevel

TraceFile = Annotated[str | None, typer.Option(help="Write the trace: .html or .json.", metavar="FILE")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFlags:
    """Flags for the trace of a run, and for files that are written during the run."""

    trace: TraceFile = None
    trace_level: Annotated[
        str | None, typer.Option(help="What the trace keeps: off, summary, steps, full.", metavar="LEVEL")
    ] = None
    rejection_log: Annotated[
        str | None, typer.Option(help="Log every rejected token in llama.cpp's form.", metavar="FILE")
    ] = None
    record: Annotated[str | None, typer.Option(help="Append each step as JSON lines.", metavar="FILE")] = None

    def level(self) -> TraceLevel:
        """How much of each step is kept: as asked, or as much as the trace file needs. Raises InputError."""
        level = self.trace_level
        if level is None:
            return "steps" if self.trace else "summary"
        for choice in LEVELS:
            if choice == level:
                if self.trace and choice in ("off", "summary"):
                    raise InputError(
                        f"--trace shows every step, and --trace-level {level} keeps none",
                        hint="steps, or full",
                        field="trace_level",
                    )
                return choice
        raise InputError(f"--trace-level {level}: there is no such level", hint=", ".join(LEVELS), field="trace_level")

    def open_recorders(self, stack: ExitStack) -> list[Recorder]:
        """The files of `--rejection-log` and `--record`, closed with the stack. Raises OutputError."""
        from espalier.trace.recorders.memory import JsonLinesRecorder  # noqa: PLC0415  # only where they are asked for
        from espalier.trace.recorders.rejection_log import RejectionLog  # noqa: PLC0415

        recorders: list[Recorder] = []
        if self.rejection_log is not None:
            log = stack.enter_context(RejectionLog(self.rejection_log))
            stack.callback(lambda: output.note(f"rejection log: {self.rejection_log}, {_events(log.events)} written"))
            recorders.append(log)
        if self.record is not None:
            recorders.append(stack.enter_context(JsonLinesRecorder(self.record)))
        return recorders


def _events(count: int) -> str:
    return f"{count} event{'' if count == 1 else 's'}"
