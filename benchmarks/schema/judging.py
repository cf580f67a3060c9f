"""Judges how well schemas are enforced: what compiles, what is wrongly accepted, what is wrongly refused.

`measure` runs on any function that compiles a schema to an object with `accepts(text)`. It knows only the errors of
Espalier.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from benchmarks.schema.cases import Case, Instance
from benchmarks.schema.spelling import compact, in_order, spellings
from espalier.errors import EspalierError, SchemaError


class Acceptor(Protocol):
    def accepts(self, text: str, /) -> bool: ...


Compile: TypeAlias = "Callable[[Any], Acceptor]"


class Slow(Exception):
    """The time limit has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one case. refusal: the error of its compilation, None if it compiled.

    Texts: `wrong` are invalid and were accepted; `spelled` are valid and were refused, where another text of the same
    value was accepted; `lost` are valid, and no text of the value that was tried was accepted; `broken` are texts that
    ended in an error (with the error).
    """

    case: Case
    refusal: Exception | None = None
    accepted: int = 0
    wrong: tuple[str, ...] = ()
    spelled: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def compiled(self) -> bool:
        return self.refusal is None

    @property
    def empty(self) -> bool:
        """The schema was refused as unsatisfiable, and none of its instances is valid."""
        said = isinstance(self.refusal, SchemaError) and "no document can satisfy" in str(self.refusal)
        return said and not any(i.valid for i in self.case.instances)

    @property
    def right(self) -> bool:
        """Every instance is judged right when written compactly in the order of the schema."""
        return self.nearly_right and not self.spelled

    @property
    def nearly_right(self) -> bool:
        """Every instance is judged right in at least one spelling."""
        return self.compiled and not (self.wrong or self.lost or self.broken)


def measure(
    cases: Iterable[Case],
    compile: Compile,  # noqa: A002  # as re.compile
    *,
    seconds: float = 60,
    as_given: bool = False,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Compile each schema and judge its instances. seconds: the limit for compiling one case, and for judging it.
    as_given: instances are first written in their own order, not in that of the schema.

    An invalid instance is wrongly accepted if it is in the order of the schema or in its own. Its numbers stay as they
    are spelled: in draft 4, 1.0 is no integer and 1 is. A valid one is excused if any of `spellings` is accepted.
    """
    outcomes = []
    for case in cases:
        outcomes.append(_outcome(case, compile, seconds, as_given=as_given))
        if progress:
            progress(outcomes[-1])
    return outcomes


def _outcome(case: Case, compile: Compile, seconds: float, *, as_given: bool) -> Outcome:  # noqa: A002
    try:
        with limited(seconds):
            compiled = compile(case.schema)
    except (EspalierError, Slow, RecursionError, ValueError) as error:
        return Outcome(case=case, refusal=error)
    accepted = 0
    wrong: list[str] = []
    spelled: list[str] = []
    lost: list[str] = []
    broken: list[str] = []
    for instance in case.instances:
        text = compact(instance.data if as_given else in_order(instance.data, case.schema))
        try:
            with limited(seconds):
                first = compiled.accepts(text)
                other = first or any(compiled.accepts(t) for t in _others(instance, case.schema) if t != text)
        except (EspalierError, Slow, RecursionError) as error:
            broken.append(f"{text}  ({type(error).__name__}: {error})")
            continue
        if instance.valid:
            accepted += first
            if not first:
                (spelled if other else lost).append(text)
        elif other:
            wrong.append(text)
    return Outcome(
        case=case, accepted=accepted, wrong=tuple(wrong), spelled=tuple(spelled), lost=tuple(lost), broken=tuple(broken)
    )


def _others(instance: Instance, schema: Any) -> Iterable[str]:
    """How many spellings are tried: more for valid instances than for invalid ones, which are many and mostly refused
    at once."""
    if instance.valid:
        return dict.fromkeys(spellings(instance.data, schema))
    return [compact(instance.data)]


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises Slow after the limit; not outside the main thread, and not inside a native call."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> None:
        raise Slow(f"it took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The totals of a measure. Instances are counted for schemas that compiled."""

    schemas: int
    compiled: int
    empty: int
    invalid: int
    wrong: int
    valid: int
    accepted: int
    spelled: int
    lost: int
    broken: int
    right: int
    nearly_right: int


def figures(outcomes: Sequence[Outcome]) -> Figures:
    compiled = [o for o in outcomes if o.compiled]
    valid = sum(i.valid for o in compiled for i in o.case.instances)
    return Figures(
        schemas=len(outcomes),
        compiled=len(compiled),
        empty=sum(o.empty for o in outcomes),
        invalid=sum(len(o.case.instances) for o in compiled) - valid,
        wrong=sum(len(o.wrong) for o in compiled),
        valid=valid,
        accepted=sum(o.accepted for o in compiled),
        spelled=sum(len(o.spelled) for o in compiled),
        lost=sum(len(o.lost) for o in compiled),
        broken=sum(len(o.broken) for o in compiled),
        right=sum(o.right for o in compiled),
        nearly_right=sum(o.nearly_right for o in compiled),
    )


def reasons(outcomes: Sequence[Outcome], of: Callable[[Exception], str]) -> list[tuple[str, list[str]]]:
    """Reasons for refusals with the ids of schemas, the most frequent first."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.refusal is not None:
            found.setdefault(of(outcome.refusal), []).append(outcome.case.id)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))


def by_kind(outcomes: Sequence[Outcome]) -> list[tuple[str, int, int, int]]:
    """Kind, schemas, compiled, entirely right; in the order of the kinds."""
    total = Counter(o.case.kind for o in outcomes)
    compiled = Counter(o.case.kind for o in outcomes if o.compiled)
    right = Counter(o.case.kind for o in outcomes if o.nearly_right)
    return [(kind, total[kind], compiled[kind], right[kind]) for kind in sorted(total)]
