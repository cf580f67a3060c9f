"""Which model a command opens, and how: `--model` and the flags of the engine options.

The flags are declared in `engines/options.py`, under llama.cpp's names where llama.cpp has the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeAlias

import typer

from espalier import api
from espalier.cli import output
from espalier.cli.flags.groups import FlagsOf
from espalier.cli.flags.values import complete_model
from espalier.cli.progress import first_shown, working
from espalier.columns import WIDTH, middle, shown
from espalier.engine_table import choose
from espalier.engines.base import Event, Request
from espalier.engines.options import ONLY_FASTER, EngineOptions
from espalier.errors import CapabilityError
from espalier.wiring import App

SPELLED = {"llamacpp": "llama.cpp"}  # others are called as they are

Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="GGUF file, folder or hub name. Default: the demo model.", autocompletion=complete_model
    ),
]
EngineFlags: TypeAlias = Annotated[dict[str, Any], FlagsOf(EngineOptions)]


def load(model: str | None, engine: Mapping[str, Any], app: App) -> api.LoadedEngine:
    """Open a model. engine: what was given of EngineFlags; where the build has no GPU, layers for one are left out with
    a note, as in llama.cpp. Raises what `espalier.load` raises."""
    if app.log is not None:
        app.log.tell = output.note
    try:
        with working(f"loading {app.model_name(model)}"):
            return api.load(model, app=app, **engine)
    except CapabilityError as error:
        if error.field not in ONLY_FASTER or error.field not in engine:
            raise
        output.note(f"{error.message}: it goes on without {error.field.replace('_', ' ')} ({error.hint})")
        rest = {name: value for name, value in engine.items() if name != error.field}
    return load(model, rest, app)


def run(engine: api.LoadedEngine, request: Request, *, command: str) -> Iterator[Event]:
    """Run a request that was made before the model was loaded. command: what asked, for the log. Raises CapabilityError
    for what the engine cannot do."""
    api.check_capabilities(engine.engine, request)
    what = "reading the prompt" if request.constraint is None else "compiling the constraint, reading the prompt"
    return first_shown(engine.run([request], route=f"espalier {command}"), what)


def described(model: str | None, flags: Mapping[str, Any], engine: api.LoadedEngine, app: App) -> str:
    """What was opened, on one line of a terminal: its name, which engine runs it, how many tokens it reads. flags: what
    was given of EngineFlags."""
    asked = EngineOptions(engine=flags.get("engine"), url=flags.get("url")).over(app.settings.options)
    kind = asked.engine or choose(app.model_name(model), asked.url)
    most = engine.capabilities.max_context
    rest = f", {SPELLED.get(kind, kind)}" + (f", {most} tokens of context" if most else "")
    return middle(shown(engine.name), WIDTH - len(rest)) + rest
