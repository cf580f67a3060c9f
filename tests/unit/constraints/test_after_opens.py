"""`After(..., opens=...)`, and with `AnyOf` the model that may think first or answer at once: the laws, texts against a
plain reading of them, masks against single bytes, what the prompt holds, and the verdict."""

from __future__ import annotations

import itertools
import json
import random
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.tokenizers as tokenizers
from espalier import After, AnyOf, JsonObject, JsonSchema, Regex, Vocab
from espalier.constraints.after.marker import opened
from espalier.constraints.base import Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.any_of_matcher import CompiledAnyOf
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge, parse
from espalier.errors import InputError, SpecError, TokenRefused
from espalier.tokens import mask as masks
from espalier.wiring import demo_model
from tests.laws import check_completion, check_matcher, check_walk

USER = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
OPEN, END = "<think>", "</think>"
INNERS: dict[str, tuple[Spec, list[str], list[str]]] = {
    "schema": (JsonSchema(USER), ['{"name": "Zoë"}', '{"name":"</think><think>"}'], ['{"name": 5}', "[]", "x"]),
    "regex": (Regex(" ?[a-z>]{2,4}"), ["ab", " zzz", "a>"], ["a", "  ab", "<a"]),
    "a tag": (Regex("<[a-z]+>[0-9]"), ["<a>1", "<think>1"], ["<a>", "<think>"]),
    "object": (JsonObject(), ["{}", '{"a": [1, null]}'], ["[]", "{"]),
}
THOUGHTS = ["<think></think>", " \n\n\t<think>hm é\n<think></thin</think>", "<think>日本</think>\n\n"]
NO_THOUGHTS = [
    "</think>",
    "x<think></think>",
    "\n\n\n\n\n<think></think>",
    "<think>",
    "<think></think",
    "<think ></think>",
]
PIECES = (
    "<th",
    "ink>",
    "<think>a",
    "\n<think>",
    "</",
    "think>",
    "</think>{",
    "k></think>",
    "<think></think>",
    "\n\n",
    "     ",
    '{"',
    "{}",
    "ab",
    ">1",
    "<a",
    "é<",
    "\n\n\n\n<",
    "</think>\n\n{",
    "ink></think>ab",
    "n",
)
SPECIALS = {256: "<eos>", 257: END, 258: OPEN}


def marked() -> Vocab:
    """Bytes, tokens over every border, and both markers as special tokens too; a padded width."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"", b"", b""] + [piece.encode() for piece in PIECES]
    return Vocab.from_tokens(tokens, eos_ids=[256], special_ids=SPECIALS, width=len(tokens) + 7)


@cache
def compiler(name: str) -> Compiler:
    makers = {
        "bytes": Vocab.bytes,
        "demo": lambda: Vocab.from_tokenizer(demo_model()),
        "marked": marked,
        "byte-level": tokenizers.byte_level_vocab,
    }
    return Compiler(makers[name]())


def walked(matcher: Matcher, one: Compiler, text: str) -> Matcher:
    for token in one.trie.segment(text.encode()) or ():
        matcher.advance(token)
    return matcher


# The laws


@pytest.mark.parametrize("vocab", ["bytes", "demo", "marked", "byte-level"])
@pytest.mark.parametrize("inner", INNERS)
def test_laws_where_it_must_open(inner: str, vocab: str) -> None:
    spec, accepted, rejected = INNERS[inner]
    one = compiler(vocab)
    check_matcher(
        one.compile(After(END, spec, opens=OPEN)),
        trie=one.trie,
        accepted=[thought + text for thought, text in zip(THOUGHTS, itertools.cycle(accepted), strict=False)],
        rejected=[*accepted, *(THOUGHTS[0] + text for text in rejected), *(bad + accepted[0] for bad in NO_THOUGHTS)],
    )


@pytest.mark.parametrize("vocab", ["bytes", "demo", "marked", "byte-level"])
@pytest.mark.parametrize("most", [None, 20])
@pytest.mark.parametrize("inner", INNERS)
def test_laws_where_it_may_think_or_answer(inner: str, most: int | None, vocab: str) -> None:
    spec, accepted, rejected = INNERS[inner]
    one = compiler(vocab)
    compiled = one.compile(AnyOf(After(END, spec, opens=OPEN, max_before=most), spec))
    assert isinstance(compiled, CompiledAnyOf)
    long = [THOUGHTS[1]] if most is None else []
    check_matcher(
        compiled,
        trie=one.trie,
        accepted=[*accepted, *(thought + accepted[0] for thought in [THOUGHTS[0], *long])],
        rejected=[
            *rejected,
            "Hm, " + accepted[0],
            *(THOUGHTS[0] + text for text in rejected),
            NO_THOUGHTS[1] + accepted[0],
        ],
    )


@pytest.mark.parametrize("inner", INNERS)
def test_laws_along_special_tokens(inner: str) -> None:
    spec, accepted, _ = INNERS[inner]
    one = compiler("marked")
    heads = [(258, 257), (10, 258, ord("x"), 258, 257), (258, ord("<"), ord("/"), 257), (*b"<think>", 257)]
    for whole in (After(END, spec, opens=OPEN), AnyOf(After(END, spec, opens=OPEN), spec)):
        compiled = one.compile(whole)
        assert compiled.spelled == {257: b"</think>", 258: b"<think>"}
        for head in heads:
            check_walk(compiled, (*head, *one.trie.segment(accepted[0].encode())), random.Random(0))


@pytest.mark.parametrize("vocab", ["bytes", "demo", "marked"])
@pytest.mark.parametrize("inner", ["schema", "regex", "object"])
def test_what_neither_thinks_nor_fits_is_refused_at_once(inner: str, vocab: str) -> None:
    one = compiler(vocab)
    spec = INNERS[inner][0]
    compiled = one.compile(AnyOf(After(END, spec, opens=OPEN), spec))
    alone = one.compile(spec)
    seen = masks.allowed_ids(compiled.matcher().mask(), one.vocab.width).tolist()
    assert seen
    for token in seen:
        data = compiled.spelled.get(token) or one.vocab.bytes_of(token)
        opens = OPEN.encode()
        bare = data.lstrip(b" \n\t\r")
        thinks = not bare or opens.startswith(bare) or bare.startswith(opens)
        assert thinks or alone.matcher().allows(token), data
    for text in ("H", "Sure", "é", "</think>", "<thank", "[]", "?"):
        first = (one.trie.segment(text.encode()) or ())[0]
        matcher = compiled.matcher()
        if matcher.allows(first):
            with pytest.raises(TokenRefused):
                walked(matcher, one, text)
    (token,) = one.trie.segment(b"?") or ()
    assert compiled.matcher().explain(token).member.startswith("any_of[")


# Texts and masks


LETTERS = "ab \n"


def fits(text: str) -> bool:
    """`After("ba", Regex("a?b*"), opens="ab")`, read plainly."""
    found = re.fullmatch(r"[ \n]{0,4}ab(.*)", text, re.DOTALL)
    if found is None or "ba" not in found[1]:
        return False
    return re.fullmatch(r"[ \n]{0,4}a?b*", found[1].partition("ba")[2]) is not None


def test_texts_and_masks_against_a_plain_reading() -> None:
    one = compiler("bytes")
    compiled = one.compile(After("ba", Regex("a?b*"), opens="ab"))
    spec = compiled.spec
    viable: set[str] = set()
    for size in range(8):
        for letters in itertools.product(LETTERS, repeat=size):
            text = "".join(letters)
            if fits(text):
                viable |= {text[:end] for end in range(size + 1)}
    for size in range(6):
        for letters in itertools.product(LETTERS, repeat=size):
            text = "".join(letters)
            assert compiled.accepts(text) == fits(text), text
            assert judge(spec, text).valid == fits(text), text
    for size in range(4):  # up to here every way on has an end among the texts above
        for text in ("".join(letters) for letters in itertools.product(LETTERS, repeat=size)):
            if text in viable:
                matcher = walked(compiled.matcher(), one, text)
                seen = {letter for letter in LETTERS if matcher.allows(ord(letter))}
                wanted = {letter for letter in LETTERS if text + letter in viable}
                assert seen >= wanted, text
                assert size == 3 or seen == wanted, text


@pytest.mark.parametrize("most", [None, 0, 1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_masks_are_every_token_whose_bytes_lead_on(seed: int, most: int | None) -> None:
    """Long tokens and special ones against the same bytes one by one; in a hurry only after the same count."""
    rng = random.Random(seed)
    one, single = compiler("marked"), compiler("bytes")
    spec = After(END, INNERS[rng.choice(list(INNERS))][0], opens=OPEN, max_before=most)
    free = After(END, spec.spec, opens=OPEN)
    matcher = one.compile(spec).matcher()
    said, seen = b"", [matcher.mask()]
    for _ in range(14):
        allowed = masks.allowed_ids(seen[-1], one.vocab.width).tolist()
        if most is None:
            assert allowed == sorted(by_bytes(one, single, free, said)), said
        else:
            assert set(allowed) <= set(by_bytes(one, single, free, said)), said
        check_completion(matcher)
        assert {token for token in range(one.vocab.width) if matcher.allows(token)} == set(allowed)
        for token in range(one.vocab.width):
            if token not in allowed:
                assert matcher.explain(token).member.startswith("after")
        choices = [token for token in allowed if token != 256]
        if not choices:
            break
        rare = [token for token in choices if token > 256]
        token = rng.choice(rare if rare and rng.random() < 0.7 else choices)
        said += SPECIALS[token].encode() if token in SPECIALS else one.vocab.bytes_of(token)
        matcher.advance(token)
        seen.append(matcher.mask())
    for depth in range(1, len(seen)):
        copy = matcher.fork()
        copy.rollback(depth)
        assert np.array_equal(copy.mask(), seen[-1 - depth])


def by_bytes(one: Compiler, single: Compiler, spec: Spec, said: bytes) -> list[int]:
    start = single.compile(spec).matcher()
    for byte in said:
        start.advance(byte)
    found = [256] if start.is_accepting else []
    for token in range(one.vocab.width):
        special = token in SPECIALS
        data = SPECIALS[token].encode() if special else one.vocab.bytes_of(token)
        if not data or (special and (token == 256 or not getattr(start, "is_waiting"))):  # noqa: B009  # no contract's
            continue
        probe = start.fork()
        for byte in data:
            if not probe.allows(byte):
                break
            probe.advance(byte)
        else:
            found.append(token)
    return found


def test_the_budget_counts_the_opening_too() -> None:
    one = compiler("bytes")
    compiled = one.compile(After(END, Regex("x"), opens=OPEN, max_before=9))
    assert walked(compiled.matcher(), one, "<think>a").allows(ord("b"))
    late = walked(compiled.matcher(), one, "<think>ab")
    assert late.forced() == tuple(b"</think>")
    assert "at most 9 tokens" in late.explain(ord("c")).reason
    tight = one.compile(After(END, Regex("x"), opens=OPEN, max_before=0)).matcher()
    assert tight.forced() == tuple(b"<think></think>")
    assert tight.shortest_completion() == (*b"<think></think>x", 256)
    special = compiler("marked").compile(After(END, Regex("x"), opens=OPEN, max_before=0)).matcher()
    assert special.shortest_completion()[-2:] == (ord("x"), 256)
    assert special.allows(258)
    special.advance(258)
    assert special.allows(257)
    assert not special.allows(ord("x"))


def test_an_opening_that_begins_with_whitespace_is_read_at_the_first_place() -> None:
    one = compiler("bytes")
    compiled = one.compile(After("=>", Regex("[0-9]"), opens="\n#"))
    for text, wanted in (("\n#=>1", True), ("\n\n\n#x=>1", True), ("#=>1", False), ("     \n#=>1", False)):
        assert compiled.accepts(text) == wanted
        assert judge(compiled.spec, text).valid == wanted
    assert opened(b" \n#", b"\n#") == 3
    assert opened(b"\n#", b"\n#") == 2
    assert opened(b"x\n#", b"\n#") is None


# The prompt


@pytest.mark.parametrize(
    ("before", "where"),
    [
        ("", "start"),
        ("\n", "start"),
        ("<thi", "start"),
        ("<think>", "inside"),
        ("<think>\nLet me see", "inside"),
        ("<think></think> <think>", "inside"),
        ("<think>\n\n</think>\n\n", "answer"),
        ("</think>", "answer"),
    ],
)
def test_the_prompt_may_have_opened_it(before: str, where: str) -> None:
    one = compiler("byte-level")
    spec = After(END, JsonObject(), opens=OPEN)
    matcher = one.compile(spec).matcher(before=before)
    takes = {"start": "<think>hm</think>{}", "inside": "hm</think>{}", "answer": "{}"}
    assert spec.begun(before) == {"start": "", "inside": OPEN, "answer": OPEN + END}[where]
    for place, text in takes.items():
        probe = matcher.fork()
        if place == where:
            assert walked(probe, one, text).is_accepting
            assert judge(spec, spec.begun(before) + text).valid is True
            assert parse(spec, spec.begun(before) + text) == {}
        elif where != "inside":  # there all of it would be thinking
            with pytest.raises(TokenRefused):
                walked(probe, one, text)
    closed = After(END, JsonObject(), opens=OPEN, in_prompt="no")
    assert walked(one.compile(closed).matcher(before=before), one, takes["start"]).is_accepting
    assert not one.compile(closed).matcher(before=before).allows(one.vocab.tokens.index(b"{"))
    given_ = After(END, JsonObject(), opens=OPEN, in_prompt="yes")
    assert walked(one.compile(given_).matcher(before=before), one, "{}").is_accepting
    assert judge(given_, "{}").valid is True
    assert judge(given_, given_.begun(before) + "{}").valid is True


def test_rollback_to_where_the_prompt_left_off() -> None:
    one = compiler("bytes")
    matcher = one.compile(After(END, Regex("[0-9]"), opens=OPEN)).matcher(before="<think>\n")
    start = matcher.mask()
    walked(matcher, one, "a</think>\n5")
    matcher.advance(256)
    matcher.rollback(len("a</think>\n5") + 1)
    assert np.array_equal(matcher.mask(), start)
    with pytest.raises(ValueError, match="undo"):
        matcher.rollback(1)


def test_thinking_or_answering_behind_a_prompt() -> None:
    one = compiler("byte-level")
    spec = AnyOf(After(END, JsonSchema(USER), opens=OPEN), JsonSchema(USER))
    compiled = one.compile(spec)
    text = '{"name": "A"}'
    assert walked(compiled.matcher(before=""), one, "\n<think>hm</think>" + text).is_accepting
    assert walked(compiled.matcher(before=""), one, text).is_accepting
    inside = walked(compiled.matcher(before="<think>"), one, "hm</think>" + text)
    assert inside.is_accepting
    assert judge(spec, spec.begun("<think>") + "hm</think>" + text).valid is True
    assert parse(spec, spec.begun("<think>") + "hm</think>" + text) == {"name": "A"}
    half = compiled.matcher(before='<think></think>{"name"')
    assert walked(half, one, ': "A"}').is_accepting
    assert parse(spec, spec.begun('<think></think>{"name"') + ': "A"}') == {"name": "A"}
    with pytest.raises(InputError):
        one.compile(spec.members[0]).matcher(before="<think></think>no")
    left = compiled.matcher(before="<think></think>no")  # the other member begins at the start all the same
    assert walked(left, one, text).is_accepting


# The spec and the verdict


def test_the_verdict() -> None:
    spec = After(END, JsonObject(), opens=OPEN)
    assert judge(spec, '<think>a</think>\n{"b": "</think>"}').valid is True
    assert parse(spec, ' \n<think></think>{"b": "</think>"}') == {"b": "</think>"}
    assert judge(spec, "a</think>{}").errors == ('the text does not begin with "<think>"',)
    assert judge(spec, "     <think></think>{}").errors == ('the text does not begin with "<think>"',)
    assert judge(spec, "<think>{}").errors == ('the marker "</think>" does not occur',)
    assert judge(spec, "<think></think>[]").errors == ("array is none of: object",)
    assert judge(spec, "<think>\ud800</think>{}").valid is True
    either = AnyOf(spec, JsonObject())
    for text in ("{}", "<think>{}</think>{}", '{"<think>": 1}'):
        assert judge(either, text).valid is True
    for text in ("hm {}", "<think>{}", "hm</think>{}"):
        assert judge(either, text).valid is False


def test_old_json_stays_as_it_was() -> None:
    spec = After(END, Regex("x"))
    assert "opens" not in spec.to_json()
    assert Spec.from_json(spec.to_json()) == spec
    assert spec.key() != After(END, Regex("x"), opens=OPEN).key()


@given(st.text(min_size=1).filter(str.strip), st.sampled_from(["auto", "yes", "no"]), st.none() | st.integers(0, 9))
def test_json_and_back(opens: str, in_prompt: Any, most: int | None) -> None:
    if "\x00m" not in opens:
        spec = After("\x00m", Regex("x"), opens=opens, in_prompt=in_prompt, max_before=most)
        back = Spec.from_json(json.loads(json.dumps(spec.to_json())))
        assert back == spec
        assert back.key() == spec.key()
        assert hash(back) == hash(spec)


@pytest.mark.parametrize(
    ("opens", "words"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (3, "string"),
        ("\udc00", "Unicode"),
        ("</think>", "holds the marker"),
        ("a</think>b", "holds the marker"),
    ],
)
def test_openings_that_are_none(opens: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        After(END, Regex("x"), opens=opens)
    assert caught.value.field == "opens"


def test_markers_that_are_no_tags() -> None:
    one = compiler("bytes")
    start, end = "Here is my thought process:", "Here is my response:"
    spec = AnyOf(After(end, Regex("[0-9]+"), opens=start), Regex("[0-9]+"))
    check_matcher(
        one.compile(spec),
        trie=one.trie,
        accepted=["12", f"{start} hm {end} 12"],
        rejected=[f"hm {end} 12", f"{start} 12", ""],
    )
    assert one.compile(spec).matcher(before=f"{start} a {end} b {start}").allows(ord("x"))
    assert spec.begun(f"{start} a") == start
