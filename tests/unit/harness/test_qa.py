"""Answers judged against known ones: metrics by hand and by SQuAD's own definition, files as HalluLens has them."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.cli.main import main_code
from espalier.errors import InputError, OutputError
from espalier.harness.qa import metrics
from espalier.harness.qa.evaluate import evaluate
from espalier.harness.qa.files import results, write
from espalier.harness.qa.intervals import bootstrap
from espalier.harness.qa.judge import ModelJudge
from tests.examples import examples

ROWS = [
    {"prompt": "q1", "generation": "It was Piper Laurie.", "answer": "Piper Laurie", "model": "org/m"},
    {"prompt": "q2", "generation": "The 1961.", "answer": 1961, "model": "org/m"},
    {"prompt": "q3", "generation": "I'm sorry, I don’t know.", "answer": "x", "model": "org/m"},
    {"prompt": "q4", "generation": "Lyon", "answer": ["Paris", "Paris, France"], "model": "org/m"},
]


def written(tmp_path: Path, rows: list[Any]) -> Path:
    path = tmp_path / "g.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    return path


def squad(text: str) -> str:
    """SQuAD's normalisation, from its paper's script: for ASCII texts."""
    bare = "".join(one for one in text.lower() if one not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


WORDS = st.lists(st.sampled_from(["The", "a", "an", "theme", "red", "Blue", "9", "x"]), max_size=6).map(" ".join)


@settings(max_examples=examples(300))
@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_exact_match_and_f1_are_those_of_squad(text: str, answers: list[str]) -> None:
    assert metrics.exact_match(text, answers) == float(any(squad(text) == squad(one) for one in answers))
    best = 0.0
    for one in answers:
        found, known = squad(text).split(), squad(one).split()
        shared = sum((Counter(found) & Counter(known)).values())
        if not found or not known:
            best = max(best, float(found == known))
        elif shared:
            precision, recall = shared / len(found), shared / len(known)
            best = max(best, 2 * precision * recall / (precision + recall))
    assert metrics.f1(text, answers) == pytest.approx(best)


@pytest.mark.parametrize(
    ("generation", "answer", "found"),
    [
        ("It was Piper Laurie.", "piper laurie", 1.0),
        ("It was the Piper.", "Piper Laurie", 0.0),
        ("Parisian", "Paris", 0.0),
        ("in Saint-Denis", "saint denis", 1.0),
        ("anything", "the", 0.0),
        ("№ ５", "no 5", 1.0),
    ],
)
def test_an_answer_is_contained_word_by_word(generation: str, answer: str, found: float) -> None:
    assert metrics.contains(generation, [answer]) == found


@pytest.mark.parametrize(
    ("text", "is_refusal"),
    [
        ("I don't know.", True),
        ("I’m not sure who that is", True),
        ("I am not aware of it", True),
        ("", True),
        ("As an AI, I cannot", True),
        ("There is no information about that.", True),
        ("I could not find it", True),
        ("Unable to determine.", True),
        ("Knowles played her.", False),
        ("The unknown soldier", False),
        ("No.", False),
        ("He did not know that she was Sarah.", False),
    ],
)
def test_refusals_are_known_by_their_phrases(text: str, is_refusal: bool) -> None:
    assert metrics.is_refusal(text) is is_refusal


def test_an_evaluation_is_counted_by_hand(tmp_path: Path) -> None:
    done = evaluate(written(tmp_path, ROWS))
    means = {name: one.mean for name, one in done.means.items()}
    assert means == {
        "exact match": 0.25,
        "F1": pytest.approx((2 * 2 / 6 + 1) / 4),
        "contains": 0.5,
        "refused": 0.25,
        "correct": 0.5,
        "hallucinated, of those answered": pytest.approx(1 / 3),
    }
    assert done.model == "m"


def test_the_files_have_the_names_and_keys_of_hallulens(tmp_path: Path) -> None:
    done = evaluate(written(tmp_path, ROWS))
    paths = write(done, tmp_path / "deep" / "out")
    assert sorted(one.name for one in paths) == ["abstain_eval_raw.jsonl", "eval_results.json", "halu_eval_raw.jsonl"]
    found = json.loads((tmp_path / "deep" / "out" / "eval_results.json").read_text("utf-8"))
    assert found == json.loads(json.dumps(results(done)))
    assert [*found] == [
        "model",
        "halu_Rate",
        "refusal_rate",
        "correct_rate",
        "evaluator_abstantion",
        "evaluator_hallucination",
        "abstantion",
        "halu_test_res",
        "abstantion_raw_generation",
        "is_hallucinated_raw_generation",
        "prompt",
        "generation",
        "answer",
    ]
    assert (found["halu_Rate"], found["refusal_rate"], found["correct_rate"]) == (pytest.approx(1 / 3), 0.25, 0.5)
    assert found["halu_test_res"] == [False, False, True, True]
    raw = [json.loads(line) for line in (tmp_path / "deep" / "out" / "abstain_eval_raw.jsonl").read_text().splitlines()]
    assert [json.loads(one["eval_res"])["is_abstaining"] for one in raw] == found["abstantion"]


def test_a_judge_decides_instead_of_phrases_and_words(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(prompts: Any, words: Any) -> list[str]:
        asked.extend(prompts)
        return ["no" if "yes" in words else "correct"] * len(prompts)

    done = evaluate(written(tmp_path, ROWS), judge=ModelJudge("the judge", ask))
    assert not any(row.refused or row.hallucinated for row in done.rows)
    assert results(done)["evaluator_abstantion"] == "the judge"
    assert any("Right answer: Paris or Paris, France" in one for one in asked)


def test_intervals_cover_the_true_mean_as_often_as_they_say() -> None:
    chance = np.random.default_rng(1)
    covered = {"few": 0, "many": 0}
    for trial in range(200):
        for name, values in (("few", chance.random(80) < 0.3), ("many", chance.normal(0.3, 1, 80))):
            found = bootstrap([float(one) for one in values], resamples=400, seed=trial)
            assert found.low is not None
            assert found.high is not None
            covered[name] += found.low <= 0.3 <= found.high
    assert all(178 <= count <= 200 for count in covered.values()), covered
    assert bootstrap([]).mean is None
    assert bootstrap([1.0] * 5) == bootstrap([1.0] * 5, seed=9)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "has no rows"),
        ([ROWS[0], {"prompt": "a", "answer": "b"}], "line 2 has no text 'generation'"),
        ([{"prompt": "a", "generation": "b", "answer": [None]}], "line 1 has no text 'answer'"),
        ([[1]], "line 1 is not an object"),
    ],
)
def test_a_file_that_cannot_be_judged_is_refused_with_its_line(rows: list[Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        evaluate(written(tmp_path, rows))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(OutputError, match="cannot make the folder"):
        write(evaluate(written(tmp_path, ROWS)), tmp_path / "file" / "x")


def test_the_command_prints_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, ROWS))
    assert main_code(["eval", "qa", path]) == 0
    said = capsys.readouterr().out
    assert "m: 4 rows" in said
    assert re.search(r"contains +50.0%  0.0% to 100.0%", said)
    assert max(map(len, said.splitlines())) <= 80
    assert main_code(["eval", "qa", path, "--json", "--output", str(tmp_path / "o")]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["refused"]["mean"] == 0.25
    assert (tmp_path / "o" / "eval_results.json").is_file()


def test_the_demo_model_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    assert main_code(["eval", "qa", str(written(tmp_path, ROWS)), "--judge", "demo", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["refusals_by"] == found["verdicts_by"] != ""
    assert found["metrics"]["refused"]["mean"] in (0, 0.25, 0.5, 0.75, 1)
