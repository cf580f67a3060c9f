"""The language of grammars, case by case, judged by an independent recogniser: our cases, llama.cpp's samples,
users'."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import UnknownName
from espalier.grammar.builtin import GRAMMARS, builtin
from espalier.grammar.check import check, validate
from espalier.grammar.parser import parse
from espalier.grammar.printer import print_grammar
from espalier.grammar.rewrite import portable
from espalier.grammar.sample import SentenceSampler
from tests.examples import examples
from tests.unit.grammar.oracle import Recogniser

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "gbnf"
NAMES = ("arithmetic", "c", "chess", "english", "japanese", "json", "json_arr", "list")

CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "overlapping classes": (
        "root ::= word num\nword ::= [a-z0-9]+\nnum ::= [0-9]+",
        ["a1", "11", "a11", "1a1"],
        ["1", "a", "a1a"],
    ),
    "no longest match": ('root ::= ("a"|"ab")("c"|"bcd")', ["ac", "abc", "abcd", "abbcd"], ["ab", "abbc", "acd"]),
    "greedy is not a thing": ('root ::= "a"* "a"', ["a", "aaa"], ["", "b"]),
    "dot is any code point": ("root ::= .", ["\n", "\r", "\0", "é", "😀", "\u2028"], ["", "ab"]),
    "dots": ('root ::= "<" .* ">"', ["<>", "<\n>", "<>>"], ["<", "<>a"]),
    "u escape": (r'root ::= "\u00e1"', ["á"], ["a", r"\u00e1"]),
    "U escape": (r'root ::= "\U0001F600"', ["😀"], ["\uf600"]),
    "x escape is a code point": (r'root ::= "\xe9"', ["é"], ["e"]),
    "case of names": ('root ::= a A\na ::= "x"\nA ::= "y"', ["xy"], ["xx", "yx"]),
    "digits as names": ('root ::= 0 1a\n0 ::= "x"\n1a ::= "y"', ["xy"], ["x"]),
    "stacked counts": ('root ::= "a"{2}{2}', ["aaaa"], ["aa", "aaa", "aaaaa"]),
    "stacked option": ('root ::= "a"{2}?', ["", "aa"], ["a"]),
    "counts": ('root ::= "a"{2,3}', ["aa", "aaa"], ["a", "aaaa"]),
    "open counts": ('root ::= "a"{2,}', ["aa", "aaaaaa"], ["a", ""]),
    "no times": ('root ::= "x" "a"{0}', ["x"], ["xa"]),
    "a literal repeats as a whole": ('root ::= "ab"+', ["ab", "abab"], ["abb"]),
    "an exact limit": ('root ::= "a"{0,200}', ["", "a" * 200], ["a" * 201]),
    "token by text": ("root ::= <think> !<think>", ["<think>!<think>"], ["think"]),
    "token by id": ('root ::= "a" <[5]> !<[5]>', ["a<[5]>!<[5]>"], ["a5"]),
    "class of &&~": ("root ::= [&&~]+", ["&", "~&"], ["-", "a"]),
    "class with dash first": ("root ::= [-+*/]", ["-", "+", "*", "/"], [",", "."]),
    "class with dash last": ("root ::= [a-]", ["a", "-"], ["b"]),
    "class of escapes": (r"root ::= [\]\\\[]", ["]", "\\", "["], ["^"]),
    "negated class takes line ends": ('root ::= [^"]', ["\n", "😀"], ['"']),
    "negated range": ("root ::= [^a-y]", ["z", "A"], ["a", "m"]),
    "wide range": ("root ::= [ぁ-ゟ]+", ["ひらがな"], ["カ"]),
    "bar at the start of a line in a group": ('root ::= (\n  "a"\n  | "b"\n)', ["a", "b"], ["ab"]),
    "bar at the end of a line": ('root ::= "a" |\n  "b"', ["a", "b"], ["ab"]),
    "bar binds least": ('root ::= "a" "b" | "c"', ["ab", "c"], ["ac"]),
    "first option empty": ('root ::= "x" ws\nws ::= | " "', ["x", "x "], ["x  "]),
    "last option empty": ('root ::= "x" (" " | )', ["x", "x "], ["x  "]),
    "middle option empty": ('root ::= "x" ("a" | | "b")', ["x", "xa", "xb"], ["xab"]),
    "empty grammar text": ('root ::= ""', [""], ["a"]),
    "comment in a group": ('root ::= ("a" # "b"\n "c")', ["ac"], ["ab"]),
    "hash in a literal": ('root ::= "#" [#]', ["##"], ["#"]),
    "left recursion": ('root ::= root "+" n | n\nn ::= [0-9]', ["1", "1+2+3"], ["+1", "1+"]),
    "indirect left recursion": ('root ::= a "x" | "r"\na ::= root "y" | "s"', ["r", "sx", "ryx", "sxyx"], ["yx"]),
    "hidden left recursion": ('root ::= w root "x" | "r"\nw ::= " "?', ["r", "rx", " rx", "  rxx"], [" r", " rx "]),
    "cyclic rules": ('root ::= root | a\na ::= root | "x"', ["x"], ["", "xx"]),
    "right recursion": ('root ::= "a" root | ""', ["", "aaa"], ["b"]),
    "centre recursion": ('root ::= "(" root ")" | ""', ["", "(())"], ["(()"]),
    "ambiguity": ('root ::= root root | "a"', ["a", "aaaa"], [""]),
    "nullable loop": ('root ::= ("x"?)* "y"', ["y", "xxy"], ["x"]),
    "star of star": ('root ::= ("a"*)*', ["", "aaa"], ["b"]),
    "dead option": ('root ::= "a" | "b" dead\ndead ::= dead "c"', ["a"], ["b", "bc"]),
    "later rule counts": ('root ::= a\na ::= "x"\na ::= "y"', ["y"], ["x"]),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    text, good, bad = CASES[name]
    grammar = parse(text)
    validate(grammar)
    for form in (grammar, parse(print_grammar(grammar)), portable(grammar)):
        oracle = Recogniser(form)
        assert [sentence for sentence in good if not oracle.accepts(sentence)] == []
        assert [sentence for sentence in bad if oracle.accepts(sentence)] == []
        assert all(oracle.viable(sentence[:i]) for sentence in good for i in range(0, len(sentence) + 1, 100))


def round_trips_and_samples(text: str, *, draws: int = 25) -> None:
    grammar = parse(text)
    validate(grammar)
    assert parse(print_grammar(grammar)) == grammar
    oracle, other, sampler = Recogniser(grammar), Recogniser(portable(grammar)), SentenceSampler(grammar)
    random, refused = Random(7), 0
    for _ in range(draws):
        sentence = sampler.draw(random, max_size=120)
        assert oracle.accepts(sentence), sentence
        assert other.accepts(sentence), sentence
        place = random.randrange(len(sentence) + 1)
        mutant = sentence[:place] + random.choice('\0"{(x9 \n') + sentence[place + 1 :]
        assert oracle.accepts(mutant) == other.accepts(mutant)
        refused += not oracle.accepts(mutant)
    assert refused


@pytest.mark.parametrize("name", NAMES)
def test_llama_cpp_samples(name: str) -> None:
    file = SAMPLES / f"{name}.gbnf"
    if not file.is_file():
        pytest.skip(f"llama.cpp's {name}.gbnf is not here")
    text = file.read_bytes()
    round_trips_and_samples(text.decode())
    assert [found for found in check(parse(text)) if found.severity != "note"] == []


USERS = {
    "json object": r"""
root   ::= object
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}"
array  ::= "[" ws (value ("," ws value)*)? "]"
value  ::= object | array | string | number | "true" | "false" | "null"
string ::= "\"" ([^"\\] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? ([0-9] | [1-9] [0-9]*) ("." [0-9]+)?
ws     ::= [ \t\n\r]*
""",
    "name": r"""
root ::= "{" ws "\"name\"" ws ":" ws string ws "}"
string ::= "\"" [^"]* "\""
ws ::= [ \t\n]*
""",
    "tool call": r"""
root   ::= "{" ws "\"name\"" ws ":" ws string ws "," ws "\"args\"" ws ":" ws object ws "}"
object ::= "{" ws (string ws ":" ws value (ws "," ws string ws ":" ws value)*)? ws "}"
value  ::= object | string | [0-9]+
string ::= "\"" ([^"\\] | "\\" ["\\/bfnrt])* "\""
ws     ::= [ \t\n\r]*
""",
}


@pytest.mark.parametrize("name", USERS)
def test_grammars_of_users(name: str) -> None:
    round_trips_and_samples(USERS[name])
    assert check(parse(USERS[name])) == []


# Built-in grammars

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
JSON = Recogniser(builtin("json"))
JSON_OBJECT = Recogniser(builtin("json_object"))
TOOL_CALL = Recogniser(builtin("tool_call"))


@pytest.mark.parametrize("name", GRAMMARS.names())
def test_built_in_grammars_are_clean(name: str) -> None:
    assert check(builtin(name)) == []
    round_trips_and_samples(print_grammar(builtin(name)))


def test_unknown_names_are_said_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="tool_call"):
        builtin("yaml")


@given(json_values, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
@settings(max_examples=examples(60), deadline=None)
def test_json_takes_what_json_dumps_writes(value, ascii_only, separators) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=separators)
    if any("\ud800" <= char <= "\udfff" for char in text):
        return
    assert JSON.accepts(text)
    assert JSON_OBJECT.accepts(text) == isinstance(value, dict)
    assert TOOL_CALL.accepts(f'{{"name": "f", "args": {text}}}') == isinstance(value, dict)


@pytest.mark.parametrize("name", ["json", "json_object", "tool_call"])
def test_json_writes_what_json_loads_takes(name: str) -> None:
    sampler, random = SentenceSampler(builtin(name)), Random(3)
    for _ in range(60):
        value = json.loads(sampler.draw(random))
        if name == "tool_call":
            assert list(value) == ["name", "args"]
            assert isinstance(value["args"], dict)


NOT_JSON = r"""01|-|1.|.5|+1|1e|0x1|NaN|"\x41"|"\u12"|"a|'a'|[1,]|[,1]|[1 ,2]|[1,  2]|[ 1]| 1|1 |tru||nul"""


@pytest.mark.parametrize("text", [*NOT_JSON.split("|"), '"\n"', '"\0"', '{"a":1,}', "{a:1}", '{"a"}', '{"a" :1}'])
def test_json_refuses(text: str) -> None:
    assert not JSON.accepts(text)


@pytest.mark.parametrize("text", ['"\x7f"', '"\u2028"', '"\\ud800"', "-0", "0.0e-00", "1E+5", '"\\/"', '{"":[]}'])
def test_json_takes(text: str) -> None:
    json.loads(text)
    assert JSON.accepts(text)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("list", ["- a\n", "- a b\n- c\n"], ["", "- \n", "a\n", "- a", "-  a\n", "- a\n\n"]),
        ("arithmetic", ["1 + 2 = 3", "(1+2)*-3.5 = 9\n", "2 = 2"], ["1 + = 3", "1 + 2", "01 = 1", "1  + 2 = 3"]),
    ],
)
def test_other_built_in_grammars(name: str, good: list[str], bad: list[str]) -> None:
    oracle = Recogniser(builtin(name))
    assert [text for text in good if not oracle.accepts(text)] == []
    assert [text for text in bad if oracle.accepts(text)] == []
