"""Joins the stored vectors of a request to the steps of its trace: which vector each token was drawn from, and what the
constraint did there. It knows no store and no files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.activations.store.record import CapturedVectors, RequestRecord
from espalier.errors import InputError
from espalier.trace.records import Trace
from espalier.trace.steps import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedToken:
    """One token of a response. token: its place in the response. own: the row of its own vectors, which the model had
    once it had read it. source: the row of the vectors that it was drawn from, those of the position before it; None
    where that position was not captured. step: what the trace says, None without one."""

    token: int
    token_id: int
    own: int | None
    source: int | None
    step: StepRecord | None


def join(record: RequestRecord, trace: Trace | None) -> Iterator[JoinedToken]:
    """The tokens of a response in order. Raises InputError for a trace of another request: its prompt or its tokens
    differ, or it has no steps."""
    steps: tuple[StepRecord, ...] = ()
    if trace is not None:
        steps = trace.steps
        if tuple(step.token_id for step in steps) != record.response_ids:
            raise InputError(
                "the trace has other tokens than the stored request" if steps else "the trace keeps no steps",
                hint="a trace of the same run, at the level steps",
                field="trace",
            )
        if trace.prompt_ids and trace.prompt_ids != record.prompt_ids:
            raise InputError("the trace has another prompt than the stored request", field="trace")
    rows = {position: row for row, position in enumerate(record.positions)}
    for token, token_id in enumerate(record.response_ids):
        position = record.input_length + token
        yield JoinedToken(
            token=token,
            token_id=token_id,
            own=rows.get(position),
            source=rows.get(position - 1),
            step=steps[token] if steps else None,
        )


def decisions(
    captured: CapturedVectors, trace: Trace, *, site: str, layer: int
) -> tuple[NDArray[Any], list[StepRecord]]:
    """The vectors that tokens were drawn from, `(tokens, hidden)`, and the step of each: tokens without such a vector
    are left out. Raises InputError as `join`, and where the site or layer was not captured."""
    values = captured.vectors.get((site, layer))
    if values is None:
        raise InputError(f"{site} {layer} was not captured", field="layer")
    joined = [token for token in join(captured.record, trace) if token.source is not None and token.step is not None]
    rows = np.array([token.source for token in joined], dtype=np.int64)
    return values[rows], [token.step for token in joined if token.step is not None]
