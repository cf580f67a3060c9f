"""The wheel holds what it must, and works where there is no source tree and no network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import jsonschema
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.wheel]

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """The stdout of a command. Fails the test, with all that was printed, if the command fails."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source distribution, and the wheel that was built from it, as for a release."""
    pytest.importorskip("build", reason="build is not installed")
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (built,) = dist.glob("espalier_llm-*.whl")
    return built


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel, and the dependencies of the one that runs the tests.

    A `.pth` line adds the folder of the dependencies, but not what that folder's own `.pth` files add: an
    editable install of the source tree stays out of sight.
    """
    home = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    run(*(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel), cwd=home)
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip()
    Path(site, "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(paths)))
    return home


@pytest.fixture
def bare_env() -> dict[str, str]:
    """The environment without anything that could lead Python to the source tree, or to a model hub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ESPALIER_"))}
    return kept | {"HF_HUB_OFFLINE": "1"}


def test_it_holds_the_demo_model_the_pages_and_the_licence(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    model = {name.removeprefix("espalier/_models/demo/") for name in names if "_models/demo/" in name}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= model
    pages = [n for n in names if n.startswith("espalier/pages/") and not n.endswith(".py")]
    assert pages, "no template, style or script under espalier/pages"
    assert {f"espalier/_wordlists/{name}" for name in ("en.txt", "es.txt", "README.md")} <= set(names)
    assert "espalier/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_is_the_same_bytes_wherever_and_whenever_it_is_built(dist: Path, tmp_path: Path) -> None:
    """From another folder without version control, with files of another day and other rights, in another zone."""
    copy = tmp_path / "elsewhere" / "sources"
    copy.mkdir(parents=True)
    for name in (".gitignore", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copyfile(ROOT / name, copy / name)
    for name in ("src", "models", "wordlists"):
        shutil.copytree(ROOT / name, copy / name, copy_function=shutil.copyfile)
    for path in copy.rglob("*"):
        os.utime(path, (1_234_567_890, 1_234_567_890))
        path.chmod(0o700 if path.is_dir() else 0o600)
    env = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"} | {"TZ": "Asia/Tokyo"}
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, copy)
    run(*command, cwd=tmp_path, env=env)
    made = {path.name: path.read_bytes() for path in dist.iterdir()}
    again = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert again.keys() == made.keys()
    assert [name for name in made if again[name] != made[name]] == []


def test_it_holds_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"espalier"}


def test_it_is_the_wheel_that_is_imported(home: Path, bare_env: dict[str, str], tmp_path: Path) -> None:
    python = home / "bin" / "python"
    found = run(python, "-c", "import espalier; print(espalier.__file__)", cwd=tmp_path, env=bare_env).strip()
    assert Path(found).is_relative_to(home)


def test_it_generates_json_from_another_folder(home: Path, bare_env: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra transformers is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    shutil.copy(ROOT / "examples" / "user.schema.json", tmp_path / "user.json")
    command = ("generate", "--schema", "user.json", "--seed", "1", "--trace", "trace.html", "Generate user info")
    printed = run(home / "bin" / "espalier", *command, cwd=tmp_path, env=bare_env)
    jsonschema.validate(json.loads(printed), json.loads((tmp_path / "user.json").read_text()))
    assert "<html" in (tmp_path / "trace.html").read_text(encoding="utf-8").lower()
