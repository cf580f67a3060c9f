"""`espalier explain`: generates once and shows on one screen what the constraint cost, where, why, and what to do.

It lays out in 80 columns what the trace and `trace/report/diagnose.py` compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer

from espalier import api
from espalier.api.explaining import explained, trials_json, try_all
from espalier.cli import output
from espalier.cli.columns import wrapped
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.decoding import DecodingFlags
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.inputs import Prompt, Raw, System, check_trace_path, read_prompt
from espalier.cli.flags.model import EngineFlags, Model, load, run
from espalier.cli.flags.sampling import SamplingFlags, check_single
from espalier.cli.flags.store import app_with_store
from espalier.cli.flags.tools import ReasoningFlags
from espalier.cli.flags.tracing import TraceFile
from espalier.cli.progress import counting
from espalier.engines.base import FinishEvent, Result
from espalier.errors import InputError
from espalier.harness.compare.remedies import SEEDS, trials_text
from espalier.trace.measure import word_of
from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.diff import clip
from espalier.trace.report.findings import Finding

WIDTH = 80
LABEL = 8  # columns in front of a field
TEXT_LINES = 4
PLACES = 4
WORST = 3
FINDINGS = 3
REMEDIES = 5
BLAMES: Mapping[str, tuple[str, ...]] = {
    "enforced": ("this was called enforced: a fault of Espalier or the engine, report it",),
    "checked": ("this is only checked, not enforced: `espalier check` shows which keywords",),
}
"""By what an invalid text breaks; a text that was cut says so itself."""


@with_flags
def command(
    *,
    prompt: Prompt = None,
    model: Model = None,
    system: System = None,
    raw: Raw = False,
    constraint: ConstraintFlags,
    reasoning: ReasoningFlags,
    sampling: SamplingFlags,
    decoding: DecodingFlags,
    trace: TraceFile = None,
    try_remedies: Annotated[
        bool, typer.Option("--try", help="Run the named remedies, and recommend the one that helps.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="With --try: runs of each remedy.", metavar="N")] = SEEDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    engine: EngineFlags,
) -> None:
    """Generate once, and explain what the constraint cost: where, why, and what to do about it.

    One screen: the text and its verdict, tokens and nats, the most expensive places and tokens, findings, remedies.
    With --try each remedy that is named is run too, on several seeds and paired with the run as asked: what it does to
    tax, validity, length and time, with 95 % intervals, and which one is recommended.
    """
    spec = constraint.spec()
    if spec is None and sampling.preset is None:
        raise InputError("there is no constraint to explain", hint="--schema FILE, --regex, ...", field="schema")
    app = app_with_store()
    options = reasoning.options(app) | decoding.options() | sampling.fields()
    page = check_trace_path(trace)
    asked = read_prompt(prompt)
    options = {
        "constraint": spec,
        "preset": sampling.preset,
        "presets": app.presets,
        "system": system,
        "raw": raw,
        "trace": "steps",
        **constraint.schema_options(app),
        **options,
    }
    request = api.make_request(asked, **options)
    check_single(request.sampling)
    for note in request.notes:
        output.note(note)
    with load(model, engine, app) as loaded:
        result = next(
            event.result for event in run(loaded, request, command="explain") if isinstance(event, FinishEvent)
        )
        if result.trace is None:
            raise AssertionError("a trace was asked for")
        if not as_json:
            output.data("\n".join(screen(result, result.trace)))
        trials = None
        if try_remedies:
            with counting("runs") as progress:
                trials = try_all(
                    diagnose(result.trace),
                    result.trace,
                    asked,
                    options,
                    engine=loaded,
                    seeds=seeds,
                    progress=progress,
                    route="espalier explain",
                )
    if as_json:
        tried = {} if trials is None else trials_json(trials, "cli")
        output.data_json(explained(result.trace, "cli", seed=result.seed) | tried)
    elif trials is not None:
        output.data("\n".join(["", *trials_text(trials, seeds=seeds)]))
    if page is not None:
        result.trace.save(page, edge="cli")
        output.note(f"trace: {trace}")
    raise typer.Exit(1 if result.verdict is not None and result.verdict.valid is False else 0)


def screen(result: Result, trace: Trace) -> list[str]:
    """At most 24 lines of 80 columns: text, verdict, cost, places, findings, remedies. `--json` has the rest."""
    findings = diagnose(trace)
    lines = [*_field("text", [clip(line, WIDTH - LABEL) for line in _text(result.text)])]
    blame = BLAMES.get(result.verdict.breaks or "", ()) if result.verdict is not None else ()
    lines += _field("valid", [*wrapped(_validity(result), WIDTH - LABEL)[: 2 - len(blame)], *blame])
    lines += _field("cost", wrapped(cost(trace), WIDTH - LABEL))
    lines += _field("where", list(places(trace)))
    lines += _field("worst", list(worst(trace)))
    why = [line for finding in findings[:FINDINGS] for line in _finding(finding)]
    rest = len(findings) - FINDINGS
    lines += _field("why", [*why, *([f"and {rest} more: --json"] if rest > 0 else [])] or ["nothing stands out"])
    return lines + _field("to do", list(to_do(findings)))


def cost(trace: Trace) -> str:
    """Tokens, nats, and the number of rejected, changed and forced steps."""
    figures = trace.summary()
    steps = figures["total_steps"]
    tax = figures["total_tax_nats"]
    mean = f", {tax / steps:.2f} a token ({word_of(tax / steps)})" if steps else ""
    shares = [
        f"{name} {figures[key]} ({figures[key] / steps:.0%})"
        for name, key in (
            ("rejected", "rejected_steps"),
            ("top choice blocked", "changed_steps"),
            ("forced", "forced_steps"),
        )
        if steps and (figures[key] or key == "changed_steps")
    ]
    return f"{steps} tokens, {tax:.2f} nats of tax{mean}; {', '.join(shares)}"


def places(trace: Trace) -> Iterator[str]:
    """The most expensive paths of a document, or rules of a grammar."""
    for what, table in (("path", trace.by_path()), ("rule", trace.by_rule())):
        if table:
            yield from _places(what, table)
            return
    yield "this text has no paths or rules to count by"


def _places(what: str, table: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield f"{what:<38}{'tokens':>10}{'nats':>12}{'removed':>12}"
    by_cost = sorted(table.items(), key=lambda cost: -cost[1]["tax_nats"])
    for name, path_cost in by_cost[:PLACES]:
        shown = clip(name or "(keys and punctuation)", 37)
        yield f"{shown:<38}{path_cost['tokens']:>10.0f}{path_cost['tax_nats']:>12.2f}{path_cost['removed_mass']:>12.1%}"
    if len(by_cost) > PLACES:
        yield f"and {len(by_cost) - PLACES} more"


def worst(trace: Trace) -> Iterator[str]:
    """The most expensive tokens, and what the model wanted instead."""
    steps = {step.step: step for step in trace.steps}
    for token in trace.summary()["worst_tokens"][:WORST]:
        step = steps[token["step"]]
        wish = step.pre_masking[0] if step.pre_masking else None
        wanted = "" if wish is None or wish.allowed else f"; wanted {wish.text!r} ({wish.prob:.0%})"
        yield clip(f"step {token['step']:<5}{token['text']!r} cost {token['tax_nats']:.2f} nats{wanted}", WIDTH - LABEL)


def to_do(findings: Sequence[Finding]) -> Iterator[str]:
    """Each remedy once, in the order of the findings."""
    remedies = list(dict.fromkeys(remedy.said("cli") for finding in findings for remedy in finding.remedies))
    for text in remedies[:REMEDIES]:
        yield from wrapped(text, WIDTH - LABEL)
    if not remedies:
        yield "nothing"


def _finding(finding: Finding) -> list[str]:
    message = clip(finding.message, 2 * (WIDTH - LABEL))
    return wrapped(f"{finding.severity}: {message}", WIDTH - LABEL)


def _validity(result: Result) -> str:
    verdict = result.verdict
    if verdict is None:
        return "not judged"
    if verdict.valid is None:
        return f"not known: {'; '.join(verdict.errors) or 'no independent judge reads such a constraint'}"
    if verdict.valid:
        return f"yes, says {verdict.judge}"
    return clip(f"NO, says {verdict.judge}: {'; '.join(verdict.errors)}", 2 * (WIDTH - LABEL))


def _text(text: str) -> list[str]:
    lines = wrapped(clip(text, 4 * WIDTH * TEXT_LINES), WIDTH - LABEL)
    return [*lines[: TEXT_LINES - 1], "…"] if len(lines) > TEXT_LINES else lines or ["(empty)"]


def _field(label: str, lines: Sequence[str]) -> list[str]:
    """Lines with a label in front of the first."""
    return [f"{label if at == 0 else '':<{LABEL}}{line}".rstrip() for at, line in enumerate(lines)]
