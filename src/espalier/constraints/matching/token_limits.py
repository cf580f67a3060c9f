"""Compiles grammars whose rules have limits of tokens (`automata/masks/token_limits.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from espalier.automata.ends.closing import Ends
from espalier.automata.ends.nearest import MAX_LENGTH, first_step
from espalier.automata.languages.network import assemble, build_fragments
from espalier.automata.masks.machine import State
from espalier.automata.masks.token_limits import TokenLimitMachine
from espalier.constraints.matching.automaton import CompiledAutomaton
from espalier.constraints.spec import Spec
from espalier.errors import GrammarError, LimitExceeded
from espalier.grammar.ast import Grammar
from espalier.grammar.check import validate
from espalier.grammar.rewrite import isolate_rules
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab


def compile_limited(
    grammar: Grammar, limits: Mapping[str, int], spec: Spec, vocab: Vocab, trie: TokenTrie
) -> CompiledAutomaton:
    """Raises as `compile_grammar`, GrammarError for a limit of a rule that is not there, is the start rule or contains
    another rule with a limit, and UnsupportedError for a grammar that names tokens."""
    validate(grammar)
    for name in limits:
        if name not in grammar.rules or name == grammar.root:
            why = "there is no such rule" if name not in grammar.rules else "it is the whole text"
            raise GrammarError(f"the rule {name!r} cannot have a limit of tokens: {why}")
    isolated, names = isolate_rules(grammar, limits)
    used = {names[name]: limit for name, limit in limits.items() if names[name] in isolated.rules}
    network = assemble(*build_fragments(isolated, called=used))
    return _CompiledTokenLimits(spec, vocab, trie, TokenLimitMachine(network, used, vocab, trie))


class _CompiledTokenLimits(CompiledAutomaton):
    machine: TokenLimitMachine

    def forced(self, state: State) -> tuple[int, ...]:
        """None are known: bytes that a rule must go on with are not forced where it may run out of tokens."""
        return ()

    def _new_ends(self) -> Ends:
        return _TokenLimitEnds(self.machine, self.trie, self.vocab)


class _TokenLimitEnds(Ends):
    """Completions of one byte a token: how many bytes one token may hold depends on where a rule runs out of tokens."""

    def __init__(self, machine: TokenLimitMachine, trie: TokenTrie, vocab: Vocab) -> None:
        super().__init__(machine, trie, vocab, nearest=_ByteCompletions(machine, vocab), deep=0)

    def shortest(self, state: State, *, max_walks: int = 0) -> tuple[int, ...]:
        return self._nearest.completion(state)


class _ByteCompletions:
    """See `Completions`. A rule that ends early only shortens what the machine counts."""

    def __init__(self, machine: TokenLimitMachine, vocab: Vocab) -> None:
        self._machine = machine
        self._single = {data[0]: token for token, data in reversed([*enumerate(vocab.tokens)]) if len(data) == 1}

    def count(self, state: State) -> int:
        return len(self.completion(state))

    def completion(self, state: State) -> tuple[int, ...]:
        machine, tokens = self._machine, list[int]()
        while not machine.accepts(state):
            if len(tokens) > MAX_LENGTH:
                raise LimitExceeded(f"the shortest completion has more than {MAX_LENGTH} bytes")
            byte, _, _ = first_step(machine, state)
            tokens.append(self._single[byte])
            after = machine.advance(state, tokens[-1])
            if after is None:
                raise AssertionError("the machine refuses the byte of a completion")
            state = after
        return tuple(tokens)
