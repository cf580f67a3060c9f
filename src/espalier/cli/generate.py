"""`espalier generate`: one prompt, one answer, under a constraint, with its trace."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated, Any

import typer

from espalier import api
from espalier.cli import output
from espalier.cli.flags.constraint import WordFlags, read_constraint, read_soft
from espalier.cli.flags.decoding import (
    DecodingFlags,
    EarlyStopping,
    EssThreshold,
    LengthPenalty,
    MaxRewinds,
    NumBeams,
    NumReturnSequences,
    OnBudgetFlag,
    Particles,
    RecordFlag,
    RejectionLogFlag,
    Strategy,
    TargetFlag,
    TraceLevelFlag,
    open_recorders,
    read_level,
    told,
)
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
from espalier.cli.flags.sampling import DEFAULTS, SAMPLER_HELP, check_single, read_fields
from espalier.cli.flags.tools import ChatFlags, ShownTurn, call_line
from espalier.cli.safety import SafetyFlags, SafetyLevel, SafetyLists, SafetyModeFlag, tell_filters
from espalier.engines.base import Event, Finished, Result
from espalier.wiring import build_app


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
    safety: SafetyLevel = None,
    safety_mode: SafetyModeFlag = None,
    safety_list: SafetyLists = None,
    after: Annotated[
        str | None, typer.Option(help='The constraint begins after this, such as "</think>".', metavar="MARKER")
    ] = None,
    max_before: Annotated[
        int | None, typer.Option(help="With --after: at most so many tokens before it.", metavar="N")
    ] = None,
    tools: Annotated[str | None, typer.Option(help="Tools the model may call: a JSON file.", metavar="FILE")] = None,
    tool_choice: Annotated[
        str | None, typer.Option(help="auto (the default), required, none, or a tool's name.", metavar="WHAT")
    ] = None,
    tool_format: Annotated[
        str | None, typer.Option(help="How calls are written, if the template does not tell.", metavar="NAME")
    ] = None,
    max_calls: Annotated[int | None, typer.Option(help="At most so many calls.", metavar="N")] = None,
    reasoning: Annotated[
        str | None, typer.Option(help='The model may think first: auto, think, or "START,END".', metavar="MARKERS")
    ] = None,
    max_reasoning: Annotated[int | None, typer.Option(help="For at most so many tokens.", metavar="N")] = None,
    schema_in_prompt: Annotated[
        bool, typer.Option("--schema-in-prompt", help="Show the model the schema too.")
    ] = False,
    soft_json: Annotated[bool, typer.Option("--soft-json", help="Nudge towards JSON, force nothing.")] = False,
    vocab_lang: Annotated[str | None, typer.Option(help="Only words of this language's list.", metavar="LANG")] = None,
    vocab_n_words: Annotated[int | None, typer.Option(help="The first N of them.", metavar="N")] = None,
    vocab_words: Annotated[str | None, typer.Option(help="A word list of your own.", metavar="FILE")] = None,
    vocab_extra: Annotated[list[str] | None, typer.Option(help="One more word; repeat it.", metavar="WORD")] = None,
    vocab_name: Annotated[list[str] | None, typer.Option(help="A name, as written; repeat it.", metavar="NAME")] = None,
    vocab_allow: Annotated[
        list[str] | None, typer.Option(help="digits, quotes, hyphens, colons; repeat it.", metavar="WHAT")
    ] = None,
    vocab_capitals: Annotated[
        str | None, typer.Option(help="never, sentence (the default), anywhere.", metavar="WHERE")
    ] = None,
    vocab_mode: Annotated[str, typer.Option(help="hard, or soft: rarer words cost.", metavar="MODE")] = "hard",
    vocab_tier2_multiplier: Annotated[
        float | None, typer.Option(help="Soft: tier 2 ends at rank k·N.", metavar="K")
    ] = None,
    vocab_tier2_penalty: Annotated[float | None, typer.Option(help="Soft: what tier 2 costs.", metavar="X")] = None,
    vocab_tier3_penalty: Annotated[float | None, typer.Option(help="Soft: what all else costs.", metavar="X")] = None,
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
    sampler: Annotated[str, typer.Option(help=SAMPLER_HELP, metavar="NAME")] = "espalier",
    strategy: Strategy = None,
    num_beams: NumBeams = None,
    length_penalty: LengthPenalty = None,
    early_stopping: EarlyStopping = None,
    num_return_sequences: NumReturnSequences = None,
    particles: Particles = None,
    ess_threshold: EssThreshold = None,
    target: TargetFlag = None,
    on_budget: OnBudgetFlag = None,
    max_rewinds: MaxRewinds = None,
    trace: Annotated[str | None, typer.Option(help="Write the trace: .html or .json.", metavar="FILE")] = None,
    trace_level: TraceLevelFlag = None,
    rejection_log: RejectionLogFlag = None,
    record: RecordFlag = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
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
    """Generate text that satisfies a constraint, and show what the constraint did."""
    # Everything that can be wrong is found before the model is loaded.
    word_flags = WordFlags(
        lang=vocab_lang,
        n_words=vocab_n_words,
        words=vocab_words,
        extra=tuple(vocab_extra or ()),
        names=tuple(vocab_name or ()),
        allow=tuple(vocab_allow or ()),
        capitals=vocab_capitals,
        mode=vocab_mode,
        tier2_multiplier=vocab_tier2_multiplier,
        tier2_penalty=vocab_tier2_penalty,
        tier3_penalty=vocab_tier3_penalty,
    )
    words = word_flags.wordlist()
    soft_words = word_flags.soft(words) if words else None
    spec = read_constraint(
        schema=schema,
        regex=regex,
        grammar=grammar,
        choice=choice,
        json_object=json_object,
        whitespace=whitespace,
        schema_format=schema_format,
        schema_order=schema_order,
        allow_checked=allow_checked,
        constraint=constraint,
        ban=ban,
        words=None if soft_words else words,
        after=after,
        max_before=max_before,
    )
    spec = SafetyFlags(level=safety, mode=safety_mode, lists=tuple(safety_list or ())).join(spec)
    soft = read_soft(soft_json=soft_json, words=soft_words)
    chat = ChatFlags(
        tools=tools,
        tool_choice=tool_choice,
        tool_format=tool_format,
        max_calls=max_calls,
        reasoning=reasoning,
        max_reasoning=max_reasoning,
        schema_in_prompt=schema_in_prompt,
    )
    decoding = DecodingFlags(
        strategy=strategy,
        num_beams=num_beams,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        num_return_sequences=num_return_sequences,
        particles=particles,
        ess_threshold=ess_threshold,
        target=target,
        on_budget=on_budget,
        max_rewinds=max_rewinds,
    )
    decoding.options()  # what is wrong with them is said first
    if rejection_log is not None:
        decoding = decoding.for_log(sampler=sampler)
    options = chat.options() | decoding.options() | {"sampler": sampler, "trace": read_level(trace_level, trace=trace)}
    sampling = read_fields(
        option,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        max_tokens=max_tokens,
        stop=stop,
    )
    sampling = decoding.sampling(sampling, preset=preset)
    flags = ModelFlags(
        model=model,
        device=device,
        dtype=dtype,
        ctx_size=ctx_size,
        gpu_layers=gpu_layers,
        threads=threads,
        kv_type=kv_type,
        kv_size=kv_size,
        batch_size=batch_size,
        flash_attn=flash_attn,
        lora=lora,
    )
    app = build_app()
    asked = api.make_request("", constraint=spec, preset=preset, presets=app.presets, **sampling, **options)
    check_single(asked.sampling)  # what is wrong with them was found
    tell_filters(asked.constraint)
    page = check_trace_path(trace)
    text = read_prompt(prompt)
    with ExitStack() as stack:
        recorders = open_recorders(stack, rejection_log=rejection_log, record=record)
        engine = stack.enter_context(flags.load(app))
        events = engine.stream(
            text,
            constraint=spec,
            soft=soft,
            preset=preset,
            **sampling,
            system=system,
            raw=raw,
            recorders=recorders,
            **options,
        )
        result = show(events, live=_is_terminal() and not as_json, split=chat.splits)
    if as_json:
        output.data_json(as_dict(result, engine.name))
    else:
        write(result, live=_is_terminal(), split=chat.splits)
    if page is not None and result.trace is not None:
        result.trace.save(page)
        output.note(f"trace: {trace}")
    raise typer.Exit(report(result))


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def show(events: Any, *, live: bool, split: bool = False) -> Result:
    """Run the events to their end, writing the text as it comes if `live`; split: its content alone, and the reasoning
    on stderr."""
    event: Event
    shown = ShownTurn()
    for event in events:
        if live and split:
            for delta in event.deltas:
                shown.show(delta)
        elif live:
            output.piece(event.text)
        if isinstance(event, Finished):
            return event.result
    raise AssertionError("a run always ends in Finished")


def write(result: Result, *, live: bool, split: bool) -> None:
    """The answer on stdout, as far as it is not there already: the text, or the content and one line for each call.
    Further texts of the same run follow, best first."""
    _write_one(result, live=live, split=split)
    for other in result.others:
        _write_one(other, live=False, split=split)


def _write_one(result: Result, *, live: bool, split: bool) -> None:
    text = result.content if split else result.text
    if live and (text or not result.tool_calls):
        output.piece("\n")
    elif not live and (text or not result.tool_calls):
        output.data(text)
    for call in result.tool_calls:
        output.data(call_line(call))


def report(result: Result) -> int:
    """Say on stderr what a user must not miss. Returns the exit code: 1 for an answer that breaks its constraint."""
    for line in told(result):
        output.note(line)
    if result.finish_reason == "length" and not result.closed_by_budget:
        output.note(f"stopped at the limit of {result.usage.completion_tokens} tokens")
    for call in result.tool_calls:
        if not call.is_complete:
            output.note(f"the call of {call.name} was cut off")
    code = 0
    for number, one in enumerate((result, *result.others), 1):
        verdict = one.verdict
        if verdict is not None and verdict.valid is False:
            which = f"text {number} is " if result.others else ""
            output.note(f"{which}not valid ({verdict.judge}): {'; '.join(verdict.errors)}")
            code = 1
    return code


def as_dict(result: Result, model: str) -> dict[str, Any]:
    """The result as plain JSON; the same run gives the same bytes. What only some strategies give is in it only then:
    `score`, `weighing`, `closed_by_budget`, `rewinds`, `safety`, what filters refused and took back by category and
    pattern, and `others`, the further texts, best first."""
    more: dict[str, Any] = {}
    if result.score is not None:
        more["score"] = result.score
    if result.weighing is not None:
        more["weighing"] = asdict(result.weighing)
    if result.closed_by_budget:
        more["closed_by_budget"] = True
    if result.trace is not None and result.trace.rewinds:
        more["rewinds"] = [one.to_json() for one in result.trace.rewinds]
    if result.trace is not None and (counts := result.trace.safety_counts()):
        more["safety"] = counts
    if result.others:
        more["others"] = [as_dict(one, model) for one in result.others]
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
        },
        "verdict": result.verdict.to_json() if result.verdict else None,
        "trace": result.trace.summary() if result.trace else None,
        **more,
    }
