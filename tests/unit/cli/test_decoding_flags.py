"""Flags that say how to decode and where it is written down: what they do, and how they are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from espalier.cli.flags.decoding import strategy_lines
from espalier.engines.base import Result, Usage
from espalier.trace.records import Rewind, Trace

FAKE = ["generate", "-m", "fake", "--temperature", "0"]
Run = Callable[..., tuple[int, str, str]]


BEAMS = ["--strategy", "beam", "--num-beams", "4", "--choice", "red", "--choice", "green", "--choice", "blue"]


def test_several_texts_are_printed_one_after_another_the_best_first(run: Run) -> None:
    code, out, err = run(*FAKE, *BEAMS, "--num-return-sequences", "3", "hi")
    assert (code, sorted(out.splitlines())) == (0, ["blue", "green", "red"])
    assert re.fullmatch(r"score -?\d+\.\d{4}\n", err)
    found = json.loads(run(*FAKE, *BEAMS, "--num-return-sequences", "3", "--json", "hi")[1])
    texts = [found["text"], *(one["text"] for one in found["others"])]
    assert texts == out.splitlines()
    scores = [found["score"], *(one["score"] for one in found["others"])]
    assert scores == sorted(scores, reverse=True)


def test_what_only_some_strategies_give_is_not_in_the_result_of_others(run: Run) -> None:
    found = json.loads(run(*FAKE, "--choice", "yes", "--json", "hi")[1])
    assert not {"score", "weighing", "closed_by_budget", "rewinds", "others"} & set(found)


def test_faithful_sampling_truncates_nothing_that_was_not_asked_for_and_says_what_it_knows(run: Run) -> None:
    faithful = ["generate", "-m", "fake", "--strategy", "smc", "--particles", "3", "--choice", "yes", "--choice", "no"]
    code, out, err = run(*faithful, "--seed", "1", "hi")
    assert (code, out in ("yes\n", "no\n")) == (0, True)
    assert re.fullmatch(r"3 particles: effective sample size [\d.]+, acceptance [\d.]+, log weight -?[\d.]+\n", err)
    assert json.loads(run(*faithful, "--json", "hi")[1])["weighing"]["particles"] == 3
    code, _, err = run(*faithful, "--top-k", "5", "hi")
    assert (code, "top_k" in err) == (2, True)
    code, _, err = run(*faithful, "--min-p", "1e-9", "--top-k", "0", "--top-p", "1", "--target", "truncated", "hi")
    assert (code, "truncated distribution" in err) == (0, True)


def test_a_text_is_closed_cut_or_refused_at_the_limit(run: Run) -> None:
    asked = [*FAKE, "--json-object", "--max-tokens", "20"]
    code, out, err = run(*asked, "--on-budget", "close", "hi")
    assert (code, json.loads(out) is not None, err) == (0, True, "closed after 20 tokens, to end within the limit\n")
    assert json.loads(run(*asked, "--on-budget", "close", "--json", "hi")[1])["closed_by_budget"] is True
    code, out, err = run(*asked, "hi")
    assert (code, err.splitlines()[0]) == (1, "stopped at the limit of 20 tokens")
    code, out, err = run(*asked, "--on-budget", "error", "hi")
    assert (code, out, err.startswith("error: ")) == (1, "", True)


def test_what_was_taken_back_is_said() -> None:
    rewinds = (Rewind(step=1, tokens=(1, 2), text="ab"), Rewind(step=1, tokens=(3,), text="c"))
    trace = Trace(steps=(), text="", finish_reason="stop", rewinds=rewinds)
    result = Result(
        text="",
        token_ids=(),
        finish_reason="stop",
        stop_reason=None,
        seed=0,
        trace=trace,
        usage=Usage(prompt_tokens=1, completion_tokens=0),
        turn=None,  # type: ignore[arg-type]
    )
    assert strategy_lines(result) == ["taken back 2 times, 3 tokens in all"]


def test_a_text_of_which_nothing_was_drafted_ended_the_command_with_a_division_by_zero(run: Run) -> None:
    code, out, err = run(*FAKE, "--strategy", "draft", "--max-tokens", "1", "--choice", "yes", "--seed", "1", "hi")
    assert (code, out) == (1, "y\n")
    assert err.startswith("1 forward passes, 1.00 tokens each, nothing was drafted\n")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--strategy", "nonsense"], "known: mask, rejection, jump, beam, best_of, smc, awrs"),
        (["--early-stopping", "maybe"], "--early-stopping: 'maybe' must be true, false or never"),
        (["--target", "half"], "--target: 'half' is none of full, truncated"),
        (["--on-budget", "later"], "--on-budget: 'later' is none of close, truncate, error"),
        (["--num-beams", "3"], "--num-beams means nothing to the strategy mask"),
        (["--strategy", "beam", "--num-beams", "0"], "--num-beams: 0 must be"),
        (["--strategy", "beam", "--num-return-sequences", "9"], "--num-return-sequences: 9 texts of 4 beams"),
        (["--trace-level", "measures"], "--trace-level measures: there is no such level"),
        (["--trace-level", "summary", "--trace", "x.html"], "--trace shows every step"),
        (["--rejection-log", "x.json", "--strategy", "mask"], "nothing is rejected"),
        (["--rejection-log", "x.json", "--strategy", "beam"], "hint: --strategy rejection"),
    ],
)
def test_what_cannot_be_is_a_usage_error_before_a_model_is_loaded(
    run: Run, tmp_path: Path, flags: list[str], said: str
) -> None:
    code, out, err = run(*FAKE, *flags, "hi")
    assert (code, out) == (2, "")
    assert said in err
    assert not list(tmp_path.iterdir())


def test_a_rejection_log_chooses_the_strategy_and_says_so(run: Run, tmp_path: Path) -> None:
    asked = [*FAKE, "--choice", "yellow", "--rejection-log", "log.json"]
    code, out, err = run(*asked, "hi")
    assert (code, out) == (0, "yellow\n")
    assert err == "--rejection-log: the strategy is rejection\nrejection log: log.json, 7 events written\n"
    events = json.loads((tmp_path / "log.json").read_text())["events"]
    assert [(one["task_id"], one["step"]) for one in events] == [(0, step) for step in range(7)]
    assert "".join(one["resampled"]["text"] for one in events[:6]) == "yellow"
    assert run(*asked, "--strategy", "rejection", "hi")[2] == "rejection log: log.json, 7 events written\n"
    again = json.loads((tmp_path / "log.json").read_text())["events"]
    assert [one["task_id"] for one in again] == [0] * 7 + [1] * 7


def test_a_rejection_log_of_llama_cpps_own_sampler(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    model = Path(__file__).parents[3] / "models" / "demo" / "demo.gguf"
    code, out, err = run(
        "generate",
        "-m",
        str(model),
        "--sampler",
        "native",
        "--choice",
        "xylophone",
        "--rejection-log",
        "log.json",
        "--seed",
        "1",
        "hi",
    )
    assert (code, out, "the strategy is" in err) == (0, "xylophone\n", False)
    events = json.loads((tmp_path / "log.json").read_text())["events"]
    assert events[0]["step"] == 0
    assert "xylophone".startswith(events[0]["resampled"]["text"])


def test_a_log_that_cannot_be_written_ends_it_before_anything_is_generated(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    for path in ("no/log.json", "mine.json"):
        code, out, err = run(*FAKE, "--rejection-log", path, "hi")
        assert (code, out) == (1, "")
        assert path in err
    assert (tmp_path / "mine.json").read_text() == "{}"


def test_steps_are_recorded_as_json_lines(run: Run, tmp_path: Path) -> None:
    for _ in range(2):
        assert run(*FAKE, "--choice", "yes", "--record", "runs.jsonl", "hi")[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert ["end" in one for one in lines] == [False, False, False, False, True] * 2
    assert lines[4]["summary"]["total_steps"] == 4
    assert lines[0]["pre_masking"]


def test_a_level_is_kept(run: Run, tmp_path: Path) -> None:
    assert json.loads(run(*FAKE, "--choice", "yes", "--json", "--trace-level", "off", "hi")[1])["trace"] is None
    run(*FAKE, "--choice", "yes", "--trace", "t.json", "--trace-level", "steps", "hi")
    assert json.loads((tmp_path / "t.json").read_text())["steps"][0]["pre_masking"]


def test_help_fits_a_terminal(run: Run) -> None:
    for command in ("generate", "chat", "serve"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        assert "--strategy" in out or command == "serve"
        assert "--rejection-log" in out or command == "chat"


def test_a_talk_can_be_begun_with_a_strategy_and_go_on_with_another(run: Run) -> None:
    script = "hello\n/strategy mask\nhi\n/strategy nonsense\n/strategy\n/quit\n"
    code, out, err = run(
        "chat", "-m", "fake", "--choice", "yes", "--strategy", "beam", "--num-beams", "2", stdin=script
    )
    assert (code, out) == (0, "yes\nyes\n")
    assert err.count("score") == 1
    assert "strategy: mask" in err
    assert "there is no 'nonsense'" in err
    assert "the name of a strategy" in err
    assert run("chat", "-m", "fake", "--on-budget", "later", stdin="")[0] == 2
