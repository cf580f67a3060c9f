"""Works out every step of a run again from the model's logits, by the formulas of docs/strategies.md and
docs/sampling.md, and says where a record says something else.

The model runs again over the taken tokens, one by one; a fresh matcher is asked at each step, and never later.
Numbers and draws are plain numpy (`chain.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

import espalier
from espalier.constraints.base import Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.ports import Extend
from espalier.decoding.text.token_limit import closable, with_token_limit
from espalier.sampling.config import SamplingConfig
from espalier.sampling.draw import RandomStream
from espalier.sampling.samplers.dry import resolve_breakers
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.trace.records import Candidate, StepRecord, Trace
from tests.fuzz.edges import chain

STRICT, LOOSE = 2e-5, 2e-3
"""How far numbers may be apart: where the model ran the same passes, and where they had other sizes."""
NEAR = 1e-6
"""A draw nearer than this to an edge is not judged; `LOOSE` where the passes had other sizes."""


class Wrong(Exception):  # a finding, not an error
    """A record that says something else than the oracle."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run was asked. stream: which output. distance: see STRICT and LOOSE. draws: whether each token is drawn by
    the numbers of its stream, so that it can be drawn again."""

    engine: espalier.LoadedEngine
    trace: Trace
    records: Sequence[StepRecord]
    tokens: Sequence[int]
    stream: int
    distance: float
    draws: bool
    is_late: bool
    top_k: int
    closes: bool

    @property
    def config(self) -> SamplingConfig:
        data = {k: v for k, v in self.trace.sampling.items() if k != "sampler"}
        return SamplingConfig.from_json(data)


def check(run: Run) -> None:
    """Raises Wrong, naming the step and the field."""
    vocab, trace = run.engine.vocab, run.trace
    config = run.config
    settings = {one.name: getattr(config, one.name) for one in fields(config)}
    matcher = _matcher(run, vocab)
    biases, bans, real = _biases(config, vocab)
    stream = RandomStream(trace.sampling["seed"], run.stream)
    breakers = resolve_breakers(config.dry_breakers, vocab) if "dry" in chain.active(settings) else {}
    mu = 2.0 * config.mirostat_tau
    prompt, said = trace.prompt_ids, []
    for place, raw in enumerate(_rows(run)):
        record, token = run.records[place], run.tokens[place]
        row = np.clip(raw.astype(np.float64) + biases, -3.4e38, 3.4e38).astype(np.float32)
        constrained = real if matcher is None else masks.unpack(matcher.mask(), raw.shape[0])
        allowed = _allowed(constrained & ~bans, place, config, vocab)
        step = _Step(run, place, record, raw, allowed)
        step.numbers()
        step.stages()
        if matcher is not None:
            step.reasons(MatcherQuestions(matcher), has_bans=bool((constrained & ~allowed).any()))
        past = chain.Past(prompt, said, breakers, mu, 0.0)
        step.weight(row, settings, past)
        if run.draws:
            free = _allowed(real & ~bans, place, config, vocab)
            prob = step.drawn(row, free if run.is_late else None, settings, past, stream)
            if prob is None:
                return  # so near an edge that the rest says nothing
            if config.mirostat:
                mu -= config.mirostat_eta * (-math.log2(prob) - config.mirostat_tau)
        if matcher is not None:
            matcher.advance(token)
        said.append(token)


def _matcher(run: Run, vocab: Vocab) -> Matcher | None:
    trace = run.trace
    if trace.constraint is None:
        return None
    spec = Spec.from_json(trace.constraint)
    with closable(run.closes) if run.closes else nullcontext():
        # To compile anew would take most of the time.
        compiler: Compiler = run.engine.engine.compiler  # type: ignore[attr-defined]  # a LocalEngine
        compiled = compiler.compile(spec)
        matcher = compiled.matcher(before=trace.setup["before"])
        if run.closes:
            matcher = with_token_limit(matcher, trace.setup["max_tokens"], vocab, name=compiled.spec.kind)
    return matcher


def _rows(run: Run) -> Iterator[NDArray[np.float32]]:
    """The logits before each token, each `(V,) float32`."""
    model: Any = run.engine.engine.model  # type: ignore[attr-defined]  # a LocalEngine
    sequence = model.new()
    try:
        (rows,) = model.extend([Extend(sequence=sequence, tokens=tuple(run.trace.prompt_ids))])
        yield rows[-1].copy()
        for token in run.tokens[:-1]:
            (rows,) = model.extend([Extend(sequence=sequence, tokens=(token,))])
            yield rows[-1].copy()
    finally:
        model.free(sequence)


def _biases(config: SamplingConfig, vocab: Vocab) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """(what is added, what is banned, what is a token), `(V,)` each."""
    biases, bans = np.zeros(vocab.width), np.zeros(vocab.width, dtype=np.bool_)
    for token, value in config.logit_bias:
        if value == -math.inf:
            bans[token] = True
        else:
            biases[token] += value
    if config.allowed_ids is not None:
        others = np.ones(vocab.width, dtype=np.bool_)
        others[list(config.allowed_ids)] = False
        bans |= others
    return biases, bans, np.asarray(vocab.real_ids).copy()


def _allowed(flags: NDArray[np.bool_], place: int, config: SamplingConfig, vocab: Vocab) -> NDArray[np.bool_]:
    """Without the ends that `min_tokens` holds back, unless nothing else is left."""
    if place >= config.min_tokens:
        return flags
    rest = flags.copy()
    rest[[*vocab.eos_ids, *config.stop_ids]] = False
    return rest if rest.any() else flags


class _Step:
    """One step: what the record should say. raw: `(V,) float32`; allowed: `(V,) bool`."""

    def __init__(
        self, run: Run, place: int, record: StepRecord, raw: NDArray[np.float32], allowed: NDArray[np.bool_]
    ) -> None:
        self._run, self._place, self._record, self._raw, self._allowed = run, place, record, raw, allowed
        values = raw.astype(np.float64)
        top = values.max()
        self._logprobs = values - (top + math.log(np.exp(values - top).sum()))  # (V,)
        inside = values[allowed]
        if not inside.size:
            raise Wrong(f"step {place}: nothing is allowed, and {run.tokens[place]} was taken")
        self._log_z = (inside.max() + math.log(np.exp(inside - inside.max()).sum())) - (
            top + math.log(np.exp(values - top).sum())
        )
        if not allowed[run.tokens[place]]:
            raise Wrong(f"step {place}: token {run.tokens[place]} was taken, which is not allowed")

    def _same(self, name: str, found: Any, wanted: Any, *, distance: float | None = None) -> None:
        distance = self._run.distance if distance is None else distance
        if isinstance(wanted, float) and isinstance(found, float | int):
            if abs(found - wanted) <= distance * max(1.0, abs(wanted)):
                return
        elif found == wanted:
            return
        raise Wrong(f"step {self._place}: {name} is {found!r}, and should be {wanted!r}")

    def numbers(self) -> None:
        record, token, logprobs = self._record, self._run.tokens[self._place], self._logprobs
        vocab = self._run.engine.vocab
        self._same("step", record.step, self._place)
        self._same("token_id", record.token_id, token)
        self._same("bytes", record.bytes, vocab.bytes_of(token))
        self._same("logprob", record.logprob, float(logprobs[token]))
        self._same("allowed_count", record.allowed_count, int(self._allowed.sum()))
        self._same("removed_mass", record.removed_mass, -math.expm1(self._log_z))
        self._same("tax_nats", record.tax_nats, max(0.0, -self._log_z))
        probs = np.exp(logprobs)
        self._same("entropy_before", record.entropy_before, -float((probs * logprobs).sum()))
        inside = logprobs[self._allowed] - self._log_z
        self._same("entropy_after", record.entropy_after, -float((np.exp(inside) * inside).sum()))
        best = int(self._raw.argmax())
        if self._raw[best] - np.delete(self._raw, best).max() > self._run.distance:
            self._same("was_changed", record.was_changed, not self._allowed[best])
        if sum(found for _, found in record.removed_by) > 0 or record.removed_by:
            total = float(sum(found for _, found in record.removed_by))
            self._same("the sum of removed_by", total, record.removed_mass)
        self._same("is_special", record.is_special, token in vocab.special_texts)

    def stages(self) -> None:
        record, trace = self._record, self._run.trace
        if trace.level not in ("steps", "full"):
            if len(record.pre_masking) or len(record.post_grammar) or len(record.post_chain):
                raise Wrong(f"step {self._place}: there are candidates at level {trace.level}")
            return
        self._listed("pre_masking", record.pre_masking, self._logprobs, np.ones_like(self._allowed))
        self._listed("post_grammar", record.post_grammar, self._logprobs - self._log_z, self._allowed)
        taken = self._run.tokens[self._place]
        for name in ("pre_masking", "post_grammar", "post_chain"):
            if all(one.id != taken for one in getattr(record, name)):
                raise Wrong(f"step {self._place}: the token is not in {name}")
        if record.rejected is not None and all(one.id != record.rejected.id for one in record.pre_masking):
            raise Wrong(f"step {self._place}: the rejected token is not in pre_masking")

    def _listed(
        self, name: str, found: Sequence[Candidate], logprobs: NDArray[np.float64], among: NDArray[np.bool_]
    ) -> None:
        ids = np.flatnonzero(among)
        order = ids[np.argsort(-self._raw[ids], kind="stable")][: self._run.top_k]
        for place, one in enumerate(found):
            self._same(f"{name}[{place}].prob", one.prob, float(np.exp(logprobs[one.id])))
            self._same(f"{name}[{place}].logit", one.logit, float(self._raw[one.id]))
            self._same(f"{name}[{place}].allowed", one.allowed, bool(self._allowed[one.id]))
            if place < order.size:
                wanted = int(order[place])
                if one.id != wanted and abs(self._raw[one.id] - self._raw[wanted]) > self._run.distance:
                    raise Wrong(f"step {self._place}: {name}[{place}] is token {one.id}, and should be {wanted}")
        if len(found) < order.size:
            raise Wrong(f"step {self._place}: {name} has {len(found)} candidates, and should have {order.size}")

    def reasons(self, questions: MatcherQuestions, *, has_bans: bool) -> None:
        record, trace = self._record, self._run.trace
        self._same("rule", record.rule, questions.rule_of(self._run.tokens[self._place]))
        refused = record.rejected.id if record.rejected is not None else int(self._raw.argmax())
        if trace.level in ("steps", "full") and not has_bans and (record.was_changed or record.rejected is not None):
            self._same("blame", record.blame, questions.why_refused(refused))
        members = questions.member_masks()
        if members and not has_bans:
            left = np.ones_like(self._allowed)
            probs = np.exp(self._logprobs)
            wanted: dict[str, float] = {}
            for name, bits in members:
                allows = masks.unpack(bits, left.size)
                wanted[name] = wanted.get(name, 0.0) + float(probs[left & ~allows].sum())
                left &= allows
            found = dict(record.removed_by)
            for name, share in wanted.items():
                if name in found or share > self._run.distance:
                    self._same(f"removed_by {name}", found.get(name), share)

    def weight(self, row: NDArray[np.float32], settings: Mapping[str, Any], past: chain.Past) -> None:
        """z_sampled."""
        record = self._record
        if chain.is_greedy(settings) or settings["dynatemp_range"] or self._run.trace.strategy == "beam":
            self._same("z_sampled", record.z_sampled, None)
            return
        probs = chain.softmax(chain.heated(row, settings, past))
        among = self._allowed
        if record.was_forced:
            among = np.zeros_like(self._allowed)
            among[self._run.tokens[self._place]] = True
        self._same("z_sampled", record.z_sampled, float(probs[among].sum()))

    def drawn(
        self,
        row: NDArray[np.float32],
        free: NDArray[np.bool_] | None,
        settings: Mapping[str, Any],
        past: chain.Past,
        stream: RandomStream,
    ) -> float | None:
        """The probability with which the token was drawn; None where the draw is too near to an edge. free: what may be
        drawn before the mask is asked."""
        record, near = self._record, NEAR if self._run.distance == STRICT else LOOSE
        found, token, prob, margin = self._draw(row, self._allowed if free is None else free, settings, past, stream)
        if margin < near:
            return None
        if free is not None and not self._allowed[token]:
            if record.rejected is None:
                raise Wrong(f"step {self._place}: no token was rejected, and {token} should be")
            self._same("rejected", record.rejected.id, token)
            self._same("rejected.prob", record.rejected.prob, prob)
            found, token, prob, margin = self._draw(row, self._allowed, settings, past, stream)
            if margin < near:
                return None
        elif record.rejected is not None:
            raise Wrong(f"step {self._place}: {record.rejected.id} was rejected, and {token} should be taken")
        self._same("the token", record.token_id, token)
        self._same("resampled.prob", record.resampled.prob, prob)
        self._same("resampled.logit", record.resampled.logit, float(found.row[token]))
        if self._run.trace.level in ("steps", "full"):
            self._drawn_from(record.post_chain, found)
        return prob

    def _draw(
        self,
        row: NDArray[np.float32],
        among: NDArray[np.bool_],
        settings: Mapping[str, Any],
        past: chain.Past,
        stream: RandomStream,
    ) -> tuple[chain.Shaped, int, float, float]:
        has_chance = "xtc" in chain.active(settings) and not chain.is_greedy(settings)
        chance = stream.next() if has_chance else 0.0
        past = chain.Past(past.prompt, past.said, past.breakers, past.mu, chance)
        found = chain.shaped(np.where(among, row, chain.NEG_INF).astype(np.float32), settings, past)
        token, prob, margin = chain.pick(found, stream.next())
        if has_chance:
            margin = min(margin, abs(chance - settings["xtc_probability"]))
        return found, token, prob, margin

    def _drawn_from(self, listed: Sequence[Candidate], found: chain.Shaped) -> None:
        ids = np.flatnonzero(found.row > chain.NEG_INF)
        probs = dict(zip(ids.tolist(), chain.softmax(found.row[ids]).tolist(), strict=True))
        for place, one in enumerate(listed):
            if one.id not in probs:
                raise Wrong(f"step {self._place}: post_chain[{place}] is {one.id}, which the samplers removed")
            self._same(f"post_chain[{place}].prob", one.prob, probs[one.id])
            self._same(f"post_chain[{place}].allowed", one.allowed, bool(self._allowed[one.id]))
        best = sorted(probs.values(), reverse=True)[: self._run.top_k]
        for place, prob in enumerate(best):
            if place >= len(listed):
                if prob > 1e-12:
                    raise Wrong(f"step {self._place}: post_chain has {len(listed)} candidates of {len(probs)}")
                break
            self._same(f"post_chain[{place}].prob in order", listed[place].prob, prob)
