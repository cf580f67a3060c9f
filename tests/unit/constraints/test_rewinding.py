"""Matchers that let a text begin what it must not become: laws, what may be tried, and how far it goes back."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.tokenizers as tokenizers
from espalier import Choice, Gbnf, JsonObject, JsonSchema, Regex
from espalier.constraints.after.spec import After
from espalier.constraints.ban import Ban
from espalier.constraints.base import Composite
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.compose.side_by_side import CompiledSideBySide
from espalier.constraints.compose.stranding import CompiledStrandingAllOf
from espalier.constraints.filters.matcher import MatcherFilter
from espalier.constraints.free import Free, Region
from espalier.constraints.matching.closing import Closing
from espalier.constraints.matching.rewinding import (
    EVERYTHING,
    Rewinding,
    RewindingMatcher,
    check_only_masks,
    rewinding_parts,
)
from espalier.constraints.spec import Spec
from espalier.constraints.to_gbnf import portable
from espalier.errors import CapabilityError, NotAvailable, SpecError, UnsupportedError
from espalier.tokens import mask as masks
from tests.laws import check_matcher, check_walk, tokenisations

PHRASES = ["lazy", "ñandú", "日本", "rm -rf", " dog", "xx"]
TEXTS = ["", "The quick brown fox jumps over the", "laz ñand 日 🌳 rm -r f", "lalalaz", b"a\x00b\n"]
BAN = Ban(PHRASES, mode="rewind")
ONES = Gbnf('root ::= "(" root ")" | "a" root "b" | ""')
OTHERS = Gbnf('root ::= "[" root "]" | "a" root "b" | "ab" | "aab"')
NESTED = Gbnf('root ::= "{}" | "{\\"a\\": " root "}"')
PERSON = JsonSchema(
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False},
    whitespace="compact",
)


def compiled(spec, vocab="bytes"):
    one = Compiler(tokenizers.VOCABS[vocab]())
    return one, one.compile(spec)


def walked(made, text):
    matcher = made.matcher()
    for token in text.encode():
        matcher.advance(token)
    return matcher


# Laws


@pytest.mark.parametrize("vocab", tokenizers.VOCABS)
def test_a_ban_that_rewinds_keeps_the_laws_and_the_texts_of_one_that_masks(vocab):
    one, made = compiled(BAN, vocab)
    assert isinstance(made.matcher(), RewindingMatcher)
    assert isinstance(made.matcher(), Closing)
    check_matcher(made, trie=one.trie, accepted=TEXTS, rejected=["the lazy dog", "日本", "rm -rf /", b"\xff"])
    plain, other = one.compile(Ban(PHRASES)).matcher(), made.matcher()
    for token in one.trie.segment(b"The quick laz"):
        assert np.array_equal(plain.mask(), other.mask())
        plain.advance(token)
        other.advance(token)


@pytest.mark.parametrize(
    ("spec", "accepted", "rejected"),
    [
        (AllOf(PERSON, BAN), ['{"name":"a laz"}'], ['{"name":"lazy"}', '{"name":1}']),
        (AllOf(Regex("[a-zñ ]{3,20}"), BAN, Ban(["qq"])), ["abc", "q laz q"], ["ab", "a lazy", "aqq"]),
        (AllOf(JsonObject(), BAN, Ban(["}}"], mode="rewind")), ['{"a": []}'], ['{"a": {}}', '{"a": "xx"}']),
        (AllOf(ONES, Regex("[ab]*"), dead_ends="rewind"), ["", "ab", "aabb"], ["()", "aab"]),
        (AllOf(ONES, OTHERS, dead_ends="rewind"), ["ab", "aabb"], ["", "aab", "()", "[ab]"]),
        (AllOf(ONES, OTHERS), ["ab", "aabb"], ["", "aab", "()", "[ab]"]),
        (AllOf(ONES, OTHERS, BAN), ["ab", "aabb"], ["", "aab", "()", "[ab]"]),
        (AllOf(JsonObject(), NESTED), ["{}", '{"a": {}}'], ['{"b": {}}', '{"a": []}']),
    ],
)
@pytest.mark.parametrize("vocab", tokenizers.VOCABS)
def test_compositions_with_an_automaton_keep_all_laws(spec, accepted, rejected, vocab):
    one, made = compiled(spec, vocab)
    assert isinstance(made, CompiledStrandingAllOf)
    assert isinstance(made.matcher(), RewindingMatcher)
    check_matcher(made, trie=one.trie, accepted=accepted, rejected=rejected)


@pytest.mark.parametrize(
    ("spec", "accepted", "rejected"),
    [(AllOf(After("!", PERSON), BAN), ['go!{"name":"a"}'], ["go!", 'lazy!{"name":"a"}', 'go!{"name":"xx"}'])],
)
@pytest.mark.parametrize("vocab", tokenizers.VOCABS)
def test_side_by_side_keeps_the_laws_on_texts_that_all_accept(spec, accepted, rejected, vocab):
    """`no traps` is waived: what each member could go on with need not be the same. No completion is known either."""
    one, made = compiled(spec, vocab)
    assert isinstance(made, CompiledSideBySide)
    rng = random.Random(0)
    for text in accepted:
        assert made.accepts(text)
        for tokens in tokenisations(made.vocab, one.trie, text.encode(), rng):
            check_walk(made, tokens, rng)
    assert not [text for text in rejected if made.accepts(text)]
    matcher = made.matcher()
    assert matcher.forced() == ()
    with pytest.raises(NotAvailable, match=r"all_of\[0\].* and all_of\[1\]"):
        matcher.shortest_completion()


def test_two_grammars_blame_the_first_member_that_refuses():
    matcher = walked(compiled(AllOf(ONES, OTHERS, dead_ends="rewind"))[1], "a")
    assert matcher.explain(ord("(")).member == "all_of[1].gbnf"
    assert matcher.explain(ord("[")).member == "all_of[0].gbnf"
    assert isinstance(matcher, Composite)
    named = matcher.member_masks()
    assert [name for name, _ in named] == ["all_of[0].gbnf", "all_of[1].gbnf", "all_of"]
    assert np.array_equal(named[0][1] & named[1][1] & named[2][1], named[2][1])
    with pytest.raises(ValueError, match="allowed"):
        matcher.explain(ord("b"))
    assert matcher.unsettled == EVERYTHING
    assert walked(compiled(AllOf(ONES, OTHERS))[1], "a").unsettled == 0  # a common end is known
    assert not matcher.undoable().any()


# What may be tried


def tempted(matcher, vocab):
    return {int(i) for i in masks.allowed_ids(matcher.undoable(), vocab.width)}


@pytest.mark.parametrize("vocab", tokenizers.VOCABS)
@given(
    phrases=st.lists(st.text("abñ ", min_size=1, max_size=5), min_size=1, max_size=4),
    seed=st.integers(0, 2**20),
    length=st.integers(0, 12),
)
def test_what_is_tried_and_how_far_it_goes_back_by_looking_at_the_text(vocab, phrases, seed, length):
    """Oracle: of every token, whether text and token hold a phrase that begins before the token, by `in`."""
    spec, rng = Ban(phrases, mode="rewind"), random.Random(seed)
    made = Compiler(tokenizers.VOCABS[vocab]()).compile(spec)
    words = made.vocab
    usable = [i for i, data in enumerate(words.tokens) if data and set(data) <= set("abñ ".encode())]
    matcher, text, ends = made.matcher(), b"", []
    for _ in range(length):
        left = [token for token in usable if matcher.allows(token)]
        if not left:
            break
        token = rng.choice(left)
        matcher.advance(token)
        text += words.bytes_of(token)
        ends.append(len(text))
    forbidden = [phrase.encode() for phrase in spec.phrases]
    begun = max((n for one in forbidden for n in range(1, len(one)) if text.endswith(one[:n])), default=0)
    assert matcher.unsettled == sum(1 for end in ends if end > len(text) - begun)
    found = tempted(matcher, words)
    assert not found & {token for token in range(words.width) if matcher.allows(token)}
    for token in usable:
        said = text + words.bytes_of(token)
        first = min(((said.find(one) + len(one), said.find(one)) for one in forbidden if one in said), default=None)
        crosses = first is not None and first[1] < len(text)
        assert (token in found) == crosses
        if not crosses:
            with pytest.raises(ValueError, match="not undoable"):
                matcher.recall(token)
            continue
        recall = matcher.recall(token)
        assert recall.count == sum(1 for end in ends if end > first[1]) + 1
        assert 2 <= recall.count <= matcher.unsettled + 1
        assert "banned" in recall.blame.reason


def test_in_a_composition_only_what_the_others_allow_is_tried():
    _, made = compiled(AllOf(Regex("(is|in) lazy?[a-z]*"), Ban(["lazy", "lazier"], mode="rewind")))
    matcher = walked(made, "in laz")
    assert tempted(matcher, made.vocab) == {ord("y")}
    recall = matcher.recall(ord("y"))
    assert (recall.count, recall.blame.member) == (4, "all_of[1].ban")
    assert matcher.unsettled == 3
    matcher.rollback(3)
    assert matcher.unsettled == 0
    assert not tempted(matcher, made.vocab)
    with pytest.raises(ValueError, match="not undoable"):
        matcher.recall(ord("y"))


def test_of_two_bans_the_one_that_goes_back_farthest_counts():
    _, made = compiled(AllOf(Regex("[a-z]*"), Ban(["bc"], mode="rewind"), Ban(["abc"], mode="rewind")))
    matcher = walked(made, "ab")
    recall = matcher.recall(ord("c"))
    assert (recall.count, recall.blame.member) == (3, "all_of[2].ban")
    fork = matcher.fork()
    fork.rollback(1)
    assert (matcher.unsettled, fork.unsettled) == (2, 1)
    assert tempted(matcher, made.vocab) == {ord("c")}


def test_nothing_is_tried_once_the_text_has_ended():
    _, made = compiled(Ban(["ab"], mode="rewind"))
    matcher = walked(made, "a")
    assert matcher.unsettled == 1
    matcher.advance(made.vocab.eos_ids[0])
    assert matcher.unsettled == 0
    assert not tempted(matcher, made.vocab)
    matcher.rollback(1)
    assert tempted(matcher, made.vocab) == {ord("b")}


# The specs


def test_json_and_back():
    for spec in (BAN, AllOf(ONES, OTHERS, dead_ends="rewind"), AllOf(PERSON, BAN)):
        assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert BAN.to_json() == {"kind": "ban", "phrases": PHRASES, "mode": "rewind"}
    assert "mode" not in Ban(["a"]).to_json()
    assert "dead_ends" not in AllOf(ONES, OTHERS).to_json()
    assert AllOf(ONES, OTHERS, dead_ends="rewind").key() != AllOf(ONES, OTHERS).key()


def test_whoever_accepts_dead_ends_in_a_part_accepts_them_in_the_whole():
    inner = AllOf(ONES, OTHERS, dead_ends="rewind")
    assert AllOf(inner, Regex("a*b*")) == AllOf(ONES, OTHERS, Regex("a*b*"), dead_ends="rewind")
    assert AllOf([inner]) == inner


@pytest.mark.parametrize(
    ("make", "field"), [(lambda: Ban(["a"], mode="back"), "mode"), (lambda: AllOf(ONES, dead_ends="yes"), "dead_ends")]
)
def test_unknown_names_are_refused(make, field):
    with pytest.raises(SpecError) as refused:
        make()
    assert refused.value.field == field
    assert "rewind" in refused.value.hint


def test_what_asks_to_take_text_back_is_found_however_deep():
    assert rewinding_parts(None) == ()
    assert rewinding_parts(AllOf(PERSON, Ban(["a"]))) == ()
    assert rewinding_parts(AllOf(ONES, dead_ends="rewind")) == ()
    assert rewinding_parts(AllOf(PERSON, BAN)) == (BAN,)
    both = AllOf(ONES, OTHERS, dead_ends="rewind")
    assert rewinding_parts(both) == (both,)
    assert rewinding_parts(Free({"<": Region(AnyOf(PERSON, After("!", BAN)), end=">")})) == (BAN,)


def test_a_member_without_an_automaton_is_refused_with_the_way_out():
    with pytest.raises(UnsupportedError, match=r"all_of\[0\].after cannot be joined without dead ends") as refused:
        compiled(AllOf(After("!", PERSON), Regex(".*"), dead_ends="refuse"))
    assert 'dead_ends="rewind"' in refused.value.hint
    _, made = compiled(AllOf(After("!", PERSON), BAN, dead_ends="refuse"))  # a ban that rewinds may stand beside it
    assert made.accepts('go!{"name":"a"}')


def test_members_that_contradict_one_another_are_refused_all_the_same():
    with pytest.raises(SpecError, match="no text satisfies"):
        compiled(AllOf(Choice(["abc", "xabc"]), Ban(["abc"], mode="rewind")))


def test_two_members_that_spell_a_token_differently_are_refused():
    _, one = compiled(Regex("a"))
    _, other = compiled(Regex("b"))
    one.spelled, other.spelled = {256: b"<x>"}, {256: b"<y>"}
    with pytest.raises(SpecError, match="token 256"):
        CompiledSideBySide(ONES, ["one", "other"], [one, other], may_strand=True)


def test_a_plain_matcher_is_none_that_takes_back():
    assert not isinstance(compiled(Ban(["a"]))[1].matcher(), Rewinding)
    assert not isinstance(compiled(AllOf(PERSON, Ban(["x"]), dead_ends="refuse"))[1].matcher(), Rewinding)
    assert not isinstance(compiled(AllOf(Regex("[a-c]*"), Ban(["b"])))[1].matcher(), Rewinding)  # one automaton


def test_who_cannot_take_text_back_refuses_by_name():
    for spec in (BAN, AllOf(PERSON, BAN), AllOf(ONES, OTHERS, dead_ends="rewind")):
        one, made = compiled(spec)
        with pytest.raises(CapabilityError, match="a filter cannot") as refused:
            MatcherFilter(made)
        assert refused.value.field == "compiled"
        with pytest.raises(CapabilityError, match="a grammar cannot"):
            portable(spec, one)
    assert check_only_masks(Ban(["a"]), "a filter", field="x") is None


def test_a_logits_processor_refuses_by_name():
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    from espalier.integrations.transformers import ConstraintLogitsProcessor

    with pytest.raises(CapabilityError, match="a logits processor cannot") as refused:
        ConstraintLogitsProcessor(compiled(BAN)[1])
    assert refused.value.field == "constraint"
