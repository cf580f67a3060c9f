"""`espalier tax-card`: what each form of an answer costs a model, as a table and as a page to publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.model import EngineFlags, load
from espalier.cli.progress import counting
from espalier.constraints.spec import Spec
from espalier.engines.base import Result
from espalier.files.writing import replaced
from espalier.harness.tax_card import MOST_TOKENS, SEEDS, measure_card
from espalier.version import __version__
from espalier.wiring import build_app


@with_flags
def command(
    model: Annotated[
        str | None, typer.Argument(help="GGUF file, folder or hub name. Default: the demo model.", metavar="MODEL")
    ] = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Answers to each question in each form.", metavar="N")] = SEEDS,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of an answer.", metavar="N")] = MOST_TOKENS,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the card as Markdown there.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    engine: EngineFlags,
) -> None:
    """Measure what each form of an answer costs a model.

    The same questions are asked as free text, in JSON mode, under a schema and as tool calls. The tax is what the form
    takes from the model, in nats an answer; an answer is right as far as it says the facts that were asked for.
    """
    with load(model, engine, build_app()) as loaded:

        def ask(prompt: str, constraint: Spec | None, seed: int) -> Result[Any]:
            return loaded.generate(prompt, constraint=constraint, seed=seed, max_tokens=max_tokens, trace="summary")

        with counting("answers") as progress:
            card = measure_card(ask, name=loaded.name, version=__version__, seeds=seeds, progress=progress)
    if file is not None:
        with replaced(file) as temporary:
            temporary.write_text(card.markdown(), encoding="utf-8")
        output.note(f"written: {file}")
    if as_json:
        output.data_json(card.to_json())
    else:
        output.data("\n".join(card.lines()))
