"""Inference files rebuilt from stores: rows, fields and order as documented, and nothing lost in silence."""

from __future__ import annotations

import json
import random
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from espalier.activations.foreign.open import open_store
from espalier.activations.reconstruct import run
from espalier.activations.reconstruct.report import ReconstructionReport
from espalier.activations.reconstruct.run import Rules, reconstruct
from espalier.activations.reconstruct.templates import PromptTemplate, templates_of
from espalier.cli.main import main_code
from espalier.errors import InputError, NothingMatched, OutputError
from tests.foreign_stores import QUESTION, WRITERS, logged, sha, write_pair, write_zarr

MODELS = Path(__file__).resolve().parents[3] / "models"
RAW = QUESTION
QA = [
    {"index": 0, "title": "Film", "h_score_cat": 8, "categories": ["a"], "prompt": "Who played Sarah?", "answer": "X"},
    {"prompt": "Née où? 😀", "answer": "7", "title": None, "pageid": 12345678901234567890, "score": 1e-7},
    {"prompt": "Never asked", "answer": "-"},
]


def write_qa(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows), "utf-8")
    return path


def original(qa: list[dict[str, Any]], metadata: dict[str, dict[str, Any]]) -> str:
    """What the original script writes, from its description (the last entry of a key wins)."""
    lines = []
    for row in qa:
        found = metadata.get(sha("user: Answer in one sentence. Q:" + row["prompt"] + "\n A:"))
        if found is None:
            continue
        made = dict(row)
        made["generation"] = found.get("response", "")
        made["model"] = found.get("model", "")
        made["input_length"] = found.get("input_length", 0)
        made["timestamp"] = found.get("timestamp", 0)
        for name in ("messages", "trim_position"):
            if name in found:
                made[name] = found[name]
        lines.append(json.dumps(made))
    return "".join(line + "\n" for line in lines)


def rebuilt(
    tmp_path: Path, entries: list[dict[str, Any]], keys: list[str] | None = None, **given: Any
) -> ReconstructionReport:
    shutil.rmtree(tmp_path / "s.zarr", ignore_errors=True)
    write_zarr(tmp_path / "s.zarr", entries, keys)
    qa = write_qa(tmp_path / "qa.jsonl", given.pop("qa", QA))
    return reconstruct(qa, tmp_path / "s.zarr", tmp_path / "out.jsonl", **given)


def rows(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("ascii").splitlines()]


def test_the_output_is_byte_for_byte_that_of_the_original(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    messages = [{"role": "user", "content": "Né?"}]
    stored = [
        logged(QA[1]["prompt"], "À Köln 😀", messages=messages),
        logged(QA[0]["prompt"], ""),
        logged("other", "o"),
    ]
    del stored[1]["trim_position"]
    write_pair(tmp_path / "a.lmdb", stored)
    qa = write_qa(tmp_path / "qa.jsonl", QA)
    report = reconstruct(qa, tmp_path / "a.lmdb", tmp_path / "deep" / "er" / "out.jsonl")
    written = (tmp_path / "deep" / "er" / "out.jsonl").read_text("ascii")
    assert written == original(QA, {sha(one["prompt"]): one for one in stored})
    assert [*json.loads(written.splitlines()[0])] == [*QA[0], "generation", "model", "input_length", "timestamp"]
    assert (report.rows, report.matched, report.unmatched, report.entries, report.unused) == (3, 2, 1, 3, 1)
    assert report.unmatched_shown == [(3, "Never asked")]
    assert report.unused_shown == ["user: Answer in one sentence. Q:other\\n A:"]


@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_gives_the_same_rows(layout: str, tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    path = WRITERS[layout](tmp_path / "store", [logged(one["prompt"], one["answer"]) for one in QA[:2]])
    if layout == "zarr":
        assert open_store(path).layout == "zarr"
    reconstruct(write_qa(tmp_path / "qa.jsonl", QA), path, tmp_path / "out.jsonl")
    assert [(one["prompt"], one["generation"]) for one in rows(tmp_path)] == [
        (one["prompt"], one["answer"]) for one in QA[:2]
    ]


def test_random_stores_give_what_the_original_gives(tmp_path: Path) -> None:
    """A Zarr index has no times: the order of its lines is that of logging, and the last entry of a prompt wins."""
    chance = random.Random(5)
    for _ in range(30):
        questions = [chance.choice("abcdeé") * chance.randint(1, 3) for _ in range(chance.randint(1, 9))]
        stored = [logged(one, str(number)) for number, one in enumerate(questions) if chance.random() < 0.7]
        stored = [{k: v for k, v in one.items() if k != "timestamp"} for one in stored]
        qa = [{"prompt": one, "answer": chance.choice([1, None, "x", ["y"]])} for one in questions]
        report = rebuilt(tmp_path, stored, [str(number) for number in range(len(stored))], qa=qa)
        expected = original(qa, {sha(one["prompt"]): one for one in stored})
        assert (tmp_path / "out.jsonl").read_text("ascii") == expected
        assert report.matched == len(expected.splitlines())


@pytest.mark.parametrize(("form", "name"), [(f"user: {RAW}", "user-line"), (RAW, "question"), ("{}", "as-is")])
def test_each_known_form_of_a_prompt_is_found(form: str, name: str, tmp_path: Path) -> None:
    report = rebuilt(tmp_path, [logged(QA[0]["prompt"], "r", form=form)])
    assert dict(report.templates) == {name: 1}


def test_templates_of_ones_own_name_columns(tmp_path: Path) -> None:
    stored = [logged("", "r", form="[Film] {{Who played Sarah?}}")]
    mine = templates_of((), ["[{title}] {{{prompt}}}"])
    assert rebuilt(tmp_path, stored, templates=mine).matched == 1
    with pytest.raises(InputError, match="lone '\\{' at character 2"):
        PromptTemplate("x", "a {b c}")
    with pytest.raises(NothingMatched) as caught:
        rebuilt(tmp_path, stored, templates=templates_of((), ["{nothing}"]))
    assert caught.value.hint == "3 rows lack the columns that the templates name"
    with pytest.raises(InputError, match="there is no template 'x'"):
        templates_of(["x"])


def test_prompts_that_a_chat_template_made_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from espalier.chat.prompt.template import ChatTemplate

    template = ChatTemplate((MODELS / "demo" / "chat_template.jinja").read_text("utf-8"))
    sent = template.render([{"role": "user", "content": RAW.format(QA[0]["prompt"])}])
    write_zarr(tmp_path / "s.zarr", [logged("", "r", form=sent.replace("{", "{{").replace("}", "}}"))])
    qa = write_qa(tmp_path / "qa.jsonl", QA)
    paths = [
        "--qa_output_path",
        str(qa),
        "--lmdb_path",
        str(tmp_path / "s.zarr"),
        "--output_path",
        str(tmp_path / "out.jsonl"),
    ]
    assert main_code(["reconstruct", *paths, "--chat-template", str(MODELS / "demo")]) == 0
    assert "1 by chat template, question" in capsys.readouterr().err


def test_samples_of_one_prompt_are_picked_by_rule_and_reported(tmp_path: Path) -> None:
    question = QA[0]["prompt"]
    stored = [
        logged(question, text, sample_index=number, prompt_hash=sha(question)) for number, text in enumerate("abc")
    ]
    keys = [f"{sha(stored[0]['prompt'])}_{number:08x}" for number in (3, 1, 2)]
    for rule, expected in (("first", "a"), ("last", "c"), ("all", "abc")):
        report = rebuilt(tmp_path, stored, keys, rules=Rules(duplicates=rule))
        assert "".join(one["generation"] for one in rows(tmp_path)) == expected
        assert (report.duplicates, report.matched, report.written) == (1, 1, len(expected))


def test_the_same_prompt_asked_of_two_models_is_told_and_can_be_filtered(tmp_path: Path) -> None:
    stored = [logged(QA[0]["prompt"], "a", model="org/a"), logged(QA[0]["prompt"], "b", model="org/b")]
    report = rebuilt(tmp_path, stored, ["1", "2"])
    assert report.conflicts == 1
    assert any("more than one model: org/a (1), org/b (1)" in line for line in report.lines("x"))
    for name in ("org/a", "a"):
        report = rebuilt(tmp_path, stored, ["1", "2"], rules=Rules(model=name))
        assert rows(tmp_path)[0]["generation"] == "a"
        assert (report.filtered, report.conflicts) == (1, 0)


def test_entries_are_filtered_by_time(tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    stored = [logged(QA[0]["prompt"], str(time), timestamp=float(time)) for time in (10, 20, 30)]
    write_pair(tmp_path / "a", stored, ["a", "b", "c"])
    qa = write_qa(tmp_path / "qa.jsonl", QA)
    report = reconstruct(qa, tmp_path / "a", tmp_path / "out.jsonl", rules=Rules(since=15, until=25))
    assert [one["generation"] for one in rows(tmp_path)] == ["20"]
    assert report.filtered == 2
    with pytest.raises(InputError, match="since is later"):
        Rules(since=2, until=1)


def test_rows_are_matched_by_request_or_run(tmp_path: Path) -> None:
    stored = [logged("q", text, form="{}", request_id=f"r{text}", run_id=f"run{text}") for text in "ab"]
    qa = [{"prompt": "q", "request_id": "rb", "run_id": "runa"}]
    rebuilt(tmp_path, stored, ["1", "2"], qa=qa, rules=Rules(match="request"))
    assert rows(tmp_path)[0]["generation"] == "b"
    rebuilt(tmp_path, stored, ["1", "2"], qa=qa, rules=Rules(match="run"))
    assert rows(tmp_path)[0]["generation"] == "a"
    with pytest.raises(InputError, match="line 1 of the QA file has no text request_id"):
        rebuilt(tmp_path, stored, ["1", "2"], qa=[{"prompt": "q"}], rules=Rules(match="request"))


def test_nothing_matched_is_a_failure_unless_it_is_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_zarr(tmp_path / "s.zarr", [logged("other", "o", form="Q: {}")])
    qa = write_qa(tmp_path / "qa.jsonl", QA)
    out = tmp_path / "out.jsonl"
    out.write_text("old", "utf-8")
    paths = ["--qa_output_path", str(qa), "--lmdb_path", str(tmp_path / "s.zarr"), "--output_path", str(out)]
    assert main_code(["reconstruct", *paths]) == 1
    said = capsys.readouterr().err
    assert "none of the 3 rows of the QA file has an entry" in said
    assert "begins 'Q: other'" in said
    assert out.read_text("utf-8") == "old"
    assert main_code(["reconstruct", *paths, "--allow-empty"]) == 0
    assert out.read_text("utf-8") == ""
    assert main_code(["reconstruct", *paths, "--template", "Q: {answer}"]) == 1
    assert out.read_text("utf-8") == ""


def test_the_command_says_what_was_lost_and_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_zarr(tmp_path / "s.zarr", [logged(QA[0]["prompt"], "r"), logged("other", "o")])
    qa = write_qa(tmp_path / "qa.jsonl", QA)
    paths = ["--qa_output_path", str(qa), "--lmdb_path", str(tmp_path / "s.zarr"), "--output_path", str(tmp_path / "o")]
    assert main_code(["reconstruct", *paths, "--verbose", "--report", str(tmp_path / "r.json")]) == 0
    said = capsys.readouterr().err
    for line in (
        "1 of 3 rows matched; 1 rows written",
        "2 rows have no entry in the store",
        "line 3: Never asked",
        "1 of 2 entries used (zarr)",
        "1 entries belong to no row",
        sha(f"user: {RAW.format(QA[0]['prompt'])}"),
    ):
        assert line in said
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["unmatched"] == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}\n[1]\n", "line 2 is not an object"),
        ('{"prompt": "a"}\n{"prompt": \n', "line 2 is no JSON"),
        ('{"prompt": NaN}\n', "line 1 is no JSON: NaN is not a JSON number"),
        ("\xff", "line 1 is no JSON"),
    ],
)
def test_a_line_of_the_qa_file_that_is_no_row_is_named(text: str, said: str, tmp_path: Path) -> None:
    write_zarr(tmp_path / "s.zarr", [logged("a", "o")])
    (tmp_path / "qa.jsonl").write_bytes(text.replace("{}\n", '{"prompt": "b"}\n').encode("latin-1"))
    with pytest.raises(InputError, match=said):
        reconstruct(tmp_path / "qa.jsonl", tmp_path / "s.zarr", tmp_path / "out.jsonl")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["qa.jsonl", "s.zarr"]


def test_an_input_is_never_the_output(tmp_path: Path) -> None:
    write_zarr(tmp_path / "s.zarr", [logged("a", "o")])
    qa = write_qa(tmp_path / "qa.jsonl", QA)
    (tmp_path / "link").hardlink_to(qa)
    with pytest.raises(InputError, match="is also an input"):
        reconstruct(qa, tmp_path / "s.zarr", tmp_path / "link")
    assert len(qa.read_text("utf-8").splitlines()) == 3


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing at this path"):
        reconstruct(tmp_path / "qa.jsonl", tmp_path / "s.zarr", tmp_path / "out.jsonl")
    write_zarr(tmp_path / "s.zarr", [logged("a", "o")])
    with pytest.raises(InputError, match=r"qa\.jsonl"):
        reconstruct(tmp_path / "qa.jsonl", tmp_path / "s.zarr", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_disk_that_fills_leaves_the_old_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_zarr(tmp_path / "s.zarr", [logged(QA[0]["prompt"], "o")])
    qa = write_qa(tmp_path / "qa.jsonl", QA)
    (tmp_path / "out.jsonl").write_text("old", "utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run.os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        reconstruct(qa, tmp_path / "s.zarr", tmp_path / "out.jsonl")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.jsonl", "qa.jsonl", "s.zarr"]
    assert (tmp_path / "out.jsonl").read_text("utf-8") == "old"


def test_memory_does_not_grow_with_rows_and_entries(tmp_path: Path) -> None:
    peaks = []
    for count in (100, 1000):
        folder = tmp_path / str(count)
        folder.mkdir()
        questions = [f"{number} " + "x" * 2000 for number in range(count)]
        qa = write_qa(folder / "qa.jsonl", [{"prompt": one, "answer": "a"} for one in questions])
        write_zarr(folder / "s.zarr", [logged(one, "y" * 2000) for one in questions])
        del questions
        tracemalloc.start()
        report = reconstruct(qa, folder / "s.zarr", folder / "out.jsonl")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert report.matched == count
    assert peaks[1] < peaks[0] * 1.5, peaks
