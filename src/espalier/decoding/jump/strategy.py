"""The `jump` strategy: appends text that the constraint forces without drawing it, tokenized as the tokenizer would.

After a draw, the bytes that every completion must go on with are encoded together with the last drawn tokens, which are
not streamed yet. The tokens that stay the same whatever follows are appended in the same forward pass as the next free
token. With filters or records, a forced token is taken only when its logits are known. The module knows neither how a
constraint is made nor how a tokenizer works.
"""

from __future__ import annotations

from typing import NamedTuple

from espalier.decoding.canonical import Canonical, canonical, shared
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import Job, Outcome, Plan, SampledToken, Strategy
from espalier.decoding.ports import Append, Need
from espalier.decoding.step.allowed import NEG_INF
from espalier.decoding.step.decide import decide, record_forced
from espalier.decoding.text.run import EndRule, TextRun
from espalier.decoding.timed_mask import TimedMask
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits
from espalier.trace.records import StepRecord

HELD = 2
"""How many drawn tokens are not streamed yet: the encoding of forced text after them can replace them."""
JOINED = 64
"""A prompt of at most so many tokens shares a forward pass with text that is forced at the start. A longer one gets its
own pass: a server may have it in its prefix cache."""


class HeldToken(NamedTuple):
    """A drawn token that is not streamed yet. row: `(V,) float32`, its logits; None where forced tokens need no
    logits."""

    token: int
    record: StepRecord | None
    row: Logits | None


def jump_plan(job: Job) -> Plan:
    """One sequence. Without a constraint or a tokenizer function, one token per forward pass."""
    run = _JumpRun(job)
    run.jump()
    prompt = job.prompt
    if run.pending or (run.tokens and len(prompt) > JOINED):
        if run.end is None:
            answer = yield Need(append=(Append(branch=0, tokens=prompt, logits="last" if run.pending else "none"),))
            if run.pending:
                run.base = answer[0][-1].copy()
        prompt = ()
    while True:
        yield from run.flush()
        if run.end is not None:
            return run.end
        truncate, tokens = run.feed()
        rows: list[Logits] = []
        if prompt or tokens:
            wanted = Append(branch=0, tokens=(*prompt, *tokens), logits="all" if run.pending else "last")
            answer = yield Need(truncate=((0, truncate),) if truncate is not None else (), append=(wanted,))
            rows = list(answer[0])  # (V,) float32 each
            prompt = ()
        # The rows are valid only until the next yield, so they are used before it.
        row = run.check(rows) if run.pending else rows[-1]
        if run.end is None:
            run.draw(row)
            run.jump()


class _JumpRun:
    """One growing text. The matcher and the chain have seen all `tokens`; the last tokens may be `held`.

    pending: forced tokens that are taken once their logits are known. base: `(V,) float32`, the logits before the first
    of them, where the next pass does not give them. is_checked: whether forced tokens need logits, for records or
    filters.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.vocab, self.chain, self.matcher = job, job.vocab, job.chain, job.matcher
        self.config = job.chain.config
        self.tokens: list[int] = []
        self.held: list[HeldToken] = []
        self.pending: tuple[int, ...] = ()
        self.base: Logits | None = None
        self.end: Outcome | None = None
        self.is_checked = job.watch.is_on or len(job.chain.filters) > 0
        self._unsent: list[SampledToken] = []
        self._border = 0  # index in `tokens` after the last special token: the text from there is tokenized as one
        self._fed = self._cached = 0  # generated tokens in the KV cache: correct ones, and all
        self._fresh = 0  # tokens taken before the current pass and fed in it
        self._is_frozen = False  # the next drawn token is final: a filter has refused its replacement
        self._shown = TextRun(EndRule(job))  # without what is held
        self._timed, self._questions = TimedMask(job), MatcherQuestions(self.matcher)
        self._canonical: Canonical | None = None
        if self.matcher is not None and job.encode is not None:
            self._canonical = canonical(self.vocab, job.encode)
        job.chain.start(job.prompt)

    def flush(self) -> list[SampledToken]:
        """The tokens to stream, each once."""
        tokens, self._unsent = self._unsent, []
        return tokens

    def feed(self) -> tuple[int | None, tuple[int, ...]]:
        """The length to truncate the model's sequence to, None for no truncation; and the tokens to append then."""
        cut = len(self.job.prompt) + self._fed if self._cached > self._fed else None
        tokens = (*self.tokens[self._fed :], *self.pending)
        if len(self.tokens) + len(self.pending) >= self.job.max_tokens:
            tokens = tokens[:-1]  # nothing follows the last one, so its logits are not needed
        self._fresh = len(self.tokens) - self._fed
        self._cached = self._fed = self._fed + len(tokens)
        return cut, tokens

    def draw(self, row: Logits) -> None:
        """One step as `mask` does it, from `(V,) float32`."""
        decision = decide(
            row,
            self._timed.mask(self.matcher),
            vocab=self.vocab,
            chain=self.chain,
            stream=self.job.stream,
            context=self.job.context(self.tokens),
            watch=self.job.watch,
            questions=self._questions,
        )
        self._take(decision.token, decision.prob)
        self.held.append(HeldToken(decision.token, decision.record, row.copy() if self.is_checked else None))
        is_text = bool(self.vocab.bytes_of(decision.token)) and decision.token not in self.config.stop_ids
        if not is_text or self._is_frozen or self._canonical is None or self.config.stop:
            self._tell_held()
        self._is_frozen = False
        self._check_length()

    def jump(self) -> None:
        """Take the forced tokens, or make them `pending`. Drawn tokens that the new encoding replaces are taken
        back."""
        matcher = self.matcher
        if self._canonical is None or matcher is None or self.end is not None:
            return
        forced = matcher.forced() if not matcher.is_finished else ()
        wanted: tuple[int, ...] = ()
        if forced:
            held = self.vocab.decode(step.token for step in self.held)
            wanted = self._cut_at_ban(self._canonical.going_on(self._head(), held, forced))
        same = shared(wanted, [step.token for step in self.held])
        count = len(self.held) - same
        wanted = wanted[: same + self._viable(wanted[same:], count)]
        if not self._goes_on(wanted):
            self._tell_held(HELD)
        else:
            self.base = self.held[same].row if count else None
            if count:
                matcher.rollback(count)
                self.chain.rollback(count)
                del self.tokens[-count:], self.held[-count:]
                self._fed = min(self._fed, len(self.tokens))
            self._tell_held()
            if self.is_checked:
                self.pending = wanted[same:]
                return
            for token in wanted[same:]:
                self._take(token, None)
                self._tell(token, None)
                if self.end is not None:
                    return
        self._check_length()
        if not self.is_checked and self.end is None:
            self._take_only_end()

    def check(self, rows: list[Logits]) -> Logits:
        """Take the pending tokens. rows: `(V,) float32` each, from the last pass. Where a filter refuses a token, it
        and the following ones are dropped. Returns the row to draw the next token from."""
        pending, self.pending = self.pending, ()
        # Tokens that were fed before the pending ones have rows too; the last of these rows precedes the first pending
        # one.
        before = rows[self._fresh - 1 :] if self._fresh else [*([] if self.base is None else [self.base]), *rows]
        for place, token in enumerate(pending):
            row, context = before[place], self.job.context(self.tokens)
            if len(self.chain.filters) and self.chain.bias(row, context)[token] == NEG_INF:
                self._fed, self._is_frozen = len(self.tokens), True
                return row
            record = None
            if self.job.watch.is_on:
                record = record_forced(
                    row,
                    token,
                    self._timed.mask(self.matcher),
                    vocab=self.vocab,
                    chain=self.chain,
                    context=context,
                    watch=self.job.watch,
                    questions=self._questions,
                )
            self._take(token, None)
            self._tell(token, record)
            if self.end is not None:
                return row
        self._check_length()
        return before[-1]

    def _head(self) -> bytes:
        """The bytes of the last streamed token, and of tokens before it up to a character boundary: the tokenizer may
        merge the following text with them."""
        head, place = b"", len(self.tokens) - len(self.held)
        while place > self._border and (not head or head[0] & 0xC0 == 0x80):
            place -= 1
            head = self.vocab.bytes_of(self.tokens[place]) + head
        return head

    def _cut_at_ban(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The first tokens, up to the token limit and to the first one that the config bans."""
        start = len(self.tokens) - len(self.held)
        tokens = tokens[: self.job.max_tokens - start]
        fitted, least = self.chain.fitted, self.config.min_tokens
        for place, token in enumerate(tokens):
            is_banned = fitted.permitted is not None and not masks.test(fitted.permitted, token)
            if is_banned or (start + place < least and token in fitted.ends):
                return tokens[:place]
        return tokens

    def _viable(self, tokens: tuple[int, ...], count: int) -> int:
        """How many of the tokens the matcher allows after `count` held ones are taken back: in a vocabulary that lacks
        bytes, not every tokenization is allowed."""
        if self.matcher is None or not tokens:
            return 0
        probe = self.matcher.fork()
        probe.rollback(count)
        for place, token in enumerate(tokens):
            if not probe.allows(token):
                return place
            probe.advance(token)
        return len(tokens)

    def _goes_on(self, wanted: tuple[int, ...]) -> bool:
        """Whether these tokens spell more than the held ones."""
        old = self.vocab.decode(step.token for step in self.held)
        new = self.vocab.decode(wanted)
        ends_special = bool(wanted) and not self.vocab.bytes_of(wanted[-1])
        return len(new) > len(old) or (len(new) == len(old) and ends_special)

    def _take(self, token: int, prob: float | None) -> None:
        if self.matcher is not None:
            self.matcher.advance(token)
        self.chain.on_token(token, prob)
        self.tokens.append(token)

    def _tell_held(self, left: int = 0) -> None:
        """Stream the held tokens but the last `left`."""
        while len(self.held) > left and self.end is None:
            step = self.held.pop(0)
            self._tell(step.token, step.record)

    def _tell(self, token: int, record: StepRecord | None) -> None:
        """Stream a token, which is final from now on. Sets `self.end` where the text ends with it."""
        text = self._shown.take(token)
        self._unsent.append(SampledToken(token=token, text=text, record=record))
        if not self.vocab.bytes_of(token):
            self._border = len(self._shown.tokens)
        if self._shown.ending is not None:
            self.end = self._shown.outcome(self.matcher, mask_seconds=self._timed.seconds)

    def _check_length(self) -> None:
        """Stream the held tokens at the token limit; the last one ends the text."""
        if len(self.tokens) >= self.job.max_tokens:
            self._tell_held()

    def _take_only_end(self) -> None:
        """Take EOS without a draw, where it is the only allowed token and its step is not recorded."""
        if self.matcher is None or not self.matcher.is_accepting:
            return
        mask = self._timed.mask(self.matcher)
        if mask is None or masks.count(mask) != 1:
            return
        for token in self.vocab.eos_ids:
            if masks.test(mask, token):
                self._tell_held()
                if self.end is None:
                    self._take(token, None)
                    self._tell(token, None)


JUMP = Strategy(make_plan=jump_plan, truncates=True)
