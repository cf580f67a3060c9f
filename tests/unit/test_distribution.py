"""Pip lines in hints: right in a clone and for an installed wheel, and made in one place."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

import espalier
from espalier import distribution
from espalier.errors import MissingDependency
from espalier.version import __version__

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _asked_afresh():
    distribution.clone.cache_clear()
    yield
    distribution.clone.cache_clear()


def installed_as(folder: Path, monkeypatch: pytest.MonkeyPatch, direct_url: dict[str, Any] | None = None) -> None:
    """As if pip had installed the package into this folder. direct_url: what pip wrote of where it came from."""
    info = folder / "espalier_llm-0.1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(
        "Metadata-Version: 2.4\nName: espalier-llm\nVersion: 0.1.0\n"
        "Requires-Dist: numpy>=2.0\n"
        "Requires-Dist: fastapi>=0.115; extra == 'server'\n"
        "Requires-Dist: uvicorn[standard]<0.55,>=0.50; extra == 'server'\n"
        "Requires-Dist: espalier-llm[server]; extra == 'mcp'\n"
        'Requires-Dist: mcp<3,>=2.3; extra == "mcp"\n'
    )
    if direct_url is not None:
        info.joinpath("direct_url.json").write_text(json.dumps(direct_url))
    monkeypatch.setattr(distribution, "__file__", str(folder / "espalier" / "distribution.py"))
    monkeypatch.setattr(distribution, "installed_distribution", lambda: PathDistribution(info))


def project_at(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "espalier-llm"\n')
    return folder


def test_in_a_clone_the_clone_is_installed(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert distribution.pip_line("server") == "pip install -e '.[server]'"
    assert MissingDependency("fastapi", extra="server").hint == "pip install -e '.[server]'"


def test_from_another_folder_the_line_names_the_clone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert distribution.pip_line("server") == f"pip install -e '{ROOT}[server]'"


def test_another_project_around_the_package_is_no_clone(tmp_path, monkeypatch):
    installed_as(tmp_path / "vendored" / "lib", monkeypatch)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert distribution.clone() is None


FASTAPI = "'fastapi>=0.115' 'uvicorn[standard]<0.55,>=0.50'"
"""What the extra `server` requires in `installed_as`."""


def test_hints_of_an_installed_wheel_name_a_way_that_works(tmp_path, monkeypatch):
    """No index has the distribution: a folder, a wheel or a repository from which it came has it with its extras."""
    project = project_at(tmp_path / "project")
    wheel = tmp_path / "a b.whl"
    wheel.touch()
    git = {"url": "https://git.example/e.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    lines = {
        "folder": ({"url": project.as_uri(), "dir_info": {}}, f"'{project}[server]'"),
        "wheel": ({"url": wheel.as_uri(), "archive_info": {}}, f"'espalier-llm[server] @ {wheel.as_uri()}'"),
        "git": (git, "'espalier-llm[server] @ git+https://git.example/e.git@abc'"),
        "a folder that is gone": ({"url": (tmp_path / "gone").as_uri(), "dir_info": {}}, FASTAPI),
        "a wheel that is gone": ({"url": (tmp_path / "gone.whl").as_uri(), "archive_info": {}}, FASTAPI),
        "no record": (None, FASTAPI),
    }
    for number, (record, what) in enumerate(lines.values()):
        installed_as(tmp_path / str(number) / "site-packages", monkeypatch, record)
        distribution.clone.cache_clear()
        assert distribution.pip_line("server") == f"pip install {what}"


def test_the_packages_of_an_extra_include_those_of_the_extras_in_it(tmp_path, monkeypatch):
    installed_as(tmp_path / "lib" / "site-packages", monkeypatch)
    assert distribution.pip_line("mcp") == f"pip install {FASTAPI} 'mcp<3,>=2.3'"
    assert distribution.pip_line("server,mcp") == f"pip install {FASTAPI} 'mcp<3,>=2.3'"


def test_the_table_of_extras_is_that_of_the_project():
    """Each extra, and each of its packages that is named there as one that the extra requires itself or by another."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(distribution.EXTRAS) == set(extras) - {"all"}
    through_others = {"tokenizers", "huggingface_hub", "starlette", "httptools"}
    for name, extra in distribution.EXTRAS.items():
        required = {re.split(r"[\[<>=]", line)[0] for line in extras[name]}
        assert set(extra.modules.values()) - through_others <= required, name


def test_the_distribution_is_named_once_and_its_extras_refer_to_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == distribution.DISTRIBUTION
    assert distribution.PROJECT in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    own = [one for extra in project["optional-dependencies"].values() for one in extra if one.startswith("espalier")]
    assert own
    assert all(one.startswith(f"{distribution.DISTRIBUTION}[") for one in own)
    assert project["version"] == __version__ == espalier.__version__


def test_every_extra_that_the_code_names_is_there():
    named = [
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(
            r'(?:optional_imports|check_extra)\("(\w+)"\)|extra = "(\w+)"', path.read_text(encoding="utf-8")
        )
    ]
    assert len(named) > 20
    assert {"".join(pair) for pair in named} <= set(distribution.EXTRAS)


def test_no_other_module_spells_a_pip_line():
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"pip install|espalier\[", path.read_text(encoding="utf-8"))
    ]
    assert found == ["src/espalier/distribution.py"]
