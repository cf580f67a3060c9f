"""README and tour are true: every command and Python block of them runs as written, in the folder of a clone.

Installing is left to `make`, which runs before any test does; those lines are listed here, word for word. Commands are
started from a warm process (`tests/warm_shell.py`), but for one; it and the examples start as they do for a user.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from tests.server_process import clean_environment, serving

ROOT = Path(__file__).parents[2]
INSTALLS = {
    "git clone <this repository> espalier && cd espalier",
    "make demo",
    "python3 -m venv .venv && . .venv/bin/activate",
    "pip install -c constraints.txt -e '.[transformers]'",
    "pip install -c constraints.txt -e '.[llamacpp]'",
    "pip install -c constraints.txt -e '.[server,transformers]'",
}
BLOCK = re.compile(r"^(```|~~~)([a-z]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
"""It goes on where the README stops."""
BLOCKS = [(match[2], match[3]) for text in (README, TOUR) for match in BLOCK.finditer(text)]
FIRST_SCREEN, LONGEST = 30, 250
BASH = [text for language, text in BLOCKS if language == "bash"]
SERVE = "espalier serve "


def lines_of(block: str) -> list[str]:
    """The commands of a block, without the comments behind them."""
    return [line.partition("  #")[0].strip() for line in block.splitlines() if line and not line.startswith("#")]


def is_install(block: str) -> bool:
    return set(lines_of(block)) <= INSTALLS


PLAIN = [block for block in BASH if not is_install(block) and "curl" not in block and SERVE not in block]
SERVED = [block for block in BASH if "curl" in block]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what a clone has at its top, in which commands may write."""
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name not in ("out", "README.md"):
            (tmp_path / path.name).symlink_to(path)
    return tmp_path


def run(script: str, cwd: Path, programs: Path | None = None) -> subprocess.CompletedProcess[str]:
    """programs: a folder of the warm shell; without it every command is a new process of its own."""
    folders = [*filter(None, [programs]), Path(sys.executable).parent, os.environ["PATH"]]
    path = os.pathsep.join(map(str, folders))
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd,
        env=clean_environment() | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_only_known_languages_stand_in_the_readme() -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "console", "python"}
    assert len(PLAIN) >= 4
    assert SERVED


def test_the_readme_is_short_and_shows_what_it_is_about_in_the_first_screen() -> None:
    lines = README.splitlines()
    assert len(lines) <= LONGEST
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", "\n".join(lines[:FIRST_SCREEN]))
    assert pictures == ["docs/images/first.svg", "docs/images/trace.png"]
    assert all(0 < (ROOT / one).stat().st_size < 300_000 for one in pictures)


def test_every_file_that_readme_and_tour_link_to_is_there() -> None:
    for text, folder in ((README, ROOT), (TOUR, ROOT / "docs")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (folder / target).exists(), target


def test_the_pictures_show_what_the_model_answers(demo_engine: Any) -> None:
    spec = importlib.util.spec_from_file_location("readme_pictures", ROOT / "scripts" / "readme_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    for name, drawn in pictures.drawn(demo_engine).items():
        assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == drawn, name


@pytest.mark.slow
@pytest.mark.parametrize("name", re.findall(r"\| \[examples/(\w+\.py)\]", README))
def test_each_of_the_five_things_runs(name: str, clone: Path) -> None:
    done = run(f"python examples/{name}", clone)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
def test_a_command_starts_from_nothing(clone: Path) -> None:
    """The program that pip installs, in a process that has imported nothing yet."""
    done = run(lines_of(PLAIN[0])[0], clone)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_flag_that_is_named_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Quick, and without a model: each command line is understood as far as its flags."""
    from typer.main import get_command

    from espalier.cli.main import app

    root = get_command(app)
    for block in PLAIN:
        for line in lines_of(block):
            words = line.split("espalier ", 1)[1].split()
            command: Any = root
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words.pop(0)]
            known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
            named = {word for word in words if re.fullmatch(r"--[a-z][a-z-]*|-[a-z]", word)}
            assert named <= known, line


@pytest.mark.slow
@pytest.mark.parametrize("block", PLAIN, ids=lambda block: block.split("\n")[0][:40])
def test_every_command_runs_as_written(block: str, clone: Path, programs: Path) -> None:
    if "demo.gguf" in block:
        pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    done = run("set -x\n" + block, clone, programs)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
@pytest.mark.parametrize("block", SERVED)
def test_every_request_to_the_server_is_answered(block: str, clone: Path) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    (serve,) = {line for text in BASH for line in lines_of(text) if line.startswith(SERVE.strip())}
    assert serve == "espalier serve"
    with serving(cwd=clone, command=[sys.executable, "-m", *serve.split()]) as server:
        # A port that is free here stands in for the usual one; with -f, a reply that is an error fails the block.
        here = server.url.removeprefix("http://")
        done = run(block.replace("localhost:8010", here).replace("curl -s", "curl --noproxy '*' -fs"), clone)
    assert done.returncode == 0, done.stderr
    assert "<!doctype html>" in (clone / "trace.html").read_text(encoding="utf-8").lower()


def test_what_the_first_example_shows_is_what_is_printed(clone: Path, demo_engine: Any) -> None:
    """The console block: the command lines are the README's, and the texts under them are the model's."""
    import espalier

    (console,) = [text for language, text in BLOCKS if language == "console"]
    free, bound = re.split(r"^\$ .*\n", console, flags=re.MULTILINE)[1:]
    schema = espalier.JsonSchema(json.loads((ROOT / "examples/user.schema.json").read_text(encoding="utf-8")))
    assert "--seed 2" in console
    assert demo_engine.generate("Generate user info", seed=2).text == free.rstrip("\n")
    result = demo_engine.generate("Generate user info", constraint=schema, seed=2)
    assert bound == f"{result.text}\ntrace: out/trace.html\n"
    assert f"{100 * result.trace.steps[0].removed_mass:.0f} % of" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_python_block_runs_as_written(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, as somebody types them who reads from the top."""
    monkeypatch.chdir(clone)
    monkeypatch.setitem(sys.modules, "readme", type(sys)("readme"))  # dataclasses look their module up
    for page in (README, TOUR):
        names: dict[str, Any] = {"__name__": "readme"}
        for number, match in enumerate(found for found in BLOCK.finditer(page) if found[2] == "python"):
            exec(compile(match[3], f"Python block {number}", "exec"), names)
        names["eng"].close()
    assert names["c"].accepts('{"name": "Ada", "email": "ada@example.com", "age": 36}')
    assert isinstance(names["r"].content, str)
    assert (clone / "trace.html").exists()
