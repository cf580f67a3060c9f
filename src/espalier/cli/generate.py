"""`espalier generate`: one prompt, one answer, under a constraint, with its trace."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from espalier import api
from espalier.cli import output
from espalier.cli.inputs import check_trace_path, read_constraint, read_prompt
from espalier.engines.base import Event, Finished, Result
from espalier.sampling.config import SamplingConfig

DEFAULTS = SamplingConfig()


def command(
    prompt: Annotated[str | None, typer.Argument(help="What to ask; `-` reads stdin.", show_default=False)] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Folder or hub name. Default: the demo model.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take the prompt as it is: no chat template.")] = False,
    schema: Annotated[str | None, typer.Option(help="A JSON Schema file.", metavar="FILE")] = None,
    regex: Annotated[str | None, typer.Option(help="A pattern the whole answer must match.")] = None,
    grammar: Annotated[str | None, typer.Option(help="A GBNF grammar file, or @NAME.", metavar="FILE")] = None,
    choice: Annotated[list[str] | None, typer.Option(help="An allowed answer; repeat it.", metavar="TEXT")] = None,
    json_object: Annotated[bool, typer.Option("--json-object", help="Any JSON object.")] = False,
    whitespace: Annotated[
        str | None, typer.Option(help="In JSON: natural (the default), compact, flexible; indented with --json-object.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = DEFAULTS.temperature,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = DEFAULTS.top_k,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = DEFAULTS.top_p,
    min_p: Annotated[float, typer.Option(help="0 is off.")] = DEFAULTS.min_p,
    seed: Annotated[int | None, typer.Option(help="Makes a run repeatable.")] = None,
    max_tokens: Annotated[int, typer.Option(help="At most this many.")] = DEFAULTS.max_tokens,
    stop: Annotated[
        list[str] | None, typer.Option(help="A text that ends the answer; repeat it.", metavar="TEXT")
    ] = None,
    trace: Annotated[str | None, typer.Option(help="Write the trace: .html or .json.", metavar="FILE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, float16, auto.")] = None,
) -> None:
    """Generate text that satisfies a constraint, and show what the constraint did."""
    # Everything that can be wrong is found before the model is loaded.
    constraint = read_constraint(
        schema=schema, regex=regex, grammar=grammar, choice=choice, json_object=json_object, whitespace=whitespace
    )
    sampling = SamplingConfig(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
    )
    target = check_trace_path(trace)
    text = read_prompt(prompt)
    with api.load(model, device=device, dtype=dtype) as engine:
        events = engine.stream(
            text,
            constraint=constraint,
            sampling=sampling,
            system=system,
            raw=raw,
            trace="full" if trace else "measures",
        )
        result = show(events, live=_is_terminal() and not as_json)
    if as_json:
        output.data_json(as_dict(result, engine.name))
    elif not _is_terminal():
        output.data(result.text)
    if target is not None and result.trace is not None:
        result.trace.save(target)
        output.note(f"trace: {trace}")
    raise typer.Exit(report(result))


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def show(events: Any, *, live: bool) -> Result:
    """Run the events to their end, writing the text as it comes if `live`."""
    event: Event
    for event in events:
        if live:
            output.piece(event.text)
        if isinstance(event, Finished):
            if live:
                output.piece("\n")
            return event.result
    raise AssertionError("a run always ends in Finished")


def report(result: Result) -> int:
    """Say on stderr what a user must not miss. Returns the exit code: 1 for an answer that breaks its constraint."""
    verdict = result.verdict
    if result.finish_reason == "length":
        output.note(f"stopped at the limit of {result.usage.completion_tokens} tokens")
    if verdict is not None and verdict.valid is False:
        output.note(f"not valid ({verdict.judge}): {'; '.join(verdict.errors)}")
        return 1
    return 0


def as_dict(result: Result, model: str) -> dict[str, Any]:
    """The result as plain JSON; the same run gives the same bytes."""
    return {
        "text": result.text,
        "parsed": result.parsed,
        "finish_reason": result.finish_reason,
        "stop_reason": result.stop_reason,
        "model": model,
        "seed": result.seed,
        "usage": {
            "prompt_tokens": result.usage.prompt_tokens,
            "completion_tokens": result.usage.completion_tokens,
            "total_tokens": result.usage.total_tokens,
        },
        "verdict": result.verdict.to_json() if result.verdict else None,
        "trace": result.trace.summary() if result.trace else None,
    }
