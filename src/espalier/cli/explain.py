"""`espalier explain`: generate once, and say on one screen what the constraint cost, where, why, and what to do.

What is found is `trace/report/diagnose.py`'s affair and the trace's own; here it is laid out in 80 columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from espalier import api
from espalier.cli import output
from espalier.cli.columns import wrapped
from espalier.cli.flags.constraint import read_constraint
from espalier.cli.flags.decoding import DecodingFlags, MaxRewinds, OnBudgetFlag, Particles, Strategy
from espalier.cli.flags.inputs import check_trace_path, read_prompt
from espalier.cli.flags.model import (
    BatchSize,
    CtxSize,
    Device,
    Dtype,
    FlashAttn,
    GpuLayers,
    KvSize,
    KvType,
    LoraFiles,
    Model,
    ModelFlags,
    Threads,
)
from espalier.cli.flags.sampling import DEFAULTS, check_single, read_fields
from espalier.cli.flags.tools import ChatFlags
from espalier.engines.base import Result
from espalier.errors import InputError
from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.diff import clip
from espalier.trace.report.findings import Finding
from espalier.wiring import build_app

WIDTH = 80
LABEL = 8  # columns in front of a field
TEXT_LINES = 4
PLACES = 4
WORST = 3
FINDINGS = 3
REMEDIES = 5


def command(
    prompt: Annotated[str | None, typer.Argument(help="What to ask; `-` reads stdin.", show_default=False)] = None,
    model: Model = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take the prompt as it is: no chat template.")] = False,
    schema: Annotated[
        str | None, typer.Option(help="A JSON Schema: a file, JSON, or `name, age int`.", metavar="SCHEMA")
    ] = None,
    schema_format: Annotated[
        str | None, typer.Option(help="What `format` does: annotate (the default), assert.", metavar="WHAT")
    ] = None,
    schema_order: Annotated[
        str | None, typer.Option(help="Of properties: schema (the default), required_first, a,b,c.", metavar="ORDER")
    ] = None,
    allow_checked: Annotated[
        bool, typer.Option("--allow-checked", help="Check afterwards what cannot be enforced.")
    ] = False,
    regex: Annotated[str | None, typer.Option(help="A pattern the whole answer must match.")] = None,
    grammar: Annotated[str | None, typer.Option(help="A GBNF grammar file, or @NAME.", metavar="FILE")] = None,
    choice: Annotated[list[str] | None, typer.Option(help="An allowed answer; repeat it.", metavar="TEXT")] = None,
    json_object: Annotated[bool, typer.Option("--json-object", help="Any JSON object.")] = False,
    whitespace: Annotated[
        str | None, typer.Option(help="In JSON: natural (the default), compact, flexible, indented.", metavar="STYLE")
    ] = None,
    constraint: Annotated[
        str | None, typer.Option(help="Any constraint, as a JSON file with a `kind`.", metavar="FILE")
    ] = None,
    ban: Annotated[
        list[str] | None, typer.Option(help="A text that must not occur; repeat it.", metavar="TEXT")
    ] = None,
    after: Annotated[
        str | None, typer.Option(help='The constraint begins after this, such as "</think>".', metavar="MARKER")
    ] = None,
    max_before: Annotated[
        int | None, typer.Option(help="With --after: at most so many tokens before it.", metavar="N")
    ] = None,
    reasoning: Annotated[
        str | None, typer.Option(help='The model may think first: auto, think, or "START,END".', metavar="MARKERS")
    ] = None,
    max_reasoning: Annotated[int | None, typer.Option(help="For at most so many tokens.", metavar="N")] = None,
    schema_in_prompt: Annotated[
        bool, typer.Option("--schema-in-prompt", help="Show the model the schema too.")
    ] = False,
    preset: Annotated[
        str | None, typer.Option(help="Sampling and constraint by name: `espalier presets list`.", metavar="NAME")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help=f"0 is greedy. Default: {DEFAULTS.temperature}.")] = None,
    top_k: Annotated[int | None, typer.Option(help=f"0 is off. Default: {DEFAULTS.top_k}.")] = None,
    top_p: Annotated[float | None, typer.Option(help=f"1 is off. Default: {DEFAULTS.top_p}.")] = None,
    min_p: Annotated[float | None, typer.Option(help=f"0 is off. Default: {DEFAULTS.min_p}.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes a run repeatable.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help=f"At most this many. Default: {DEFAULTS.max_tokens}.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="A text that ends the answer; repeat it.", metavar="TEXT")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", help="Any field of the sampling; repeat it.", metavar="KEY VALUE"),
    ] = None,
    strategy: Strategy = None,
    particles: Particles = None,
    on_budget: OnBudgetFlag = None,
    max_rewinds: MaxRewinds = None,
    trace: Annotated[str | None, typer.Option(help="Write the trace: .html or .json.", metavar="FILE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    device: Device = None,
    dtype: Dtype = None,
    ctx_size: CtxSize = None,
    gpu_layers: GpuLayers = None,
    threads: Threads = None,
    kv_type: KvType = None,
    kv_size: KvSize = None,
    batch_size: BatchSize = None,
    flash_attn: FlashAttn = None,
    lora: LoraFiles = None,
) -> None:
    """Generate once, and say what the constraint cost, where, why, and what to do about it.

    One screen: the text and whether it is valid, tokens and nats, the dearest places and tokens, findings, flags.
    """
    spec = read_constraint(
        schema=schema, regex=regex, grammar=grammar, choice=choice, json_object=json_object, whitespace=whitespace,
        schema_format=schema_format, schema_order=schema_order, allow_checked=allow_checked, constraint=constraint,
        ban=ban, after=after, max_before=max_before,
    )  # fmt: skip
    if spec is None and preset is None:
        raise InputError("there is no constraint to explain", hint="--schema FILE, --regex, ...", field="schema")
    decoding = DecodingFlags(strategy=strategy, particles=particles, on_budget=on_budget, max_rewinds=max_rewinds)
    chat = ChatFlags(
        tools=None, tool_choice=None, tool_format=None, max_calls=None, reasoning=reasoning,
        max_reasoning=max_reasoning, schema_in_prompt=schema_in_prompt,
    )  # fmt: skip
    options = chat.options() | decoding.options() | {"trace": "steps"}
    sampling = read_fields(
        option, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, max_tokens=max_tokens,
        stop=stop,
    )  # fmt: skip
    sampling = decoding.sampling(sampling, preset=preset)
    flags = ModelFlags(
        model=model, device=device, dtype=dtype, ctx_size=ctx_size, gpu_layers=gpu_layers, threads=threads,
        kv_type=kv_type, kv_size=kv_size, batch_size=batch_size, flash_attn=flash_attn, lora=lora,
    )  # fmt: skip
    app = build_app()
    asked = api.make_request("", constraint=spec, preset=preset, presets=app.presets, **sampling, **options)
    check_single(asked.sampling)
    page = check_trace_path(trace)
    text = read_prompt(prompt)
    with flags.load(app) as engine:
        result = engine.generate(text, constraint=spec, preset=preset, system=system, raw=raw, **sampling, **options)
    if result.trace is None:
        raise AssertionError("a trace was asked for")
    if as_json:
        output.data_json(as_dict(result, result.trace))
    else:
        output.data("\n".join(screen(result, result.trace)))
    if page is not None:
        result.trace.save(page)
        output.note(f"trace: {trace}")
    raise typer.Exit(1 if result.verdict is not None and result.verdict.valid is False else 0)


def as_dict(result: Result, trace: Trace) -> dict[str, Any]:
    """All of it, unshortened."""
    return {
        "text": result.text,
        "finish_reason": result.finish_reason,
        "model": trace.model,
        "seed": result.seed,
        "verdict": None if result.verdict is None else result.verdict.to_json(),
        "cost": trace.summary(),
        "findings": [one.to_json() for one in diagnose(trace)],
    }


def screen(result: Result, trace: Trace) -> list[str]:
    """At most 24 lines of 80 columns: text, verdict, cost, where, why, what to do. --json has what is left out."""
    found = diagnose(trace)
    lines = [*_field("text", [clip(one, WIDTH - LABEL) for one in _text(result.text)])]
    lines += _field("valid", wrapped(_validity(result), WIDTH - LABEL)[:2])
    lines += _field("cost", wrapped(cost(trace), WIDTH - LABEL))
    lines += _field("where", list(places(trace)))
    lines += _field("worst", list(worst(trace)))
    why = [line for one in found[:FINDINGS] for line in _finding(one)]
    rest = len(found) - FINDINGS
    lines += _field("why", [*why, *([f"and {rest} more: --json"] if rest > 0 else [])] or ["nothing stands out"])
    return lines + _field("to do", list(to_do(found)))


def cost(trace: Trace) -> str:
    """Tokens, nats, and at how many steps what happened."""
    found = trace.summary()
    steps = found["total_steps"]
    tax = found["total_tax_nats"]
    mean = f", {tax / steps:.2f} a token" if steps else ""
    shares = [
        f"{name} {found[key]} ({found[key] / steps:.0%})"
        for name, key in (("rejected", "rejected_steps"), ("changed", "changed_steps"), ("forced", "forced_steps"))
        if steps and (found[key] or name == "changed")
    ]
    return f"{steps} tokens, {tax:.2f} nats of tax{mean}; {', '.join(shares)}"


def places(trace: Trace) -> Iterator[str]:
    """The dearest paths of a document, or rules of a grammar."""
    for what, table in (("path", trace.by_path()), ("rule", trace.by_rule())):
        if table:
            yield from _places(what, table)
            return
    yield "nothing tells places in this text"


def _places(what: str, table: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield f"{what:<38}{'tokens':>10}{'nats':>12}{'removed':>12}"
    dearest = sorted(table.items(), key=lambda one: -one[1]["tax_nats"])
    for name, one in dearest[:PLACES]:
        shown = clip(name or "(its keys and punctuation)", 37)
        yield f"{shown:<38}{one['tokens']:>10.0f}{one['tax_nats']:>12.2f}{one['removed_mass']:>12.1%}"
    if len(dearest) > PLACES:
        yield f"and {len(dearest) - PLACES} more"


def worst(trace: Trace) -> Iterator[str]:
    """The dearest tokens, and what the model wanted instead."""
    steps = {one.step: one for one in trace.steps}
    for one in trace.summary()["worst_tokens"][:WORST]:
        step = steps[one["step"]]
        wish = step.pre_masking[0] if step.pre_masking else None
        wanted = "" if wish is None or wish.allowed else f"; wanted {wish.text!r} ({wish.prob:.0%})"
        yield clip(f"step {one['step']:<5}{one['text']!r} cost {one['tax_nats']:.2f} nats{wanted}", WIDTH - LABEL)


def to_do(found: Sequence[Finding]) -> Iterator[str]:
    """Each remedy once, those of the first findings first."""
    remedies = list(dict.fromkeys(one.text for finding in found for one in finding.remedies))
    for text in remedies[:REMEDIES]:
        yield from wrapped(text, WIDTH - LABEL)
    if not remedies:
        yield "nothing"


def _finding(one: Finding) -> list[str]:
    message = clip(one.message, 2 * (WIDTH - LABEL))
    return wrapped(f"{one.severity}: {message}", WIDTH - LABEL)


def _validity(result: Result) -> str:
    verdict = result.verdict
    if verdict is None:
        return "not judged"
    if verdict.valid is None:
        return f"not known: {'; '.join(verdict.errors) or 'the text was cut off'}"
    if verdict.valid:
        return f"yes, says {verdict.judge}"
    return clip(f"NO, says {verdict.judge}: {'; '.join(verdict.errors)}", 2 * (WIDTH - LABEL))


def _text(text: str) -> list[str]:
    lines = wrapped(clip(text, 4 * WIDTH * TEXT_LINES), WIDTH - LABEL)
    return [*lines[: TEXT_LINES - 1], "…"] if len(lines) > TEXT_LINES else lines or ["(empty)"]


def _field(label: str, lines: Sequence[str]) -> list[str]:
    """Lines with a label in front of the first."""
    return [f"{label if at == 0 else '':<{LABEL}}{line}".rstrip() for at, line in enumerate(lines)]
