"""What a constraint names and the vocabulary cannot write is told, and not left out without a word."""

from __future__ import annotations

import pytest

from espalier import Choice, Gbnf, Regex, Wordlist
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.errors import VocabError
from espalier.tokens.vocab import Vocab

TOKENS = [b"y", b"e", b"s", b"yes", b" ", b"nothing", b""]
FEW = Compiler(Vocab.from_tokens(TOKENS, eos_ids=[len(TOKENS) - 1]))


@pytest.mark.parametrize(
    ("spec", "lost", "field"),
    [
        (Choice(["yes", "no"]), "choices: 'no'", "options"),
        (Choice(["yes", "a", "b", "c", "d"]), "'a', 'b', 'c' and 1 more", "options"),
        (Regex("yes|no"), "texts: 'no'", "pattern"),
        (Regex("(yes|Zo)+"), "literals: 'Zo'", "pattern"),
        (Gbnf('root ::= "yes" | "no"'), "texts: 'no'", "grammar"),
        (Gbnf('root ::= "yes" root | "q"'), "literals: 'q'", "grammar"),
        (Gbnf('root ::= "y" root "y" | "q" | "e"'), "literals: 'q'", "grammar"),
        (Wordlist(["yes", "no"]), "words: 'no'", "words"),
        (Wordlist(["yes"], extra=["née"]), "words: 'née'", "extra"),
        (Wordlist(["yes"], names=["Zoë"]), "words: 'Zoë'", "names"),
    ],
)
def test_what_the_vocabulary_cannot_spell_is_told(spec: Spec, lost: str, field: str) -> None:
    with pytest.raises(VocabError) as caught:
        FEW.compile(spec)
    assert lost in caught.value.message
    assert caught.value.field == field


@pytest.mark.parametrize(
    "spec", [Choice(["yes", "nothing"]), Regex("yes|nothing"), Regex(".*"), Regex("(yes)+[a-z]?"), Wordlist(["yes"])]
)
def test_what_it_can_spell_is_compiled(spec: Spec) -> None:
    assert FEW.compile(spec).matcher().mask().any()
