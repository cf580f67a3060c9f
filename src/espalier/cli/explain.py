"""`espalier explain`: generates once and shows on one screen what the constraint cost, where, why, and what to do.

`trace/report/screen.py` lays it out.
"""

from __future__ import annotations

from typing import Annotated

import typer

from espalier import api
from espalier.api.explaining import explained, trials_json, try_all
from espalier.cli import output
from espalier.cli.flags.answer import AnswerFlags
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.decoding import DecodingFlags
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.inputs import Prompt, Raw, System, check_trace_path, read_prompt
from espalier.cli.flags.model import EngineFlags, Model, load, run
from espalier.cli.flags.safety import SafetyFlags
from espalier.cli.flags.sampling import SamplingFlags, check_single
from espalier.cli.flags.store import app_with_store
from espalier.cli.flags.tools import ReasoningFlags
from espalier.cli.flags.tracing import TraceFile
from espalier.cli.flags.words import WordFlags
from espalier.cli.progress import counting
from espalier.engines.base import FinishEvent
from espalier.errors import InputError
from espalier.harness.compare.remedies import SEEDS, trials_text
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.screen import screen


@with_flags
def command(
    *,
    prompt: Prompt = None,
    model: Model = None,
    system: System = None,
    raw: Raw = False,
    constraint: ConstraintFlags,
    safety: SafetyFlags,
    vocab: WordFlags,
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
    app = app_with_store()
    must = AnswerFlags(constraint=constraint, safety=safety, vocab=vocab).options(app)
    if must["constraint"] is None and sampling.preset is None:
        raise InputError("there is no constraint to explain", hint="--schema FILE, --regex, ...", field="schema")
    options = reasoning.options(app) | decoding.options() | sampling.fields()
    page = check_trace_path(trace)
    asked = read_prompt(prompt)
    options = {
        "preset": sampling.preset,
        "presets": app.presets,
        "system": system,
        "raw": raw,
        "trace": "steps",
        **must,
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
            output.data("\n".join(screen(result.trace, diagnose(result.trace), "cli")))
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
