"""The matcher of `After`: walks the text before the marker, then the gap, then the inner constraint's own matcher.

One token may hold the end of the marker, whitespace and the beginning of the inner text. The inner matcher then takes
that beginning as the fewest tokens that spell it, since masks depend on bytes and not on how they are split. It knows
no kind of constraint: the inner one is used through the interface of `base.py` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.regular import RegularMachine
from espalier.automata.reasons.blame import Blame
from espalier.automata.reasons.describe import quoted
from espalier.automata.reasons.explain import PlainExplainer, blame
from espalier.constraints.after.border import Border, Landing, advanced, within
from espalier.constraints.after.ends import AfterEnds
from espalier.constraints.after.marker import Waiting
from espalier.constraints.after.state import IN_GAP, INSIDE, AfterState
from espalier.constraints.base import Composite, Matcher
from espalier.constraints.matching import closing
from espalier.constraints.matching.base import MatcherBase, check_undo
from espalier.constraints.spec import Spec
from espalier.errors import InputError, NotAvailable
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab
from espalier.wording import OptionText, Setting

CACHE_BYTES = 32 * 2**20


class AfterCompiled:
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
        opened_in: Callable[[str], bool],
    ) -> None:
        """answer_in: the part of the answer that a prompt holds already, None while the marker is still to come.
        opened_in: whether a prompt holds the opening, if there is one."""
        self.spec = spec
        self.vocab: Vocab = border.inner.vocab
        self.inner = border.inner
        self.spelled: Mapping[int, bytes] = {**border.inner.spelled, **waiting.spelled}
        self.waiting = waiting
        self.border = border
        self.max_before = max_before
        self._answer_in = answer_in
        self._opened_in = opened_in
        self._masks: ByteCache[tuple[int, bool], Mask] = ByteCache(CACHE_BYTES)
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
            start = self.waiting.inside if self._opened_in(before) else self.waiting.start
            return AfterMatcher(self, AfterState(start), None)
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

    @property
    def marker(self) -> str:
        """The marker in quotes, for messages."""
        return quoted(self.waiting.marker.decode())

    def machine(self, hurried: bool) -> RegularMachine:
        """The automaton of the text before the marker; hurried: the one with only the shortest ways to the marker."""
        hurry = self.waiting.hurry
        return hurry if hurried and hurry is not None else self.waiting.machine

    def hurried(self, count: int) -> bool:
        """Whether `max_before` is used up after `count` tokens, so that only the shortest way to the marker is left."""
        return self.max_before is not None and count >= self.max_before

    def follow(self, state: AfterState, token: int, hurried: bool) -> tuple[AfterState, tuple[int, ...]] | None:
        """The state after a token, from a state before the inner text, and the tokens that the inner matcher takes for
        it; None if the token is refused, and for EOS."""
        landing: Landing | None
        if state.at >= 0:
            # A special token that is the marker leads behind it at once, even after a part of the marker was written.
            walked = self.waiting.walk(self.machine(hurried and token not in self.waiting.specials), state.at, token)
            if walked is None:
                return None
            after, rest = walked
            if after != self.waiting.done:
                return AfterState(after), ()
            landing = self.border.land(rest)
        else:
            landing = self.border.take(token, state.gap)
        if landing is None:
            return None
        at = INSIDE if landing.tokens else IN_GAP
        return AfterState(at, landing.gap, len(landing.tokens)), landing.tokens

    def mask_before(self, at: int, hurried: bool) -> Mask:
        """The tokens allowed in a state before the marker, `(W,) int32`, shared."""
        found = self._masks.get((at, hurried))
        if found is None:
            waiting = self.waiting
            found = self.machine(hurried).mask(at).copy()
            more = (*waiting.spanning, *waiting.specials)
            ids = tuple(token for token in more if self.follow(AfterState(at), token, hurried) is not None)
            masks.set_bits_inplace(found, ids, True)
            found.setflags(write=False)
            self._masks.put((at, hurried), found, found.nbytes)
        return found

    def way(self, at: int, count: int) -> tuple[int, ...]:
        """A short way, in tokens, from a state before the marker to its last byte, after `count` tokens."""
        waiting = self.waiting
        ways = [] if self.hurried(count) else [waiting.shortest(waiting.machine, at)]
        # The way with the fewest tokens need not have the fewest bytes, and may be closed once `max_before` is used up.
        if not ways or (self.max_before is not None and count + len(ways[0]) > self.max_before):
            ways = [waiting.shortest(self.machine(True), at)]
            whole = (waiting.done, b"")
            ways += [(one,) for one in waiting.specials if waiting.walk(waiting.machine, at, one) == whole]
        return min(ways, key=len)

    def explain_before(self, at: int, token: int, hurried: bool) -> Blame:
        """Why a token is refused in a state before the marker. Raises NotAvailable."""
        member, waiting = self.spec.kind, self.waiting
        if token in self.vocab.eos_ids:
            return Blame(member=member, reason=f"the text must come to the marker {self.marker} first")
        free = waiting.walk(waiting.machine, at, token)
        bound = waiting.walk(waiting.machine if token in waiting.specials else self.machine(hurried), at, token)
        if free is not None and bound is None:
            found = blame(PlainExplainer(self.machine(True)), waiting.vocab, at, token, member)
            most = "nothing" if self.max_before == 0 else f"at most {self.max_before} tokens"
            return replace(found, reason=f"{most} may come before the marker {self.marker}: {found.reason}")
        if free is None:
            return blame(PlainExplainer(waiting.machine), waiting.vocab, at, token, member)
        rest = free[1]
        shift = len(waiting.vocab.bytes_of(token)) - len(rest)
        try:
            found = self.border.explain(rest, 0, member)
        except NotAvailable:
            shown = quoted(rest.decode("utf-8", "replace"))
            reason = f"behind the marker {self.marker} {self.inner.spec.kind} does not begin with {shown}"
            return Blame(member=f"{member}.{self.inner.spec.kind}", reason=reason)
        return found if found.offset is None else replace(found, offset=found.offset + shift)


class AfterMatcher(MatcherBase[AfterCompiled]):
    """The state of one sequence. Laws: tests/laws.py."""

    __slots__ = ("_count", "_finished", "_history", "_inner", "_state")

    def __init__(self, compiled: AfterCompiled, state: AfterState, inner: Matcher | None) -> None:
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
            return compiled.mask_before(self._state.at, self._hurried).copy()
        return compiled.border.mask(self._state.gap).copy()

    def allows(self, token: int) -> bool:
        compiled = self._compiled
        if self._finished:
            return False
        if self._inner is not None:
            return self._inner.allows(token)
        if token in compiled.vocab.eos_ids:
            return self.is_accepting
        return compiled.follow(self._state, token, self._hurried) is not None

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
                found = compiled.follow(self._state, token, self._hurried)
                if found is not None:
                    state, tokens = found
                    if tokens:
                        inner = compiled.inner.matcher()
                        for one in tokens:
                            inner.advance(one)
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
        kept = len(self._history) - count
        state = self._history[kept]
        if state.at != INSIDE:
            self._inner = None
        elif self._inner is not None:
            self._inner.rollback(sum(one.tokens for one in (*self._history[kept + 1 :], self._state)))
        self._state = state
        self._count = min(self._count, kept)
        del self._history[kept:]

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
        machine = compiled.machine(self._hurried)
        for token in compiled.waiting.specials:  # an alternative to the forced bytes
            if self.allows(token) and machine.advance(self._state.at, token) is None:
                return ()
        return compiled.waiting.forced(machine, self._state.at)

    def _blame(self, token: int) -> Blame:
        compiled = self._compiled
        if self._inner is not None:
            return within(self._inner.explain(token), self._kind)
        if self.is_waiting:
            return compiled.explain_before(self._state.at, token, self._hurried)
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
    def _hurried(self) -> bool:
        return self._compiled.hurried(self._count)

    def _take(self, state: AfterState) -> None:
        self._history.append(self._state)
        self._state = state
