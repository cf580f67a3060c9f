"""`After`: the laws over every kind of inner constraint, and masks against a plain reading of the bytes."""

import json
import random
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.tokenizers as tokenizers
from espalier.automata.languages.dfa import Dfa
from espalier.constraints.after.spec import After
from espalier.constraints.ban import Ban
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Choice, JsonObject, JsonSchema, Regex, Spec
from espalier.constraints.verdict import judge, parse
from espalier.errors import InputError, SpecError, TokenRefused, UnsupportedError, VocabError
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.laws import check_completion, check_matcher, check_walk

USER = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
END = "</think>"
CASES = {
    "schema": (
        After(END, JsonSchema(USER)),
        ['</think>{"name": "Zoë"}', '<think>hm é</thi</think>\n\n{"name":"A</think>"}'],
        ['{"name":"A"}', '</think>\n\n\n\n\n{"name":"A"}', "</think>", '</think>x{"name":"A"}'],
    ),
    "object": (
        After(END, JsonObject(), max_before=1000),
        ["</think>{}", '日本</think> \t\r\n{"a": [1]}'],
        ["{}", "</think>[]", "</think>{}</think>{}"],
    ),
    "regex": (After("a.", Regex(r" ?[a-z>]{2,4}")), ["a.ab", "xa.\n\n zzz", "aa.a>"], ["a.a", "a. \nab", "a.ab "]),
    "choice": (
        After(END, Choice(["", "yes", " no", END])),
        ["</think>", "x</think>yes", "</think>\n no", "</think></think>"],
        ["", "</think>y", "</think>x"],
    ),
    "no gap": (After("=>", Regex("[0-9]+"), gap=False), ["=>1", "é=>>=>"[:3] + "12"], ["=> 1", "=>", "1"]),
    "nested": (
        After("</a>", After("</b>", Choice(["yes", "yo"]))),
        ["x</b></a>y</a></b>yes", "</a></b>yo"],
        ["</b></a>yes", "</a>yes"],
    ),
    "overlapping marker": (After("abab", Regex("[ab]+")), ["ababa", "xabaabab b"], ["abab", "aba"]),
    "a ban": (After("\n\n", Ban(["foo"])), ["x\n\n", "\n\n\n\nfo"], ["x", "\n\nfoo"]),
}


@cache
def compiler(name):
    return Compiler({**tokenizers.VOCABS, "marked": marked_vocab}[name]())


PIECES = (
    *("</think>", "</", "think", ">", "k>", ">{", '>{"', ">\n\n", ">\n\n{", ">\n\n\n\n\n", "</think>{", "</think>x"),
    *("\n\n", "\n\n{", " {", "  ", "     ", "<think>", "x</think>\n", "a.", "a. ", "a.a", "ab", "aba", "abab", "=>1"),
    *("é</think>", "x</th", "日本", "e\n\n", "\n\nf", ">yes", ">\nyes", "></b>", "b></a>y"),
)


def marked_vocab():
    """Bytes, tokens over every border, and the marker as a special token too; a padded width."""
    tokens = [bytes([b]) for b in range(256)] + [b"", b"", b""] + [piece.encode() for piece in PIECES]
    tokens += ["日".encode()[1:] + b"</", "é".encode()[1:] + b"<", b"<\xff"]
    specials = {256: "<eos>", 257: END, 258: "<think>"}
    return Vocab.from_tokens(tokens, eos_ids=[256], special_ids=specials, width=len(tokens) + 3)


@pytest.mark.parametrize("vocab", ["bytes", "byte-level", "sentencepiece", "marked"])
@pytest.mark.parametrize("case", CASES)
def test_laws(case, vocab):
    spec, accepted, rejected = CASES[case]
    one = compiler(vocab)
    check_matcher(one.compile(spec), trie=one.trie, accepted=accepted, rejected=rejected)


def test_laws_along_a_special_marker():
    one = compiler("marked")
    for inner in (JsonSchema(USER), Regex('.*"A"}')):
        compiled = one.compile(After(END, inner))
        for head in ((257,), (258, ord("x"), 257), (ord("<"), ord("/"), 257)):
            check_walk(compiled, (*head, *one.trie.segment(b'\n\n{"name":"A"}')), random.Random(0))


# A plain reading of the bytes, against which masks are checked.


def utf8_left(data):
    """How many bytes the last character still needs at least, None if this is no beginning of UTF-8."""
    for end in (
        b"",
        b"\x80",
        b"\xa0",
        b"\x90",
        b"\x80\x80",
        b"\xa0\x80",
        b"\x90\x80",
        b"\xa0\x80\x80",
        b"\x90\x80\x80",
        b"\x80\x80\x80",
    ):
        try:
            (data + end).decode()
        except UnicodeDecodeError:
            continue
        return len(end)
    return None


def inside(rest, inner, gap):
    """Whether these bytes can follow the marker, and whether they may end the text."""
    state, used = None, 0
    for byte in rest:
        if state is None:
            if inner.step(inner.start, byte) >= 0:
                state = inner.start
            elif gap and byte in b" \n\t\r" and used < 4:
                used += 1
                continue
            else:
                return False, False
        state = inner.step(state, byte)
        if state < 0:
            return False, False
    return True, bool(inner.accepting[inner.start if state is None else state])


def distance(data, marker):
    begun = max(n for n in range(len(marker)) if data.endswith(marker[:n]))
    return len(marker) - begun + (0 if begun else utf8_left(data))


def plain_mask(spec, inner, vocab, tokens):
    """The allowed tokens after `tokens`, read byte by byte."""
    marker = spec.marker.encode()
    spelled = [vocab.bytes_of(t) for t in range(vocab.width)]
    for token, text in vocab.special_texts.items():
        if text in (spec.marker, spec.opening):
            spelled[token] = text.encode()
    said = b"".join(spelled[t] for t in tokens)
    place = said.find(marker)
    if place >= 0:
        rest = said[place + len(marker) :]
        found = {t for t, data in enumerate(vocab.tokens) if data and inside(rest + data, inner, spec.gap)[0]}
        return found | ({*vocab.eos_ids} if inside(rest, inner, spec.gap)[1] else set())
    hurried = spec.max_before is not None and len(tokens) >= spec.max_before
    found = set()
    for token, data in enumerate(spelled):
        whole = said + data
        at = whole.find(marker)
        head = whole if at < 0 else whole[: at + len(marker)]
        if not data or utf8_left(head) is None:
            continue
        if at >= 0 and not inside(whole[len(head) :], inner, spec.gap)[0]:
            continue
        if hurried and vocab.special_texts.get(token) != spec.marker:
            steps = [distance(said + data[:n], marker) for n in range(len(head) - len(said) + (at < 0))]
            steps += [0] if at >= 0 else []
            if any(later != earlier - 1 for earlier, later in pairwise(steps)):
                continue
        found.add(token)
    return found


INNERS = {"{[a-z]*}": [END], " ?[a-z>]*": ["a.", "k>"], "ab*": ["abab", "aa", "é日"], "\\s+x|y": ["\n\n", ">"]}


@pytest.mark.parametrize("max_before", [None, 0, 1, 3])
@pytest.mark.parametrize("gap", [True, False])
@settings(max_examples=examples(20))
@given(data=st.data())
def test_masks_are_every_token_that_leads_on(max_before, gap, data):
    pattern = data.draw(st.sampled_from(list(INNERS)))
    marker = data.draw(st.sampled_from(INNERS[pattern]))
    one = compiler("marked")
    spec = After(marker, Regex(pattern), max_before=max_before, gap=gap)
    inner = one.language(Regex(pattern), wanted_by="a test")
    assert isinstance(inner, Dfa)
    matcher = one.compile(spec).matcher()
    taken, seen = [], []
    for _ in range(8):
        seen.append(set(masks.allowed_ids(matcher.mask(), one.vocab.width).tolist()))
        assert seen[-1] == plain_mask(spec, inner, one.vocab, taken)
        assert {t for t in range(one.vocab.width) if matcher.allows(t)} == seen[-1]
        check_completion(matcher)
        forced = matcher.fork()
        for token in matcher.forced():
            forced.advance(token)
        for token in sorted(set(range(one.vocab.width)) - seen[-1])[::7]:
            assert matcher.explain(token).member.startswith("after")
        choices = sorted(seen[-1] - {256})
        if not choices:
            break
        rare = [t for t in choices if t > 256]
        taken.append(data.draw(st.sampled_from(rare if rare and data.draw(st.booleans()) else choices)))
        matcher.advance(taken[-1])
    for depth in range(1, len(seen)):
        copy = matcher.fork()
        copy.rollback(len(taken) - len(seen) + 1 + depth)
        assert set(masks.allowed_ids(copy.mask(), one.vocab.width).tolist()) == seen[-1 - depth]


def tokens_of(vocab, *pieces):
    return [vocab.tokens.index(piece.encode() if isinstance(piece, str) else piece) for piece in pieces]


def walked(compiled, *pieces):
    matcher = compiled.matcher()
    for token in tokens_of(compiled.vocab, *pieces):
        matcher.advance(token)
    return matcher


def allowed(matcher, vocab):
    return {vocab.text_of(int(i)) for i in masks.allowed_ids(matcher.mask(), vocab.width)}


def test_the_budget_ends_in_the_marker_at_once():
    one = compiler("marked")
    compiled = one.compile(After(END, JsonSchema(USER), max_before=2))
    assert allowed(walked(compiled, "x", "日本"), one.vocab) == {"<", "</", END, "</think>{"}
    # Halves are finished: of a character, and of a marker that had begun.
    half = walked(compiled, "x", b"\xc3")
    assert {t for t in range(256) if half.allows(t)} == set(range(0x80, 0xC0))
    assert allowed(half, one.vocab) == {"�", "�<"}
    begun = walked(compiled, "</", "think")
    assert allowed(begun, one.vocab) == {">", ">{", '>{"', ">\n\n", ">\n\n{", END}
    assert begun.forced() == ()  # the marker's token may come as well
    assert one.vocab.special_id(END) in masks.allowed_ids(begun.mask(), one.vocab.width)
    assert walked(compiled, "x", "日本").forced() == (one.vocab.special_id(END),)


def test_without_a_special_token_the_marker_is_forced():
    one = compiler("bytes")
    matcher = one.compile(After("=>", Regex("yes"), max_before=0)).matcher()
    assert matcher.forced() == tuple(b"=>")
    assert matcher.shortest_completion() == (*b"=>yes", 256)
    for byte in b"=>":
        matcher.advance(byte)
    assert matcher.forced() == ()  # whitespace may come first
    for byte in b"\n\n\n\n":
        matcher.advance(byte)
    assert matcher.forced() == tuple(b"yes")
    assert one.compile(After("=>", Regex("yes"), gap=False)).matcher(before="=>").forced() == tuple(b"yes")


def test_the_shortest_completion_keeps_to_the_budget():
    one = compiler("marked")
    for most in (None, 0, 1, 2, 5):
        matcher = one.compile(After("</think>\n", Regex("[0-9]"), max_before=most)).matcher()
        check_completion(matcher)
        for byte in "日".encode()[:most][:2]:
            matcher.advance(byte)
            check_completion(matcher)
    free = one.compile(After("</think>\n", Regex("[0-9]")))
    assert len(free.matcher().shortest_completion()) == 3  # "x</think>\n", a digit, EOS
    check_completion(one.compile(After(END, JsonSchema(USER))).matcher())


def test_the_budget_needs_every_byte():
    tokens = [bytes([b]) for b in range(255)] + [b""]
    vocab = Vocab.from_tokens([t for t in tokens if t != b"\x90"], eos_ids=[254])
    with pytest.raises(VocabError, match="max_before"):
        Compiler(vocab).compile(After(".", Regex("x"), max_before=3))
    assert Compiler(vocab).compile(After(".", Regex("x"))).accepts("é.x")


def test_a_marker_that_only_a_special_token_spells():
    tokens = [b"a", b"b", b"", b"", b"xa", b"x"]
    vocab = Vocab.from_tokens(tokens, eos_ids=[2], special_ids={2: "<eos>", 3: "</t>"})
    compiled = Compiler(vocab).compile(After("</t>", Regex("ab*"), gap=False))
    matcher = compiled.matcher()
    assert set(masks.allowed_ids(matcher.mask(), vocab.width).tolist()) == {0, 1, 3, 4, 5}
    assert matcher.shortest_completion() == (3, 0, 2)
    assert compiled.accepts("ab</t>ab")
    with pytest.raises(VocabError):
        Compiler(vocab).compile(After("</u>", Regex("a")))


def test_special_tokens_are_spelled():
    one = compiler("marked")
    assert one.compile(After(END, Regex("x"))).spelled == {257: b"</think>", 258: b"<think>"}
    assert one.compile(After("k>", After(END, Regex("x")))).spelled == {257: b"</think>", 258: b"<think>"}
    assert compiler("bytes").compile(After(END, Regex("x"))).spelled == {}
    matcher = one.compile(After(END, Regex("x"))).matcher()
    for token in (258, ord("a"), 257):
        matcher.advance(token)
    assert allowed(matcher, one.vocab) >= {"x", "\n", "  "}
    assert not matcher.allows(257)
    half = walked(one.compile(After(END, Regex("x"))), b"\xc3")
    assert not half.allows(257)


def test_a_marker_that_ends_the_text_is_refused():
    with pytest.raises(UnsupportedError, match="ends the text"):
        compiler("marked").compile(After("<eos>", Regex("x")))


@pytest.mark.parametrize(
    ("before", "waits"),
    [
        ("", True),
        ("<think>\n", True),
        ("<think>\n\n</think>\n\n", False),
        ("</think>", False),
        ("a</think> <think>", True),
        ("<think>a</think> <think> </think>\t", False),
    ],
)
def test_the_prompt_may_hold_the_marker(before, waits):
    one = compiler("byte-level")
    spec = After(END, JsonObject())
    assert one.compile(spec).matcher(before=before).is_waiting == waits
    assert one.compile(After(END, JsonObject(), in_prompt="no")).matcher(before=before).is_waiting
    assert not one.compile(After(END, JsonObject(), in_prompt="yes")).matcher(before=before).is_waiting
    assert spec.begun(before) == ("" if waits else END)


def test_the_prompt_may_hold_the_beginning_of_the_answer():
    one = compiler("byte-level")
    spec = After(END, JsonSchema(USER))
    before = '<think></think>\n\n{"name": '
    matcher = one.compile(spec).matcher(before=before)
    assert spec.begun(before) == END + '{"name": '
    for token in one.trie.segment(b'"A"}'):
        matcher.advance(token)
    assert matcher.is_accepting
    matcher.rollback(len(one.trie.segment(b'"A"}')))
    assert not matcher.allows(one.vocab.tokens.index(b"{"))
    with pytest.raises(ValueError, match="undo"):
        matcher.rollback(1)
    with pytest.raises(InputError, match="refuses what follows") as caught:
        one.compile(spec).matcher(before="Close your </think> tags. User: hi")
    assert "in_prompt" in str(caught.value)
    other = After("so:", JsonObject())  # no tag, so nothing opens it again
    assert not one.compile(other).matcher(before="so: so:").is_waiting


def test_refusals_say_where_they_stand():
    one = compiler("marked")
    compiled = one.compile(After(END, Regex("{[a-z]+}"), max_before=2))
    start = compiled.matcher()
    assert start.explain(256).reason == 'the text must come to the marker "</think>" first'
    assert start.explain(0xFF).member == "after"
    assert start.explain(one.vocab.width - 1).reason == "a special token or padding, which stands outside the text"
    assert start.explain(one.vocab.width).reason == "there is no such token"
    (spanning,) = tokens_of(one.vocab, "</think>x")
    refused = start.explain(spanning)
    assert (refused.member, refused.offset) == ("after.regex", 8)
    late = walked(compiled, "x", "x")
    assert late.explain(ord("y")).reason == (
        'at most 2 tokens may come before the marker "</think>": here the constraint requires "<", not "y"'
    )
    (wide,) = tokens_of(one.vocab, "     ")
    behind = walked(compiled, "</", "think", ">")
    assert behind.explain(wide).reason.startswith("at most 4 whitespace")
    assert behind.explain(wide).offset == 4
    assert behind.explain(ord("x")).member == "after.regex"
    assert behind.explain(256).reason == "the text is not complete, so it cannot end here"
    assert walked(compiled, "</", "think", ">{").explain(ord("{")).member == "after.regex"
    with pytest.raises(ValueError, match="allowed"):
        start.explain(ord("a"))
    with pytest.raises(TokenRefused, match="after forbids"):
        start.advance(256)
    schema = one.compile(After(END, JsonSchema(USER)))
    assert schema.matcher().explain(spanning).reason == 'here the constraint requires "{", not "x"'
    assert walked(schema, "</", "think", ">{").explain(ord("x")).member == "after.json_schema"


SPECS = st.builds(
    After,
    st.text(min_size=1),
    st.builds(Regex, st.text("ab0é-")) | st.builds(After, st.text(min_size=1), st.builds(JsonObject)),
    max_before=st.none() | st.integers(0, 9),
    in_prompt=st.sampled_from(["auto", "yes", "no"]),
    gap=st.booleans(),
)


@given(SPECS)
def test_a_spec_survives_json_and_keeps_its_key(spec):
    back = Spec.from_json(json.loads(json.dumps(spec.to_json())))
    assert back == spec
    assert back.key() == spec.key()
    assert hash(back) == hash(spec)


@pytest.mark.parametrize(
    ("make", "field", "words"),
    [
        (lambda: After("", Regex("x")), "marker", "empty"),
        (lambda: After(3, Regex("x")), "marker", "string"),
        (lambda: After("\udc00", Regex("x")), "marker", "Unicode"),
        (lambda: After("x", {"type": "object"}), "spec", "JsonSchema"),
        (lambda: After("x", Regex("x"), max_before=-1), "max_before", "-1"),
        (lambda: After("x", Regex("x"), max_before=True), "max_before", "True"),
        (lambda: After("x", Regex("x"), max_before=1.0), "max_before", "whole number"),
        (lambda: After("x", Regex("x"), in_prompt="maybe"), "in_prompt", "auto"),
        (lambda: After("x", Regex("x"), gap=2), "gap", "true or false"),
        (lambda: Spec.from_json({"kind": "after", "marker": "x", "spec": "y"}), "spec", "object"),
        (lambda: Spec.from_json({"kind": "after", "marker": "x"}), None, "spec"),
        (lambda: Spec.from_json({"kind": "after", "marker": "x", "spec": {"kind": "no"}}), "kind", "unknown"),
    ],
)
def test_what_is_not_well_formed_is_refused(make, field, words):
    with pytest.raises(SpecError, match=words) as caught:
        make()
    assert caught.value.field == field


def test_the_answer_is_judged_and_parsed():
    spec = After(END, JsonObject())
    assert judge(spec, 'a</think>\n{"b": "</think>"}').valid is True
    assert parse(spec, 'a</think>\n{"b": "</think>"}') == {"b": "</think>"}
    wrong = judge(spec, "a</think>[]")
    assert (wrong.valid, wrong.judge, wrong.errors) == (False, "json", ("array is none of: object",))
    # Where the prompt had the marker, the judge is given it; the answer may hold it too.
    begun = spec.begun("<think></think>")
    assert parse(spec, begun + '{"b": "</think>"}') == {"b": "</think>"}
    assert judge(spec, begun + '{"b": "</think>"}').valid is True
    for never in (spec, After(END, JsonObject(), in_prompt="no")):
        assert judge(never, "{}").errors == ('the marker "</think>" does not occur',)
    assert judge(After(END, Regex("a</think>b"), in_prompt="yes"), "a</think>b").valid is True


def test_the_gap_is_no_part_of_the_answer():
    assert parse(After("=", Regex("x+")), "=\n\nxx") == "xx"
    assert parse(After("=", Regex(" ?x+")), "=\n x") == " x"
    assert judge(After("=", Regex("x"), gap=False), "=\nx").valid is False
    assert judge(After("=", Regex("x")), "=     x").valid is False
    assert parse(After("=", Regex("\\p{L}")), "= x") == " x"  # nobody judges it


def test_word_files_of_the_inner_constraint_are_watched():
    from espalier.constraints.words.spec import Wordlist

    assert After("x", Wordlist(lang="es")).word_languages() == ("es",)


def test_bytes_that_are_no_text_are_not_accepted():
    compiled = compiler("bytes").compile(After(".", Regex("x")))
    assert not compiled.accepts("\ud800.x")
    assert not compiled.accepts(b"\xff.x")
