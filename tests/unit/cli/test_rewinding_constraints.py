"""Constraints that take text back, from the command line: two grammars at once, and a ban that rewinds."""

import json

import pytest

from espalier.cli.main import main_code

FAKE = ("generate", "-m", "fake", "--json")


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def call(constraint, *arguments):
        (tmp_path / "constraint.json").write_text(json.dumps(constraint), encoding="utf-8")
        code = main_code([*FAKE, "--constraint", "constraint.json", *arguments, "hi"])
        out, err = capfd.readouterr()
        return code, json.loads(out) if out.strip() else None, " ".join(err.split())

    return call


def grammars(**more):
    texts = ('root ::= "(" root ")" | "Sure!" | "no"', 'root ::= "[" root "]" | "Sure?" | "no"')
    return {"kind": "all_of", "members": [{"kind": "gbnf", "grammar": text} for text in texts], **more}


@pytest.mark.parametrize("more", [{}, {"dead_ends": "refuse"}, {"dead_ends": "rewind"}])
def test_two_grammars_hold_at_once(run, more):
    code, out, _ = run(grammars(**more), "--temperature", "0")
    assert code == 0
    assert out["text"] == "no"


def test_a_member_without_an_automaton_is_refused_with_the_way_out(run):
    after = {"kind": "after", "marker": "!", "spec": {"kind": "regex", "pattern": "a"}}
    code, out, err = run({"kind": "all_of", "members": [after, *grammars()["members"]], "dead_ends": "refuse"})
    assert (code, out) == (2, None)
    assert 'dead_ends="rewind"' in err


def test_a_ban_that_rewinds(run):
    code, out, _ = run(
        {"kind": "ban", "phrases": ["Here"], "mode": "rewind"}, "--temperature", "0", "--max-tokens", "40"
    )
    assert code in (0, 1)
    assert "Here" not in out["text"]
    assert "Her" not in out["text"][:9]


@pytest.mark.parametrize(
    ("more", "message"),
    [({"dead_ends": "allow"}, "unknown dead_ends 'allow'"), ({"dead_end": "rewind"}, "no field 'dead_end'")],
)
def test_wrong_names_are_told(run, more, message):
    code, _, err = run(grammars(**more))
    assert code == 2
    assert message in err


def test_a_wrong_mode_is_told(run):
    code, _, err = run({"kind": "ban", "phrases": ["a"], "mode": "forget"})
    assert code == 2
    assert "unknown mode 'forget'" in err
