"""`espalier explain`, `trace replay` and `trace diff`: one screen, exit codes, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
SCHEMA = '{"type":"object","properties":{"age":{"type":"integer","maximum":99}},"required":["age"]}'
EXPLAIN = ["explain", "-m", "fake", "--seed", "1", "Who is Ada?", "--schema"]


def labelled(out: str) -> dict[str, str]:
    """The screen by its labels."""
    found: dict[str, str] = {}
    label = ""
    for line in out.splitlines():
        label = line[:8].strip() or label
        found[label] = f"{found.get(label, '')} {line[8:]}".strip()
    return found


def test_one_screen_says_what_it_cost_where_why_and_what_to_do(run: Run) -> None:
    code, out, err = run(*EXPLAIN, SCHEMA)
    lines = out.splitlines()
    found = labelled(out)
    assert (code, err) == (0, "")
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert list(found) == ["text", "valid", "cost", "where", "worst", "why", "to do"]
    assert found["valid"].startswith("yes")
    whole = json.loads(run(*EXPLAIN, SCHEMA, "--json")[1])
    assert found["text"] == whole["text"]
    cost = whole["cost"]
    assert f"{cost['total_steps']} tokens, {cost['total_tax_nats']:.2f} nats" in found["cost"]
    assert f"{cost['worst_tokens'][0]['tax_nats']:.2f} nats" in found["worst"]
    assert whole["verdict"]["valid"] is True


def test_a_text_that_is_cut_off_is_explained_with_the_flag_that_helps(run: Run) -> None:
    code, out, _ = run(*EXPLAIN, "name, email", "--max-tokens", "6")
    assert code == 1
    found = labelled(out)
    assert found["valid"].startswith("NO")
    assert "cut off after 6 tokens" in found["why"]
    assert "--max-tokens" in found["to do"]


def test_a_whole_text_that_nobody_judges_is_not_called_cut_off(run: Run, tmp_path: Path) -> None:
    (tmp_path / "answer.gbnf").write_text('root ::= "yes" | "no"', encoding="utf-8")
    code, out, _ = run(*EXPLAIN[:-1], "--grammar", "answer.gbnf")
    assert code == 0
    assert labelled(out)["valid"] == "not known: no independent judge reads such a constraint"


def test_without_a_constraint_there_is_nothing_to_explain(run: Run) -> None:
    code, out, err = run("explain", "-m", "fake", "hi")
    assert (code, out) == (2, "")
    assert "no constraint to explain" in err


def test_a_recorded_run_is_replayed_without_a_model_and_reproduced_with_it(run: Run) -> None:
    asked = ["generate", "-m", "fake", "--seed", "3", "--schema", SCHEMA, "hi", "--trace"]
    assert run(*asked, "a.json", "--trace-level", "full")[0] == 0
    code, out, _ = run("trace", "replay", "a.json")
    assert code == 0
    assert "logits stored" in out
    assert "every step takes the stored token" in out
    code, out, _ = run("trace", "replay", "a.json", "-m", "fake")
    assert code == 0
    assert "reproduced exactly" in out
    assert json.loads(run("trace", "replay", "a.json", "--json")[1])["same"] is True


def test_another_constraint_parts_and_both_commands_exit_as_diff_does(run: Run, tmp_path: Path) -> None:
    asked = ["generate", "-m", "fake", "--seed", "3", "--schema", SCHEMA, "hi", "--trace"]
    run(*asked, "a.json", "--trace-level", "full")
    (tmp_path / "list.schema.json").write_text('{"type": "array"}')
    (tmp_path / "any.json").write_text('{"kind": "json_object"}')
    (tmp_path / "bits.gbnf").write_text("root ::= [01]+")
    code, out, _ = run("trace", "replay", "a.json", "--with", "list.schema.json")
    assert code == 1
    assert "step 0, '{' is refused" in out
    assert "json_schema" in out
    code, out, _ = run("trace", "replay", "a.json", "--with", "bits.gbnf")
    assert code == 1
    assert "gbnf" in out
    (tmp_path / "two.gbnf").write_text('item ::= [01]+\nlist ::= "[" item "]"')
    assert "step 0" in run("trace", "replay", "a.json", "--with", "two.gbnf", "--root", "item")[1]
    code, out, _ = run("trace", "replay", "a.json", "--with", "any.json", "-o", "b.json")
    assert code in (0, 1)
    assert max(map(len, out.splitlines())) <= 80
    assert run("trace", "diff", "a.json", "a.json")[:2] == (0, run("trace", "diff", "a.json", "a.json")[1])
    code, out, _ = run("trace", "diff", "a.json", "b.json", "--json")
    found = json.loads(out)
    assert code == 1
    assert found["first_divergence"] is None
    assert found["right"]["tax_nats"] < found["left"]["tax_nats"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "a.json", "--strategy", "jump"], "needs the model"),
        (["replay", "a.json", "--strategy", "nope"], "nope"),
        (["replay", "a.json", "--with", "c.json"], "neither a schema nor a constraint"),
        (["replay", "missing.json"], "missing.json"),
        (["replay", "a.json", "--root", "item"], "--root needs --with"),
        (["replay", "a.json", "--with", "c.json", "--root", "item"], "--root is for a grammar"),
        (["replay", "a.json", "--with", "@json", "--root", "nope"], "there is no rule named 'nope'"),
        (["diff", "a.json", "missing.json"], "missing.json"),
    ],
)
def test_what_is_asked_wrongly_is_said_and_ends_with_2(
    run: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    run("generate", "-m", "fake", "--seed", "3", "--choice", "yes", "hi", "--trace", "a.json", "--trace-level", "full")
    (tmp_path / "c.json").write_text("[1]")
    code, out, err = run("trace", *arguments)
    assert (code != 0, out) == (True, "")
    assert code == 2 or "jump" in arguments
    assert said in err


def test_the_remedies_are_tried_and_one_is_recommended_or_none(run: Run) -> None:
    code, out, err = run(*EXPLAIN, SCHEMA, "--max-tokens", "30", "--try", "--seeds", "2")
    assert (code, err) == (0, "")  # no bar where stderr is no terminal
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    tail = " ".join(lines[lines.index("") :])
    assert "Recommended: " in tail or "Nothing to try" in tail
    whole = json.loads(run(*EXPLAIN, SCHEMA, "--max-tokens", "30", "--try", "--seeds", "2", "--json")[1])
    assert whole["recommendation"].startswith("Recommended: ")
