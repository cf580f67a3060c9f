"""`espalier eval qa`: judges the answers of a file against the known ones, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated

import typer

from espalier import api
from espalier.cli import output
from espalier.cli.flags.groups import sub_app, with_flags
from espalier.cli.flags.model import EngineFlags, load
from espalier.constraints.spec import Choice
from espalier.harness.qa.evaluate import Evaluation, evaluate
from espalier.harness.qa.files import write
from espalier.harness.qa.intervals import Mean
from espalier.harness.qa.judge import Ask, ModelJudge
from espalier.wiring import build_app

app = sub_app("Judge generated answers.")


@app.callback()
def group() -> None:
    """Judge generated answers."""


@app.command("qa", short_help="Judge answers to questions.")
@with_flags
def qa_command(
    file: Annotated[str, typer.Argument(help="JSON Lines with prompt, generation and answer.", metavar="FILE")],
    *,
    judge: Annotated[
        str | None, typer.Option(help="A model that judges: file, folder or hub name; `demo`.", metavar="MODEL")
    ] = None,
    folder: Annotated[
        str | None, typer.Option("--output", "-o", help="Write HalluLens' three files there.", metavar="FOLDER")
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, max=1_000_000, help="Of the bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    engine: EngineFlags,
) -> None:
    """Judge answers to questions: exact match, F1, contained, refused, correct, hallucinated, with 95 % intervals.

    Without --judge, phrases tell a refusal, and an answer is correct if it contains a known one. A judge's replies are
    constrained to the words asked for.
    """
    with ExitStack() as open_models:
        model = None
        if judge is not None:
            loaded = open_models.enter_context(load(None if judge == "demo" else judge, engine, build_app()))
            model = ModelJudge(loaded.name, asking(loaded))
        done = evaluate(file, judge=model, resamples=resamples, seed=seed)
    if folder is not None:
        paths = write(done, folder)
        output.note(f"written: {', '.join(map(str, paths))}")
    if as_json:
        output.data_json(done.to_json())
    else:
        output.data("\n".join(table(done)))


def asking(engine: api.LoadedEngine) -> Ask:
    """Greedy replies of a model, each one of the words."""

    def ask(prompts: Sequence[str], words: Sequence[str]) -> list[str]:
        messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
        return [output.text for output in engine.generate(messages, constraint=Choice(tuple(words)), temperature=0)]

    return ask


def table(done: Evaluation) -> list[str]:
    """One line for each metric, in 80 columns."""
    lines = [f"{done.model or 'no model named'}: {len(done.rows):,} rows", f"{'':<34}{'mean':>8}  95 % interval"]
    lines += [f"{name:<34}{_show_mean(mean)}" for name, mean in done.means.items()]
    return [*lines, f"refusals by {done.refusals_by}", f"correct by {done.verdicts_by}"]


def _show_mean(mean: Mean) -> str:
    if mean.mean is None:
        return f"{'-':>8}  no rows"
    return f"{mean.mean:>8.1%}  {mean.low:.1%} to {mean.high:.1%}"
