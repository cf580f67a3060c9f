"""Packages with plug-ins on `sys.path`: written by hand as a `.dist-info`, or `examples/plugin` installed by pip."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from espalier.api.installed import REGISTRIES

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"


def declare(folder: Path, package: str, points: Mapping[str, Mapping[str, str]], modules: Mapping[str, str]) -> None:
    """Write a package with entry points and modules into a folder, as pip leaves it."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    groups = (
        "\n".join([f"[espalier.{kind}]", *(f"{name} = {target}" for name, target in names.items())])
        for kind, names in points.items()
    )
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def install_example(folder: Path) -> None:
    """Install `examples/plugin` into a folder, without a network."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", folder, EXAMPLE], check=True, capture_output=True)


@contextlib.contextmanager
def on_path(folder: Path) -> Iterator[None]:
    """The folder's packages are installed; afterwards nothing of them is left in this process."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    _forget()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(folder) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]
        _forget()


def _forget() -> None:
    for registry in REGISTRIES:
        registry.forget_plugins()
