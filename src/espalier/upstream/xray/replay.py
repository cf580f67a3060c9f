"""Goes through one reply token by token: which token the sampler drew first, and whether the grammar refused it.

Where a step cannot be decided, each possibility is followed, and what contradicts a later token is dropped. It makes no
requests: whoever steps through it says what the server reported for each token. ::

    what the server reported ──▶ ServerChain.draw, with the server's next number ──▶ first: what it drew from all tokens
                                                                                 │
               the grammar allows it ◀───────────────────────────────────────────┤
                 │                                                               ▼
                 │                       the grammar refuses it: Chain.draw over what it allows, with the number after
                 ▼                                                               ▼
    the reply's token is that one?  yes: accepted, checked    the reply's token is that one?  yes: rejected, checked
                                    no: the path is dropped                                   no: the path is dropped
    no path is left: the replay has lost its place, and the outcomes from here on are unknown

An example. The server reports a, b and c with 0.6, 0.3 and 0.1, and its next numbers are 0.5 and 0.8. Best first, the
sum reaches 0.5 at a: a was drawn first. If the reply has a, the outcome is "accepted". If the grammar refuses a, the
chain runs over b and c, with 0.75 and 0.25, and the second number is reached at c. If the reply has c, the outcome is
"rejected", with a as the token that was refused; if it has b, this path is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from espalier.errors import EspalierError
from espalier.upstream.xray.distribution import ReportedTokens
from espalier.upstream.xray.grammar.lazy import TriggerWatch
from espalier.upstream.xray.grammar.matcher import State, States
from espalier.upstream.xray.grammar.pieces import WHOLE, PartialCharacter
from espalier.upstream.xray.sampler.candidates import UndecidedDraw
from espalier.upstream.xray.sampler.chain import Draw, SamplerPosition, ServerChain

Outcome = Literal["accepted", "rejected", "unknown"]
MOST_PATHS = 12
MASKED = 1024
"""Up to so many tokens, all that a grammar allows at a step is worked out; beyond it, only for listed ones."""
BROKEN = "the replay of the sampler has lost its place"


@dataclass(frozen=True, slots=True, eq=False)
class StepVerdict:
    """outcome: whether the first token drawn was refused. first: that draw, None if unknown. taken: the draw of the
    token that was taken, None if unknown. is_checked: whether a draw of ours is the token that the server took."""

    outcome: Outcome
    first: Draw | None = None
    taken: Draw | None = None
    is_checked: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _ReplayPath:
    """One possibility. before: the possibility at the token before."""

    place: SamplerPosition
    verdict: StepVerdict | None = None
    before: _ReplayPath | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ReplayStep:
    """One token. state, begun: of the grammar before it; state is None without one. reported: what the server reported,
    None if nothing. reason: why the outcome is unknown."""

    token: int
    state: State | None
    begun: PartialCharacter
    reported: ReportedTokens | None
    verdict: StepVerdict
    reason: str = ""


@dataclass(slots=True)
class SamplerReplay:
    """states: None without a grammar. past: the prompt's tokens, for penalties; then also the output. awaited: the
    triggers of a lazy grammar. prefill: what the grammar has taken before the first token, as tokens with their bytes.
    """

    chain: ServerChain
    states: States | None
    past: list[int]
    reason: str = ""
    awaited: TriggerWatch | None = None
    prefill: Sequence[tuple[int, bytes]] = ()
    _state: State | None = field(init=False, default=None)
    _begun: PartialCharacter = field(init=False, default=WHOLE)
    _paths: list[_ReplayPath] = field(init=False, default_factory=list)
    _last: list[_ReplayPath] = field(init=False, default_factory=list)  # before the latest token
    _memo: tuple[tuple[int, int | None, int], list[_ReplayPath]] | None = field(init=False, default=None)
    _kept: list[StepVerdict] = field(init=False, default_factory=list)  # what was known when the replay was lost
    _tokens: list[tuple[int, State | None, PartialCharacter, ReportedTokens | None]] = field(
        init=False, default_factory=list
    )
    _broken_at: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._paths = [_ReplayPath(self.chain.start)]
        if self.states is not None and self.awaited is None:
            self._begin(self.prefill)
        if self.reason:
            self._paths, self._broken_at = [], 0

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be said of further tokens."""
        return self._broken_at is not None

    def tokens(self) -> list[int]:
        return [token for token, *_ in self._tokens]

    def needs_level(self, reported: ReportedTokens) -> bool:
        """Whether the logits themselves must be known, for a repeat penalty."""
        return self.chain.settings.has_repeat and not self.chain.is_level(reported, self.past)

    def predict(self, reported: ReportedTokens, among: frozenset[int] | None = None) -> int | None:
        """The token that the server takes next, if that can be told. among: tokens of which it is known to be one."""
        if self.is_lost:
            return None
        try:
            tokens = {
                path.verdict.taken.token
                for path in self._ahead(reported, None)
                if path.verdict is not None and path.verdict.taken is not None
            }
        except (UndecidedDraw, EspalierError):
            return None
        if among is not None:
            tokens &= among
        return tokens.pop() if len(tokens) == 1 else None

    def fits(self, token: int, reported: ReportedTokens | None) -> bool:
        """Whether the token can be what the server took, by this report."""
        if self.is_lost or reported is None:
            return True
        try:
            return bool(self._ahead(reported, token))
        except (UndecidedDraw, EspalierError):
            return True

    def decides(self, token: int, reported: ReportedTokens | None) -> bool:
        """Whether this report decides the step; if not, one that lists more tokens may."""
        if self.is_lost:
            return True
        if reported is None:
            return False
        try:
            paths = self._ahead(reported, token)
        except UndecidedDraw:
            return False
        except EspalierError:
            return True
        outcomes = {None if path.verdict is None else path.verdict.outcome for path in paths}
        # A draw that may or may not have used a number of xtc's leaves two places, and doubts at later steps.
        return len(outcomes) == 1 and len({option.place for option in paths}) <= len(
            {path.place for path in self._paths}
        )

    def advance(self, token: int, reported: ReportedTokens | None) -> None:
        """Go on by the token that the server took. reported: None if the server reported nothing."""
        place = len(self._tokens)
        self._tokens.append((token, self._state, self._begun, reported))
        if not self.is_lost:
            try:
                paths = self._ahead(reported, token, at=place)
                self._last, self._paths = self._paths, paths
                if not paths:
                    self._lose(place, BROKEN)
            except UndecidedDraw:
                self._lose(place, "too many possibilities")
            except EspalierError as error:
                self._lose(place, str(error))
        self.past.append(token)
        if self.awaited is not None and self.states is not None:
            found_pieces = self.awaited.after(token, self.states.pieces.pieces[token])
            if found_pieces is not None:
                self.awaited = None
                self._begin(found_pieces)
        elif self._state is not None and self.states is not None and token not in self.states.pieces.eog:
            self._state, self._begun = self.states.accept(self._state, token, self._begun)
            if not self._state.stacks:
                self._lose(len(self._tokens), "the grammar, as it is followed here, refuses a token that was taken")

    def _begin(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """The grammar holds from here, after these parts of tokens."""
        assert self.states is not None
        state, begun = self.states.start, WHOLE
        for token, piece in pieces:
            state, begun = self.states.accept_piece(state, token, piece, begun)
        self._state, self._begun = state, begun
        if not state.stacks:
            self._lose(len(self._tokens), "the grammar, as it is followed here, refuses what it begins with")

    def give_up(self, reason: str) -> None:
        """Say nothing of the tokens from here on."""
        self._lose(len(self._tokens), reason)

    def finish(self) -> list[ReplayStep]:
        """The steps with what is known of them."""
        verdicts = self._settled()
        steps: list[ReplayStep] = []
        for (token, state, begun, reported), verdict in zip(self._tokens, verdicts, strict=True):
            reason = ""
            if verdict.outcome == "unknown":
                reason = self._why(len(steps), reported)
            steps.append(ReplayStep(token, state, begun, reported, verdict, reason))
        return steps

    def _why(self, place: int, reported: ReportedTokens | None) -> str:
        if self._broken_at is not None and place >= self._broken_at:
            return self.reason
        if reported is None:
            return "the server reported no probabilities for this token"
        if reported.level is None and self.chain.settings.has_repeat:
            return "a repeat penalty needs the logits themselves, and the server was not asked for them or told others"
        return "the listed tokens do not decide what was drawn first"

    def _lose(self, place: int, reason: str) -> None:
        """Say nothing more; and nothing of what was not confirmed by a later token."""
        if self._broken_at is not None:
            return
        if self._paths and reason != BROKEN:
            self._broken_at = place
        else:
            self._broken_at = self._confirmed(place)
        self.reason = reason
        self._kept = self._settled_of(self._paths)
        self._paths = []

    def _confirmed(self, place: int) -> int:
        """How many steps at the start are confirmed: up to the last one whose draw was the server's in every path."""
        paths = self._last
        count = place
        while count > 0:
            if paths and all(path.verdict is not None and path.verdict.is_checked for path in paths):
                return count
            paths = _unique([path.before for path in paths if path.before is not None])
            count -= 1
        return 0

    def _settled(self) -> list[StepVerdict]:
        count = len(self._tokens)
        if self._broken_at is None:
            return self._settled_of(self._paths)
        known = self._kept[: self._broken_at]
        return [*known, *[StepVerdict("unknown")] * (count - len(known))]

    def _settled_of(self, paths: list[_ReplayPath]) -> list[StepVerdict]:
        """For each step, what all surviving possibilities agree on."""
        settled: list[StepVerdict] = []
        paths = paths or self._last
        while paths and paths[0].verdict is not None:
            verdicts = [path.verdict for path in paths if path.verdict is not None]
            settled.append(_common_verdict(verdicts))
            paths = _unique([path.before for path in paths if path.before is not None])
        return settled[::-1]

    def _ahead(self, reported: ReportedTokens | None, token: int | None, *, at: int | None = None) -> list[_ReplayPath]:
        """The possibilities after one more token; token: None if it is not known. Raises UndecidedDraw for too many."""
        key = (len(self._tokens) if at is None else at, token, id(reported))
        if self._memo is not None and self._memo[0] == key:
            return self._memo[1]
        paths: list[_ReplayPath] = []
        for path in self._paths:
            paths += [_ReplayPath(place, verdict, path) for verdict, place in self._steps(path.place, reported, token)]
        if len(paths) > MOST_PATHS:
            raise UndecidedDraw
        self._memo = key, paths
        return paths

    def _steps(
        self, place: SamplerPosition, reported: ReportedTokens | None, token: int | None
    ) -> list[tuple[StepVerdict, SamplerPosition]]:
        if reported is None:
            return self._blind(place, token)
        try:
            draws = self.chain.draw(reported, place, self.past)
        except UndecidedDraw:
            return self._blind(place, token)
        outcomes: list[tuple[StepVerdict, SamplerPosition]] = []
        for first in draws:
            if self.states is None or self._state is None or self.states.allows(self._state, first.token, self._begun):
                if token in (None, first.token):
                    outcomes.append((StepVerdict("accepted", first, first, is_checked=True), first.after))
                continue
            outcomes += self._again(first, reported, token)
        return outcomes

    def _again(
        self, first: Draw, reported: ReportedTokens, token: int | None
    ) -> list[tuple[StepVerdict, SamplerPosition]]:
        """After a refusal: the second draw, from what the grammar allows."""
        assert self.states is not None
        assert self._state is not None
        if token is not None and not self.states.allows(self._state, token, self._begun):
            return []
        try:
            draws = self._second(first, reported)
        except UndecidedDraw:
            if token is None:
                raise
            after = self._skipped(first.after)
            return [(StepVerdict("rejected", first), position) for position in after]
        return [
            (StepVerdict("rejected", first, draw, is_checked=True), draw.after)
            for draw in draws
            if token in (None, draw.token)
        ]

    def _second(self, first: Draw, reported: ReportedTokens) -> list[Draw]:
        assert self.states is not None
        assert self._state is not None
        if reported.is_whole or reported.width <= MASKED:
            allowed = self.states.mask(self._state, self._begun)
            if reported.is_whole or not _has_unlisted(allowed, reported):
                whole = reported if reported.is_whole else _fill_unlisted(reported)
                return self.chain.draw(whole, first.after, self.past, allowed)
        allowed = np.zeros(reported.width, dtype=np.bool_)
        allowed[reported.ids] = self.states.allowed(self._state, reported.ids, self._begun)
        return self.chain.draw(reported, first.after, self.past, allowed)

    def _blind(self, place: SamplerPosition, token: int | None) -> list[tuple[StepVerdict, SamplerPosition]]:
        """Nothing can be told of the draw: it was accepted, or refused and made again."""
        if token is None:
            raise UndecidedDraw
        once = self._skipped(place)
        if self._state is None:
            return [(StepVerdict("accepted"), position) for position in once]
        twice = [two for position in once for two in self._skipped(position)]
        return [(StepVerdict("accepted"), position) for position in once] + [
            (StepVerdict("rejected"), position) for position in twice
        ]

    def _skipped(self, place: SamplerPosition) -> list[SamplerPosition]:
        """The places after a draw of which nothing is known. Raises UndecidedDraw where its result matters later."""
        settings = self.chain.settings
        if settings.mirostat:
            raise UndecidedDraw
        positions = [SamplerPosition(place.draws + 1, place.chances, place.mu)]
        if settings.has_xtc:
            positions.append(SamplerPosition(place.draws + 1, place.chances + 1, place.mu))
        return positions


def _has_unlisted(allowed: NDArray[np.bool_], reported: ReportedTokens) -> bool:
    """Whether the grammar allows a token that is not listed."""
    return int(np.count_nonzero(allowed)) > int(np.count_nonzero(allowed[reported.ids]))


def _fill_unlisted(reported: ReportedTokens) -> ReportedTokens:
    """With the unlisted tokens at -inf, where the grammar refuses them all."""
    listed = np.zeros(reported.width, dtype=np.bool_)
    listed[reported.ids] = True
    rest = np.flatnonzero(~listed)
    return ReportedTokens(
        ids=np.concatenate([reported.ids, rest]),
        logprobs=np.concatenate([reported.logprobs, np.full(rest.shape[0], -np.inf, dtype=np.float32)]),
        width=reported.width,
        chosen=reported.chosen,
        chosen_logprob=reported.chosen_logprob,
    )


def _unique(paths: Sequence[_ReplayPath]) -> list[_ReplayPath]:
    return list({id(path): path for path in paths}.values())


def _common_verdict(verdicts: Sequence[StepVerdict]) -> StepVerdict:
    """What the possibilities have in common."""
    first = verdicts[0]
    if any(verdict.outcome != first.outcome for verdict in verdicts):
        return StepVerdict("unknown")
    drawn = {None if verdict.first is None else verdict.first.token for verdict in verdicts}
    if len(drawn) > 1 or (first.outcome == "rejected" and drawn == {None}):
        return StepVerdict("unknown") if first.outcome == "rejected" else first
    return first
