"""`espalier doctor`: what is installed, what each extra would add, which engines can run."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, NamedTuple

import typer

from espalier.cli import output
from espalier.errors import UnknownModel
from espalier.version import __version__
from espalier.wiring import demo_model


class Extra(NamedTuple):
    name: str
    packages: tuple[str, ...]
    adds: str


EXTRAS = (
    Extra("transformers", ("torch", "transformers"), "any causal LM on Hugging Face"),
    Extra("llamacpp", ("llama-cpp-python",), "GGUF files (engine: not in this version)"),
    Extra("wordlists", ("wordfreq",), "word lists by language: espalier wordlist build"),
    Extra("ray", ("ray",), "batch jobs over a cluster (not in this version)"),
)
ENGINE_NEEDS: dict[str, tuple[str, ...]] = {"transformers": ("torch", "transformers"), "fake": ()}
CORE = ("numpy", "llguidance", "jsonschema", "numba")


def installed(package: str) -> str | None:
    """The version of a distribution, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def examine() -> dict[str, Any]:
    """Everything doctor knows, as plain JSON."""
    engines = {
        name: {"can_run": all(installed(p) for p in needs), "missing": [p for p in needs if not installed(p)]}
        for name, needs in ENGINE_NEEDS.items()
    }
    try:
        demo: str | None = str(demo_model())
    except UnknownModel:
        demo = None
    return {
        "espalier": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "core": {name: installed(name) for name in CORE},
        "extras": {
            extra.name: {
                "installed": all(installed(p) for p in extra.packages),
                "packages": {p: installed(p) for p in extra.packages},
                "adds": extra.adds,
                "install": f'pip install "espalier[{extra.name}]"',
            }
            for extra in EXTRAS
        },
        "engines": engines,
        "demo_model": demo,
    }


def command(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Say what is installed, what each extra would add, and which engines can run."""
    found = examine()
    if as_json:
        output.data_json(found)
        return
    lines = [f"espalier {found['espalier']}, Python {found['python']}, {found['platform']}", "", "Core"]
    lines += [f"  {name:<14}{have or 'MISSING'}" for name, have in found["core"].items()]
    lines += ["", "Extras"]
    for name, extra in found["extras"].items():
        state = "installed" if extra["installed"] else "not installed"
        lines += [f"  {name:<14}{state:<15}{extra['adds']}"]
        if not extra["installed"]:
            lines += [f"  {'':<14}{extra['install']}"]
    lines += ["", "Engines"]
    for name, engine in found["engines"].items():
        missing = ", ".join(engine["missing"])
        lines += [f"  {name:<14}{'can run' if engine['can_run'] else f'needs {missing}'}"]
    lines += ["", f"Demo model: {found['demo_model'] or 'not here'}"]
    output.data("\n".join(lines))
