"""Refuses a constraint of which a vocabulary cannot write a part that was asked for by name: an option, a literal text,
a word. It would be left out without a word.

A part of a class of characters is another matter: `.*` promises no one character.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from espalier.automata.languages.dfa import Dfa
from espalier.errors import VocabError
from espalier.grammar.ast import Grammar, Literal, Node
from espalier.time_limit import check as check_time
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

SHOWN = 3
MAX_TEXTS = 1_000
"""Texts of an automaton that are tried one by one."""


def check_spelled(texts: Iterable[str], what: str, field: str, vocab: Vocab, trie: TokenTrie) -> None:
    """what: a text in the plural. Raises VocabError that names the texts which no tokens spell."""
    if vocab.missing_bytes():
        _refuse([text for text in texts if trie.segment(text.encode()) is None], what, field)


def check_grammar(grammar: Grammar, automaton: object, field: str, vocab: Vocab, trie: TokenTrie) -> None:
    """As `check_spelled`, for the texts of a grammar where they are few, else for its literals. automaton: that of the
    grammar."""
    if not vocab.missing_bytes():
        return
    texts = _texts_of(automaton) if isinstance(automaton, Dfa) else None
    if texts is not None:
        _refuse([text.decode() for text in texts if trie.segment(text) is None], "texts", field)
        return
    written = {byte for token in vocab.tokens for byte in token or b""}
    literals = {literal for rule in grammar.rules.values() for literal in _literals(rule.body)}
    _refuse([text for text in sorted(literals) if not written.issuperset(text.encode())], "literals", field)


def _refuse(lost: list[str], what: str, field: str) -> None:
    if lost:
        shown = ", ".join(map(repr, lost[:SHOWN])) + (f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else "")
        raise VocabError(
            f"no tokens of the vocabulary spell these {what}: {shown}",
            hint="leave them out, or use a tokenizer with byte fallback",
            field=field,
        )


def _literals(top: Node) -> Iterator[str]:
    waiting = [top]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Literal):
            yield node.text
        waiting += node.children()


def _texts_of(dfa: Dfa) -> list[bytes] | None:
    """The texts of an automaton; None where they are too many."""
    texts: list[bytes] = []
    waiting = [(dfa.start, b"")]
    while waiting:
        check_time()
        state, text = waiting.pop()
        if len(text) > len(dfa) or len(texts) + len(waiting) > MAX_TEXTS:
            return None
        if dfa.accepting[state]:
            texts.append(text)
        waiting += [(target, text + bytes([byte])) for byte in range(256) if (target := dfa.step(state, byte)) >= 0]
    return texts
