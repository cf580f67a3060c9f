"""README and docs are true: every command and every Python block runs as written, from the top of its page down.

A page runs in the folder of a clone, in a shell and a Python that remember what stood above. Outputs that a page shows
are compared. A block that is not run says why in a comment above it (`tests/doc_blocks.py`), and its reason is one of
`REASONS`. No page links to a file that is not there; `make docs` looks at links within the site and at anchors.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from tests.doc_blocks import DATA, ROOT, RUN, Block, blocks_of, commands_of, shows
from tests.server_process import DEMO, ServerProcess, clean_environment, serving

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {path: blocks_of(path) for path in PAGES}
HERE = "localhost:8010", "127.0.0.1:8010"
"""Where the pages say that the server is; a port that is free here stands in for it."""
REASONS = ("it needs ", "it installs ", "it serves until it is ended")
"""How a reason begins: foreign packages and models, a cluster, a terminal."""
IN_ORDER = (
    "README.md",
    *(f"docs/tutorial/{name}.md" for name in ("first-answer", "see-what-happened", "lower-the-cost")),
    *(f"docs/tutorial/{name}.md" for name in ("other-constraints", "from-your-program")),
    "docs/command-line.md",
    "docs/python.md",
    "docs/tour.md",
)
"""What a newcomer reads and types, in one folder."""
LONGEST = 3000
"""Seconds for a block, on a machine that is busy with much else."""
LONG_OPTION = re.compile(r"--[a-z][a-z-]*")


@dataclass
class Reader:
    """Somebody who types what a page says. folder: a clone. names: those of the page's Python."""

    folder: Path
    programs: Path
    server: Server
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})

    def close(self) -> None:
        """Close the engines that a page's Python has opened."""
        for value in self.names.values():
            if callable(getattr(value, "close", None)) and not isinstance(value, type):
                value.close()

    def shell(self, script: str, *, joined: bool = False) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        home = {"HOME": str(self.folder / "home"), "PATH": path, "COLUMNS": "100"}
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(script)],
            cwd=self.folder,
            env=clean_environment(**home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
            text=True,
            timeout=LONGEST,
            stderr=subprocess.STDOUT if joined else subprocess.PIPE,
        )

    def here(self, text: str) -> str:
        """The text with the server's address in place of the usual one; an error of curl then fails the block."""
        if not any(place in text for place in HERE):
            return text
        for place in HERE:
            text = text.replace(place, self.server.address)
        return text.replace("curl -s", "curl --noproxy '*' -fs")

    def run(self, block: Block) -> None:
        """Do what the block says. Raises AssertionError where it fails or prints something else."""
        if block.language == "python":
            self.python(block)
        elif block.language == "console":
            for command, shown in commands_of(block):
                done = self.shell(command, joined=True)
                assert shown or done.returncode == 0, f"{block.place}: {command}\n{done.stdout}"
                assert not shown or shows(shown, done.stdout), f"{block.place}: {command}\n{done.stdout}"
        else:
            done = self.shell("set -x\n" + block.text)
            assert done.returncode == 0, f"{block.place}\n{done.stdout}{done.stderr}"
            assert block.output is None or shows(block.output, done.stdout), f"{block.place}\n{done.stdout}"

    def python(self, block: Block) -> None:
        printed = io.StringIO()
        code = compile("\n" * (block.line - 1) + self.here(block.text), block.page, "exec", dont_inherit=True)
        with contextlib.redirect_stdout(printed):
            exec(code, self.names)
        assert block.output is None or shows(block.output, printed.getvalue()), f"{block.place}\n{printed.getvalue()}"


@dataclass
class Server:
    """One server of the demo model for all pages that ask one, started when the first does."""

    folder: Path
    stack: contextlib.ExitStack
    started: ServerProcess | None = None

    @property
    def address(self) -> str:
        if self.started is None:
            pytest.importorskip("fastapi", reason="fastapi is not installed")
            settings = {"EMBEDDING_POOLING": "mean", "HOME": str(self.folder)}
            self.started = self.stack.enter_context(serving("-m", str(DEMO), cwd=self.folder, env=settings))
        return self.started.url.removeprefix("http://")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with contextlib.ExitStack() as stack:
        yield Server(tmp_path_factory.mktemp("server"), stack)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of all pages: what one has computed for the demo model's vocabulary the next one finds."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def reader(
    tmp_path: Path, programs: Path, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    (tmp_path / "home").mkdir()
    (tmp_path / "out").mkdir()
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name != "out":
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    monkeypatch.setitem(sys.modules, "page", type(sys)("page"))  # dataclasses look their module up
    typing = Reader(tmp_path, programs, server)
    yield typing
    typing.close()


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_each_block_can_be_checked(path: Path) -> None:
    """Quick, and without a model: known languages, data that parses, code that compiles, reasons that are reasons."""
    for block in BLOCKS[path]:
        assert block.language in RUN | DATA, f"{block.place}: ```{block.language}"
        assert block.reason is None or block.reason.startswith(REASONS), f"{block.place}: {block.reason}"
        if block.language == "python":
            compile(block.text, block.place, "exec")
        elif block.language == "console":
            assert commands_of(block)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "gbnf":
            from espalier import Gbnf

            Gbnf(block.text)
    plain = re.findall(r"^ {4,}(?:\$ )?espalier .*$", "\n".join(outside_of_blocks(path)), re.MULTILINE)
    assert plain == [], f"{name_of(path)}: a command stands in a block with three backticks, so that it is run"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_file_that_a_page_links_to_is_there(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", "\n".join(outside_of_blocks(path))):
        assert (path.parent / target).exists(), target


def outside_of_blocks(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for block in BLOCKS[path]:
        for number in range(block.line - 1, block.line - 1 + block.text.count("\n")):
            lines[number] = ""
    return lines


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_flag_that_a_page_names_is_one(path: Path) -> None:
    """Of run blocks and of those that are not run."""
    from typer.main import get_command

    from espalier.cli.llama.generate import WithLlamaFlags
    from espalier.cli.llama.table import BY_NAME as LLAMA_FLAGS
    from espalier.cli.main import app

    root: Any = get_command(app)
    for block in BLOCKS[path]:
        if block.language not in ("bash", "console"):
            continue
        text = block.text if block.language == "bash" else "\n".join(command for command, _ in commands_of(block))
        for line in text.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|[|;&] *)(?:[A-Z_]+=\S+ )*espalier +([a-z].*)", line.partition("  #")[0])
            if found is None:
                continue
            with contextlib.suppress(ValueError):  # a quotation mark that closes on a later line
                words, command = shlex.split(found[1]), root
                while words and words[0] in getattr(command, "commands", {}):
                    command = command.commands[words.pop(0)]
                known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
                known |= LLAMA_FLAGS.keys() if isinstance(command, WithLlamaFlags) else set()
                named = {word.partition("=")[0] for word in words if LONG_OPTION.fullmatch(word.partition("=")[0])}
                assert named <= known, f"{block.place}: {line}"


def test_few_blocks_are_not_run() -> None:
    runnable = [block for blocks in BLOCKS.values() for block in blocks if block.language in RUN]
    left_out = [block.place for block in runnable if block.reason]
    assert len(left_out) <= len(runnable) // 4, left_out


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        path
        for path in PAGES
        if name_of(path) not in IN_ORDER and any(b.language in RUN and not b.reason for b in BLOCKS[path])
    ],
    ids=name_of,
)
def test_a_page_runs_as_written(path: Path, reader: Reader) -> None:
    skip_what_is_missing(path)
    run_page(path, reader)


@pytest.mark.slow
def test_what_a_newcomer_types_runs_from_the_readme_to_the_tour_in_one_folder(reader: Reader) -> None:
    """No command finds that the file of an earlier one "exists already"; the examples run after them."""
    for name in IN_ORDER:
        skip_what_is_missing(ROOT / name)
    for name in IN_ORDER:
        reader.names = {"__name__": "page"}
        run_page(ROOT / name, reader)
        reader.close()
    for program in re.findall(r"\(\.\./examples/(\w+\.py)\)", (ROOT / "docs/python.md").read_text(encoding="utf-8")):
        done = subprocess.run(
            ["python", f"examples/{program}"],
            cwd=reader.folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST,
        )
        assert done.returncode == 0, f"{program}\n{done.stderr}"
        assert done.stdout


def skip_what_is_missing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "curl" in text and shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    if "demo.gguf" in text:
        pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")


def run_page(path: Path, reader: Reader) -> None:
    for block in BLOCKS[path]:
        if block.language in RUN and block.reason is None:
            reader.run(block)
