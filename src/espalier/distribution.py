"""Names the distribution, its extras and its compiled modules, and makes the pip lines of hints. No other module spells
a pip line.

The distribution is called `espalier-llm`; the import and the command are `espalier`. No package index has it, so a pip
line names what it can be installed from: the clone, the folder or the wheel that this installation came from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

DISTRIBUTION = "espalier-llm"
PROJECT = f'name = "{DISTRIBUTION}"'
"""The line of pyproject.toml that marks a clone of this project."""


class Extra(NamedTuple):
    """One extra of the distribution."""

    name: str
    #: Module -> the distribution that has it.
    modules: dict[str, str]
    adds: str

    def package_of(self, module: str) -> str | None:
        """The distribution that has a module, or one below the same top; None if the extra has none."""
        top = module.partition(".")[0]
        return next((package for name, package in self.modules.items() if name.partition(".")[0] == top), None)


EXTRAS = {
    extra.name: extra
    for extra in (
        Extra(
            "transformers",
            {
                "torch": "torch",
                "transformers": "transformers",
                "accelerate": "accelerate",
                "safetensors": "safetensors",
                "sentencepiece": "sentencepiece",
                "tokenizers": "tokenizers",
                "huggingface_hub": "huggingface_hub",
            },
            "any causal LM on Hugging Face",
        ),
        Extra("llamacpp", {"llama_cpp": "llama-cpp-python"}, "any GGUF file, with llama.cpp"),
        Extra(
            "server",
            {
                "fastapi": "fastapi",
                "starlette": "starlette",
                "uvicorn": "uvicorn",
                "httptools": "httptools",
                "pydantic": "pydantic",
                "dotenv": "python-dotenv",
                "prometheus_client": "prometheus-client",
                "python_multipart": "python-multipart",
                "sqlalchemy": "sqlalchemy",
                "alembic": "alembic",
                "anyio": "anyio",
                "httpx2": "httpx2",
            },
            "espalier serve: an OpenAI-compatible server",
        ),
        Extra("postgres", {"psycopg": "psycopg"}, "the server's store in PostgreSQL"),
        Extra("otel", {"opentelemetry.sdk": "opentelemetry-sdk"}, "OpenTelemetry spans of the server"),
        Extra(
            "activations",
            {"lmdb": "lmdb", "zstandard": "zstandard"},
            "stores of hidden states: activations, reconstruct",
        ),
        Extra("mcp", {"mcp": "mcp"}, "espalier mcp: tools for agents"),
        Extra("parquet", {"pyarrow": "pyarrow"}, "Parquet files in and out of espalier batch"),
        Extra("ray", {"ray": "ray"}, "servers and batches on a Ray cluster"),
        Extra("wordlists", {"wordfreq": "wordfreq"}, "word lists by language: espalier wordlist build"),
    )
}


def extra_of(module: str) -> Extra | None:
    """The extra that installs a module; None if no extra does."""
    return next((extra for extra in EXTRAS.values() if extra.package_of(module) is not None), None)


@cache
def clone() -> Path | None:
    """The clone that this package runs from, installed in place or not; None for an installed wheel."""
    folder = Path(__file__).resolve().parents[2]
    return folder if _is_project(folder) else None


def pip_line(extra: str) -> str:
    """The command that adds an extra, or several with commas between, to this installation, from where the installation
    came from. Where that is gone, the packages of the extra are named."""
    folder = clone()
    if folder is not None:
        return f"pip install -e {_folder(folder, extra)}"
    installed = installed_distribution()
    if installed is None:
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    source = _source(installed, extra)
    if source is None:
        names = [name for part in extra.split(",") for name in requirements(part, installed)]
        source = " ".join(f"'{name}'" for name in dict.fromkeys(names))
    return f"pip install {source}"


def compiled_modules() -> list[str]:
    """The modules of Espalier that this installation holds compiled: wheels for a platform hold some, a clone none."""
    root = Path(__file__).parent
    files = {path for suffix in EXTENSION_SUFFIXES for path in root.rglob(f"*{suffix}")}
    sources = [path.with_name(path.name.partition(".")[0]).relative_to(root.parent) for path in files]
    return sorted(".".join(path.parts) for path in sources)


def installed_distribution() -> Distribution | None:
    """What pip knows of this installation; None where the package was only copied."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415  # slow, and seldom needed

    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def _source(installed: Distribution, extra: str) -> str | None:
    """What pip installs the distribution from, with the extra; None where the record is missing or its file is gone."""
    record = json.loads(installed.read_text("direct_url.json") or "{}")  # PEP 610
    url = record.get("url", "")
    path = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
    if path is not None and _is_project(path):
        return _folder(path, extra)
    if vcs := record.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    elif path is not None and not path.is_file():
        return None
    return f"'{DISTRIBUTION}[{extra}] @ {url}'" if url else None


def requirements(extra: str, installed: Distribution) -> Iterator[str]:
    """What an extra requires, and the extras of ours that it includes."""
    for line in installed.requires or ():
        requirement, _, marker = line.partition(";")
        if f"extra == '{extra}'" not in marker.replace('"', "'"):
            continue
        name, _, included = requirement.strip().partition("[")
        if name == DISTRIBUTION:
            for other in included.rstrip("]").split(","):
                yield from requirements(other, installed)
        else:
            yield requirement.strip()


def _is_project(folder: Path) -> bool:
    try:
        return PROJECT in (folder / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False


def _folder(folder: Path, extra: str) -> str:
    """A folder with an extra as pip takes it; short where it is the current one."""
    try:
        is_here = Path.cwd() == folder
    except FileNotFoundError:  # the current folder was removed
        is_here = False
    return f"'{'.' if is_here else folder}[{extra}]'"


def package_line(package: str) -> str:
    """The command that installs a package which is no part of an extra."""
    return f"pip install {package}"


def rebuild_line(package: str, version: str, *, environ: str) -> str:
    """The command that compiles one package again, without cached wheels, and replaces no other package."""
    name = f"--no-binary {package} {package}=={version}"
    return f"{environ} pip install --force-reinstall --no-deps --no-cache-dir {name}"
