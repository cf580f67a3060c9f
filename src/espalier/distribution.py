"""Names the distribution, and makes the pip lines of hints. No other module spells a pip line.

The distribution is called `espalier-llm`; the import and the command are `espalier`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

DISTRIBUTION = "espalier-llm"
PROJECT = f'name = "{DISTRIBUTION}"'
"""The line of pyproject.toml that tells a clone of this project."""


@cache
def is_clone() -> bool:
    """Whether this package runs from a clone (installed in place or not), not from an installed wheel."""
    try:
        text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return False
    return PROJECT in text.splitlines()


def pip_line(extra: str) -> str:
    """The command that installs an extra: in a clone, from its folder; otherwise from the package index."""
    return f"pip install -e '.[{extra}]'" if is_clone() else f"pip install '{DISTRIBUTION}[{extra}]'"


def package_line(package: str) -> str:
    """The command that installs a package which is no part of an extra."""
    return f"pip install {package}"


def rebuild_line(package: str, version: str, *, environ: str) -> str:
    """The command that compiles one package again, without cached wheels, and replaces no other package."""
    name = f"--no-binary {package} {package}=={version}"
    return f"{environ} pip install --force-reinstall --no-deps --no-cache-dir {name}"
