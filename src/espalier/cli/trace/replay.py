"""`espalier trace replay` and `espalier trace diff`: replay a run along its tokens, and compare two runs.

`api/replaying.py` and `trace/report/diff.py` compute; this module reads and prints. Exit codes are those of `diff`:
0 equal, 1 different, 2 wrong usage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from espalier.api.replaying import Replaying, has_distributions, replay
from espalier.cli import output
from espalier.cli.flags.constraint import read_grammar
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.inputs import check_trace_path, read_text
from espalier.cli.flags.model import EngineFlags, Model, load
from espalier.cli.flags.schema import parse_json
from espalier.cli.trace.read import SourceFlags, is_stored_id, read_trace, stored_trace
from espalier.cli.vocab.reading import read as read_vocab
from espalier.constraints.kinds import KINDS
from espalier.constraints.spec import Gbnf, JsonSchema, Spec
from espalier.decoding.replay import Divergence
from espalier.decoding.strategies import STRATEGIES
from espalier.errors import InputError
from espalier.grammar.check import validate
from espalier.grammar.parser import parse
from espalier.trace.foreign.read import has_gaps
from espalier.trace.records import Trace
from espalier.trace.report.diff import clip, diff
from espalier.wiring import build_app

WIDTH = 80


@with_flags
def replay_command(
    *,
    trace: Annotated[str, typer.Argument(help="A trace written as .json, or a stored one's id, or its request's.")],
    other: Annotated[
        str | None,
        typer.Option(
            "--with", help="Another constraint: a schema, a .gbnf, @NAME, or JSON with a `kind`.", metavar="FILE"
        ),
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="With a grammar: its start rule (default: root).", metavar="RULE")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="Replay as another strategy.", metavar="NAME")] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="Write the replay as a trace: .json or .html.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every step as JSON.")] = False,
    model: Model = None,
    engine: EngineFlags,
) -> None:
    """Replay a run along its tokens: as it was, under another constraint, or as another strategy.

    A trace of level full holds every distribution and needs no model. For other traces, or with --model, the model
    computes the logits again. Exit code 0: every step takes the stored token; 1: a step takes another, or is refused.
    """
    stored = stored_trace(trace, None) if is_stored_id(trace) else Trace.load(trace)
    if strategy is not None:
        STRATEGIES.require(strategy)
    if root is not None and other is None:
        raise InputError("--root needs --with and a grammar", field="root")
    spec = None if other is None else read_other(other, stored, root)
    page = check_trace_path(out)
    app = build_app()
    if model is None and has_distributions(stored):
        vocab, _ = read_vocab(stored.model if is_here(stored.model) else None)
        made = replay(stored, vocab=vocab, constraint=spec, strategy=strategy, app=app)
    else:
        with load(model, engine, app) as loaded:
            made = replay(stored, engine=loaded, constraint=spec, strategy=strategy, app=app)
    if as_json:
        output.data_json(made.to_json())
    else:
        output.data("\n".join(replay_lines(made)))
    if page is not None:
        made.trace.save(page, edge="cli")
        output.note(f"trace: {out}")
    raise typer.Exit(0 if made.is_same else 1)


def diff_command(
    left: Annotated[str, typer.Argument(help="A trace, a merged file or a reply.")],
    right: Annotated[str, typer.Argument(help="Another.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Compare two traces: their first difference, and costs by path and by rule. Exit code 0: equal; 1: not."""
    difference = diff(*(whole_trace(side) for side in (left, right)))
    if as_json:
        output.data_json(difference.to_json())
    else:
        names = (Path(left).name, Path(right).name)
        output.data("\n".join(difference.lines(names if names[0] != names[1] else (left, right))))
    raise typer.Exit(0 if difference.is_same else 1)


def whole_trace(path: str) -> Trace:
    """The trace of a file of any kind. Raises InputError for a rejection log, which has only some of the steps."""
    trace = read_trace(path, SourceFlags())
    if has_gaps(trace):
        raise InputError(f"{path} is a rejection log, and has not all steps of a run", hint="espalier trace merge")
    return trace


def is_here(name: str) -> bool:
    """Whether the model that a trace names is on this machine."""
    return name in ("fake", "bytes") or bool(name and Path(name).expanduser().exists())


def read_other(argument: str, trace: Trace, root: str | None = None) -> Spec:
    """A constraint from a file: GBNF by its suffix, any constraint by its `kind`, else a JSON Schema, with the white
    space style and the order of the trace's own constraint. root: the start rule of a grammar. Raises
    InputError, SpecError and its kin."""
    if argument.startswith("@") or argument.lower().endswith(".gbnf"):
        text = read_grammar(argument)
        validate(parse(text, root=root or "root"))
        return Gbnf(text) if root is None else Gbnf(text, root=root)
    if root is not None:
        raise InputError(f"--root is for a grammar, and {argument} is not a .gbnf or @NAME", field="root")
    data: Any = parse_json(read_text(argument, "constraint"), argument)
    if isinstance(data, dict) and isinstance(data.get("kind"), str) and data["kind"] in KINDS.names():
        return Spec.from_json(data)
    if not isinstance(data, dict | bool):
        raise InputError(
            f"{argument} is neither a schema nor a constraint", hint="an object; GBNF is a .gbnf", field="with"
        )
    own = trace.constraint or {}
    style: Any = own["whitespace"] if own.get("kind") == "json_schema" and "whitespace" in own else "natural"
    return JsonSchema(data, whitespace=style, order=own.get("order") if own.get("kind") == "json_schema" else None)


def replay_lines(replay: Replaying) -> list[str]:
    """The result of a replay, in 80 columns."""
    whose = "its own constraint" if replay.is_own else "what was asked now"
    if replay.replayed is None:
        lines = [f"run afresh as {replay.strategy}, with the same seed, under {whose}:"]
        return [*lines, *replay.diff.lines(("stored", "now")), *note_lines(replay)]
    replayed = replay.replayed
    where = "stored" if replay.source == "distributions" else "computed"
    lines = [f"{len(replayed.steps)} of {replayed.stored} steps by {replay.strategy} under {whose}, logits {where}"]
    if replay.is_exact:
        lines.append("reproduced exactly: every token and every tax")
    elif replayed.is_same:
        lines.append("every step takes the stored token")
    if replayed.roundings:
        lines.append(f"{replayed.roundings} of them within the rounding of half precision")
    if replayed.first is not None:
        lines += divergence_lines("first other draw", replayed.first)
    if replayed.end is not None and replayed.end is not replayed.first:
        lines += divergence_lines("it ends", replayed.end)
    if replayed.changes > 1:
        lines.append(f"{replayed.changes} steps draw another token than the stored one")
    more = round(replayed.tax - replayed.stored_tax, 2) + 0.0  # and never -0.00
    lines.append(f"tax: {replayed.stored_tax:.2f} nats then, {replayed.tax:.2f} now ({more:+.2f})")
    if not (replay.is_own and replayed.is_same):
        tables = replay.diff.tables()
        heads = [f"{'':<36}{'then':>15}{'now':>15}{'difference':>14}"] if tables else []
        lines += [*heads, *tables[1:]]
    return [*lines, *note_lines(replay)]


def divergence_lines(what: str, divergence: Divergence) -> list[str]:
    """Lines that describe a divergence."""
    now = "nothing can be taken" if divergence.drawn is None else f"now {divergence.drawn_text!r}"
    then = "is refused" if divergence.is_refused else "then"
    lines = [clip(f"{what}: step {divergence.step}, {divergence.text!r} {then}, {now}", WIDTH)]
    if divergence.blame is not None:
        place = f" at {divergence.blame.rule}" if divergence.blame.rule else ""
        lines.append(clip(f"  {divergence.blame.member}{place}: {divergence.blame.reason}", WIDTH))
    if divergence.reason is not None:
        lines.append(clip(f"  {divergence.reason}", WIDTH))
    return lines


def note_lines(replay: Replaying) -> list[str]:
    return [f"note: {replay.note}"] if replay.note else []
