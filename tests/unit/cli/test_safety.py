"""`espalier safety`, and the flags of `espalier generate` that ask for a filter."""

import io
import json

import pytest

from espalier.cli.flags.safety import SafetyFlags
from espalier.cli.main import main_code
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import Choice
from espalier.errors import InputError


def run(capsys, *arguments):
    code = main_code(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_check_says_what_and_where_and_exits_1(capsys):
    code, out, err = run(capsys, "safety", "check", "é rm -rf / password=hunter2", "--preset", "standard")
    assert code == 1
    assert out == (
        "code_injection/rm_recursive_force\tcharacters 2-8\t'rm -rf'\n"
        "credentials/assignment\tcharacters 11-27\t'password=hunter2'\n"
    )
    assert err == ""


def test_check_exits_0_where_nothing_is_caught_and_tells_what_was_not_looked_for(capsys):
    code, out, err = run(capsys, "safety", "check", "all is well")
    assert (code, out) == (0, "")
    assert "safety: hate: nothing is enforced: it needs a list" in err
    assert "nothing would be caught" in err


def test_check_as_json(capsys, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("maul\n")
    code, out, _ = run(
        capsys,
        "safety",
        "check",
        "MAUL me at a@b.com",
        "--category",
        "pii",
        "--include",
        "email",
        "--list",
        f"violence={path}",
        "--json",
    )
    told = json.loads(out)
    assert code == 1
    assert [(one["category"], one["pattern"], one["start_byte"]) for one in told["caught"]] == [
        ("violence", "list", 0),
        ("pii", "email", 11),
    ]
    assert {entry["category"] for entry in told["enforced"]} == {"violence", "pii"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "strikt"], "did you mean 'strict'"),
        (["--category", "hat"], "did you mean 'hate'"),
        (["--list", "violence"], "a category and a file"),
        (["--list", "violence=/nowhere/x"], "cannot read the list"),
        (["--regex", "a*"], "matches the empty text"),
    ],
)
def test_what_is_asked_wrongly_exits_2(capsys, arguments, words):
    code, out, err = run(capsys, "safety", "check", "x", *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_list_says_which_need_a_list(capsys):
    code, out, _ = run(capsys, "safety", "list")
    assert code == 0
    assert "strict       code_injection, credentials, pii, violence, dangerous" in out
    assert "hate: hateful language\n  needs a list: none is shipped" in out
    assert "email" in out
    told = json.loads(run(capsys, "safety", "list", "--json")[1])
    assert {one["name"] for one in told["categories"] if one["needs_list"]} == {
        "profanity",
        "violence",
        "hate",
        "sexual",
        "self_harm",
    }
    assert next(one for one in told["patterns"] if one["name"] == "email")["optional"] is True


def test_the_flags_join_a_filter_to_the_constraint(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("maul\n")
    assert SafetyFlags().join(Choice(["a"])) == Choice(["a"])
    assert SafetyFlags(level="strict").join(None) == Safety("strict")
    assert SafetyFlags(level="pii, credentials", mode="rewind").join(Choice(["a"])) == AllOf(
        Choice(["a"]), Safety(categories=["pii", "credentials"], mode="rewind")
    )
    listed = SafetyFlags(level="minimal", lists=[f"violence={path}"]).filter()
    assert listed == Safety("minimal", categories=["violence"], lists={"violence": ["maul"]})
    with pytest.raises(InputError, match="--safety-mode needs --safety"):
        SafetyFlags(mode="rewind").filter()


def test_generate_counts_on_stderr_and_in_json(capsys, tmp_path):
    asked = ("generate", "--model", "fake", "--seed", "1", "--temperature", "0", "--max-tokens", "30", "hi")
    path = tmp_path / "words.txt"
    path.write_text("here is\n")  # what the fake model says
    code, out, err = run(capsys, *asked, "--safety", "violence", "--safety-list", f"violence={path}")
    assert code == 0
    assert "here is " not in out.lower()
    assert "safety: refused favourites: violence/list 1" in err
    rewound = ("--safety", "violence", "--safety-list", f"violence={path}", "--safety-mode", "rewind", "--json")
    told = json.loads(run(capsys, *asked, *rewound)[1])
    assert told["safety"]["taken_back"]["violence"]["list"] == len(told["rewinds"]) >= 1
    assert told["trace"]["taken_back"] == told["safety"]["taken_back"]
    assert "safety" not in json.loads(run(capsys, *asked, "--json")[1])


@pytest.mark.slow
def test_a_chat_keeps_its_filter_when_the_constraint_is_switched(capsys, monkeypatch):
    lines = 'hi\n/free\nhi\n/choice "my JSON" fine\nhi\n'
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    asked = ("chat", "--model", "fake", "--seed", "1", "--temperature", "0", "--max-tokens", "20", "--ban", "JSON")
    code, out, err = run(capsys, *asked, "--safety", "strict")
    assert code == 0
    assert "JSON" not in out
    assert out.endswith("fine\n")
    assert "safety: violence: nothing is enforced: it needs a list" in err
    code, _, err = run(capsys, "chat", "--model", "fake", "--safety-mode", "rewind")
    assert code == 2
    assert "--safety-mode needs --safety" in err
