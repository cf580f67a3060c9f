"""Parsers give a value or an error of ours: a bounded run over the corpus, and that the fuzzer finds what is wrong."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from espalier.errors import InputError
from tests.examples import examples
from tests.fuzz.command import main
from tests.fuzz.files.changes import damaged
from tests.fuzz.parsers import law
from tests.fuzz.parsers.guided import keeper, read_changes
from tests.fuzz.parsers.law import judge
from tests.fuzz.parsers.lies import lies
from tests.fuzz.parsers.run import reader_of, try_inputs
from tests.fuzz.parsers.table import PARSERS
from tests.fuzz.parsers.target import CORPUS, corpus_of

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

LIE = "a value of another type"

SLOW = {"mcp": 6, "compiled-regex": 10, "regex": 20, "lark": 20, "schema": 25, "tekken": 15, "trace": 40}
"""Inputs of parsers of which one takes some hundredths of a second."""
BODIES = ("chat", "completions", "responses", "messages", "llama", "ollama", "tgi")
WITH_LINES = ("openai-stream", "llama-stream", "proxied-request", "batch-lines", "mcp")


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_gives_a_value_or_an_error_of_ours(name: str) -> None:
    tried = try_inputs(name, 1, examples(SLOW.get(name, 40)))
    assert [(verdict.fault, data) for data, verdict in tried if verdict.fault] == []


def spread(inputs: list[bytes], most: int) -> list[bytes]:
    """So many of the inputs, at even distances."""
    return inputs[:: max(1, len(inputs) // most)]


def lines_with_lies(data: bytes) -> Iterator[bytes]:
    """The input with each line of JSON replaced by lies; what is before the JSON of an event stays."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        start = len(b"data: ") if line.startswith(b"data: ") else 0
        with contextlib.suppress(ValueError):
            for lie in lies(json.loads(line[start:])):
                changed = line[:start] + json.dumps(lie).encode()
                yield b"\n".join([*lines[:number], changed, *lines[number + 1 :]])


@pytest.mark.parametrize("name", [*BODIES, "constraint", "reply", "trace", "model-config", *WITH_LINES])
def test_anything_anywhere_in_json_is_a_value_or_an_error_of_ours(name: str) -> None:
    inputs = [changed for data in corpus_of(name) for changed in lines_with_lies(data)]
    assert len(inputs) > 50
    read = reader_of(name)
    for data in spread(inputs, examples(SLOW.get(name, 120))):
        assert judge(read, data).fault == "", data


@pytest.mark.parametrize("lie", [[], {}, [["auto"]], {"a": 1}, 7, None])
@pytest.mark.parametrize(
    ("name", "start", "field"),
    [
        ("messages", {"tool_choice": {"type": LIE}}, "tool_choice"),
        ("chat", {"tool_choice": {"type": LIE, "function": {"name": "f"}}}, "tool_choice"),
        ("responses", {"tools": [{"type": "custom", "name": "g", "format": {"type": LIE}}]}, "tools[0].format.type"),
    ],
)
def test_a_type_that_is_no_text_is_an_error_that_names_the_field(name: str, start: Any, field: str, lie: Any) -> None:
    body = json.loads(corpus_of(name)[-1]) | json.loads(json.dumps(start).replace(json.dumps(LIE), json.dumps(lie)))
    with pytest.raises(InputError) as caught:
        reader_of(name)(json.dumps(body).encode())
    assert (caught.value.field or "").startswith(field)


@pytest.mark.parametrize("name", PARSERS)
def test_the_corpus_of_a_parser_is_small_and_valid_and_breaks_nothing(name: str) -> None:
    verdicts = [judge(reader_of(name), data) for data in corpus_of(name)]
    assert [verdict.fault for verdict in verdicts if verdict.fault] == []
    assert any(verdict.outcome == "read" for verdict in verdicts)
    assert sum(map(len, corpus_of(name))) < 50_000


def test_every_folder_of_the_corpus_has_a_parser() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(PARSERS)


def test_what_a_parser_must_not_do_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: bytes) -> object:
        raise InputError("no")

    def panic(_: bytes) -> object:
        raise type("PanicException", (BaseException,), {})

    assert judge(refuse, b"").outcome == "input_error"
    assert "KeyError" in judge(lambda _: {}["x"], b"").fault
    assert "PanicException" in judge(panic, b"").fault
    monkeypatch.setattr(law, "CPU_SECONDS", 0.01)
    assert "s of CPU" in judge(lambda _: sum(number * number for number in range(2_000_000)), b"").fault
    monkeypatch.setattr(law, "CPU_SECONDS", 60)
    monkeypatch.setattr(law, "MEMORY", 1 << 20)
    monkeypatch.setattr(law, "_largest_size", iter([0, 2 << 20]).__next__)
    assert "takes 2 MiB" in judge(len, b"").fault


def test_what_breaks_the_law_is_kept_once_for_each_cause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader_of("words")
    monkeypatch.setattr("espalier.lexicon.files.parse_words", lambda *_: {}["planted"])
    monkeypatch.setattr("tests.fuzz.parsers.guided.GROWN", CORPUS)
    read_changes("words", keeper("words", tmp_path), runs=20, seconds=60, seed=1)
    (fault,) = tmp_path.glob("*.fault")
    assert "KeyError" in json.loads(fault.read_text())["fault"]
    assert fault.with_suffix("").exists()


def test_coverage_is_for_parsers_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["regex", "--coverage"])
    assert "for parsers" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["parsers", "--case", "1"])
    assert "out/fuzz/findings" in capsys.readouterr().err
    monkeypatch.setattr("tests.fuzz.parsers.processes.find_spec", lambda _: None)
    assert main(["parsers", "--coverage"]) == 2
    assert "pip install atheris" in capsys.readouterr().out


def test_a_fault_that_mcp_answers_is_a_finding_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails in the server is answered with an error, so that no exception gets as far as here."""
    pytest.importorskip("mcp", reason="mcp is not installed")
    (call,) = [data for data in corpus_of("mcp") if b"check_schema" in data]
    assert judge(reader_of("mcp"), call).fault == ""
    monkeypatch.setattr("espalier.server.mcp.calls._check_size", lambda *_: {}["planted"])
    assert "KeyError" in judge(reader_of("mcp"), call).fault
    monkeypatch.undo()
    monkeypatch.setattr("espalier.server.mcp.protocol.read_resource", lambda *_: {}["planted"])
    assert "KeyError" in judge(reader_of("mcp"), call).fault


def test_json_that_is_changed_stays_json_where_it_may_not_be_long() -> None:
    """What is put in is smaller than the room there is; else nearly every changed body ends in its middle."""
    random, whole = Random(1), 0
    for _ in range(300):
        changed = damaged(b'{"a": [1, {"b": "x"}]}', random, 1024)
        assert len(changed) <= 1024
        with contextlib.suppress(ValueError):
            json.loads(changed)
            whole += 1
    assert whole > 100


def fuzz_shorthand(folder: Path, *options: str) -> str:
    """What a run of one parser prints, in a folder of its own."""
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzz", "parsers", "--seconds", "20", *options],
        cwd=folder,
        env={"FUZZ_PARSERS": "shorthand", "PYTHONPATH": f"{root}:{root}/src", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout
    return done.stdout


@pytest.mark.slow
def test_atheris_reaches_new_code_and_keeps_it_for_runs_that_change_it(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    fuzz_shorthand(tmp_path, "--coverage")
    assert list((tmp_path / "out/fuzz/corpus/shorthand").iterdir())
    known = json.loads((tmp_path / "out/fuzz/totals.json").read_text())["shorthand"]["inputs"]
    fuzz_shorthand(tmp_path, "--inputs", str(known + 100))
    total = json.loads((tmp_path / "out/fuzz/totals.json").read_text())["shorthand"]
    assert (total["inputs"], total["unguided"]) == (known + 100, 100)
