"""Free: free text, and regions behind triggers, however either is split into tokens."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator

import numpy as np
import pytest

import tests.tokenizers as tokenizers
from espalier import Choice, Gbnf, JsonObject, JsonSchema, Regex, Vocab
from espalier.api import LoadedEngine
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import Network
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.constraints import free
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.free import MAX_PIECES, Free, Region
from espalier.constraints.matching.automaton import compile_network
from espalier.constraints.spec import Spec
from espalier.constraints.unique.places import watched_language
from espalier.constraints.verdict import Verdict, judge
from espalier.engines.fake import FakeStepModel
from espalier.engines.local.engine import LocalEngine
from espalier.errors import SpecError, TokenRefused, UnsupportedError, VocabError
from espalier.tokens import mask as masks
from tests.laws import check_matcher, matcher_after

TOOL = Free({"<tool>": Region(JsonObject(), end="</tool>"), "N:": Regex(r"\d{1,3}")})
CASES = {
    "tool": (
        TOOL,
        ["", "Hi, é!", "<tool", '<tool>{"a": "<tool>"}</tool> N:12.', "N:1N:23N:456<tool>{}</tool>", "日"],
        ["<tool>", "<tool>{}", "N:", "N:x", "<tool>{}</tool", "N:1 <tool>[]</tool>"],
    ),
    "grammar": (Free({"=": Gbnf('root ::= "(" root ")" | [a-z]')}), ["a", "=a=((b))c", "=(a))"], ["=", "=A", "a=(b"]),
    "nothing": (Free({"ab": Choice(["", "x"]), "bc": Region(Regex("y*"), end="z")}), ["ab", "abxabc"], ["bc", "bcy"]),
    "several": (
        Free(
            {
                "<f=": [
                    Region(Regex("[0-9]*"), begin="a>", end="</f>"),
                    Region(Choice(["x", ""]), begin="b>", end="</g>"),
                ],
                "N:": Regex("1"),
            }
        ),
        ["<f", "<f=a>12</f>N:1", "é<f=b></g><f=a></f>", "<f=b>x</g>"],
        ["<f=", "<f=c>", "<f=a>12</g>", "<f=b></f>"],
    ),
    "one begins like another": (
        Free({"a": [Regex("b*c"), Region(Regex("c*"), begin="b", end="bd"), Region(JsonObject(), begin="b{")]}),
        ["abc", "abbd", "abcbd", "ab{{}", "abbbcab{{}"],
        ["a", "ab", "abb", "ab{}", "abd"],
    ),
    "in one another": (
        Free({"[": Region(Free({"(": Region(Regex("a*"), end=")")}), end="]")}),
        ["[]", "[(a)]]", "("],
        ["[", "[(]"],
    ),
}


def compiler(vocab: Vocab | None = None) -> Compiler:
    return Compiler(vocab or Vocab.bytes())


BYTES = compiler()


# The spec


def test_json_and_back():
    spec = Free({"<tool_call>": Region(JsonObject(), end="</tool_call>"), "#": Choice(["a"])})
    assert spec.to_json() == {
        "kind": "free",
        "triggers": {
            "<tool_call>": {"spec": JsonObject().to_json(), "end": "</tool_call>"},
            "#": {"spec": {"kind": "choice", "options": ["a"]}, "end": ""},
        },
    }
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    short = {"kind": "free", "triggers": {"#": {"kind": "choice", "options": ["a"]}}}
    assert Spec.from_json(short) == Free({"#": Choice(["a"])})
    assert spec.triggers["#"] == (Region(Choice(["a"])),)
    several = Free({"<": [Region(Choice(["a"]), begin="b", end=">"), Regex("c")]})
    assert Spec.from_json(json.loads(json.dumps(several.to_json()))) == several
    assert several.triggers["<"][1] == Region(Regex("c"))
    assert hash(spec) == hash(Free(spec.triggers))


@pytest.mark.parametrize(
    ("triggers", "message"),
    [
        ({}, "no trigger"),
        ([], "triggers are"),
        ({"a": 3}, "a region is"),
        ({"a": {"end": "b"}}, "needs a `spec`"),
        ({"a": {"spec": {"kind": "regex", "pattern": "a"}, "stop": "b"}}, "no field 'stop'"),
        ({"a": {"spec": {"kind": "regex", "pattern": "a"}, "end": 3}}, "end of a region"),
        ({"": {"kind": "regex", "pattern": "a"}}, "empty"),
    ],
)
def test_json_that_is_not_well_formed(triggers, message):
    with pytest.raises(SpecError, match=message):
        Spec.from_json({"kind": "free", "triggers": triggers})


@pytest.mark.parametrize(("one", "other"), [("ab", "abc"), ("b", "abc"), ("bc", "abc")])
def test_triggers_within_one_another_are_refused(one, other):
    for both in ((one, other), (other, one)):
        with pytest.raises(SpecError, match=f"'{other}' could never be met: '{one}'"):
            Free(dict.fromkeys(both, Regex("x")))


def test_what_is_no_trigger_or_region():
    for triggers, message in (
        ({3: Regex("a")}, "is a string"),
        ({"\ud800": Regex("a")}, "Unicode"),
        ({"a": "b"}, "a region holds"),
        ("ab", "a mapping"),
    ):
        with pytest.raises(SpecError, match=message):
            Free(triggers)


def test_regions_without_an_automaton_are_refused():
    with pytest.raises(UnsupportedError, match="/pattern"):
        BYTES.compile(Free({"a": JsonSchema({"type": "string", "pattern": r"^(a*)b\1$"})}))
    with pytest.raises(UnsupportedError, match="Free cannot hold after"):
        BYTES.compile(Free({"a": Spec.from_json({"kind": "after", "marker": "x", "spec": Regex("a").to_json()})}))


def test_a_schema_is_a_region():
    compiled = BYTES.compile(Free({"<call>": Region(JsonSchema({"type": "integer", "minimum": 5}), end="</call>")}))
    assert compiled.accepts("so <call>7</call> it is")
    assert not compiled.accepts("so <call>3</call> it is")


# The language


@pytest.mark.parametrize("vocab", tokenizers.VOCABS)
@pytest.mark.parametrize("case", CASES)
def test_laws(case, vocab):
    spec, accepted, rejected = CASES[case]
    one = compiler(tokenizers.VOCABS[vocab]())
    compiled = one.compile(spec)
    assert isinstance(compiled, Compiled)
    assert isinstance(compiled.matcher(), Matcher)
    check_matcher(compiled, trie=one.trie, accepted=accepted, rejected=rejected)


@pytest.mark.slow
def test_laws_on_a_large_vocabulary():
    one = compiler(tokenizers.tekken_vocab())
    spec, accepted, rejected = CASES["tool"]
    check_matcher(one.compile(spec), trie=one.trie, accepted=accepted[3:5], rejected=rejected, walks=1)


def test_laws_of_free_text_under_another_constraint():
    compiled = BYTES.compile(AllOf(TOOL, Regex(r"[^\n]{0,14}")))
    check_matcher(
        compiled,
        trie=BYTES.trie,
        accepted=["", "N:1 N:2", "<tool>{}</tool>"[:0] + "a<tool"],
        rejected=["<tool>{}</tool>", "\n", "N:"],
    )


def test_free_text_with_regular_regions_is_regular():
    regular = Free({"<": Region(Regex("[a-c]*"), end=">")})
    compiled = BYTES.compile(AllOf(regular, Gbnf('root ::= "<" root ">" | "(" root ")" | [a-d]')))
    for text, valid in (("(<a>)", True), ("<a>", True), ("<d>", False), ("((d))", True), ("<<a>>", False)):
        assert compiled.accepts(text) == valid
    assert isinstance(BYTES.language(regular, wanted_by="this test"), Dfa)
    assert isinstance(BYTES.language(TOOL, wanted_by="this test"), Network)


def parts(triggers: dict[str, tuple[set[str], str]], text: str) -> bool:
    """Whether text is free (trigger region free)*, by the definition. A region: the texts it holds, and its end."""
    for start in range(len(text)):
        met = [trigger for trigger in triggers if text.startswith(trigger, start)]
        if met:
            (trigger,) = met
            held, end = triggers[trigger]
            rest = text[start + len(trigger) :]
            return any(rest.startswith(inner + end) and parts(triggers, rest[len(inner + end) :]) for inner in held)
    return True


HELD = {
    "b*": {"", "b", "bb", "bbb", "bbbb", "bbbbb"},
    "a|ab|ba": {"a", "ab", "ba"},
    "(ab)+": {"ab", "abab"},
    "|a": {"", "a"},
}
SMALL_CASES = [
    {"aa": ("b*", "")},
    {"ab": ("a|ab|ba", "")},
    {"ab": ("b*", "a")},
    {"b": ("|a", "b"), "aa": ("(ab)+", "")},
    {"ab": ("|a", ""), "ba": ("b*", "ab")},
    {"a": ("a|ab|ba", ""), "bb": ("b*", "")},
    {"aba": ("|a", "aa")},
]


@pytest.mark.parametrize("case", range(len(SMALL_CASES)))
def test_brute_force(case):
    described = SMALL_CASES[case]
    spec = Free({k: Region(Regex(held), end=end) for k, (held, end) in described.items()})
    triggers = {k: (HELD[held], end) for k, (held, end) in described.items()}
    texts = ["".join(letters) for n in range(8) for letters in itertools.product("ab", repeat=n)]
    accepted = {text for text in texts if parts(triggers, text)}
    compiled = BYTES.compile(spec)
    assert {text for text in texts if compiled.accepts(text)} == accepted
    assert {text for text in texts if len(text) < 6 and judge(spec, text).valid} == {t for t in accepted if len(t) < 6}
    assert isinstance(BYTES.language(spec, wanted_by="this test"), Dfa)
    # As a network, as where a region is not regular, it says the same.
    regions = [watched_language(region.spec, BYTES, wanted_by="Free") for _, region in spec.regions]
    network = compile_network(free._assemble(spec, regions, {}).network(), spec, BYTES.vocab, BYTES.trie)
    assert isinstance(network.machine, PushdownMachine)
    assert {text for text in texts if network.accepts(text)} == accepted
    tokens = [b"a", b"b", b"ab", b"aab", b"bba", b"baab", b""] + [bytes([b]) for b in range(256) if b not in b"ab"]
    small = compiler(Vocab.from_tokens(tokens, eos_ids=[6]))
    begun = {text[:n] for text in accepted for n in range(len(text) + 1)}
    rng = random.Random(case)
    for _ in range(20):
        matcher, text = small.compile(spec).matcher(), ""
        # What is begun within three letters can be ended within three more.
        while len(text) < 4:
            for token in range(6):
                longer = text + tokens[token].decode()
                if len(longer) <= 5:
                    assert matcher.allows(token) == (longer in begun)
            assert matcher.is_accepting == (text in accepted)
            allowed = [token for token in range(6) if matcher.allows(token)]
            token = rng.choice(allowed)
            matcher.advance(token)
            text += tokens[token].decode()


SEVERAL: list[dict[str, list[tuple[str, str, str]]]] = [
    {"a": [("b", "b*", "a"), ("bb", "|a", "")]},
    {"ab": [("", "|a", "b"), ("a", "b*", ""), ("b", "a|ab|ba", "a")]},
    {"a": [("", "(ab)+", ""), ("b", "b*", "")], "bb": [("a", "|a", "a")]},
]


@pytest.mark.parametrize("case", range(len(SEVERAL)))
def test_brute_force_of_several_regions_behind_a_trigger(case: int) -> None:
    described = SEVERAL[case]
    spec = Free(
        {
            trigger: [Region(Regex(held), begin=begin, end=end) for begin, held, end in regions]
            for trigger, regions in described.items()
        }
    )
    oracle = {
        trigger: ({begin + inner + end for begin, held, end in regions for inner in HELD[held]}, "")
        for trigger, regions in described.items()
    }
    texts = ["".join(letters) for n in range(8) for letters in itertools.product("ab", repeat=n)]
    accepted = {text for text in texts if parts(oracle, text)}
    compiled = BYTES.compile(spec)
    assert {text for text in texts if compiled.accepts(text)} == accepted
    assert {text for text in texts if len(text) < 6 and judge(spec, text).valid} == {t for t in accepted if len(t) < 6}
    regions = [watched_language(region.spec, BYTES, wanted_by="Free") for _, region in spec.regions]
    network = compile_network(free._assemble(spec, regions, {}).network(), spec, BYTES.vocab, BYTES.trie)
    assert {text for text in texts if network.accepts(text)} == accepted


def splits(text: str) -> Iterator[list[str]]:
    """Every way to cut a text."""
    for cuts in itertools.product([False, True], repeat=len(text) - 1):
        places = [0, *(i for i, cut in enumerate(cuts, 1) if cut), len(text)]
        yield [text[a:b] for a, b in itertools.pairwise(places)]


def test_a_trigger_is_met_however_it_is_split_into_tokens():
    text = "x<t>12.a"
    pieces = sorted({text[a:b] for a in range(len(text)) for b in range(a + 2, len(text) + 1)})
    vocab = Vocab.from_tokens([*(bytes([b]) for b in range(256)), b"", *map(str.encode, pieces)], eos_ids=[256])
    number = {**{chr(b): b for b in range(128)}, **{piece: 257 + i for i, piece in enumerate(pieces)}}
    one = compiler(vocab)
    compiled = one.compile(Free({"<t>": Region(Regex("[0-9]{2}"), end=".")}))
    for cut in splits(text):
        matcher = compiled.matcher()
        read = ""
        for piece in cut:
            matcher.advance(number[piece])
            read += piece
            within = "<t>" in read and "." not in read
            assert matcher.is_accepting == (not within)
            # A token may hold the end of a region and free text, but no region that is wrong.
            assert matcher.allows(number["12.a"]) == (read.endswith("<t>") or not within)
            if read == "x<t>":
                assert not matcher.allows(ord("x"))


def test_a_region_that_can_end_early_may_go_on_or_be_over():
    matcher = matcher_after(BYTES.compile(Free({"n": Regex(r"\d+|\d+!\d")})), "n1")
    assert matcher.is_accepting
    assert matcher.allows(ord("2"))
    assert matcher.allows(ord("!"))
    assert matcher.allows(ord("x"))
    matcher.advance(ord("!"))
    assert matcher.is_accepting  # the region was over before
    assert not matcher_after(BYTES.compile(Free({"n": Region(Regex(r"\d+"), end=";")})), "n1").is_accepting


# Special tokens


SPECIALS = {256: "<eos>", 257: "<tool>", 258: "</tool>", 259: "[T]", 260: "bc"}
NAMED = Vocab.from_tokens(
    [*(bytes([b]) for b in range(256)), *[b""] * 5, b"}</tool> and"], eos_ids=[256], special_ids=SPECIALS
)


def allowed(matcher: Matcher) -> list[int]:
    return [int(i) for i in masks.allowed_ids(matcher.mask(), NAMED.width) if i > 255]


def test_a_trigger_that_is_a_special_token_is_met_as_either():
    compiled = compiler(NAMED).compile(Free({"<tool>": Region(JsonObject(), end="</tool>"), "[T]": Regex("x")}))
    assert compiled.spelled == {257: b"<tool>", 258: b"</tool>", 259: b"[T]"}
    matcher = compiled.matcher()
    assert allowed(matcher) == [256, 257, 259, 261]
    matcher.advance("é".encode()[0])
    assert allowed(matcher) == []  # no token within a character
    matcher.advance("é".encode()[1])
    matcher.advance(257)
    assert masks.allowed_ids(matcher.mask(), NAMED.width).tolist() == [ord("{")]
    assert matcher.explain(258).rule == "free[<tool>].json_object"
    for byte in b'{"a":{':
        matcher.advance(byte)
    assert allowed(matcher) == []
    matcher.advance(ord("}"))
    assert allowed(matcher) == [261]
    matcher.advance(ord("}"))
    assert allowed(matcher) == [258]
    fork = matcher.fork()
    matcher.advance(258)
    assert matcher.is_accepting
    matcher.advance(259)
    assert matcher.shortest_completion() == (ord("x"), 256)
    for byte in b"</tool>":
        fork.advance(byte)
    assert allowed(fork) == [256, 257, 259, 261]
    for byte in b"<tool>{}":
        fork.advance(byte)
    assert allowed(fork) == [258]


def test_a_special_token_that_would_not_be_met_in_its_spelling_is_no_trigger():
    matcher = compiler(NAMED).compile(Free({"ab": Regex("x"), "bc": Regex("y")})).matcher()
    assert matcher.allows(260)
    matcher.advance(ord("a"))
    assert not matcher.allows(260)  # "abc" holds "ab" first
    matcher.rollback(1)
    matcher.advance(260)
    assert masks.allowed_ids(matcher.mask(), NAMED.width).tolist() == [ord("y")]


def test_a_region_may_name_tokens_itself():
    spec = Free({"#": Gbnf('root ::= <tool> root | "a"'), "[T]": Region(Gbnf("root ::= <bc>"), end="</tool>")})
    with pytest.raises(VocabError, match="<bc>"):
        compiler(NAMED).compile(spec)
    matcher = compiler(NAMED).compile(Free({"#": Gbnf('root ::= <tool> root | "a"'), "[T]": Choice(["b"])})).matcher()
    matcher.advance(ord("#"))
    assert masks.allowed_ids(matcher.mask(), NAMED.width).tolist() == [ord("a"), 257]
    matcher.advance(257)
    matcher.advance(ord("a"))
    assert allowed(matcher) == [256, 259, 261]
    matcher.advance(259)
    assert masks.allowed_ids(matcher.mask(), NAMED.width).tolist() == [ord("b")]


def test_laws_with_special_tokens():
    one = compiler(NAMED)
    check_matcher(
        one.compile(Free({"[T]": Region(Regex("a+"), end="</tool>")})),
        trie=one.trie,
        accepted=["", "[T]aa</tool>é"],
        rejected=["[T]", "[T]a"],
    )


def test_a_special_trigger_is_shown_and_judged_as_its_spelling():
    script = [ord("a"), 257, ord("{"), ord("}"), 258, ord("b"), 256]

    def logits_of(tokens):
        row = np.zeros(NAMED.width, dtype=np.float32)
        row[script[len(tokens) - 1]] = 9
        return row

    engine = LocalEngine(
        name="script", vocab=NAMED, model=FakeStepModel(logits_of, width=NAMED.width), encode=lambda text, **_: [0]
    )
    spec = Free({"<tool>": Region(JsonObject(), end="</tool>")})
    result = LoadedEngine(engine).generate("x", constraint=spec, temperature=0, max_tokens=9)
    assert result.token_ids == tuple(script)
    assert result.text == "a<tool>{}</tool>b"
    assert result.verdict.valid is True


def test_special_tokens_join_others_and_eos_is_no_trigger():
    one = compiler(NAMED)
    made = one.compile(AllOf(Free({"x": Region(Regex("a"), end="</tool>")}), Regex("[xa<>/tol]*")))
    matcher = made.matcher()
    for token in (*one.trie.segment(b"xa"), NAMED.special_id("</tool>")):
        matcher.advance(token)
    assert matcher.is_accepting
    assert matcher.explain(ord("b")).member == "all_of[1].regex"
    short = one.compile(AllOf(Free({"x": Region(Regex("a"), end="</tool>")}), Regex("[xa<>/to]*"))).matcher()
    with pytest.raises(TokenRefused):
        short.advance(ord("x"))  # the end of its region could not be spelled
    with pytest.raises(UnsupportedError, match="</tool> is a special token"):
        one.language(Free({"x": Region(Regex("a"), end="</tool>")}), wanted_by="this test")
    with pytest.raises(VocabError, match="ends the text"):
        one.compile(Free({"<eos>": Regex("a")}))


# Reasons and verdicts


def test_explain_names_the_trigger_whose_region_refused():
    compiled = BYTES.compile(TOOL)
    told = matcher_after(compiled, "a <tool>{").explain(ord("x"))
    assert (told.member, told.rule, told.expected) == ("free", "free[<tool>].json_object", '\'"\' or "}"')
    told = matcher_after(compiled, "a N:").explain(256)
    assert (told.rule, told.expected) == ("free[N:].regex", "a digit or some characters past ASCII")
    assert told.reason == "the text is not complete, so it cannot end here"
    told = matcher_after(compiled, "a <tool>{}</to").explain(ord("x"))
    assert (told.rule, told.expected) == ("free[<tool>].json_object", '"o"')
    told = matcher_after(compiled, "a ").explain(0x80)
    assert (told.member, told.rule) == ("free", None)


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_agrees_with_the_language(case):
    spec, accepted, rejected = CASES[case]
    for text in [*accepted, *rejected]:
        unknown = case == "grammar" and "=" in text  # nobody judges grammars
        assert judge(spec, text).valid is (None if unknown else text in accepted)


def test_a_verdict_says_where_and_why():
    found = judge(TOOL, "N:1 <tool>[1]</tool>")
    assert found.judge == "search and json and re"
    assert found.errors == ("free[<tool>].json_object at character 10: array is none of: object",)
    assert judge(TOOL, "<tool>{}").errors == (
        "free[<tool>].json_object at character 6: '</tool>' does not come after it",
    )


def test_a_judge_that_cannot_say_is_not_asked_for_ever(monkeypatch):
    asked = []

    def judge_one(spec, text, words):
        asked.append(text)
        return Verdict(valid=None, judge="nobody", errors=("did not finish",))

    monkeypatch.setattr(free, "judge_in_grammar", judge_one)
    found = judge(Free({"#": Regex("a*")}), "#" + "a" * 400)
    assert found.valid is None
    assert found.errors == ("free[#].regex at character 1: did not finish",)
    assert len(asked) <= 3


def test_a_verdict_that_would_take_too_long_is_none():
    spec = Free({"#": Choice(["a"])})
    assert judge(spec, "#a" + "b" * 10 * MAX_PIECES).valid is True
    found = judge(spec, "#" + "b" * 10 * MAX_PIECES)
    assert found.valid is None
    assert str(MAX_PIECES) in found.errors[0]
