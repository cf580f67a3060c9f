"""Optional imports: a missing package of an extra is a typed error, and nothing else is taken for one."""

from __future__ import annotations

import sys

import pytest

from espalier.cli.main import main_code
from espalier.distribution import EXTRAS
from espalier.errors import MissingDependency
from espalier.optional import check_extra, optional_imports


@pytest.mark.parametrize(("extra", "module"), [(e.name, m) for e in EXTRAS.values() for m in e.modules])
def test_a_missing_module_of_an_extra_names_the_extra_in_one_line(extra, module):
    with pytest.raises(MissingDependency) as caught, optional_imports():
        raise ModuleNotFoundError(f"No module named {module!r}", name=f"{module}.inner")
    package = EXTRAS[extra].modules[module]
    assert caught.value.message == f"{package} is not installed: it comes with the extra `{extra}`"
    assert caught.value.hint.startswith("pip install ")


def test_a_package_that_the_packages_of_an_extra_import_is_of_the_extra():
    with pytest.raises(MissingDependency, match="the extra `wordlists`") as caught, optional_imports("wordlists"):
        raise ModuleNotFoundError("No module named 'ftfy'", name="ftfy")
    assert caught.value.package == "ftfy"


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("no", name="espalier.server.none"),
        ModuleNotFoundError("no", name="somebody_else"),
        ImportError("cannot import name 'Cache' from 'transformers'", name="transformers"),
    ],
)
def test_other_failures_stay_what_they_are(error):
    with pytest.raises(ImportError) as caught, optional_imports():
        raise error
    assert caught.value is error


def test_a_library_without_a_part_of_the_system_is_not_there():
    """psycopg without libpq raises an ImportError that names no module."""
    with pytest.raises(MissingDependency, match="psycopg is not installed"), optional_imports("postgres"):
        raise ImportError("no pq wrapper available")


def test_an_extra_is_checked_without_importing_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingDependency, match="the extra `mcp`"):
        check_extra("mcp")


@pytest.mark.parametrize("command", [("generate", "hi"), ("explain", "hi", "--json-object"), ("chat",)])
def test_a_command_without_torch_says_so_in_one_line(command, monkeypatch, capsys):
    """`pip install .` and then `espalier generate hi` was a traceback."""
    for name in [name for name in sys.modules if name.startswith("espalier.engines.huggingface")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main_code(list(command)) == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: torch is not installed: it comes with the extra `transformers`"
    assert hint.startswith("hint: pip install ")
