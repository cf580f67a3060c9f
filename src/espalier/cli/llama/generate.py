"""llama.cpp's flags on `espalier generate`: they are replaced by the command's own before these are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from espalier.cli import output
from espalier.cli.help import WithOverrides
from espalier.cli.llama.reading import LlamaArguments, read_arguments, summed
from espalier.engines.options import EngineOptions
from espalier.errors import InputError
from espalier.fields import entries
from espalier.sampling.config_names import UNLIMITED

OPTION = "-o"
NOT_PRINTED = {
    "special": "-sp: special tokens are not printed here",
    "display_prompt": "--display-prompt: the prompt is not printed here",
}


class WithLlamaFlags(WithOverrides):
    """A command that takes llama.cpp's flags beside its own; help shows its own only."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {
            name: not getattr(param, "is_flag", False)
            for param in self.get_params(ctx)
            for name in (*param.opts, *param.secondary_opts)
            if name.startswith("-")
        }
        return super().parse_args(ctx, own_arguments(self.join_overrides(args), own))


def own_arguments(args: list[str], own: Mapping[str, bool]) -> list[str]:
    """The argument list with the command's own flags only. own: those, and whether each takes a value. Raises
    InputError."""
    arguments = read_arguments(args, own=own)
    prompt = arguments.prompt
    if prompt is None:
        return [*_flags(arguments), *arguments.others]
    if _positional(arguments.others, own):
        raise InputError("the prompt is given twice: by -p or -f and as an argument", field="prompt")
    return [*_flags(arguments), *[other for other in arguments.others if other != "--"], "--", prompt]


def _flags(arguments: LlamaArguments) -> Iterator[str]:
    table = entries(EngineOptions)
    for name, value in arguments.engine.items():
        for item in value if isinstance(value, list) else [value]:
            yield from (table[name].field.flags[0], str(item))
    for name, value in arguments.sampling.items():
        yield from (OPTION, f"{name}={_write_value(name, value)}")
    inputs = arguments.inputs
    is_raw = not inputs.get("conversation", True)
    if is_raw:
        yield "--raw"
    if "model" in inputs:
        yield from ("--model", inputs["model"])
    if "system" in inputs and is_raw:
        output.note("-no-cnv: the system prompt is left out, as in llama.cpp")
    elif "system" in inputs:
        yield from ("--system", inputs["system"])
    if "grammar" in inputs:
        yield from ("--grammar", inputs["grammar"])
    if "schema" in inputs:
        yield from ("--schema", inputs["schema"], "--closed")
    for name, note in NOT_PRINTED.items():
        if inputs.get(name):
            output.note(note)


def _write_value(name: str, value: Any) -> str:
    """A value for `-o`, as JSON."""
    if name == "logit_bias":
        value = summed(value)
    if name == "n_predict" and value < 0:
        value = UNLIMITED
    return json.dumps(value, ensure_ascii=False)


def _positional(others: list[str], own: Mapping[str, bool]) -> bool:
    """Whether an argument is the value of no flag. After an unknown flag none is: the command refuses that flag."""
    rest = iter(others)
    for argument in rest:
        if argument == "--":
            return next(rest, None) is not None
        name = argument.partition("=")[0]
        if argument == "-" or not argument.startswith("-"):
            return True
        if name not in own:
            return False
        if own[name] and name == argument:
            next(rest, None)
    return False
