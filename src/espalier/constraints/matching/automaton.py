"""Compiles grammars and automata, and the matcher that walks a byte automaton. Most kinds of constraint use it.

It does not know how masks are computed (`automata/`). Every EOS id is allowed exactly when the text is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from espalier.automata.ends.closing import Ends
from espalier.automata.ends.forced import forced
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.far import AutomatonSource, FarAutomata
from espalier.automata.languages.network import MAX_STATES, Network, build_network
from espalier.automata.lazy.network import LazyNetwork
from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Machine, State
from espalier.automata.masks.parts import Sharing
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.regular import RegularMachine
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.explain import Explainer, GrammarExplainer, NetworkExplainer, PlainExplainer
from espalier.constraints.base import BlamePosition
from espalier.constraints.matching.base import MatcherBase, check_undo
from espalier.constraints.matching.place import AutomatonPlace, Trail
from espalier.constraints.spec import Spec
from espalier.errors import LimitExceeded
from espalier.grammar.ast import Grammar
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab


def compile_grammar(
    grammar: Grammar, spec: Spec, vocab: Vocab, trie: TokenTrie, *, max_states: int = MAX_STATES
) -> CompiledAutomaton:
    """Compile a grammar exactly as written: a deterministic automaton if it is regular, else a lazy pushdown automaton.

    Raises GrammarError (undefined rules, no text matches), LimitExceeded (more than `max_states` states), VocabError
    (bytes or tokens that the grammar needs and the vocabulary lacks).
    """
    network = build_network(grammar, max_states=max_states)
    compiled = compile_network(network, spec, vocab, trie)
    compiled.explain_with(lambda _: GrammarExplainer(grammar, vocab, trie))
    return compiled


def compile_source(
    source: AutomatonSource, spec: Spec, far: FarAutomata, vocab: Vocab, trie: TokenTrie
) -> CompiledAutomaton:
    """As `compile_grammar`, in a worker process where it takes long and the caller has a limit. Raises as
    `FarAutomata.build`, and VocabError."""
    compiled = compile_automaton(far.build(source), spec, vocab, trie)
    explain_source(compiled, source, far)
    return compiled


def explain_source(compiled: CompiledAutomaton, source: AutomatonSource, far: FarAutomata) -> None:
    """Have refusals explained by the rules and places of a source."""
    vocab, trie = compiled.vocab, compiled.trie

    def explainer(machine: Machine) -> Explainer:
        try:
            network = far.build(source, "plain")
        except LimitExceeded:  # too large to be explained: then no rule is named
            return PlainExplainer(machine)
        assert isinstance(network, Network)
        return NetworkExplainer(network, PushdownMachine(network, vocab, trie, needs_bytes=False))

    compiled.explain_with(explainer)


def automaton_of(grammar: Grammar) -> Dfa | Network:
    """The automaton of a grammar: a Dfa if no rule is recursive and no token is named, else a Network. Raises
    GrammarError, LimitExceeded."""
    network = build_network(grammar)
    return network if any(network.calls) or any(network.tokens) else Dfa.of_network(network)


def compile_automaton(automaton: Dfa | Network, spec: Spec, vocab: Vocab, trie: TokenTrie) -> CompiledAutomaton:
    """Compile a Dfa or a Network. Raises VocabError, LimitExceeded."""
    if isinstance(automaton, Dfa):
        return compile_dfa(automaton, spec, vocab, trie)
    return compile_network(automaton, spec, vocab, trie)


def compile_network(network: Network, spec: Spec, vocab: Vocab, trie: TokenTrie) -> CompiledAutomaton:
    """Compile a network, such as a grammar's intersection with automata (`automata/languages/product.py`). Its blames
    name no rules. Raises VocabError, LimitExceeded."""
    if network.is_regular:
        return compile_dfa(Dfa.of_network(network), spec, vocab, trie)
    return CompiledAutomaton(spec, vocab, trie, PushdownMachine(network, vocab, trie))


def compile_dfa(dfa: Dfa, spec: Spec, vocab: Vocab, trie: TokenTrie) -> CompiledAutomaton:
    """Compile a deterministic automaton. Raises VocabError, LimitExceeded."""
    return CompiledAutomaton(spec, vocab, trie, RegularMachine(dfa, vocab, trie))


def compile_lazily(
    network: LazyNetwork, spec: Spec, vocab: Vocab, trie: TokenTrie, shared: Sharing
) -> CompiledAutomaton:
    """Compile what is explored on demand. shared: what the machines of the vocabulary have in common. Raises
    VocabError for a vocabulary that lacks bytes."""
    return CompiledAutomaton(spec, vocab, trie, PushdownMachine(network, vocab, trie, shared=shared))


FORCED_BYTES = 2**20
"""The limit on forced tokens that are kept, for all states of one constraint."""


class CompiledAutomaton:
    """An automaton for one vocabulary. Only its caches change, which are bounded; safe across threads."""

    def __init__(self, spec: Spec, vocab: Vocab, trie: TokenTrie, machine: Machine) -> None:
        self.spec = spec
        self.vocab = vocab
        self.trie = trie
        self.machine = machine
        self.spelled: Mapping[int, bytes] = {}
        self._make_explainer: Callable[[Machine], Explainer] = PlainExplainer
        self._explainer: Explainer | None = None
        self._ends: Ends | None = None
        self._forced: ByteCache[State, tuple[int, ...]] = ByteCache(FORCED_BYTES)
        self._lock = WorkLock()
        self._explaining = WorkLock(is_paced=True)  # where a schema is large, it takes long

    def explain_with(self, explainer: Callable[[Machine], Explainer]) -> None:
        """Set the factory of the explainer, which gets the machine: it must not hold the compiled constraint, which
        would then wait for a collection of garbage. Call it before the first matcher is made."""
        self._make_explainer = explainer

    @property
    def explainer(self) -> Explainer:
        """Explains refusals; made when first needed."""
        if self._explainer is not None:
            return self._explainer
        with self._explaining:
            if self._explainer is None:
                self._explainer = self._make_explainer(self.machine)
            return self._explainer

    @property
    def ends(self) -> Ends:
        """Completions within a token limit; made when first needed."""
        with self._lock:
            if self._ends is None:
                self._ends = self._new_ends()
            return self._ends

    def forced(self, state: State) -> tuple[int, ...]:
        """See `Matcher.forced`. Strategies that skip forced text ask at every step, mostly at places met before."""
        tokens = self._forced.get(state)
        if tokens is None:
            tokens = forced(self.machine, self.trie, state)
            self._forced.put(state, tokens, 8 * len(tokens))
        return tokens

    def _new_ends(self) -> Ends:
        return Ends(self.machine, self.trie, self.vocab)

    def matcher(self, *, before: str = "") -> AutomatonMatcher:
        return AutomatonMatcher(self)

    def accepts(self, text: str | bytes) -> bool:
        try:
            data = text.encode() if isinstance(text, str) else text
        except UnicodeEncodeError:
            return False  # half a character is in no language
        tokens = self.trie.segment(data)
        if tokens is None:
            return False
        state: State | None = self.machine.start
        for token in tokens:
            state = self.machine.advance(state, token)
            if state is None:
                return False
        return self.machine.accepts(state)


class AutomatonMatcher(MatcherBase[CompiledAutomaton]):
    """The state of one sequence. Laws: tests/laws.py."""

    __slots__ = ("_finished", "_history", "_machine", "_state", "_tokens", "_trail")

    def __init__(self, compiled: CompiledAutomaton) -> None:
        super().__init__(compiled)
        self._machine = compiled.machine
        self._state: State = compiled.machine.start
        self._history: list[State] = []  # the states before each token; EOS adds none
        self._tokens: list[int] = []  # without EOS; those of the trail, where there is one
        self._trail: Trail | None = None  # for places, from when somebody asked for one
        self._finished = False

    @property
    def is_accepting(self) -> bool:
        return not self._finished and self._machine.accepts(self._state)

    @property
    def is_finished(self) -> bool:
        return self._finished

    def mask(self) -> Mask:
        vocab = self._compiled.vocab
        if self._finished:
            return masks.empty(vocab.width)
        out = self._machine.mask(self._state).copy()
        if self._machine.accepts(self._state):
            masks.set_bits_inplace(out, vocab.eos_ids, True)
        return out

    def allows(self, token: int) -> bool:
        if self._finished:
            return False
        if token in self._compiled.vocab.eos_ids:
            return self._machine.accepts(self._state)
        return self._machine.advance(self._state, token) is not None

    def advance(self, token: int) -> None:
        if not self._finished:
            if token in self._compiled.vocab.eos_ids:
                if self._machine.accepts(self._state):
                    self._finished = True
                    return
            else:
                after = self._machine.advance(self._state, token)
                if after is not None:
                    self._history.append(self._state)
                    self._tokens.append(token)
                    self._state = after
                    return
        raise self._refusal(token)

    def rollback(self, count: int) -> None:
        done = len(self._history) + self._finished
        check_undo(count, done)
        if count and self._finished:
            self._finished = False
            count -= 1
        if count:
            left = len(self._history) - count
            self._state = self._history[left]
            del self._history[left:]
            if self._trail is None:
                del self._tokens[left:]
            else:
                self._follow(self._trail.without(count))  # places keep what was there

    def fork(self) -> Self:
        other = type(self)(self._compiled)
        other._state = self._state
        other._history = self._history.copy()
        if self._trail is None:
            other._tokens = self._tokens.copy()
        else:
            other._follow(self._trail.without(0))
        other._finished = self._finished
        return other

    def forced(self) -> tuple[int, ...]:
        if self._finished:
            return ()
        return self._compiled.forced(self._state)

    def _blame(self, token: int) -> Blame:
        return self._here().explain(token)

    def rule_of(self, token: int) -> str | None:
        """See `RuleNames`."""
        return self._here().rule_of(token)

    def place(self) -> BlamePosition | None:
        """See `DeferredBlames`."""
        return None if self._finished else self._here()

    def shortest_completion(self) -> tuple[int, ...]:
        if self._finished:
            return ()
        completion = self._compiled.ends.shortest(self._state)
        return (*completion, self._compiled.vocab.eos_ids[0])

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`, as for the next two."""
        return self._finished or self._compiled.ends.stays_near(self._state, most - 1)

    def closing(self, most: int) -> Mask:
        vocab = self._compiled.vocab
        if self._finished:
            return masks.empty(vocab.width)
        mask = self._compiled.ends.closing(self._state, most - 1)
        if self._machine.accepts(self._state):
            masks.set_bits_inplace(mask, vocab.eos_ids, True)
        return mask

    def within(self, most: int) -> tuple[int, ...] | None:
        if self._finished:
            return ()
        completion = self._compiled.ends.within(self._state, most - 1)
        return None if completion is None else (*completion, self._compiled.vocab.eos_ids[0])

    @property
    def state(self) -> State:
        """The state of the compiled constraint's machine after all tokens but EOS."""
        return self._state

    def state_before(self, count: int) -> State:
        """The state before the last `count` tokens but EOS."""
        return self._history[-count] if count else self._state

    def _follow(self, trail: Trail) -> None:
        self._trail, self._tokens = trail, trail.tokens

    def _here(self) -> AutomatonPlace:
        if self._trail is None:
            self._trail = Trail(self._compiled.explainer, self._vocab, self._kind, self._tokens)
        return AutomatonPlace(self._trail, len(self._tokens))
