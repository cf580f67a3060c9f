"""The matcher of `After`: walks the text before the marker, then the gap, then the inner constraint's own matcher.

One token may hold the end of the marker, whitespace and the beginning of the inner text. The inner matcher then takes
that beginning as the fewest tokens that spell it, since masks depend on bytes and not on how they are split. It knows
no kind of constraint: the inner one is used through the interface of `base.py` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.describe import quoted
from espalier.constraints.after.border import Border, advanced, within
from espalier.constraints.after.ends import AfterEnds
from espalier.constraints.after.marker import Waiting
from espalier.constraints.after.walk import IN_GAP, INSIDE, AfterState, MarkerWalk
from espalier.constraints.base import Composite, Matcher
from espalier.constraints.matching import closing
from espalier.constraints.matching.base import MatcherBase, check_undo
from espalier.constraints.spec import Spec
from espalier.errors import InputError
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.wording import OptionText, Setting


class CompiledAfter(MarkerWalk):
    """A marker and an inner constraint for one vocabulary. Only its caches change, which are bounded; safe across
    threads."""

    def __init__(
        self,
        spec: Spec,
        waiting: Waiting,
        border: Border,
        *,
        max_before: int | None,
        answer_in: Callable[[str], str | None],
        start_in: Callable[[str], int],
    ) -> None:
        """answer_in: the part of the answer that a prompt holds already, None while the marker is still to come.
        start_in: the state before the marker in which the text continues a prompt."""
        super().__init__(spec, waiting, border, max_before=max_before)
        self.spelled: Mapping[int, bytes] = {**border.inner.spelled, **waiting.spelled}
        self._answer_in = answer_in
        self._start_in = start_in
        self._ends: AfterEnds | None = None
        self._lock = WorkLock()

    @property
    def ends(self) -> AfterEnds:
        """Completions within a token limit, made when first needed."""
        with self._lock:
            if self._ends is None:
                self._ends = AfterEnds(self)
            return self._ends

    def matcher(self, *, before: str = "") -> AfterMatcher:
        """See `Compiled.matcher`. Raises InputError where the part of the answer that the prompt holds is refused."""
        answer = self._answer_in(before)
        if answer is None:
            return AfterMatcher(self, AfterState(self._start_in(before)), None)
        landing = self.border.land(answer.encode("utf-8", "surrogatepass"))
        if landing is None:
            shown = answer if len(answer) <= 60 else f"{answer[:60]}…"
            raise InputError(
                f"the prompt holds the marker {self.marker}, and {self.inner.spec.kind} refuses what follows it: "
                f"{quoted(shown)}",
                hint=OptionText("say ", Setting("in_prompt", "no"), " if that marker is not the model's own"),
                field="prompt",
            )
        if not landing.tokens:
            return AfterMatcher(self, AfterState(IN_GAP, landing.gap), None)
        inner = self.inner.matcher()
        taken = advanced(inner, landing.tokens)
        if not taken:
            raise AssertionError("the inner constraint refuses what it took before")
        return AfterMatcher(self, AfterState(INSIDE), inner)

    def accepts(self, text: str | bytes) -> bool:
        try:
            data = text.encode() if isinstance(text, str) else text
        except UnicodeEncodeError:
            return False  # half a character is in no language
        matcher = self.matcher()
        length = self.waiting.head(data) if matcher.is_waiting else 0
        if length is None:
            return False
        head = data[:length]
        before, rest = self.waiting.trie.segment(head), self.border.land(data[len(head) :])
        if before is None or rest is None or not advanced(matcher, before):
            return False
        if not rest.tokens:
            return self.border.accepts
        inner = self.inner.matcher()
        return advanced(inner, rest.tokens) and inner.is_accepting


class AfterMatcher(MatcherBase[CompiledAfter]):
    """The state of one sequence. Laws: tests/laws.py."""

    __slots__ = ("_count", "_finished", "_history", "_inner", "_state")

    def __init__(self, compiled: CompiledAfter, state: AfterState, inner: Matcher | None) -> None:
        super().__init__(compiled)
        self._state = state
        self._inner = inner  # None until the inner text has begun
        self._history: list[AfterState] = []  # the state before each token, without EOS
        self._count = 0  # tokens up to the marker's last byte
        self._finished = False

    @property
    def is_waiting(self) -> bool:
        """Whether the text is still before the marker."""
        return self._state.at >= 0

    @property
    def is_accepting(self) -> bool:
        if self._finished or self.is_waiting:
            return False
        return self._compiled.border.accepts if self._inner is None else self._inner.is_accepting

    @property
    def is_finished(self) -> bool:
        return self._finished

    def mask(self) -> Mask:
        compiled = self._compiled
        if self._finished:
            return masks.empty(compiled.vocab.width)
        if self._inner is not None:
            return self._inner.mask()
        if self.is_waiting:
            return compiled.mask_before(self._state.at, self._must_hurry).copy()
        return compiled.border.mask(self._state.gap).copy()

    def allows(self, token: int) -> bool:
        compiled = self._compiled
        if self._finished:
            return False
        if self._inner is not None:
            return self._inner.allows(token)
        if token in compiled.vocab.eos_ids:
            return self.is_accepting
        return compiled.follow(self._state, token, self._must_hurry) is not None

    def advance(self, token: int) -> None:
        compiled = self._compiled
        if not self._finished:
            if token in compiled.vocab.eos_ids:
                if self.is_accepting:
                    self._finished = True
                    return
            elif self._inner is not None:
                self._inner.advance(token)
                self._take(AfterState(INSIDE, self._state.gap, 1))
                return
            else:
                step = compiled.follow(self._state, token, self._must_hurry)
                if step is not None:
                    state, tokens = step
                    if tokens:
                        inner = compiled.inner.matcher()
                        for inner_token in tokens:
                            inner.advance(inner_token)
                        self._inner = inner
                    self._count += self.is_waiting
                    self._take(state)
                    return
        raise self._refusal(token)

    def rollback(self, count: int) -> None:
        done = len(self._history) + self._finished
        check_undo(count, done)
        if count and self._finished:
            self._finished = False
            count -= 1
        if not count:
            return
        left = len(self._history) - count
        state = self._history[left]
        if state.at != INSIDE:
            self._inner = None
        elif self._inner is not None:
            self._inner.rollback(sum(past.tokens for past in (*self._history[left + 1 :], self._state)))
        self._state = state
        self._count = min(self._count, left)
        del self._history[left:]

    def fork(self) -> AfterMatcher:
        inner = None if self._inner is None else self._inner.fork()
        other = AfterMatcher(self._compiled, self._state, inner)
        other._history = self._history.copy()
        other._count = self._count
        other._finished = self._finished
        return other

    def forced(self) -> tuple[int, ...]:
        compiled = self._compiled
        if self._finished:
            return ()
        if self._inner is not None:
            return self._inner.forced()
        if not self.is_waiting:
            return compiled.border.forced(self._state.gap)
        machine = compiled.machine(self._must_hurry)
        for token in compiled.waiting.specials:  # an alternative to the forced bytes
            if self.allows(token) and machine.advance(self._state.at, token) is None:
                return ()
        return compiled.waiting.forced(machine, self._state.at)

    def _blame(self, token: int) -> Blame:
        compiled = self._compiled
        if self._inner is not None:
            return within(self._inner.explain(token), self._kind)
        if self.is_waiting:
            return compiled.explain_before(self._state.at, token, self._must_hurry)
        return compiled.border.explain_token(token, self._state.gap, self._kind)

    def shortest_completion(self) -> tuple[int, ...]:
        compiled = self._compiled
        if self._finished:
            return ()
        if self._inner is not None:
            return self._inner.shortest_completion()
        way = compiled.way(self._state.at, self._count) if self.is_waiting else ()
        return (*way, *compiled.border.shortest_completion())

    def is_loose(self, most: int) -> bool:
        """See `closing.Closing`, as for the next two."""
        if self._finished:
            return True
        if self._inner is not None:
            return closing.is_loose(self._inner, most)
        return self._compiled.ends.is_loose(self._state, self._count, most)

    def closing(self, most: int) -> Mask:
        compiled = self._compiled
        if self._finished:
            return masks.empty(compiled.vocab.width)
        if self._inner is not None:
            return closing.closing(self._inner, most, compiled.vocab.width)
        return compiled.ends.closing(self._state, self._count, most)

    def within(self, most: int) -> tuple[int, ...] | None:
        if self._finished:
            return ()
        if self._inner is not None:
            return closing.within(self._inner, most)
        return self._compiled.ends.within(self._state, self._count, most)

    def member_masks(self) -> list[tuple[str, Mask]]:
        """As in `Composite`: the inner matcher's members, once its text has begun; else this matcher alone."""
        if self._finished or not isinstance(self._inner, Composite):
            return [(self._compiled.spec.kind, self.mask())]
        return [(f"{self._compiled.spec.kind}.{name}", mask) for name, mask in self._inner.member_masks()]

    @property
    def _must_hurry(self) -> bool:
        return self._compiled.hurried(self._count)

    def _take(self, state: AfterState) -> None:
        self._history.append(self._state)
        self._state = state
