"""Pip lines in hints: right in a clone and for an installed wheel, and made in one place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import espalier
from espalier import distribution
from espalier.errors import MissingDependency
from espalier.version import __version__

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _asked_afresh():
    distribution.is_clone.cache_clear()
    yield
    distribution.is_clone.cache_clear()


def installed_as(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package were in this folder."""
    monkeypatch.setattr(distribution, "__file__", str(folder / "espalier" / "distribution.py"))


def test_in_a_clone_the_clone_is_installed():
    assert distribution.pip_line("server") == "pip install -e '.[server]'"
    assert MissingDependency("fastapi", extra="server").hint == "pip install -e '.[server]'"


def test_from_a_wheel_the_distribution_is_installed(tmp_path, monkeypatch):
    installed_as(tmp_path / "lib" / "site-packages", monkeypatch)
    assert distribution.pip_line("server") == "pip install 'espalier-llm[server]'"
    assert MissingDependency("fastapi", extra="server").hint == "pip install 'espalier-llm[server]'"


def test_another_project_around_the_package_is_no_clone(tmp_path, monkeypatch):
    installed_as(tmp_path / "vendored", monkeypatch)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert distribution.pip_line("otel") == "pip install 'espalier-llm[otel]'"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "espalier-llm"\n')
    distribution.is_clone.cache_clear()
    assert distribution.pip_line("otel") == "pip install -e '.[otel]'"


def test_the_distribution_is_named_once_and_its_extras_refer_to_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == distribution.DISTRIBUTION
    assert distribution.PROJECT in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    own = [one for extra in project["optional-dependencies"].values() for one in extra if one.startswith("espalier")]
    assert own
    assert all(one.startswith(f"{distribution.DISTRIBUTION}[") for one in own)
    assert project["version"] == __version__ == espalier.__version__


def test_every_extra_that_a_hint_names_is_there():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    found = [
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'MissingDependency\(.*extra="(\w+)"', path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 8
    assert set(found) <= set(extras)


def test_no_other_module_spells_a_pip_line():
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"pip install|espalier\[", path.read_text(encoding="utf-8"))
    ]
    assert found == ["src/espalier/distribution.py"]
