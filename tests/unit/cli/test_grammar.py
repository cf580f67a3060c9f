"""`espalier grammar`: findings with a place, a normal form, sentences, and why a text is refused."""

import json
from functools import partial

import pytest

from espalier.grammar.builtin import GRAMMARS
from espalier.grammar.parser import parse

ARITHMETIC = 'root ::= sum\nsum ::= num ("+" num)*\nnum ::= [0-9]+\n'


@pytest.fixture
def run(run, tmp_path):
    (tmp_path / "g.gbnf").write_text(ARITHMETIC)
    return partial(run, "grammar")


def test_a_good_grammar_has_no_findings(run):
    assert run("check", "g.gbnf") == (0, "", "3 rules; usable\n")


def test_findings_have_a_place_and_errors_fail(run, tmp_path):
    (tmp_path / "bad.gbnf").write_text('root ::= item\nitme ::= "a"\n')
    code, out, _ = run("check", "bad.gbnf")
    assert code == 1
    assert "line 1, column 10" in out
    assert "itme" in out  # the near name, and that it is not reached
    code, out, _ = run("check", "bad.gbnf", "--json")
    found = json.loads(out)
    assert (code, found["ok"]) == (1, False)
    assert {f["code"] for f in found["findings"]} >= {"undefined-rule", "unreachable-rule"}


def test_print_is_a_normal_form_that_means_the_same(run):
    code, out, _ = run("print", "g.gbnf")
    assert code == 0
    assert parse(out) == parse(ARITHMETIC)


@pytest.mark.parametrize("name", list(GRAMMARS))
def test_sentences_of_the_built_in_grammars_are_accepted(run, name):
    code, out, _ = run("sample", f"@{name}", "-n", "3", "--seed", "7", "--json")
    assert code == 0
    assert run("sample", f"@{name}", "-n", "3", "--seed", "7", "--json")[1] == out
    for sentence in json.loads(out):
        assert run("accepts", f"@{name}", "-", stdin=sentence.encode())[:2] == (0, "accepted\n")


def test_a_refused_text_says_at_which_byte_and_what_could_have_come(run):
    code, out, _ = run("accepts", "g.gbnf", "1+x")
    assert code == 1
    assert out.startswith("refused at byte 2: ")
    assert "rule num" in out
    assert "a digit" in out
    code, out, _ = run("accepts", "g.gbnf", "1+")
    assert out.startswith("refused at byte 2: the text ends before")
    assert json.loads(run("accepts", "g.gbnf", "1+", "--json")[1])["accepted"] is False


def test_bytes_that_are_not_utf8_are_refused_at_their_byte(run):
    assert run("accepts", "g.gbnf", "-", stdin=b"1+\xff")[1].startswith("refused at byte 2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "nope.gbnf"], "nope.gbnf"),
        (["check", "@nope"], "nope"),
        (["sample", "g.gbnf", "-n", "0"], "--count"),
        (["sample", "g.gbnf", "--max-size", "-1"], "--max-size"),
        (["sample", "g.gbnf", "--root", "nope"], "nope"),
        (["accepts", "broken.gbnf", "x"], "line 1"),
    ],
)
def test_a_fault_is_one_line_and_exit_code_2(run, tmp_path, arguments, words):
    (tmp_path / "broken.gbnf").write_text('root ::= "a\n')
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) <= 2


def test_a_schema_is_converted(run, tmp_path):
    code, out, err = run("convert", "name, age int?")
    assert code == 0
    assert "# /properties/age\nage ::= integer" in out
    assert "at most 20 digits" in err
    (tmp_path / "s.gbnf").write_text(out)
    assert run("accepts", "s.gbnf", '{"name":"Ada", "age": 36}')[:2] == (0, "accepted\n")
    assert run("accepts", "s.gbnf", '{"age": 36}')[0] == 1


def test_a_conversion_has_a_style_an_order_and_a_file(run, tmp_path):
    options = ("--whitespace", "indented", "--indent", "1", "--order", "b", "-o", "x.gbnf")
    assert run("convert", "a int, b int", *options)[:2] == (0, "")
    assert run("accepts", "x.gbnf", '{\n "b": 1,\n "a": 2\n}')[:2] == (0, "accepted\n")
    code, _, err = run("convert", "a int", "-o", "x.gbnf")
    assert (code, "exists already" in err) == (2, True)
    assert run("convert", "a int", "-o", "x.gbnf", "--force")[0] == 0
    date = '{"type": "string", "format": "date"}'
    assert run("convert", date, "--format", "assert", "-o", "x.gbnf", "--force")[0] == 0
    assert run("accepts", "x.gbnf", '"2024-02-30"')[0] == 1


def test_what_a_grammar_cannot_say_is_refused_with_its_pointer(run):
    schema = {"properties": {"a": {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}}}
    code, out, err = run("convert", json.dumps(schema))
    assert (code, out) == (2, "")
    assert "/properties/a/uniqueItems" in err


def test_the_start_rule_of_a_converted_schema_has_the_name_that_is_asked_for(run, tmp_path):
    schema = '{"type":"object","properties":{"a":{"$ref":"#"},"b":{"type":"integer"}}}'
    code, out, _ = run("convert", schema, "--root", "doc")
    assert code == 0
    (tmp_path / "d.gbnf").write_text(out)
    assert run("accepts", str(tmp_path / "d.gbnf"), '{"a":{"b":1}}', "--root", "doc")[0] == 0
    assert run("check", str(tmp_path / "d.gbnf"), "--root", "root")[0] == 2
    for root, said in (("integer", "another rule is called 'integer'"), ("a b", "no name of a rule")):
        code, _, err = run("convert", schema, "--root", root)
        assert code == 2
        assert said in err
