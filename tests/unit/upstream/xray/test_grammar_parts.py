"""Parts of the server's grammar by themselves: characters and their places, rules, and why a token is refused."""

from __future__ import annotations

import pytest

from espalier.errors import GrammarError
from espalier.grammar.parser import parse
from espalier.upstream.xray.grammar.matcher import SHOWN, States
from espalier.upstream.xray.grammar.pieces import WHOLE, PartialCharacter, Pieces, decode
from espalier.upstream.xray.grammar.program import compile_program

BORDERS = "\x01a\x7f\x80é\u07ff\u0800東\ud7ff\ue000\uffff\U00010000🎉\U0010ffff"
TOKENS = [*"abcxyz", "ab", "bc", "é", "東", "axe", "bé!"]
END, VOID, HALF, REST, WRONG = 12, 13, 14, 15, 16
PIECES = Pieces([token.encode() for token in TOKENS] + [b"", b"", b"\xc3", b"\xa9", b"b\xff"], frozenset([END]))


def states(grammar: str, **special: int) -> States:
    return States(compile_program(parse(grammar), special=special), PIECES)


@pytest.mark.parametrize("text", [*BORDERS, BORDERS, "aé", "éa", "東a東", ""])
def test_a_text_is_the_same_code_points_wherever_it_is_cut_into_tokens(text: str) -> None:
    spelled = text.encode()
    ends = tuple(len(text[: count + 1].encode()) for count in range(len(text)))
    whole = decode(spelled, WHOLE)
    assert whole == (tuple(map(ord, text)), WHOLE, ends)
    for at in range(len(spelled) + 1):
        first = decode(spelled[:at], WHOLE)
        second = decode(spelled[at:], first.part)
        assert first.chars + second.chars == whole.chars
        assert first.ends + tuple(end + at for end in second.ends) == ends
        assert second.part == WHOLE
        assert first.part.missing == next((end for end in (0, *ends) if end >= at), 0) - at


@pytest.mark.parametrize(
    ("piece", "begun", "chars", "part"),
    [
        (b"a\x00b", WHOLE, (97,), WHOLE),
        (b"\x80", WHOLE, (), PartialCharacter(0, -1)),
        (b"a\xbf", WHOLE, (), PartialCharacter(0, -1)),
        (b"\xa9a", PartialCharacter(3, 1), (0xE9, 97), WHOLE),
        (b"a", PartialCharacter(3, 1), (), PartialCharacter(0, -1)),
        (b"\xa9a\x80", PartialCharacter(3, 1), (), PartialCharacter(0, -1)),
        (b"", PartialCharacter(3, 1), (), PartialCharacter(3, 1)),
        (b"\xc3a", WHOLE, ((3 << 6) + 0x21,), WHOLE),
        (b"\xf4\xbf\xbf\xbf", WHOLE, (0x13FFFF,), WHOLE),
    ],
)
def test_bytes_that_are_no_text_are_read_as_llama_cpp_reads_them(
    piece: bytes, begun: PartialCharacter, chars: tuple[int, ...], part: PartialCharacter
) -> None:
    found = decode(piece, begun)
    assert (found.chars, found.part) == (chars, part)
    assert len(found.ends) == len(chars)


def test_what_was_decoded_is_kept_and_not_without_end() -> None:
    pieces = Pieces([b"a", b"\xc3\xa9"], frozenset())
    assert pieces.decoded(1, WHOLE) is pieces.decoded(1, WHOLE)
    for value in range(3000):
        assert pieces.decoded(0, PartialCharacter(value, 1)).chars == ()
        assert len(pieces._decoded) <= 4 * 2 + 1000


def test_each_place_of_a_text_is_in_the_rule_that_spells_it() -> None:
    here = states('root ::= "a" inner? "y" | "b"\ninner ::= "b" ("c" | "x")')
    state = here.start
    seen = []
    for char in "abcy":
        seen.append(here.rules(state))
        state = here.after(state, ord(char))
    assert seen[0] == seen[3] == ["root"]
    assert seen[2] == ["inner"]
    assert sorted(seen[1]) == ["inner", "root"]
    assert here.rules(state) == []


@pytest.mark.parametrize(
    ("token", "reason", "offset", "expected"),
    [
        (3, "'x' cannot come here", 0, "'a'"),
        (10, "'x' cannot come here", 1, "'b'"),
        (END, "the text must not end here", 0, "'a'"),
        (VOID, "the grammar never takes this token", 0, "'a'"),
        (REST, "these bytes are no UTF-8 here", 0, "'a'"),
        (HALF, "no character that begins so can come here", 0, "'a'"),
    ],
)
def test_a_refusal_says_where_in_the_token_and_what_could_come(
    token: int, reason: str, offset: int, expected: str
) -> None:
    here = states('root ::= "ab" "é"')
    blame = here.blame(here.start, token, WHOLE)
    assert (blame.reason, blame.offset, blame.expected, blame.rule) == (reason, offset, expected, "root")


def test_a_refusal_behind_characters_counts_their_bytes() -> None:
    here = states('root ::= "b" "é" "x" | "b" "é" "y"')
    blame = here.blame(here.start, 11, WHOLE)
    assert (blame.reason, blame.offset, blame.expected) == ("'!' cannot come here", 3, "'x', 'y'")
    only = states('root ::= "a"')
    blame = only.blame(only.start, 6, WHOLE)
    assert (blame.reason, blame.offset, blame.expected) == ("the text must end here", 1, "the end")
    assert blame.rule is None or blame.rule == "root"
    either = states('root ::= "a" "c"?')
    blame = either.blame(either.start, 6, WHOLE)
    assert (blame.reason, blame.offset) == ("'b' cannot come here", 1)
    assert set(blame.expected.split(", ")) == {"'c'", "the end"}
    part = here.blame(here.after(here.start, ord("b")), 3, PartialCharacter(3, 1))
    assert (part.reason, part.offset) == ("these bytes are no UTF-8 here", 0)


@pytest.mark.parametrize("count", [SHOWN - 1, SHOWN, SHOWN + 1, SHOWN + 3])
def test_of_what_could_come_so_much_is_shown(count: int) -> None:
    letters = "abcdefghijk"[:count]
    here = states("root ::= " + " | ".join(f'"{letter}"' for letter in letters))
    shown = here.blame(here.start, END, WHOLE).expected
    assert sum(f"'{letter}'" in shown for letter in letters) == min(count, SHOWN)
    assert shown.endswith(f" and {count - SHOWN} more") == (count > SHOWN)
    spaced = states("root ::= [" + "".join("acegikmoq"[:count]) + "]")
    shown = spaced.blame(spaced.start, END, WHOLE).expected
    assert shown == "[" + "acegikmoq"[: min(count, SHOWN)] + ("…" if count > SHOWN else "") + "]"


@pytest.mark.parametrize(
    ("grammar", "shown"),
    [
        ("root ::= <nothing>", "<[5]>"),
        ("root ::= !<nothing>", "!<[5]>"),
        (r"root ::= [\U0010FFFF]", repr("\U0010ffff")),
        (r"root ::= [\uE000]", repr("\ue000")),
        (r"root ::= [^a]", "[^a]"),
    ],
)
def test_symbols_are_shown_as_a_grammar_spells_them(grammar: str, shown: str) -> None:
    here = states(grammar, **{"<nothing>": 5})
    assert here.blame(here.start, END, WHOLE).expected == shown


def test_a_token_that_is_named_leads_where_it_is_named_and_nowhere_else() -> None:
    here = states('root ::= <one> "a" | "c" "x" | !<one> "b"', **{"<one>": 2})
    named, part = here.accept(here.start, 2, WHOLE)
    assert part == WHOLE
    assert here._describe_expected(named) in {"'a', 'x'", "'x', 'a'"}
    other, _ = here.accept(here.start, 3, WHOLE)
    assert here._describe_expected(other) == "'b'"
    assert here.accept(named, 1, WHOLE)[0] is here.dead
    piece, part = here.accept_piece(here.start, -1, b"c", WHOLE)
    assert here._describe_expected(piece) in {"'x', 'b'", "'b', 'x'"}


def test_a_grammar_knows_whether_it_names_tokens() -> None:
    assert states('root ::= "a" | <one>', **{"<one>": 2}).has_tokens
    assert not states('root ::= "a"').has_tokens


def test_rules_and_tokens_that_there_are_not_are_named() -> None:
    with pytest.raises(GrammarError, match="<other> is no special token of this model"):
        states("root ::= <other>", **{"<one>": 2})


@pytest.mark.parametrize("module", ["program", "matcher"])
def test_a_grammar_that_takes_too_long_to_read_is_stopped(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise TimeoutError

    monkeypatch.setattr(f"espalier.upstream.xray.grammar.{module}.check", stop)
    with pytest.raises(TimeoutError):
        states('root ::= "a"')


@pytest.mark.parametrize(
    ("grammar", "size"), [('root ::= "abc"', 3), ('root ::= "a" ("b" | "c")', 9), ('root ::= "a"{2}', 3)]
)
def test_a_grammar_of_more_symbols_than_are_followed_is_an_error(
    grammar: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("espalier.upstream.xray.grammar.program.MOST_SYMBOLS", size)
    states(grammar)
    monkeypatch.setattr("espalier.upstream.xray.grammar.program.MOST_SYMBOLS", size - 1)
    with pytest.raises(GrammarError, match="too large"):
        states(grammar)


@pytest.mark.parametrize(
    ("spelled", "shown"),
    [
        (b"\xed\x9f\xbf", repr("\ud7ff")),
        (b"\xed\xa0\x80", "U+D800"),
        (b"\xed\xbf\xbf", "U+DFFF"),
        (b"\xee\x80\x80", repr("\ue000")),
        (b"\xf4\x8f\xbf\xbf", repr("\U0010ffff")),
        (b"\xf4\x90\x80\x80", "U+110000"),
    ],
)
def test_a_refused_character_that_is_none_is_named_by_its_number(spelled: bytes, shown: str) -> None:
    here = States(compile_program(parse('root ::= "a"'), special={}), Pieces([b"a", spelled], frozenset()))
    assert here.blame(here.start, 1, WHOLE).reason == f"{shown} cannot come here"
