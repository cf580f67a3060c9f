"""`espalier trace merge` and `scripts/merge_logs.py`: exit codes, what is overwritten, pipes, and what is printed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scripts import merge_logs
from tests.unit.trace.test_foreign import GREEDY, LOG, STEPS, event, log, reply

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run: Run) -> Run:
    Path("reply.json").write_text(json.dumps(reply(__verbose=GREEDY, usage={"completion_tokens": 3})))
    Path("log.json").write_text(LOG)
    return partial(run, "trace")


def test_nothing_is_overwritten_without_force(run: Run) -> None:
    assert run("merge", "reply.json", "log.json")[0] == 0
    before = Path("combined_output.json").read_text()
    for arguments in (["reply.json", "log.json"], ["--estimate", "reply.json"]):
        code, _, err = run("merge", *arguments)
        assert (code, "combined_output.json exists already" in err, "--force" in err) == (2, True, True)
    assert Path("combined_output.json").read_text() == before
    assert run("merge", "--estimate", "reply.json", "--force")[0] == 0
    assert Path("combined_output.json").read_text() != before


def test_an_estimate_does_not_overwrite_the_log_and_no_force_makes_an_input_the_output(run: Run) -> None:
    os.symlink("log.json", "link.json")
    os.link("log.json", "hard.json")
    os.symlink("reply.json", "again.json")
    assert run("merge", "--estimate", "reply.json", "log.json")[0] == 2
    for target in ("log.json", "reply.json", "./log.json", "link.json", "hard.json", "again.json"):
        code, _, err = run("merge", "reply.json", "log.json", target, "--force")
        assert (code, "is one of the files to merge" in err) == (2, True), target
    assert run("html", "reply.json", "again.json", "--force")[0] == 2
    assert Path("log.json").read_text() == LOG


def test_nothing_matched_is_exit_code_1_with_the_reason_and_no_file(run: Run) -> None:
    Path("reply.json").write_text(json.dumps(reply()))
    Path("other.json").write_text(log(event(8, 1, STEPS[0]), event(9, 2, STEPS[0])))
    code, out, err = run("merge", "reply.json", "other.json")
    assert (code, out, "unmatched" in err, "none of the log's 2 tasks agrees" in err) == (1, "", True, True)
    assert not Path("combined_output.json").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"log_version":"2","timestamp":"then","events":[]}', "the log has no events, so that no draw was refused"),
        (log(event(7, 1, STEPS[1])), "only task in the log; evidence weak"),
    ],
)
def test_a_log_of_one_request_is_merged_and_its_weak_evidence_is_said(run: Run, content: str, said: str) -> None:
    Path("reply.json").write_text(json.dumps(reply()))
    Path("other.json").write_text(content)
    code, _, err = run("merge", "reply.json", "other.json")
    assert (code, said in err) == (0, True), err
    assert json.loads(Path("combined_output.json").read_text())["metadata"]["link"]["is_weak"]


def test_a_log_that_was_cut_is_shown_with_its_unknown_steps(run: Run) -> None:
    Path("cut.json").write_text(LOG[: LOG.index('"step": 2') + 30])
    code, _, err = run("merge", "reply.json", "cut.json", "--task", "7")
    assert code == 0
    assert err.splitlines()[-1] == "combined_output.json: 3 steps, 1 rejected (50.0 %), 1 unknown"
    code, out, _ = run("show", "combined_output.json")
    assert "1 rejected (50.0 %) · 1 unknown" in out
    assert "a^[b]?⟨end⟩" in out
    assert "not known at 1 step\n" in out
    assert "whether a token was rejected here is not known" in run("show", "combined_output.json", "--step", "2")[1]
    assert "rejections_unknown" in run("diagnose", "combined_output.json", "--json")[1]
    assert run("export", "combined_output.json")[1].splitlines()[3].endswith(",unknown")
    step = json.loads(run("export", "combined_output.json", "--format", "jsonl")[1].splitlines()[2])
    assert step["is_unknown"]
    assert '"is_unknown":true' in run("html", "combined_output.json", "-")[1]
    assert run("merge", "reply.json", "log.json", "whole.json")[0] == 0
    code, out, _ = run("diff", "combined_output.json", "whole.json", "--json")
    assert [json.loads(out)[side]["unknown_steps"] for side in ("left", "right")] == [1, 0]
    assert json.loads(run("list", ".", "--json")[1])[0]["unknown_steps"] == 1


@pytest.mark.parametrize("which", ["reply.json", "log.json"])
def test_a_file_from_a_pipe_is_read_once_and_whole(run: Run, which: str) -> None:
    read, write = os.pipe()
    content = Path(which).read_bytes()

    def feed() -> None:
        with os.fdopen(write, "wb") as file:
            file.write(content)

    thread = threading.Thread(target=feed)
    thread.start()
    named = [f"/dev/fd/{read}" if one == which else one for one in ("reply.json", "log.json")]
    code, _, err = run("merge", *named)
    thread.join()
    os.close(read)
    assert (code, err.splitlines()[-1]) == (0, "combined_output.json: 3 steps, 2 rejected (66.7 %)")


def test_the_tracers_own_script_takes_its_arguments_and_the_options_it_recommends(run: Run, capfd: Any) -> None:
    assert merge_logs.main(["reply.json"]) == 1
    assert "usage: merge_logs.py" in capfd.readouterr().err
    assert merge_logs.main(["reply.json", "nothing.json"]) == 1
    assert merge_logs.main(["reply.json", "log.json", "out.json"]) == 0
    assert json.loads(Path("out.json").read_text())["summary"]["rejected_steps"] == 2
    Path("two.json").write_text(log(event(7, 1, STEPS[1]), event(8, 1, STEPS[1])))
    assert merge_logs.main(["reply.json", "two.json"]) == 1
    assert "say which with --task" in capfd.readouterr().err
    assert merge_logs.main(["reply.json", "two.json", "--task", "8"]) == 0
    assert merge_logs.main(["reply.json", "two.json", "--task", "8"]) == 0  # over its own earlier output
    Path("combined_output.json").write_text("somebody else's")
    assert merge_logs.main(["reply.json", "two.json", "--task", "8"]) == 1
    assert merge_logs.main(["reply.json", "two.json", "--task", "8", "--force"]) == 0
