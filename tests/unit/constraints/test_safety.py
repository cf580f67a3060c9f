"""The filter as users put it together, what it refuses, and the faults of the filter it comes after."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.tokenizers as tokenizers
from espalier.constraints.ban import Ban
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.filters.safety import SafetyFilter
from espalier.constraints.joining.rule import together
from espalier.constraints.safety.catalogue import CATEGORIES, NEEDS_LIST, PATTERNS, PRESETS
from espalier.constraints.safety.compile import filter_of
from espalier.constraints.safety.judge import find, first_found
from espalier.constraints.safety.spec import Custom, Safety, merged_safety, safety_of
from espalier.constraints.spec import JsonSchema, Regex, Spec
from espalier.constraints.verdict import judge
from espalier.errors import InputError, LimitExceeded, RegexError, SpecError, UnknownName, UnsupportedError
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.laws import check_matcher, matcher_after

SHELL = Safety("minimal")


BYTES = Compiler(Vocab.bytes())


def allows(spec, text):
    return BYTES.compile(spec).accepts(text)


@pytest.mark.parametrize("vocab", tokenizers.VOCABS)
@pytest.mark.parametrize("mode", ["mask", "rewind"])
def test_laws(vocab, mode):
    one = Compiler(tokenizers.VOCABS[vocab]())
    spec = Safety(
        categories=["credentials", "violence"],
        lists={"violence": ["krump", "gut punch"]},
        patterns=["ñandú"],
        mode=mode,
    )
    check_matcher(
        one.compile(spec),
        trie=one.trie,
        accepted=["", "krumps gut  punch", "my password: x", "日本 🌳 ｋrum"],
        rejected=["krump", "a gut punch!", "password=hunter2", "ＫＲＵＭＰ.", "ÑANDÚ", b"\xff", b"\xc3"],
    )


def test_presets_hold_the_categories_of_the_original():
    assert Safety("minimal").categories == ("code_injection",)
    assert set(Safety("standard").categories) == {"code_injection", "credentials"}
    assert set(Safety("strict").categories) == {"code_injection", "credentials", "pii", "violence", "dangerous"}
    assert Safety("maximum").categories == tuple(CATEGORIES)
    assert len(CATEGORIES) == 9
    assert {one.category for one in PATTERNS} == set(CATEGORIES) - set(NEEDS_LIST)


def test_the_builder_of_the_original():
    built = SafetyFilter("standard").enable_category("violence").disable_category("credentials")
    built.add_custom_banned_pattern("rm -i").add_custom_banned_pattern("foo+", regex=True).load_list(
        "violence", ["maul"]
    )
    spec = built.spec()
    assert spec.categories == ("violence", "code_injection")
    assert spec.patterns == (Custom("rm -i"), Custom("foo+", True))
    assert not allows(spec, "they MAUL")
    assert not allows(spec, "Rm -I x")
    assert not allows(spec, "xfoo")
    assert allows(spec, "password=x")
    assert SafetyFilter().apply_preset("standard").apply_preset("minimal").spec() == SHELL
    assert SafetyFilter("strict").include("email").apply_preset("minimal").spec() == SHELL


def test_a_filter_survives_json():
    spec = Safety(
        "standard",
        categories=["pii", "hate"],
        without=["code_injection"],
        include=["email"],
        exclude=["iban"],
        patterns=["a b", {"regex": "x[0-9]+y"}],
        lists={"hate": ["Zorblax", "ｚorblax"]},
        mode="rewind",
    )
    assert spec.lists == (("hate", ("zorblax",)),)
    back = Spec.from_json(json.loads(json.dumps(spec.to_json())))
    assert back == spec
    assert back.key() == spec.key()
    assert spec.rewinds
    assert safety_of("strict") == Safety("strict")
    assert safety_of({"preset": "minimal", "patterns": ["x"]}) == Safety("minimal", patterns=["x"])


def test_a_category_without_a_list_is_told():
    told = {entry["category"]: entry for entry in Safety("maximum").describe()}
    assert {name for name, entry in told.items() if not entry["enforced"]} == set(NEEDS_LIST)
    assert "it needs a list" in told["hate"]["note"]
    assert "note" not in told["pii"]
    assert Safety("maximum").unenforced() == tuple(name for name in CATEGORIES if name in NEEDS_LIST)
    assert Safety("strict", lists={"violence": ["maul"]}).unenforced() == ()
    with pytest.raises(SpecError, match="nothing would be enforced: hate needs a list"):
        Safety(categories=["hate"])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Safety("strikt"), UnknownName, "preset 'strikt' .did you mean 'strict'.*known: minimal"),
        (lambda: Safety(categories=["hat"]), UnknownName, "unknown safety category 'hat' .did you mean 'hate'"),
        (lambda: SafetyFilter().apply_preset("x"), UnknownName, "known: minimal, standard, strict, maximum"),
        (lambda: SafetyFilter().enable_category("x"), UnknownName, "known: profanity, violence"),
        (lambda: SafetyFilter().disable_category("x"), UnknownName, "known: profanity, violence"),
        (lambda: Safety("pii"), UnknownName, "unknown safety preset"),
        (lambda: Safety("minimal", include=["emial"]), UnknownName, "did you mean 'email'"),
        (lambda: Safety("minimal", include=["email"]), SpecError, "belongs to pii, which is not enabled"),
        (Safety, SpecError, "there is nothing to enforce"),
        (lambda: Safety("minimal", mode="soft"), SpecError, "unknown mode"),
        (lambda: Safety("minimal", lists={"hate": ["x"]}), SpecError, "hate, which is not enabled"),
        (lambda: Safety(categories=["hate"], lists={"hate": ["a", " "]}), InputError, "phrase 1 of hate is empty"),
        (lambda: Safety(categories=["hate"], lists={"hate": "abc"}), InputError, "list of strings"),
        (lambda: Safety(categories=["hate"], lists={"hate": [3]}), SpecError, "is a string, not int"),
        (lambda: Safety(patterns=[""]), SpecError, "pattern 0 is empty"),
        (lambda: Safety(patterns="abc"), SpecError, "patterns are a list"),
        (lambda: Safety(patterns=[{"glob": "x"}]), SpecError, "with `regex` or `text`"),
        (lambda: Safety(patterns=["\ud800"]), SpecError, "not valid Unicode"),
        (lambda: Safety(patterns=["x" * 1001 + str(i) for i in range(30_000)]), LimitExceeded, "at most 20000"),
        (lambda: Spec.from_json({"kind": "safety", "presets": "x"}), SpecError, "no field 'presets'"),
        (lambda: safety_of(3), InputError, "name of a preset or an object"),
    ],
)
def test_what_is_no_filter_is_refused(make, error, words):
    with pytest.raises(error, match=words) as caught:
        make()
    assert isinstance(caught.value, InputError | LimitExceeded)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "error", "words"),
    [
        ("a*", SpecError, "matches the empty text"),
        ("^$", SpecError, "matches the empty text"),
        ("(?s:.)", SpecError, "found in every text but a few short ones"),
        (r"[\s\S]{3}", SpecError, "found in every text but a few short ones"),
        (r"\w|\W", SpecError, "found in every text but a few short ones"),
        ("a^b", SpecError, "matches no text at all"),
        ("(a", RegexError, "never closed"),
        (r"(a)\1", UnsupportedError, "back-reference"),
        ("(?:a|b)*a(?:a|b){30}", LimitExceeded, "states together"),
        ("(?:a{1,900}){1,900}", LimitExceeded, "positions"),
        ("(?:.{0,200}x.{0,200}y){1,9}", LimitExceeded, "states together"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused_in_bounded_time(pattern, error, words):
    with pytest.raises(error, match=words):
        Compiler(Vocab.bytes()).compile(Safety(patterns=[{"regex": pattern}]))


def test_two_patterns_that_leave_nothing_are_refused():
    with pytest.raises(SpecError, match="leave next to no text"):
        filter_of(Safety(patterns=[{"regex": "[a-m]"}, {"regex": "[^a-m]"}]))


# Faults of the filter of formats.md 2.5, one test each.


def test_original_banned_every_token_with_a_backtick():
    assert allows(Safety("maximum"), "```python\nprint('x')\n```\n`${x}` and `$(pwd)`")


def test_original_never_caught_what_several_tokens_spell():
    pieces = [b"", b"rm", b" -", b"rf", b"pass", b"word", b"=hunter2"]
    vocab = Vocab.from_tokens([bytes([b]) for b in range(256)] + pieces, eos_ids=[256])
    compiled = Compiler(vocab).compile(Safety("standard"))
    matcher = compiled.matcher()
    for token in (257, 258):
        matcher.advance(token)
    assert not matcher.allows(259)
    assert matcher.allows(ord("r"))
    matcher.advance(ord("r"))
    assert not matcher.allows(ord("f"))
    matcher = compiled.matcher()
    for token in (260, 261):
        matcher.advance(token)
    assert not matcher.allows(262)
    assert matcher.allows(256)


@pytest.mark.parametrize("text", ["rm -rf /", "sudo rm x"])
def test_original_did_not_have_what_its_guide_says(text):
    assert not allows(SHELL, text)


def test_original_had_no_number_patterns():
    assert not allows(Safety("strict"), "123-45-6789")
    assert not allows(Safety("strict"), "4111 1111 1111 1111")
    assert allows(Safety("strict"), "social security, credit card, card number")


def test_original_ignored_an_unknown_preset():
    with pytest.raises(UnknownName):
        SafetyFilter("paranoid")


def test_original_ignored_a_list_loaded_after_enabling():
    late = SafetyFilter().enable_category("profanity").load_list("profanity", ["smeg"]).spec()
    early = SafetyFilter().load_list("profanity", ["smeg"]).enable_category("profanity").spec()
    assert late == early
    assert not allows(late, "smeg")


def test_original_took_the_buffer_s_length_for_the_matched_length():
    # A long text before a sequence, and a sequence begun twice, changed which token was banned.
    compiled = Compiler(Vocab.bytes()).compile(Safety(patterns=["abcabd"]))
    for before in ("", "x", "x" * 300, "abc", "abcab"):
        matcher = matcher_after(compiled, f"{before}abcab")
        assert not matcher.allows(ord("d"))
        assert matcher.allows(ord("c"))
        assert matcher.allows(ord("b"))


def test_original_left_other_categories_empty_without_a_word():
    assert [entry["enforced"] for entry in Safety("strict").describe() if entry["category"] == "violence"] == [False]


# What it says.


def test_a_refusal_names_category_and_pattern():
    compiled = Compiler(Vocab.bytes()).compile(SHELL)
    told = matcher_after(compiled, "then rm -r").explain(ord("f"))
    assert (told.member, told.rule, told.offset) == ("safety", "code_injection/rm_recursive_force", 0)
    assert told.reason == 'with "f" it would complete code_injection: rm -rf, -fr, -r -f, --recursive --force'
    pending = matcher_after(compiled, "x | sh")
    assert not pending.is_accepting
    assert "the text cannot end here" in pending.explain(256).reason
    assert pending.explain(256).rule == "code_injection/pipe_to_shell"
    assert pending.explain(0xFF).rule is None
    own = Compiler(Vocab.bytes()).compile(AllOf(Regex("[a-z ]*"), Safety(patterns=["bad word"])))
    told = matcher_after(own, "a bad wor").explain(ord("d"))
    assert (told.member, told.rule) == ("all_of[1].safety", "custom/bad word")


def test_a_schema_whose_only_key_is_a_secret_is_an_error_when_compiled():
    schema = {
        "type": "object",
        "properties": {"rm -rf /": {"type": "string"}},
        "required": ["rm -rf /"],
        "additionalProperties": False,
    }
    with pytest.raises(SpecError, match=r"no text satisfies all_of\[0\].json_schema and all_of\[1\].safety at once"):
        Compiler(Vocab.bytes()).compile(AllOf(JsonSchema(schema), Safety("standard")))
    schema["properties"]["name"] = {"type": "string"}
    schema["required"] = ["name"]
    compiled = Compiler(Vocab.bytes()).compile(AllOf(JsonSchema(schema), Safety("standard")))
    assert compiled.accepts('{"name": "x"}')
    assert not compiled.accepts('{"name": "rm -rf /"}')


def test_filters_add_up():
    one, other = Safety("minimal", patterns=["x"]), Safety(categories=["pii"], exclude=["iban"], mode="rewind")
    whole = merged_safety([one, other])
    assert whole == Safety(categories=["code_injection", "pii"], exclude=["iban"], patterns=["x"], mode="rewind")
    assert together(None, one) == one
    assert together(Regex("a"), None) == Regex("a")
    assert together(AllOf(Regex("a+"), one, Ban(["b"])), other) == AllOf(Regex("a+"), Ban(["b"]), whole)


def test_the_verdict_is_by_search():
    verdict = judge(SHELL, "then rm -rf / | sh\n")
    assert (verdict.valid, verdict.judge) == (False, "re")
    assert verdict.errors == (
        "code_injection/rm_recursive_force at character 5",
        "code_injection/pipe_to_shell at character 14",
    )
    assert judge(SHELL, "ls").valid is True
    slow = Safety(patterns=[{"regex": "(?:a+)+b"}])
    assert judge(slow, "a" * 60).valid is None


def test_findings_have_their_places_in_characters_and_bytes():
    (found,) = find(SHELL, "日本: rm -rf x")
    assert (found.start, found.end, found.start_byte, found.end_byte) == (4, 10, 8, 14)
    assert first_found(SHELL, "日本: rm -rf x", from_byte=9) is None
    assert first_found(SHELL, "日本: rm -rf x") == 8


def test_a_match_that_is_tried_is_taken_back_to_its_beginning():
    compiled = Compiler(Vocab.bytes()).compile(Safety(patterns=["krump them", {"regex": "zor+b"}], mode="rewind"))
    matcher = compiled.matcher()
    for byte in b"we krump the":
        matcher.advance(byte)
    assert matcher.unsettled == len("krump the")
    assert list(masks.allowed_ids(matcher.undoable(), 257)) == [ord("M"), ord("m")]
    recall = matcher.recall(ord("m"))
    assert (recall.count, recall.blame.rule) == (len("krump them"), "custom/krump them")
    matcher.advance(ord("y"))
    assert matcher.unsettled == 0
    assert not matcher.undoable().any()


# No output of any tokenisation holds a match, and none is trapped.

PIECES = ["r", "m", " ", "-", "f", "rf", "rm -", "|", "sh", "ba", "\n", "kru", "mp", "K", "４", "1", "11", "x", "é"]
PIECES += ["="]


@pytest.fixture(scope="module")
def pieces():
    tokens = [piece.encode() for piece in PIECES] + [b"\xc3", b"\xa9", b"", "ｒm".encode()]
    vocab = Vocab.from_tokens([*tokens, *(bytes([b]) for b in range(256))], eos_ids=[PIECES.index("=") + 3])
    spec = Safety("minimal", categories=["violence", "pii"], lists={"violence": ["krump"]}, patterns=["x=1"])
    return Compiler(vocab).compile(spec), spec


@settings(max_examples=examples(25), deadline=None)
@given(choices=st.lists(st.integers(0, 10**6), max_size=30))
def test_no_output_of_any_tokenisation_holds_a_match(pieces, choices):
    compiled, spec = pieces
    matcher = compiled.matcher()
    data = b""
    for choice in choices:
        # The few pieces first: single bytes would hardly ever come near a match.
        allowed = [t for t in range(len(PIECES) + 4) if matcher.allows(t) and t not in compiled.vocab.eos_ids]
        if not allowed:
            break
        token = allowed[choice % len(allowed)]
        matcher.advance(token)
        data += compiled.vocab.bytes_of(token)
    for token in matcher.shortest_completion():
        matcher.advance(token)
        data += compiled.vocab.bytes_of(token)
    assert matcher.is_finished
    assert find(spec, data.decode()) == []


@settings(max_examples=examples(60), deadline=None)
@given(text=st.text(alphabet="rm -fF|bashｓ\nkruKRUMPmp14=x5é;$(", max_size=24))
def test_the_automaton_and_the_search_agree(pieces, text):
    compiled, spec = pieces
    assert compiled.accepts(text) == (not find(spec, text))


def test_presets_are_known():
    assert list(PRESETS) == ["minimal", "standard", "strict", "maximum", "code_safety"]
