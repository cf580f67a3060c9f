"""Flags that join, delay, ban and soften; and what is asked wrongly."""

import io
import json

import pytest

from espalier.cli.main import main_code

FAKE = ("generate", "-m", "fake", "--max-tokens", "400")


@pytest.fixture
def run(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*arguments):
        code = main_code([*arguments])
        out, err = capfd.readouterr()
        return code, out, " ".join(err.split())

    return call


def test_the_order_of_properties_is_a_flag_a_variable_and_the_tools_too(run, tmp_path, monkeypatch):
    """The fake model wishes for name, email, age."""
    asked = (*FAKE, "--schema", "age int, email, name", "--temperature", "0", "hi")
    wished = ["name", "email", "age"]
    assert list(json.loads(run(*asked)[1])) == ["age", "email", "name"]
    assert list(json.loads(run(*asked, "--schema-order", "any")[1])) == wished
    assert list(json.loads(run(*asked, "--schema-order", "name,email")[1])) == wished
    (tmp_path / "spec.json").write_text(
        '{"kind": "json_schema", "schema": {"type": "object", "properties": {"age": {}, "name": {}}}}'
    )
    out = run(*FAKE, "--constraint", "spec.json", "--schema-order", "any", "--temperature", "0", "hi")[1]
    assert out.startswith('{"name"')
    monkeypatch.setenv("ESPALIER_SCHEMA_ORDER", "any")
    assert list(json.loads(run(*asked)[1])) == wished
    assert list(json.loads(run(*asked, "--schema-order", "schema")[1])) == ["age", "email", "name"]
    code, out, _ = run("check", "a int, b int", "--json")
    assert code == 0
    assert {one["note"][:11] for one in json.loads(out)["contract"] if one["keyword"] == "order"} == {"every order"}
    code, _, err = run(*FAKE, "--json-object", "--schema-order", "any", "hi")
    assert (code, "needs a schema" in err) == (2, True)
    monkeypatch.setenv("ESPALIER_SCHEMA_ORDER", "alphabet")
    code, _, err = run(*asked)
    assert (code, "ESPALIER_SCHEMA_ORDER=alphabet" in err) == (2, True)


def test_several_constraints_hold_together(run):
    for seed in range(5):
        code, out, _ = run(*FAKE, "--regex", "[a-c]{6}", "--ban", "b", "--ban", "cc", "--seed", str(seed), "hi")
        text = out.strip()
        assert code == 0
        assert set(text) <= {"a", "c"}
        assert "cc" not in text


def test_the_start_rule_of_a_grammar_can_be_named(run, tmp_path):
    (tmp_path / "g.gbnf").write_text('root ::= "r"\nitem ::= "i" [0-9]\n')
    code, out, _ = run(*FAKE, "--grammar", "g.gbnf", "--root", "item", "--seed", "1", "hi")
    assert code == 0
    assert out[0] == "i"
    assert out[1:].strip().isdigit()
    code, _, err = run(*FAKE, "--grammar", "g.gbnf", "--root", "nope", "hi")
    assert code != 0
    assert "there is no rule named 'nope'" in err
    code, _, err = run(*FAKE, "--root", "item", "hi")
    assert code != 0
    assert "--root needs --grammar" in err
    for command, shown in (("sample", "i"), ("print", "item ::=")):
        code, out, _ = run("grammar", command, "g.gbnf", "--root", "item")
        assert code == 0
        assert shown in out
    assert run("grammar", "accepts", "g.gbnf", "i7", "--root", "item")[0] == 0
    assert run("grammar", "check", "g.gbnf", "--root", "item")[0] == 0


def test_a_chat_switches_to_a_start_rule(run, tmp_path, monkeypatch):
    (tmp_path / "g.gbnf").write_text('root ::= "r"\nitem ::= "i" [0-9]\n')
    monkeypatch.setattr("sys.stdin", io.StringIO("/grammar g.gbnf --root item\nhi\n/grammar g.gbnf\nhi\n"))
    code, out, _ = run("chat", "-m", "fake", "--seed", "1")
    assert code == 0
    first, second = out.split()
    assert first[0] == "i"
    assert second == "r"


def test_a_list_of_your_own_with_names_and_digits(run, tmp_path):
    (tmp_path / "mine.txt").write_text("# mine\nuno\ndos\n", encoding="utf-8")
    words = ("--vocab-words", "mine.txt", "--vocab-name", "NASA", "--vocab-allow", "digits", "--max-tokens", "60")
    code, out, err = run(*FAKE, *words, "--seed", "1", "--json", "hi")
    found = json.loads(out)
    assert found["verdict"]["judge"] in ("words", "matcher"), err
    assert code == (0 if found["verdict"]["valid"] else 1)


def test_the_shipped_lists_are_found(run):
    code, out, _ = run(*FAKE, "--vocab-lang", "es", "--vocab-n-words", "50", "--seed", "2", "--json", "hi")
    found = json.loads(out)
    assert code == (0 if found["finish_reason"] == "stop" else 1)
    assert found["text"]


def test_thinking_first_then_the_constraint(run):
    arguments = ("--choice", "yes", "--after", "</think>", "--max-before", "3", "--seed", "4", "--json", "hi")
    code, out, _ = run(*FAKE, *arguments)
    found = json.loads(out)
    assert code == 0
    before, _, answer = found["text"].partition("</think>")
    assert answer.strip() == "yes"
    assert len(before.encode()) <= 6, "three tokens of a byte, and what finishes a character"
    assert found["verdict"]["valid"] is True


def test_any_constraint_from_a_file(run, tmp_path):
    spec = {"kind": "all_of", "members": [{"kind": "regex", "pattern": "[ab]{3}"}, {"kind": "ban", "phrases": ["a"]}]}
    (tmp_path / "c.json").write_text(json.dumps(spec), encoding="utf-8")
    assert run(*FAKE, "--constraint", "c.json", "hi")[:2] == (0, "bbb\n")


def test_soft_flags_force_nothing(run):
    soft = ("--vocab-lang", "en", "--vocab-n-words", "50", "--vocab-mode", "soft", "--soft-json", "--max-tokens", "20")
    code, out, _ = run(*FAKE, *soft, "--seed", "1", "--json", "hi")
    found = json.loads(out)
    assert code == 0
    assert found["verdict"] is None
    assert found["trace"]["removed_mass"] == 0 if "removed_mass" in found["trace"] else True


def test_a_schema_in_one_line_with_its_options(run):
    options = ("--schema-order", "b", "--whitespace", "indented", "--seed", "1")
    code, out, _ = run(*FAKE, "--schema", "a (x|y), b (p|q)", *options, "hi")
    assert code == 0
    assert list(json.loads(out)) == ["b", "a"]
    assert out.startswith('{\n  "b": "')
    date = ("--schema", '{"type": "string", "format": "date"}', "--schema-format", "assert")
    code, out, _ = run(*FAKE, *date, "--seed", "2", "hi")
    assert code == 0
    assert len(out.strip()) == len('"2024-02-29"')


def test_what_can_only_be_checked_has_to_be_allowed(run):
    schema = (
        '{"type": "array", "items": {"enum": [1, 2, 3]}, "maxItems": 3, "uniqueItems": true, "not": {"maxItems": 0}}'
    )
    loose = r'{"type": "string", "pattern": "^(a*)b\\1$", "maxLength": 9}'
    assert run(*FAKE, "--schema", schema, "--seed", "1", "hi")[0] == 0
    code, out, err = run(*FAKE, "--schema", loose, "hi")
    assert (code, out) == (2, "")
    assert "/pattern" in err
    code, out, _ = run(*FAKE, "--schema", loose, "--allow-checked", "--seed", "1", "--json", "hi")
    found = json.loads(out)
    assert code == (0 if found["verdict"]["valid"] else 1)


FAULTS = {
    "an order without a schema": (["--schema-order", "a,b"], "--schema-order needs --schema"),
    "a format without a schema": (["--choice", "a", "--schema-format", "assert"], "--schema-format needs --schema"),
    "checking without a schema": (["--regex", "a", "--allow-checked"], "--allow-checked needs --schema"),
    "an order of nothing": (["--schema", "a int", "--schema-order", "b"], "'b' is no property"),
    "a language without a count": (["--vocab-lang", "es"], "--vocab-n-words"),
    "a count without a language": (["--vocab-n-words", "10"], "--vocab-lang"),
    "a count below 1": (["--vocab-lang", "es", "--vocab-n-words", "0"], "at least 1"),
    "more words than there are": (["--vocab-lang", "es", "--vocab-n-words", "99999"], "10000 words"),
    "an unknown language": (["--vocab-lang", "tlh", "--vocab-n-words", "5"], "en, es"),
    "a missing list": (["--vocab-words", "nope.txt"], "nope.txt"),
    "names without a list": (["--vocab-name", "Ada"], "need a word list"),
    "a mode without a list": (["--vocab-mode", "soft"], "need a word list"),
    "an unknown mode": (["--vocab-lang", "es", "--vocab-n-words", "9", "--vocab-mode", "weak"], "hard or soft"),
    "penalties in hard mode": (
        ["--vocab-lang", "es", "--vocab-n-words", "9", "--vocab-tier3-penalty", "3"],
        "--vocab-mode soft",
    ),
    "penalties the wrong way round": (
        ["--vocab-lang", "es", "--vocab-n-words", "9", "--vocab-mode", "soft", "--vocab-tier2-penalty", "9"],
        "more than tier3_penalty",
    ),
    "an unknown mark": (["--vocab-lang", "es", "--vocab-n-words", "9", "--vocab-allow", "emoji"], "digits, quotes"),
    "an empty ban": (["--ban", ""], "empty"),
    "a ban that leaves nothing to say": (["--choice", "yes", "--ban", "e"], "--choice and --ban"),
    "a marker with nothing after it": (["--after", "</think>"], "needs a constraint"),
    "a limit without a marker": (["--choice", "a", "--max-before", "3"], "--after"),
    "a limit below 0": (["--choice", "a", "--after", "x", "--max-before", "-1"], "at least 0"),
    "a constraint file that is missing": (["--constraint", "nope.json"], "nope.json"),
    "a constraint file that is no JSON": (["--constraint", "bad.json"], "line 1, column 2"),
    "a constraint file of no kind": (["--constraint", "kindless.json"], "needs a `kind`"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_said_before_a_model_is_loaded(run, tmp_path, fault):
    (tmp_path / "bad.json").write_text("{x}", encoding="utf-8")
    (tmp_path / "kindless.json").write_text("{}", encoding="utf-8")
    arguments, words = FAULTS[fault]
    code, out, err = run(*FAKE, *arguments, "hi")
    assert (code, out) == (2, "")
    assert words in err
