"""`espalier chat`: a conversation in the terminal; the constraint can be switched while it goes on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from espalier import api
from espalier.cli import output
from espalier.cli.flags.constraint import read_constraint
from espalier.cli.flags.decoding import DecodingFlags, MaxRewinds, NumBeams, OnBudgetFlag, Particles, Strategy
from espalier.cli.flags.inputs import check_trace_path
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
from espalier.cli.generate import report
from espalier.cli.safety import SafetyFlags, SafetyLevel, SafetyLists, SafetyModeFlag, tell_filters
from espalier.constraints.spec import Spec
from espalier.decoding.options import Decoding
from espalier.engines.base import Event, Finished, Result
from espalier.errors import EspalierError, InputError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.presets.spec import Preset
from espalier.wiring import build_app

PER_ANSWER = 512  # tokens, where no preset says otherwise

HELP = """\
/schema SCHEMA   answers valid under a JSON Schema     /json            any JSON object
/regex PATTERN   answers that match                    /choice A B ...  one of these
/grammar FILE    answers in a GBNF grammar             /free            no constraint
/system TEXT     set the system message, start anew    /reset           forget the conversation
/strategy NAME   how the constraint is applied         /trace FILE      write the last trace
/quit            leave (or Ctrl-D)"""


@dataclass
class Conversation:
    """All that a chat remembers."""

    engine: api.LoadedEngine
    sampling: SamplingConfig
    constraint: Spec | None = None
    system: str | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    last: Result | None = None
    preset: Preset | None = None
    sampler: str = "espalier"
    ban: tuple[str, ...] = ()
    safety: SafetyFlags = field(default_factory=SafetyFlags)
    decoding: DecodingFlags = field(default_factory=DecodingFlags)

    def prompt(self) -> list[dict[str, Any]]:
        head = [{"role": "system", "content": self.system}] if self.system else []
        return head + self.messages


def command(
    model: Model = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    schema: Annotated[
        str | None, typer.Option(help="A JSON Schema: a file, JSON, or `name, age int`.", metavar="SCHEMA")
    ] = None,
    regex: Annotated[str | None, typer.Option(help="A pattern every answer must match.")] = None,
    grammar: Annotated[str | None, typer.Option(help="A GBNF grammar file.", metavar="FILE")] = None,
    choice: Annotated[list[str] | None, typer.Option(help="An allowed answer; repeat it.", metavar="TEXT")] = None,
    json_object: Annotated[bool, typer.Option("--json-object", help="Any JSON object.")] = False,
    ban: Annotated[
        list[str] | None, typer.Option(help="A text that no answer holds; repeat it.", metavar="TEXT")
    ] = None,
    safety: SafetyLevel = None,
    safety_mode: SafetyModeFlag = None,
    safety_list: SafetyLists = None,
    preset: Annotated[
        str | None, typer.Option(help="Sampling and constraint by name: `espalier presets list`.", metavar="NAME")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help=f"0 is greedy. Default: {DEFAULTS.temperature}.")] = None,
    top_k: Annotated[int | None, typer.Option(help=f"0 is off. Default: {DEFAULTS.top_k}.")] = None,
    top_p: Annotated[float | None, typer.Option(help=f"1 is off. Default: {DEFAULTS.top_p}.")] = None,
    min_p: Annotated[float | None, typer.Option(help=f"0 is off. Default: {DEFAULTS.min_p}.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes a conversation repeatable.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help=f"At most this many per answer. Default: {PER_ANSWER}.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", help="Any field of the sampling; repeat it.", metavar="KEY VALUE"),
    ] = None,
    sampler: Annotated[str, typer.Option(help=SAMPLER_HELP, metavar="NAME")] = "espalier",
    strategy: Strategy = None,
    num_beams: NumBeams = None,
    particles: Particles = None,
    on_budget: OnBudgetFlag = None,
    max_rewinds: MaxRewinds = None,
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
    """Talk with a model; /help inside shows how to switch the constraint."""
    banned = tuple(ban or ())
    filters = SafetyFlags(level=safety, mode=safety_mode, lists=tuple(safety_list or ()))
    constraint = filters.join(
        read_constraint(
            schema=schema,
            regex=regex,
            grammar=grammar,
            choice=choice,
            json_object=json_object,
            ban=list(banned) or None,
        )
    )
    fields = read_fields(
        option, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, max_tokens=max_tokens
    )
    decoding = DecodingFlags(
        strategy=strategy, num_beams=num_beams, particles=particles, on_budget=on_budget, max_rewinds=max_rewinds
    )
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
    fields = fields if preset is not None else {"max_tokens": PER_ANSWER} | fields
    fields = decoding.sampling(fields, preset=preset)
    found = None if preset is None else app.presets.get(preset)
    asked = api.make_request(
        "", constraint=constraint, preset=found, **fields | decoding.options() | {"sampler": sampler}
    )
    sampling = asked.sampling
    check_single(sampling)
    tell_filters(asked.constraint)
    with flags.load(app) as engine:
        output.note(flags.described(engine, app))
        output.note("/help for commands, Ctrl-D to leave")
        talk(
            Conversation(
                engine,
                sampling,
                constraint,
                system,
                preset=found,
                sampler=sampler,
                decoding=decoding,
                ban=banned,
                safety=filters,
            )
        )


def talk(conversation: Conversation) -> None:
    """Read lines until the end of input or /quit. A fault in one line is told, and the talk goes on."""
    while True:
        try:
            line = _read_line()
        except UnicodeDecodeError as error:
            output.fail(InputError(f"that line is not UTF-8 at byte {error.start}"))
            continue
        if line is None or line.strip() in ("/quit", "/exit"):
            return
        if not line.strip():
            continue
        try:
            if line.startswith("/"):
                switch(conversation, line)
            else:
                answer(conversation, line)
        except EspalierError as error:
            output.fail(error)


def answer(conversation: Conversation, line: str) -> None:
    """Send one line and stream the answer. Ctrl-C stops it; what was said so far stays in the conversation."""
    conversation.messages.append({"role": "user", "content": line})
    shown: list[str] = []
    try:
        with closing(_stream(conversation)) as events:
            for event in events:
                output.piece(event.text)
                shown.append(event.text)
                if isinstance(event, Finished):
                    conversation.last = event.result
    except KeyboardInterrupt:
        output.piece(" …")
        conversation.last = None
    except EspalierError:
        conversation.messages.pop()  # the question was never answered
        raise
    output.piece("\n")
    conversation.messages.append({"role": "assistant", "content": "".join(shown)})
    if conversation.last is not None:
        report(conversation.last)


def _stream(conversation: Conversation) -> Generator[Event, None, None]:
    """A generator, so that it can be closed; nothing is rendered or compiled before its first event."""
    yield from conversation.engine.stream(
        conversation.prompt(),
        constraint=conversation.constraint,
        sampling=conversation.sampling,
        preset=conversation.preset,
        sampler=conversation.sampler,
        **conversation.decoding.options(),
    )


def switch(conversation: Conversation, line: str) -> None:
    """Run one /command. Raises InputError for one that does not exist or is not written right."""
    name, _, rest = line[1:].partition(" ")
    rest = rest.strip()
    run = COMMANDS.get(name)
    if run is None:
        raise InputError(f"there is no /{name}", hint="/help lists the commands")
    run(conversation, rest)


def _constrain(conversation: Conversation, **given: Any) -> None:
    empty: dict[str, Any] = {"schema": None, "regex": None, "grammar": None, "choice": None, "json_object": False}
    # What was banned when the talk began stays banned.
    spec = conversation.safety.join(read_constraint(**(empty | given), ban=list(conversation.ban) or None))
    if spec is not None:
        # Compile now, so that a fault shows here and not at the next question.
        api.compile(spec, vocab=conversation.engine.vocab)
    conversation.constraint = spec
    otherwise = "the preset's" if conversation.preset else "none"
    output.note(f"constraint: {spec.kind if spec else otherwise}")


def _need(rest: str, what: str) -> str:
    if not rest:
        raise InputError(f"that needs {what}", hint="/help lists the commands")
    return rest


def _words(rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise InputError(f"the choices cannot be read: {error}", hint='quote as in a shell: /choice "a b" c') from error


def _reset(conversation: Conversation, rest: str) -> None:
    conversation.messages.clear()
    conversation.last = None
    output.note("the conversation starts anew")


def _system(conversation: Conversation, rest: str) -> None:
    conversation.system = rest or None
    _reset(conversation, rest)


def _strategy(conversation: Conversation, rest: str) -> None:
    """What was said of the strategy before goes with it: beams mean nothing to another."""
    name = _need(rest, "the name of a strategy")
    kept = conversation.decoding
    decoding = DecodingFlags(strategy=name, on_budget=kept.on_budget, max_rewinds=kept.max_rewinds)
    Decoding(**decoding.options())
    conversation.decoding = decoding
    output.note(f"strategy: {name}")


def _trace(conversation: Conversation, rest: str) -> None:
    path = _need(rest, "a file name")
    target = check_trace_path(path)
    if conversation.last is None or conversation.last.trace is None:
        raise InputError("there is no answer to trace yet")
    if target is not None:
        conversation.last.trace.save(target)
    output.note(f"trace: {path}")


COMMANDS: dict[str, Callable[[Conversation, str], None]] = {
    "help": lambda c, rest: output.note(HELP),
    "schema": lambda c, rest: _constrain(c, schema=_need(rest, "a schema")),
    "regex": lambda c, rest: _constrain(c, regex=_need(rest, "a pattern")),
    "grammar": lambda c, rest: _constrain(c, grammar=_need(rest, "a file")),
    "choice": lambda c, rest: _constrain(c, choice=_words(_need(rest, "at least one answer"))),
    "json": lambda c, rest: _constrain(c, json_object=True),
    "free": lambda c, rest: _constrain(c),
    "reset": _reset,
    "system": _system,
    "strategy": _strategy,
    "trace": _trace,
}


def _read_line() -> str | None:
    """One line; the prompt sign goes to stderr, so that stdout holds answers only. None at the end of input."""
    if sys.stdin.isatty():
        sys.stderr.write("> ")
        sys.stderr.flush()
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        return None
    return line.rstrip("\n") if line else None
