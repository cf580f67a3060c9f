"""`espalier doctor`: shows what is installed, what each extra adds, and which engines can run."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from espalier.automata.masks.layout import MASKS
from espalier.cli import output
from espalier.columns import WIDTH, shown, wrapped
from espalier.constraints.safety.compile import FILTERS
from espalier.distribution import EXTRAS, compiled_modules, pip_line
from espalier.engines.llamacpp import report as llama_report
from espalier.errors import UnknownModel
from espalier.kernels.folder import folder_of
from espalier.kernels.group import start
from espalier.sampling.fast.candidates import DRAWS, ROWS
from espalier.version import __version__
from espalier.wiring import demo_model

ENGINE_NEEDS: dict[str, tuple[str, ...]] = {
    "transformers": ("torch", "transformers"),
    "llamacpp": ("llama-cpp-python",),
    "fake": (),
}
GROUPS = MASKS, ROWS, FILTERS, DRAWS
"""What is compiled once for an installation, in the order of need."""
CORE = ("numpy", "jsonschema", "numba")


def installed(package: str) -> str | None:
    """The version of a distribution, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def examine() -> dict[str, Any]:
    """The report as plain JSON. llama.cpp's library is opened for it, in a process of its own."""
    engines: dict[str, dict[str, Any]] = {}
    for name, needs in ENGINE_NEEDS.items():
        missing = [package for package in needs if not installed(package)]
        engines[name] = {"can_run": not missing, "missing": missing, "fault": None}
    if engines["llamacpp"]["can_run"]:
        engines["llamacpp"] |= llama_report.examine()
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
                "installed": all(installed(p) for p in extra.modules.values()),
                "packages": {p: installed(p) for p in extra.modules.values()},
                "adds": extra.adds,
                "install": pip_line(extra.name),
            }
            for extra in EXTRAS.values()
        },
        "engines": engines,
        "kernels": {
            group.name: {
                "compiled": group.is_compiled,
                "kernels": group.count(),
                "folders": sorted({str(folder.parent) for folder in map(folder_of, group.modules) if folder}),
            }
            for group in GROUPS
        },
        "compiled_modules": compiled_modules(),
        "demo_model": demo,
    }


def command(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    warm: Annotated[
        bool, typer.Option("--warm", help="Compile first what is compiled once for an installation.")
    ] = False,
) -> None:
    """Show what is installed and compiled, what each extra adds, and which engines can run."""
    if warm:
        start(GROUPS)
        for group in GROUPS:
            group.load()
    examined = examine()
    if as_json:
        output.data_json(examined)
        return
    lines = [f"espalier {examined['espalier']}, Python {examined['python']}, {examined['platform']}", "", "Core"]
    lines += [f"  {name:<14}{have or 'MISSING'}" for name, have in examined["core"].items()]
    lines += ["", "Extras"]
    for name, extra in examined["extras"].items():
        state = "installed" if extra["installed"] else "not installed"
        lines += [f"  {name:<14}{state:<15}{extra['adds']}"]
        if not extra["installed"]:
            lines += [f"  {'':<14}{extra['install']}"]
    lines += ["", "Engines"]
    for name, engine in examined["engines"].items():
        lines += engine_lines(name, engine)
    lines += ["", "Kernels"]
    for name, kernels in examined["kernels"].items():
        state = "compiled" if kernels["compiled"] else "not compiled"
        lines += [f"  {name:<18}{kernels['kernels']:>3} {state}"]
    folders = sorted({folder for kernels in examined["kernels"].values() for folder in kernels["folders"]})
    lines += [f"    {line}" for folder in folders for line in wrapped(shown(folder), WIDTH - 4)]
    if not all(kernels["compiled"] for kernels in examined["kernels"].values()):
        lines += ["  they are compiled when they are needed first, or now: espalier doctor --warm"]
    modules = examined["compiled_modules"]
    state = f"{len(modules)} compiled" if modules else "run from source; `make wheel` compiles them"
    lines += ["", "Modules of masks", f"  {state}"]
    lines += ["", f"Demo model: {examined['demo_model'] or 'not here'}"]
    output.data("\n".join(lines))


def engine_lines(name: str, engine: dict[str, Any]) -> Iterator[str]:
    """Lines for an engine: whether it can run, why not, and what llama.cpp was built with."""
    missing = ", ".join(engine["missing"])
    state = "can run" if engine["can_run"] else f"needs {missing}" if missing else "CANNOT RUN"
    yield f"  {name:<14}{state}"
    details = [engine["fault"]] if engine["fault"] else []
    if "version" in engine:
        gpu = "can use a GPU" if engine["gpu_offload"] else "no GPU: built for the CPU alone"
        details += [
            f"llama-cpp-python {engine['version']}, which fits its library; {gpu}",
            f"built with {', '.join(engine['built_with'])}",
            *([f"devices: {', '.join(engine['devices'])}"] if engine["devices"] else []),
        ]
    for detail in details:
        yield from (f"{'':16}{line}" for line in wrapped(shown(detail), WIDTH - 16))
