"""A short run of every fuzzer, and that the fuzzers find what is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING

import pytest

from espalier.constraints.matching.automaton import AutomatonMatcher
from espalier.constraints.safety.catalogue import PATTERNS
from espalier.constraints.spec import Regex
from espalier.constraints.words.spec import Wordlist
from espalier.trace import measure
from tests.examples import examples
from tests.fuzz.cases import Case, CaseFuzzer, both_ways
from tests.fuzz.command import KINDS, fuzzer, main
from tests.fuzz.files import child
from tests.fuzz.files.child import read_in_child
from tests.fuzz.files.run import FileFuzzer
from tests.fuzz.grammars import GrammarFuzzer
from tests.fuzz.merge.run import MergeFuzzer
from tests.fuzz.safety_again import is_found, nested_strings
from tests.fuzz.schema.oracle import declared_twice
from tests.fuzz.schema.texts import is_styled, styled
from tests.fuzz.session import CASES_PER_SEED, Totals, feature_lines, run, try_case
from tests.fuzz.words import expression

if TYPE_CHECKING:
    from tests.fuzz.edges.run import EdgeFuzzer

CASES = {"regex": 25, "gbnf": 25, "tools": 25, "turns": 25, "safety": 8, "words": 25}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", CASES)
def test_matcher_and_oracle_agree(kind: str, seed: int) -> None:
    totals = run(fuzzer(kind), seed, cases=examples(CASES[kind]))
    assert [str(finding) for finding in totals.findings] == []
    assert totals.counts["text: accepted"]
    assert totals.counts["text: refused"]


def test_what_a_merge_states_is_the_truth() -> None:
    totals = run(MergeFuzzer(), 1, cases=examples(120))
    assert [str(finding) for finding in totals.findings] == []
    assert totals.counts["own: rejected_steps"] + totals.counts["other: rejected_steps"]


@pytest.mark.parametrize("case", [38111115477, 38111118291, 38111120091, 38222117674])
def test_the_end_of_another_text_and_a_log_that_lost_proven_rejections_are_not_merged(case: int) -> None:
    totals = Totals()
    try_case(MergeFuzzer(), case, totals)
    assert [str(finding) for finding in totals.findings] == []


def test_an_input_of_a_batch_is_read_as_plain_code_reads_it() -> None:
    totals = run(fuzzer("batches"), 1, cases=examples(300))
    assert [str(finding) for finding in totals.findings] == []
    assert totals.counts["line: taken"]
    assert totals.counts["line: invalid_json_line"]
    assert totals.counts[".csv: refused"] + totals.counts[".jsonl: refused"]


@pytest.fixture
def edges() -> Iterator[EdgeFuzzer]:
    pytest.importorskip("torch")
    pytest.importorskip("llama_cpp")
    from tests.fuzz.edges.run import EdgeFuzzer  # it needs the two

    with closing(EdgeFuzzer()) as made:
        yield made


@pytest.mark.slow
def test_one_request_is_the_same_at_every_edge_and_when_it_is_worked_out_again(edges: EdgeFuzzer) -> None:
    totals = run(edges, 1, cases=examples(12))
    assert [str(finding) for finding in totals.findings] == []
    assert totals.counts["worked out again"]


@pytest.mark.slow
def test_a_record_that_says_something_else_than_the_model_is_found(
    edges: EdgeFuzzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = measure._measures
    monkeypatch.setattr(measure, "_measures", lambda *given: right(*given)._replace(tax_nats=0.5))
    totals = run(edges, 1, cases=6)
    assert any("tax_nats is 0.5" in finding.fault for finding in totals.findings)


def test_llama_cpp_is_not_asked_about_a_left_recursion_that_it_would_follow_until_the_memory_is_full() -> None:
    counts: Counter[str] = Counter()
    tried = GrammarFuzzer()
    if isinstance(tried.llama, str):
        pytest.skip(tried.llama)
    assert tried.draw(Random(38071115212), counts) is not None
    assert counts["judged by llama.cpp too"] == 0
    assert tried.draw(Random(7), counts) is not None
    assert counts["judged by llama.cpp too"] == 1


QUICK = ("trace", "sidecar", "rejection log", "reply", "chat template", "stored trace", "keys", "tools", "preset")


@pytest.mark.slow
def test_every_damaged_file_is_a_result_or_an_error_of_ours() -> None:
    totals = run(FileFuzzer(QUICK), 1, cases=examples(40))
    assert [str(finding) for finding in totals.findings] == []
    assert len(totals.counts) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda: {}["x"], "KeyError"),
        (lambda: [0] * (1 << 26), "takes 5.. MiB"),
        (lambda: bytes(1 << 40), "MemoryError"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: sum(number * number for number in range(20_000_000)), "of CPU"),
    ],
)
def test_what_a_reader_must_not_do_is_a_finding(
    work: Callable[[], object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "CPU_SECONDS", 0.2 if said == "of CPU" else 20)
    assert re.search(said, read_in_child(work).fault)


@pytest.mark.slow
def test_what_a_reader_may_take_grows_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> int:
        return sum(number * number for number in range(20_000_000)) % 1

    monkeypatch.setattr(child, "CPU_SECONDS", 0.2)
    assert read_in_child(work, size=100 << 20).fault == ""


def test_half_a_character_in_a_message_is_written_as_standard_error_writes_it() -> None:
    assert read_in_child(lambda: sys.stderr.write("\ud800")).fault == ""


class WrongFuzzer(CaseFuzzer):
    """Its oracle takes the letter c as well."""

    def draw(self, random: Random, counts: Counter[str]) -> Case:
        judge = re.compile("[abc]*")
        return Case(
            spec=Regex("[ab]*"),
            fault=both_ways(lambda text: bool(judge.fullmatch(text)), "re"),
            near=["".join(random.choice("abc") for _ in range(3))],
        )


def test_a_difference_is_found_and_its_case_shows_it_again() -> None:
    totals = run(WrongFuzzer(), 7, cases=20)
    finding = totals.findings[0]
    assert finding.fault == "refuses what re takes"
    assert "c" in finding.text
    assert finding.seed // CASES_PER_SEED == 7
    again = Totals()
    WrongFuzzer().one(finding.seed, again)
    assert finding in again.findings


CALLED = ("mask", "allows", "advance", "rollback", "fork", "forced", "explain", "shortest_completion")


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLED)
@pytest.mark.parametrize("kind", ["regex", "schema", "grid"])
def test_an_exception_that_is_not_ours_is_found_whatever_call_raises_it(
    kind: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise IndexError("planted")

    tried = fuzzer(kind)
    monkeypatch.setattr(AutomatonMatcher, call, broken)
    totals = run(tried, 1, cases=30 if kind == "grid" else 15)
    assert any("raises IndexError: planted (test_fuzzers.py" in finding.fault for finding in totals.findings)
    assert all(finding.spec is not None for finding in totals.findings)


@pytest.mark.parametrize("kind", ["gbnf", "tools", "turns", "safety", "words", "edges"])
def test_an_exception_of_every_kind_of_fuzzer_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise IndexError("planted")

    tried = fuzzer(kind)
    monkeypatch.setattr(type(tried), "one", broken)
    totals = run(tried, 1, cases=1)
    assert [finding.fault.split(" (")[0] for finding in totals.findings] == ["raises IndexError: planted"]


def test_counts_of_features_are_listed_by_group_and_the_rarest_of_large_ones() -> None:
    features = Counter({"plain": 3, "pair: a + b": 2, "pair: a + c": 5} | {f"big: {i}": i + 1 for i in range(100)})
    assert feature_lines(features) == [
        "plain 3",
        "big (100, each at least 1): the rarest: 4 5, 3 4, 2 3, 1 2, 0 1",
        "pair (2, each at least 2): a + c 5, a + b 2",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_case_gives_the_same_counts(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for _ in range(2):
        assert main([kind, "--case", "5"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert f"{kind}, case 5" in printed[0]
    assert "0 wrong" in printed[0]


def test_the_expression_of_a_word_list() -> None:
    judge = re.compile(expression(Wordlist(["l'", "eau", "un"], lang="fr", hyphens=True, max_run=2)))
    for text in ("L'eau", "l’eau, un", "Un. Un", "eau-un"):
        assert judge.fullmatch(text), text
    for text in ("l'", "eau Un", "un   un", "", ". ", "eau‐"):
        assert not judge.fullmatch(text), text


def test_patterns_written_a_second_time() -> None:
    names = [one.name for one in PATTERNS if one.name in ("card", "ssn", "email", "chained_rm")]
    for text in ("4111 1111 1111 1111", "x 123-45-6789", "Ａ@b.co", "a && rm -x", '{"c": "a\\u003b \\x72m\\tx"}'):
        assert is_found(text, names=names, phrases=[], texts=[]), text
    for text in ("x-4111 1111 1111 1111", "666-45-6789", "a@b.c", "rm file"):
        assert not is_found(text, names=names, phrases=[], texts=[]), text
    assert is_found("GUT PUNCH!", names=[], phrases=["gut punch"], texts=[])
    assert not is_found("gut punches", names=[], phrases=["gut punch"], texts=[])


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_second_writing_of_the_safety_filter_reads_strings_inside_of_strings(depth: int) -> None:
    text = 'a "GUT\tPUNCH" é😀'
    for _ in range(depth):
        text = json.dumps({"c": text})
    assert any('a "GUT\tPUNCH" é😀' in inner for inner in nested_strings(text))
    spelled = '{"c": "_\\ude00\\"g\\u0075\\x74 p\\\\x75\\u006e\\u0063\\u0068\\u0022\\x22"'
    assert is_found(spelled, names=[], phrases=["gut punch"], texts=[])


def test_whitespace_of_json_is_recognised() -> None:
    value = {"a": [1, "x: y,\n"], "b": {}, "c": []}
    for style in ("natural", "compact", "indented"):
        assert is_styled(styled(value, style), style)
    assert is_styled('{"a":1, "b": 2}', "natural")
    assert not is_styled('{ "a":1}', "natural")
    assert not is_styled('{"a": 1}', "compact")
    assert not is_styled('{"a": 1}', "indented")


def test_a_declared_name_that_stands_twice_is_recognised() -> None:
    assert declared_twice({"properties": {"a": {}}}, '{"a": 1, "\\u0061": 2}')
    assert not declared_twice({"properties": {"a": {}}}, '{"b": {"a": 1}, "b": 2, "a": 1}')
