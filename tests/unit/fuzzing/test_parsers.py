"""Parsers give a value or an error of ours: a bounded run over the corpus, and that the fuzzer finds what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from espalier.errors import InputError
from tests.examples import examples
from tests.fuzz.command import main
from tests.fuzz.parsers import law
from tests.fuzz.parsers.law import judge
from tests.fuzz.parsers.run import ParserFuzzer, reader_of, try_inputs
from tests.fuzz.parsers.table import PARSERS
from tests.fuzz.parsers.target import CORPUS, corpus_of
from tests.fuzz.session import Totals, try_case

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

SLOW = {"mcp": 8, "compiled-regex": 20, "schema": 30, "tekken": 15}
"""Inputs of parsers of which one takes some hundredths of a second."""


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_gives_a_value_or_an_error_of_ours(name: str) -> None:
    outcomes: Counter[str] = Counter()
    for data, verdict in try_inputs(name, 1, examples(SLOW.get(name, 60))):
        assert verdict.fault == "", data
        outcomes[verdict.outcome] += 1
    assert len(outcomes) > 1 or name in ("log", "pickle", "record", "chunk", "mcp", "regex", "weights-index"), outcomes


@pytest.mark.parametrize("name", PARSERS)
def test_the_corpus_of_a_parser_is_small_and_valid_and_breaks_nothing(name: str) -> None:
    verdicts = [judge(reader_of(name), data) for data in corpus_of(name)]
    assert [verdict.fault for verdict in verdicts if verdict.fault] == []
    assert any(verdict.outcome == "read" for verdict in verdicts)
    assert all(len(data) <= max(PARSERS[name].longest, 1024) for data in corpus_of(name))


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


def test_a_case_that_breaks_the_law_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUZZ_PARSERS", "words")
    monkeypatch.setattr("espalier.lexicon.files.parse_words", lambda *_: {}["planted"])
    totals = Totals()
    try_case(ParserFuzzer(), 5, totals)
    (finding,) = totals.findings
    assert (finding.spec, finding.seed) == ("words", 5)
    assert "KeyError" in finding.fault


def test_coverage_is_for_parsers_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["regex", "--coverage"])
    assert "for parsers" in capsys.readouterr().err
    monkeypatch.setattr("tests.fuzz.parsers.coverage.find_spec", lambda _: None)
    assert main(["parsers", "--coverage"]) == 2
    assert "pip install atheris" in capsys.readouterr().out


@pytest.mark.slow
def test_atheris_reaches_new_code_and_keeps_what_broke_the_law(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    root = str(Path(__file__).parents[3])
    planted = "import sys; sys.path[:0] = [{root!r}, {root!r} + '/src']\n".format(root=root)
    run = "from tests.fuzz.parsers import coverage\nsys.exit(coverage.fuzz_by_coverage(20, 1))"
    done = subprocess.run(
        [sys.executable, "-c", planted + run],
        cwd=tmp_path,
        env={"FUZZ_PARSERS": "shorthand", "PYTHONPATH": f"{root}:{root}/src", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout
    assert list((tmp_path / "out/fuzz/corpus/shorthand").iterdir())
