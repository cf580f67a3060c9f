"""Tries the remedies of a diagnosis: the same prompt and seeds as asked and with each remedy, run by run in turn.

    trials = tried(remedies, options, make=make_request, run=engine.run, seeds=8)
    recommended(trials)

A pair is one random stream in both. The runs of a stream follow one another, so that their times share the load of the
machine. Recommended is only what a paired test shows to help.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from espalier.constraints.after.spec import After
from espalier.constraints.spec import JsonObject, JsonSchema, Spec
from espalier.engines.base import Event, FinishEvent, Request, Result
from espalier.errors import EspalierError, GenerationError, InputError
from espalier.harness.compare.paired import Difference, paired
from espalier.harness.compare.runs import difference_line
from espalier.trace.report.findings import ORDER, Remedy
from espalier.wording import Edge, Setting

SEEDS = 8
"""Six pairs are the fewest that can show a sign at all."""
MOST_TOKENS = 200
"""The limit of each run, where the request names no limit: texts that run on would take minutes."""
PROSE_ENDS = "\n\n"
PROSE_TOKENS = 64
"""What `--after` is tried with: a paragraph of at most so many tokens."""

Options = Mapping[str, Any]
Make = Callable[..., Request]
Run = Callable[[Sequence[Request]], Iterable[Event]]
Progressed = Callable[[int, int], None]
How = Callable[[Edge], str]
"""A change in the words of an edge."""
Change = Callable[[Any, Options], tuple[How, dict[str, Any]] | None]
METRICS = ("tax", "valid", "tokens", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one remedy does. said: what it changes, in the words of an edge. differences: of `METRICS`, as asked and
    with it. error: why it could not be tried; there are no differences then."""

    remedy: Remedy
    said: How
    differences: tuple[Difference, ...] = ()
    error: str | None = None

    def of(self, metric: str) -> Difference:
        return next(difference for difference in self.differences if difference.metric == metric)

    @property
    def how(self) -> str:
        """What it changes, as an argument of Python."""
        return self.said("python")

    @property
    def helps(self) -> bool:
        """Whether it is shown to lower the tax or to raise validity, and no pair speaks for fewer valid texts."""
        if self.error is not None:
            return False
        valid = self.of("valid")
        is_as_valid = valid.mean is None or (valid.sign >= 0 and valid.mean >= 0)
        return is_as_valid and (self.of("tax").sign < 0 or valid.sign > 0)

    def to_json(self, edge: Edge = "cli") -> dict[str, Any]:
        differences = {difference.metric: difference.to_json() for difference in self.differences}
        return {
            "action": self.remedy.action,
            "how": self.said(edge),
            "differences": differences,
            "helps": self.helps,
            "error": self.error,
        }


class Variant(NamedTuple):
    """A change to try. said: what it changes. make: makes the changed requests, one for each as asked."""

    remedy: Remedy
    said: How
    make: Callable[[], Sequence[Request]]


def tried(
    remedies: Iterable[Remedy],
    options: Options,
    *,
    make: Make,
    run: Run,
    seeds: int = SEEDS,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progressed = lambda done, of: None,
) -> tuple[Trial, ...]:
    """A trial of each remedy that is a matter of the request. options: the arguments of `make`, as asked. run: gives
    the events of requests. progress: told how many generations of how many are done. Raises InputError, and what the
    run as asked raises; the errors of a remedy are in its trial."""
    plans = [(remedy, *plan) for remedy in remedies if (plan := changed(remedy, options)) is not None]
    is_limited = "max_tokens" in options
    variants = [Variant(remedy, how, partial(_made, make, own, is_limited=is_limited)) for remedy, how, own in plans]
    asked = _made(make, options, is_limited=is_limited)
    return try_variants(asked, variants, run=run, seeds=seeds, clock=clock, progress=progress)


def _made(make: Make, options: Options, *, is_limited: bool) -> list[Request]:
    return [_base(make(**options), is_limited=is_limited)]


def try_variants(
    asked: Sequence[Request],
    variants: Sequence[Variant],
    *,
    run: Run,
    seeds: int = SEEDS,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progressed = lambda done, of: None,
) -> tuple[Trial, ...]:
    """A trial of each variant over several requests: a pair is one request on one random stream, as asked and changed.
    asked: with seeds. Raises InputError, and what a run as asked raises; the errors of a variant are in its trial."""
    if seeds < 1:
        raise InputError("seeds is at least 1", field="seeds")
    requests: list[Sequence[Request]] = [asked]
    errors: dict[int, str] = {}
    for index, variant in enumerate(variants, 1):
        try:
            requests.append(variant.make())
        except EspalierError as error:
            errors[index] = str(error)
            requests.append(())
    figures = _figures(requests, errors, run=run, seeds=seeds, clock=clock, progress=progress)
    return tuple(
        Trial(remedy=variant.remedy, said=variant.said, error=errors[index])
        if index in errors
        else Trial(
            remedy=variant.remedy, said=variant.said, differences=tuple(_differences(figures[0], figures[index]))
        )
        for index, variant in enumerate(variants, 1)
    )


def recommended(trials: Iterable[Trial]) -> Trial | None:
    """The one that helps with the most valid texts, and of these with the least tax; None if none helps."""
    good = [trial for trial in trials if trial.helps]
    return min(good, key=lambda trial: (-(trial.of("valid").second or 0), trial.of("tax").second or 0), default=None)


def changed(remedy: Remedy, options: Options) -> tuple[How, dict[str, Any]] | None:
    """What a remedy changes, and the options with it; None if it is no matter of the request, or is in force."""
    spec = options.get("constraint")
    if remedy.action in OF_CONSTRAINT:
        change = OF_CONSTRAINT[remedy.action](spec, options)
    else:
        change = _set_options(remedy, options)
    if change is None:
        return None
    how, own = change
    current = {name: options.get(name) for name in own}
    return None if current == own else (how, {**options, **own})


def _of_constraint(flag: str, name: str, value: Any) -> How:
    """A field of the constraint; the command line has a flag for it."""
    said = {"cli": flag, "python": f'{name}="{value}" of the constraint'}
    return lambda edge: said.get(edge, f'"{name}": "{value}" in the constraint')


def _set_whitespace(style: str) -> Change:
    def change(spec: Any, _: Options) -> tuple[How, dict[str, Any]] | None:
        if not isinstance(spec, JsonSchema | JsonObject):
            return None
        how = _of_constraint(f"--whitespace {style}", "whitespace", style)
        return how, {"constraint": Spec.from_json(spec.to_json() | {"whitespace": style})}

    return change


def _prose(spec: Any, _: Options) -> tuple[How, dict[str, Any]] | None:
    if spec is None or isinstance(spec, After):
        return None
    after = After(PROSE_ENDS, spec, max_before=PROSE_TOKENS)
    said = {
        "cli": f"--after $'\\n\\n' --max-before {PROSE_TOKENS}",
        "python": f'After("\\n\\n", ..., max_before={PROSE_TOKENS})',
    }
    field = f'"constraint": {{"kind": "after", "marker": "\\n\\n", "max_before": {PROSE_TOKENS}, "spec": ...}}'
    return lambda edge: said.get(edge, field), {"constraint": after}


def _any_order(spec: Any, options: Options) -> tuple[How, dict[str, Any]] | None:
    if not isinstance(spec, JsonSchema) or options.get(ORDER.option) == "any":
        return None
    how = _of_constraint(Setting(ORDER.option, "any").said("cli"), "order", "any")
    return how, {"constraint": Spec.from_json(spec.to_json() | {"order": "any"})}


def _set_options(remedy: Remedy, options: Options) -> tuple[How, dict[str, Any]] | None:
    """What a remedy changes that is a matter of options alone."""
    change = dict(remedy.change)
    if not change or any(options.get(name) not in (None, False) for name in change):
        return None
    settings = [Setting(name, value) for name, value in change.items()]
    return lambda edge: ", ".join(setting.said(edge) for setting in settings), change


OF_CONSTRAINT: Mapping[str, Change] = {
    "prose_first": _prose,
    "bounded_whitespace": _set_whitespace("compact"),
    "natural_layout": _set_whitespace("natural"),
    "property_order": _any_order,
}
"""Action of a remedy -> what it changes of the constraint. Names of keys and values of a schema are for the user."""


def _base(request: Request, *, is_limited: bool) -> Request:
    """The request with a seed, so that its pairs share one, and with a limit on its tokens where none is asked for."""
    sampling = request.sampling
    seed = 0 if sampling.seed is None else sampling.seed
    most = sampling.max_tokens if is_limited else min(sampling.max_tokens, MOST_TOKENS)
    return replace(request, sampling=replace(sampling, seed=seed, max_tokens=most))


def _figures(
    requests: Sequence[Sequence[Request]],
    errors: dict[int, str],
    *,
    run: Run,
    seeds: int,
    clock: Callable[[], float],
    progress: Progressed,
) -> list[list[dict[str, float | None]]]:
    """By variant, the first as asked, the metrics of each request on each stream; errors gets the variants that
    fail."""
    runs = [(case, stream) for stream in range(seeds) for case in range(len(requests[0]))]
    of = len(requests) * (len(runs) + 1)
    for index, variant in enumerate(requests):  # what is done once, such as compiling, is not measured
        for request in variant[:1]:
            with suppress(EspalierError):  # the measured run says the same
                result_of(run, replace(request, sampling=replace(request.sampling, max_tokens=1)))
        progress(index, of)
    figures: list[list[dict[str, float | None]]] = [[] for _ in requests]
    done = len(requests)
    for number, (case, stream) in enumerate(runs):
        for turn in range(len(requests)):
            index = (turn + number) % len(requests)
            done += 1
            progress(done, of)
            if index in errors:
                continue
            start = clock()
            try:
                result = result_of(run, replace(requests[index][case], stream=stream))
            except EspalierError as error:
                if index == 0:
                    raise
                errors[index] = str(error)
                continue
            figures[index].append(_measure(result, clock() - start))
    return figures


def _measure(result: Result, seconds: float) -> dict[str, float | None]:
    verdict = result.verdict
    return {
        "tax": None if result.trace is None else float(result.trace.summary()["total_tax_nats"]),
        "valid": None if verdict is None else float(verdict.valid is True),
        "tokens": float(result.usage.completion_tokens),
        "seconds": seconds,
    }


def _differences(
    first: Sequence[Mapping[str, float | None]], second: Sequence[Mapping[str, float | None]]
) -> Iterator[Difference]:
    for metric in METRICS:
        both = [(a[metric], b[metric]) for a, b in zip(first, second, strict=True)]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        yield paired(metric, [a for a, _ in known], [b for _, b in known])


def result_of(run: Run, request: Request) -> Result:
    """What one request ends with. Raises what the run raises, and GenerationError if it ends without a result."""
    for event in run([request]):
        if isinstance(event, FinishEvent):
            return event.result
    raise GenerationError("the run ended without a result")


def trials_text(trials: Sequence[Trial], *, seeds: int, edge: Edge = "cli") -> Iterator[str]:
    """Lines of at most 80 columns, the recommendation last."""
    if not trials:
        yield "Nothing to try: no remedy that is named is a matter of the request."
        return
    limit = Setting("max_tokens", others={"cli": "--max-tokens"}).said(edge)
    yield f"Tried on {seeds} seeds, {MOST_TOKENS} tokens at most unless {limit} says otherwise."
    yield "A: as asked, B: with the remedy; tax in nats, valid as a share."
    for trial in trials:
        yield ""
        yield trial.said(edge)
        if trial.error is not None:
            yield from textwrap.wrap(f"not possible: {trial.error}", 76, initial_indent="  ", subsequent_indent="  ")
        yield from (difference_line(difference) for difference in trial.differences)
    yield ""
    yield from textwrap.wrap(recommendation(trials, edge), 80, subsequent_indent="  ", break_on_hyphens=False)


def recommendation(trials: Sequence[Trial], edge: Edge = "cli") -> str:
    """One sentence: the remedy that is recommended and what it was measured to do, or that none helps."""
    best = recommended(trials)
    if best is None:
        return "Recommended: none. No remedy was shown to lower the tax, or to give more valid texts, at these seeds."
    tax, valid, seconds = best.of("tax"), best.of("valid"), best.of("seconds")
    said = f"Recommended: {best.said(edge)}. It changes the tax from {tax.first:.2f} to {tax.second:.2f} nats"
    said += f" ({tax.mean:+.2f}, 95 % interval {tax.low:+.2f} to {tax.high:+.2f})"
    if valid.mean is not None:
        said += f", valid texts from {valid.first:.0%} to {valid.second:.0%}"
    return f"{said}, and the time by {seconds.mean:+.2f} s."
