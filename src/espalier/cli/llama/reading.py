"""Reads an argument list by llama.cpp's rules: later flags replace earlier ones, and no flag is guessed.

It knows no model. Errors carry the lines that llama.cpp prints.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from espalier.cli.llama.table import BY_NAME, FLAGS, INPUTS, LlamaFlag
from espalier.cli.llama.values import LAYERS, unescape
from espalier.engines.options import EngineOptions
from espalier.errors import InputError
from espalier.nearest import did_you_mean

ENGINE = frozenset(field.name for field in fields(EngineOptions))
PREFIX = "LLAMA_ARG_"
OWN_CONTEXT = ("context", "0")
"""What llama.cpp calls the context that the model was trained on."""
USAGE = "to show complete usage, run with -h"


class ArgumentError(InputError):
    """A flag of llama.cpp's has no value, or a wrong one."""

    def __init__(self, flag: LlamaFlag, name: str, text: str | None, reason: str) -> None:
        """reason: in llama.cpp's words."""
        given = "has no value" if text is None else f"{text[:60]}: that is no value of it"
        super().__init__(f"{name} {given}", hint=f"{name} {flag.metavar}", field=name.lstrip("-"))
        self.flag, self.name, self.reason = flag, name, reason

    @property
    def lines(self) -> str:
        """What llama.cpp prints."""
        what = "environment variable" if self.name.startswith(PREFIX) else "argument"
        return f'error while handling {what} "{self.name}": {self.reason}\n\nusage:\n{usage(self.flag)}\n\n\n{USAGE}'


@dataclass(slots=True)
class LlamaArguments:
    """What an argument list of llama.cpp's asks for."""

    #: Fields of llama-server's requests, by their names there.
    sampling: dict[str, Any] = field(default_factory=dict)
    #: Options of the engine, by the names of EngineOptions.
    engine: dict[str, Any] = field(default_factory=dict)
    #: What else is set, by the names of `INPUTS`. A grammar and a schema replace each other.
    inputs: dict[str, Any] = field(default_factory=dict)
    #: Arguments that are none of llama.cpp's, as they stand.
    others: list[str] = field(default_factory=list)

    @property
    def prompt(self) -> str | None:
        """The prompt with its escapes read, unless that is switched off. Raises InputError."""
        text: str | None = self.inputs.get("prompt")
        if text is None or not self.inputs.get("escapes", True):
            return text
        try:
            return unescape(text)
        except ValueError as error:
            raise InputError("the bytes of the prompt's escapes are no UTF-8", field="prompt") from error

    def set(self, flag: LlamaFlag, value: Any) -> None:
        """Take one value."""
        name = flag.sets
        if name is None:
            return
        values = self.engine if name in ENGINE else self.inputs if name in INPUTS else self.sampling
        if name in ("grammar", "schema"):
            values.pop("schema" if name == "grammar" else "grammar", None)
        if value is None or (name, str(value)) == OWN_CONTEXT:
            values.pop(name, None)
        elif flag.repeats:
            values[name] = [*values.get(name, ()), value]
        else:
            values[name] = value

    def take_own(self, name: str, text: str | None) -> None:
        """Take the value of a command's own flag. Where llama.cpp has the same flag, words that only it knows (`-c 0`,
        `-ngl all`) mean the same."""
        flag = BY_NAME.get(name)
        if text is None:
            return
        is_theirs = flag is not None and flag.sets in ENGINE and (text in LAYERS or (flag.sets, text) == OWN_CONTEXT)
        value = _value(flag, name, text) if flag is not None and is_theirs else text
        if value is None or (is_theirs and text == "0"):
            self.others.pop()  # the default
        else:
            self.others.append(str(value))


def read_arguments(arguments: Iterable[str], *, own: Mapping[str, bool] | None = None) -> LlamaArguments:
    """own: flags of a command, and whether each takes a value; they and all that is unknown go to `others`. Without it
    an unknown flag is an error. Raises InputError."""
    parsed = LlamaArguments()
    rest = iter(arguments)
    for argument in rest:
        name, equals, given = argument.partition("=") if own is not None else (argument, "", "")
        flag = None if own is not None and name in own else BY_NAME.get(_spell_option(name))
        if flag is None and own is None:
            raise _unknown(argument)
        if flag is None:
            parsed.others.append(argument)
            if argument == "--":
                parsed.others += rest
            elif own and own.get(argument):
                parsed.take_own(argument, next(rest, None))
            continue
        if flag.refused:
            raise InputError(f"{name} cannot be done here: {flag.refused}", field=name.lstrip("-"))
        if flag.read is None:
            parsed.set(flag, flag.value)
            continue
        value = given if equals else next(rest, None)
        parsed.set(flag, _value(flag, _spell_option(name), value))
    return parsed


def read_environment(arguments: LlamaArguments, environ: Mapping[str, str]) -> None:
    """Set what stands in LLAMA_ARG_… and on no command line. Raises InputError."""
    usual = LlamaArguments()
    for flag in FLAGS:
        if flag.env and (text := environ.get(PREFIX + flag.env)):
            usual.set(flag, _value(flag, PREFIX + flag.env, text))
    for name in ("sampling", "engine", "inputs"):
        setattr(arguments, name, {**getattr(usual, name), **getattr(arguments, name)})


def summed(biases: Iterable[tuple[int, float]]) -> list[list[Any]]:
    """One bias for each token, in the form of a request: llama.cpp adds up those that are given several times."""
    totals: dict[int, float] = {}
    for token, bias in biases:
        totals[token] = totals.get(token, 0.0) + bias
    return [[token, False if bias == -math.inf else bias] for token, bias in totals.items()]


def usage(flag: LlamaFlag) -> str:
    """The line of help about a flag."""
    names = ", ".join(flag.names) + (f" {flag.metavar}" if flag.metavar else "")
    return f"{names:<40}{flag.refused or _describe_flag(flag)}"


def _describe_flag(flag: LlamaFlag) -> str:
    return "taken, and changes nothing" if flag.sets is None else f"sets {flag.sets.replace('_', ' ')}"


def _spell_option(name: str) -> str:
    """A long flag with hyphens, as llama.cpp reads it."""
    return name.replace("_", "-") if name.startswith("--") else name


def _value(flag: LlamaFlag, name: str, text: str | None) -> Any:
    """The value of a flag. Raises ArgumentError."""
    assert flag.read is not None
    if text is None:
        raise ArgumentError(flag, name, None, "expected value for argument")
    try:
        return flag.read(text)
    except ValueError as error:
        raise ArgumentError(flag, name, text, str(error)) from error


def _unknown(argument: str) -> InputError:
    return InputError(
        f"error: invalid argument: {_spell_option(argument)}",
        hint=did_you_mean(_spell_option(argument), known_names()),
        field=argument.lstrip("-"),
    )


def known_names() -> Collection[str]:
    return BY_NAME.keys()
