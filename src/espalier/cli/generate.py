"""`espalier generate`: one prompt, one answer under a constraint, and its trace."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Any

import typer

from espalier import api
from espalier.activations.capture.options import Activations
from espalier.activations.store.base import ActivationStore
from espalier.cli import output
from espalier.cli.flags.activations import CaptureFlags
from espalier.cli.flags.answer import AnswerFlags
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.decoding import DecodingFlags, NumReturnSequences, strategy_lines
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.inputs import Prompt, Raw, System, check_trace_path, read_prompt
from espalier.cli.flags.model import EngineFlags, Model, load, run
from espalier.cli.flags.safety import SafetyFlags
from espalier.cli.flags.sampling import Sampler, SamplingFlags, check_single
from espalier.cli.flags.store import app_with_store
from espalier.cli.flags.tools import ReasoningFlags, ToolFlags, call_line, show_delta
from espalier.cli.flags.tracing import TraceFlags
from espalier.cli.flags.words import WordFlags
from espalier.constraints.soft.spec import SoftJson
from espalier.constraints.verdict import REPORT
from espalier.engines.base import Event, FinishEvent, Result
from espalier.errors import InputError


@with_flags
def command(
    *,
    prompt: Prompt = None,
    model: Model = None,
    system: System = None,
    raw: Raw = False,
    constraint: ConstraintFlags,
    safety: SafetyFlags,
    tools: ToolFlags,
    reasoning: ReasoningFlags,
    soft_json: Annotated[bool, typer.Option("--soft-json", help="Bias towards JSON; nothing is forced.")] = False,
    vocab: WordFlags,
    sampling: SamplingFlags,
    sampler: Sampler = "espalier",
    decoding: DecodingFlags,
    num_return_sequences: NumReturnSequences = None,
    tracing: TraceFlags,
    activations: Annotated[str | None, typer.Option(help="Store the hidden states there.", metavar="STORE")] = None,
    capture: CaptureFlags,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    engine: EngineFlags,
) -> None:
    """Generate text that satisfies a constraint, and show what the constraint did."""
    # Every error of the flags is found before the model is loaded.
    app = app_with_store()
    wanted = AnswerFlags(constraint=constraint, safety=safety, vocab=vocab)
    must = wanted.options(app)
    if soft_json:
        must["soft"] = (SoftJson(), *must["soft"])
    options = tools.options() | reasoning.options(app) | decoding.options()
    if tracing.rejection_log is not None:
        options |= decoding.for_log(sampler=sampler).options()
    if num_return_sequences is not None:
        options["num_return_sequences"] = num_return_sequences
    fields = sampling.fields()
    level = tracing.level()
    page = check_trace_path(tracing.trace)
    asked = _capture_options(activations, capture)
    request = api.make_request(
        read_prompt(prompt),
        preset=sampling.preset,
        presets=app.presets,
        system=system,
        raw=raw,
        sampler=sampler,  # type: ignore[arg-type]  # checked there
        trace=level,
        activations=asked,
        **must,
        **fields,
        **options,
    )
    check_single(request.sampling)
    for note in request.notes:
        output.note(note)
    is_live = _is_terminal() and not as_json
    with ExitStack() as stack:
        recorders = tracing.open_recorders(stack)
        target = None if activations is None else stack.enter_context(ActivationStore(activations, write=True))
        loaded = stack.enter_context(load(model, engine, app))
        events = run(loaded, replace(request, recorders=tuple(recorders)), command="generate")
        result = show(events, live=is_live)
        if target is not None:
            for key, _ in capture.stored(target, result):
                output.note(f"hidden states: {activations}, request {key}")
    if as_json:
        output.data_json(as_dict(result, loaded.name))
    else:
        write(result, live=is_live)
    if page is not None and result.trace is not None:
        result.trace.save(page, edge="cli")
        output.note(f"trace: {tracing.trace}")
    for note in result.notes:
        if note not in request.notes:
            output.note(note)
    raise typer.Exit(report(result))


def _capture_options(store: str | None, capture: CaptureFlags) -> Activations | None:
    """Which hidden states are captured. Raises InputError for a flag that means nothing without a store."""
    if store is not None:
        return capture.options()
    if capture.given is not None:
        name = capture.given.replace("_", "-")
        raise InputError(f"--{name} needs --activations", hint="--activations STORE", field="activations")
    return None


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def show(events: Iterable[Event], *, live: bool) -> Result:
    """Run to the end and return the result. live: write the content to stdout as it comes, and the reasoning to
    stderr."""
    for event in events:
        for delta in event.deltas if live else ():
            show_delta(delta)
        if isinstance(event, FinishEvent):
            return event.result
    raise AssertionError("a run always ends in Finished")


def write(result: Result, *, live: bool) -> None:
    """Write the answer to stdout: the content and one line for each call. live: the content is there already, and only
    its line is ended. Further texts of the same run follow, best first."""
    _write_one(result, live=live)
    for other in result.others:
        _write_one(other, live=False)


def _write_one(result: Result, *, live: bool) -> None:
    text = result.content
    if live and (text or not result.tool_calls):
        output.end_line()
    elif not live and (text or not result.tool_calls):
        output.data(text)
    for call in result.tool_calls:
        output.data(call_line(call))


def report(result: Result) -> int:
    """Report on stderr: limits, cut calls, verdicts. Returns the exit code: 1 if a text breaks its constraint."""
    for line in strategy_lines(result):
        output.note(line)
    if result.finish_reason == "length" and not result.closed_by_budget:
        output.note(f"stopped at the limit of {result.usage.completion_tokens} tokens")
    for call in result.tool_calls:
        if not call.is_complete:
            output.note(f"the call of {call.name} was cut off")
    code = 0
    for number, result_output in enumerate((result, *result.others), 1):
        verdict = result_output.verdict
        if verdict is not None and verdict.valid is False:
            which = f"text {number} is " if result.others else ""
            output.note(f"{which}not valid ({verdict.judge}): {'; '.join(verdict.errors)}")
            if result_output.breach is not None:
                output.note(f"that was called enforced: {REPORT} (constraint {result_output.breach.fingerprint})")
            code = 1
    return code


def as_dict(result: Result, model: str) -> dict[str, Any]:
    """The result as plain JSON; equal runs give equal bytes. Keys that only some runs have: `notes`, `score`,
    `weighing`, `closed_by_budget`, `rewinds`, `safety` (what filters refused and rewound, by category and pattern) and
    `others` (further texts, best first)."""
    more = result.occasional()
    if result.others:
        more["others"] = [as_dict(other, model) for other in result.others]
    return {
        "text": result.text,
        "content": result.content,
        "reasoning": result.reasoning,
        "tool_calls": [call.to_json() | {"complete": call.is_complete} for call in result.tool_calls],
        "fault": result.turn.fault or None,
        "parsed": result.parsed,
        "finish_reason": result.finish_reason,
        "stop_reason": result.stop_reason,
        "model": model,
        "seed": result.seed,
        "usage": {
            "prompt_tokens": result.usage.prompt_tokens,
            "completion_tokens": result.usage.completion_tokens,
            "total_tokens": result.usage.total_tokens,
            **({} if result.reasoning is None else {"reasoning_tokens": result.usage.reasoning_tokens}),
        },
        "verdict": result.verdict.to_json() if result.verdict else None,
        "trace": result.trace.summary() if result.trace else None,
        **more,
    }
