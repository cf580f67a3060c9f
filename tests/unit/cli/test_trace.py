"""`espalier trace`: what it shows of every kind of file, on 80 columns, and how it is asked wrongly."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from espalier.cli.trace import show as trace_show
from tests.traces import sample_trace
from tests.unit.trace.test_foreign import GREEDY, LOG, STEPS, event, log, reply

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run: Run, tmp_path: Path) -> Run:
    """Run `espalier trace` in a folder with one file of every kind."""
    (tmp_path / "reply.json").write_text(json.dumps(reply(__verbose=GREEDY)))
    (tmp_path / "log.json").write_text(LOG)
    sample_trace(60).save(tmp_path / "trace.json")
    return partial(run, "trace")


def test_merge_writes_where_it_is_told_and_says_what_it_found(run: Run, tmp_path: Path) -> None:
    code, out, err = run("merge", "reply.json", "log.json")
    assert (code, out) == (0, "")
    link, last = err.splitlines()
    assert link == (
        "link: task 7 (slot 0) fits: 2 events, of which 2 agree by id, 0 by text, 0 by probability, "
        "2 are proven by the response (21.6 bits)"
    )
    assert last == "combined_output.json: 3 steps, 2 rejected (66.7 %)"
    code, out, err = run("merge", "reply.json", "log.json", "-")
    assert (code, err.splitlines()[-1]) == (0, "3 steps, 2 rejected (66.7 %)")
    assert json.loads(out) == json.loads((tmp_path / "combined_output.json").read_text())
    code, out, err = run("merge", "--estimate", "reply.json", "e.json")
    assert (code, out) == (0, "")
    assert err.endswith("e.json: 3 steps, 2 estimated as rejected (66.7 %)\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reply.json"], "there is no rejection log"),
        (["reply.json", "log.json", "x.json", "--estimate"], "--estimate takes no log"),
        (["reply.json", "--estimate", "--task", "3"], "--estimate takes none"),
        (["reply.json", "log.json", "--task", "9"], "the log has no task 9"),
        (["reply.json", "log.json", "--choice", "1"], "the response has no choice 1"),
        (["nothing.json", "log.json"], "cannot read the response nothing.json"),
        (["reply.json", "nothing.json"], "cannot read the rejection log nothing.json"),
        (["log.json", "reply.json"], "is no JSON"),
        (["reply.json", "log.json", "--task", "x"], "error: --task: "),
    ],
)
def test_what_merge_cannot_do_is_said_and_nothing_is_written(
    run: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    before = sorted(tmp_path.iterdir())
    code, out, err = run("merge", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert sorted(tmp_path.iterdir()) == before


def test_an_ambiguous_log_names_its_tasks(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.json").write_text(log(event(7, 1, STEPS[1]), event(8, 1, STEPS[1])))
    for command in (["merge", "reply.json", "two.json"], ["show", "two.json"]):
        code, out, err = run(*command)
        assert (code, out) == (2, "")
        assert "task 7 (slot 0), task 8 (slot 0)" in err
        assert "--task" in err
    assert run("merge", "reply.json", "two.json", "--task", "8")[0] == 0
    assert run("show", "two.json", "--task", "8")[0] == 0


@pytest.mark.parametrize("name", ["trace.json", "reply.json", "combined_output.json", "log.json"])
def test_every_kind_of_file_is_shown_within_80_columns(run: Run, name: str) -> None:
    run("merge", "reply.json", "log.json")
    code, out, _ = run("show", name)
    assert code == 0
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    steps = {"trace.json": 60, "log.json": 2}.get(name, 3)
    assert f"{steps} steps · " in out
    assert ("tax ≥ " in out) == (name != "trace.json")
    assert ("no findings: what lies between" in out) == (name == "log.json")


def test_the_whole_of_a_small_reply_is_shown(run: Run) -> None:
    _, out, err = run("show", "reply.json")
    assert err == "note: rejections are estimated from the reply alone\n"
    assert out.splitlines()[:8] == [
        "model m · strategy rejection · finish stop · constraint gbnf",
        "3 steps · 2 rejected (66.7 %) · 0 forced · 2 top choices blocked",
        "tax ≥ 3.009 nats · mean removed mass ≥ 0.5186",
        "rejections are estimated, not recorded",
        "",
        "a^[b]^[⟨end⟩]",
        "[ ] tax of 0.7 nats or more   ^ rejected before it",
        "",
    ]


def test_one_step_is_shown_with_its_stages_as_bars(run: Run) -> None:
    run("merge", "reply.json", "log.json")
    code, out, _ = run("show", "combined_output.json", "--step", "1")
    lines = [line.rstrip() for line in out.splitlines()]
    assert code == 0
    assert lines[:3] == [
        'step 1: "b" (id 12), ln p -2.0000',
        "removed mass between 0.7788 and 0.8647 · tax ≥ 1.509 nats",
        'rejected: "c" 0.9000',
    ]
    wanted = lines.index("pre_masking: what the model wanted")
    assert lines[wanted + 1].split() == ["██████████████████▊·····", "0.7788", '"c"', "rejected"]
    assert lines[wanted + 2].split()[-1] == "taken"
    assert "post_chain: after the samplers" in lines
    code, out, err = run("show", "reply.json", "--step", "3")
    assert (code, out, "there is no step 3" in err, "0 to 2" in err) == (2, "", True, True)


def test_a_limit_holds_for_tokens_and_rows_and_0_is_all(run: Run) -> None:
    assert "… 57 more (--limit 0)" in run("show", "trace.json", "--limit", "3")[1]
    assert "more (--limit" not in run("show", "trace.json", "--limit", "0")[1]
    assert run("show", "trace.json", "--limit", "-1")[0] == 2


def test_no_text_of_a_model_reaches_the_terminal_as_a_command(run: Run, tmp_path: Path) -> None:
    evil = "\x1b[31m\x07\u202e\r\x9b"
    steps = [STEPS[1] | {"token": evil, "bytes": list(evil.encode())}]
    path = tmp_path / "evil\x1b[1m.json"
    path.write_text(json.dumps(reply(steps, __verbose=GREEDY) | {"model": evil}))
    for command in (["show", str(path)], ["show", str(path), "--step", "0"], ["list"]):
        code, out, _ = run(*command)
        assert code == 0
        assert not set(out) & set("\x1b\x07\u202e\r\x9b")


def test_on_a_terminal_tokens_are_coloured_by_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for is_plain in (False, True):
        if is_plain:
            monkeypatch.setenv("NO_COLOR", "1")
        out = io.StringIO()
        to = Console(file=out, width=80, force_terminal=True, highlight=False, markup=False)
        trace_show.show(sample_trace(20), to)
        assert ("37;41m" in out.getvalue()) != is_plain
        assert ("[ ] tax of 0.7 nats" in out.getvalue()) == is_plain


def test_a_page_is_written_beside_and_not_over_another(run: Run, tmp_path: Path) -> None:
    code, out, err = run("html", "reply.json")
    assert (code, out, err.splitlines()[-1]) == (0, "", "page: reply.html")
    assert (tmp_path / "reply.html").read_text().startswith("<!doctype html>")
    assert run("html", "reply.json")[0] == 2
    assert run("html", "reply.json", "--force")[0] == 0
    assert run("html", "trace.json", "-")[1].startswith("<!doctype html>")
    code, _, err = run("html", "trace.json", "pair.html", "--with", "reply.json")
    assert (code, err.splitlines()[-1]) == (0, "page: pair.html")
    assert "reply.json" in (tmp_path / "pair.html").read_text()
    assert run("html", "reply.json", "no/where.html")[0] == 1


def test_export_prints_data_alone(run: Run) -> None:
    code, out, _ = run("export", "trace.json", "--format", "csv")
    assert (code, len(list(csv.reader(io.StringIO(out))))) == (0, 61)
    assert json.loads(run("export", "reply.json", "--format", "json")[1])["format"] == "espalier-trace"
    assert len(run("export", "log.json", "--format", "jsonl")[1].splitlines()) == 2
    assert run("export", "trace.json", "--format", "svg")[1].startswith("<svg ")
    code, out, err = run("export", "trace.json", "--format", "xml")
    assert (code, out, "known: csv, json, jsonl, svg" in err) == (2, "", True)


def test_a_diagnosis_is_text_or_json_and_refuses_a_log_by_itself(run: Run) -> None:
    assert run("diagnose", "reply.json")[0] == 0
    code, out, _ = run("diagnose", "trace.json", "--json")
    assert (code, isinstance(json.loads(out)["findings"], list)) == (0, True)
    code, out, err = run("diagnose", "log.json")
    assert (code, out, "espalier trace merge" in err) == (2, "", True)


def test_a_folder_is_listed_with_what_can_be_shown_of_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    (tmp_path / "two.json").write_text(log(event(7, 1, STEPS[1]), event(8, 1, STEPS[1])))
    (tmp_path / "cut.json").write_text('{"choices": [')
    run("merge", "reply.json", "log.json")
    code, out, err = run("list", ".", "--json")
    assert code == 0
    assert {one["name"]: (one["kind"], one["steps"]) for one in json.loads(out)} == {
        "combined_output.json": ("merged", 3),
        "log.json": ("rejection log", 2),
        "reply.json": ("reply", 3),
        "trace.json": ("trace", 60),
        "two.json": ("rejection log: log holds 2 tasks", None),
    }
    assert "cut.json: 'cut.json' is no whole JSON" in err
    assert "2 other files" in err
    _, out, _ = run("list", str(tmp_path))
    assert max(map(len, out.splitlines())) <= 80
    code, out, err = run("list", "nowhere")
    assert (code, out, "is not a folder" in err) == (2, "", True)


def test_an_empty_folder_has_no_traces(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run("list", "empty") == (0, "", "no traces\n")
    assert run("list", "empty", "--json") == (0, "[]\n", "")


def test_a_database_is_listed_and_its_traces_shown_and_looking_makes_none(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    from espalier.store.open import open_store

    url = f"sqlite:///{tmp_path / 'x.db'}"
    code, out, err = run("list", "--database", url)
    assert (code, out, "there is no database" in err) == (2, "", True)
    assert not (tmp_path / "x.db").exists()
    store = open_store(url)
    ids = [
        store.save_trace(sample_trace(n).to_json(), request_id="r", caller="c", index=0, route=None) for n in (20, 30)
    ]
    store.close()
    found = json.loads(run("list", "--database", url, "--json")[1])
    assert [(one["id"], one["tokens"]) for one in found] == [(ids[1], 30), (ids[0], 20)]
    assert [one["id"] for one in json.loads(run("list", "--database", url, "--json", "--limit", "1")[1])] == ids[1:]
    assert "30 steps" in run("show", ids[1], "--database", url)[1]
    assert run("html", ids[0], "--database", url)[0] == 0
    assert (tmp_path / f"{ids[0]}.html").exists()
    code, _, err = run("show", "trc_nothing", "--database", url)
    assert (code, "has no trace" in err) == (2, True)
    assert run("list", ".", "--database", url)[0] == 2
    assert run("list", ".", "--verdict", "invalid")[0] == 2


def test_a_stored_trace_is_found_by_its_request_and_listed_in_80_columns(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server keeps: by the `x-request-id` of a reply, without naming the database."""
    pytest.importorskip("sqlalchemy")
    from espalier.store.open import open_store

    url = f"sqlite:///{tmp_path / 'x.db'}"
    monkeypatch.setenv("DATABASE_URL", url)
    store = open_store(url)
    for number in (20, 30):
        store.save_trace(sample_trace(number).to_json(), request_id="req-1", caller="c", index=number // 30)
    store.save_trace(sample_trace(40).to_json(), request_id="req-\x1b[2J2", caller="c", index=0)
    store.save_feedback("req-1", caller="c", name="user", text="odd")
    store.close()
    code, out, err = run("show", "req-1")
    assert (code, "20 steps" in out, "--choice N" in err) == (0, True, True)
    assert "30 steps" in run("show", "req-1", "--choice", "1")[1]
    assert run("show", "req-1", "--choice", "7")[0] == 2
    assert run("diagnose", "req-1", "--json")[0] == 0
    code, _, err = run("show", "req-none")
    assert (code, "no file and no stored trace" in err) == (2, True)
    assert "there is no file" not in run("show", "nothing.json")[2]
    code, out, _ = run("list")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    assert "{name, age, em…" in out
    assert "> Generate user info" in out
    flagged = json.loads(run("list", "--verdict", "flagged", "--json")[1])
    assert [row["output_index"] for row in flagged] == [1, 0]
    assert json.loads(run("list", "-q", "lovelace", "--min-tokens", "35", "--json")[1])[0]["tokens"] == 40
    assert json.loads(run("list", "--since", "2h", "--until", "1h", "--json")[1]) == []
    assert run("list", "--verdict", "good")[0] == 2
    assert run("list", "--since", "yore")[0] == 2


def test_what_is_no_trace_is_said_by_every_command(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {}}')
    for command in ("show", "html", "export", "diagnose"):
        code, out, err = run(command, "schema.json")
        assert (code, out) == (2, "")
        assert "it looks like a JSON Schema" in err
