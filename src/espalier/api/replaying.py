"""The use case behind `espalier trace replay`: from a trace, its run once more, as it was or otherwise.

What a trace holds becomes a constraint, a sampling and a prompt again. A strategy that takes one token by one row of
logits is followed token by token (`decoding/replay.py`); any other is run afresh, and the two traces are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from espalier.api.loaded import LoadedEngine
from espalier.api.use_cases import default_app
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.rewinding import Rewinding, rewinding_parts
from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import Spec
from espalier.decoding.drive import drive
from espalier.decoding.options import Decoding
from espalier.decoding.plan import STRATEGIES, Job, MakePlan, Outcome, Strategy
from espalier.decoding.ports import StepModel
from espalier.decoding.replay import TAKES, Replay, Replayed, replay_plan, replay_rows
from espalier.decoding.rewinding.strategy import rewind_plan
from espalier.decoding.step import Watch
from espalier.decoding.token_limit import BudgetMatcher, check_budget, closable
from espalier.engines.base import Engine
from espalier.errors import CapabilityError, InputError, UnsupportedError
from espalier.sampling.chain import Chain
from espalier.sampling.config import SamplingConfig
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import distinct
from espalier.sampling.fit import check_ends, fit
from espalier.tokens.vocab import Vocab
from espalier.trace.records import StepRecord, Trace
from espalier.trace.report.diff import TraceDiff, diff
from espalier.wiring import App

Source: TypeAlias = Literal["model", "distributions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """source: where the logits came from. is_own: whether nothing was asked otherwise than the trace had it. replayed:
    step by step; None where the strategy takes no such steps and was run afresh. diff: the stored trace and this one;
    trace: this one, with the stored tokens as far as it followed them. note: what to know of it, "" for nothing."""

    source: Source
    is_own: bool
    strategy: str
    replayed: Replayed | None
    diff: TraceDiff
    trace: Trace
    note: str = ""

    @property
    def is_same(self) -> bool:
        """Whether the stored tokens are what is taken now, half precision aside."""
        return self.replayed.is_same if self.replayed is not None else self.diff.is_same

    @property
    def is_exact(self) -> bool:
        """The same with every tax the same number."""
        return self.replayed.is_exact if self.replayed is not None else self.diff.is_same

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "own_constraint": self.is_own,
            "strategy": self.strategy,
            "same": self.is_same,
            "exact": self.is_exact,
            "note": self.note or None,
            "replay": None if self.replayed is None else self.replayed.to_json(),
            "diff": self.diff.to_json(),
        }


def has_distributions(trace: Trace) -> bool:
    """Whether every step has the model's whole distribution."""
    return bool(trace.steps) and all(one.distribution is not None for one in trace.steps)


def replay(
    trace: Trace,
    *,
    engine: LoadedEngine | None = None,
    vocab: Vocab | None = None,
    constraint: Spec | None = None,
    strategy: str | None = None,
    app: App | None = None,
) -> Replaying:
    """Go through a trace once more: under its own constraint, or another; as its own strategy takes tokens, or another.

    engine: the model that it was made with, which computes the logits anew; nobody else may use it meanwhile. vocab:
    its vocabulary, for a trace of level `full`, whose stored distributions then do without a model. One of the two.

    Raises InputError and its kin for a trace that cannot be gone through (no steps, filters of the user's own, another
    vocabulary), CapabilityError for what needs a model or an engine of another kind, UnknownName, SpecError and so on
    for what it is asked with.
    """
    _check(trace)
    if (engine is None) == (vocab is None):
        raise InputError("a replay needs a model, or the vocabulary of one", field="model")
    setting = _of_engine(engine) if engine is not None else _of_vocab(trace, vocab, app or default_app())
    _check_vocab(trace, setting.vocab)
    own = Decoding.from_json(trace.decoding or {"strategy": trace.strategy})
    decoding = own
    if strategy is not None and strategy != own.strategy:
        decoding = Decoding(strategy=strategy, on_budget=own.on_budget, max_rewinds=own.max_rewinds)
    spec = constraint if constraint is not None else _own_spec(trace)
    job = _job(trace, setting, spec, decoding)
    is_native = trace.sampling.get("sampler") is not None
    is_own = decoding == own and not is_native and (constraint is None or constraint.to_json() == trace.constraint)
    note = "it was drawn by the engine's own sampler, which draws other random numbers" if is_native else ""
    going_back = bool(rewinding_parts(spec))
    if decoding.strategy not in TAKES.names() or going_back or (is_own and trace.rewinds):
        return _afresh(trace, setting, spec, job, decoding, is_own=is_own, going_back=going_back, note=note)
    is_rounded = setting.model is None
    run = Replay(job, trace.steps, strategy=decoding.strategy, is_own=is_own, is_rounded=is_rounded)
    if setting.model is not None:
        _drive(setting.model, replay_plan(run))
    else:
        replay_rows(run, [one.distribution for one in trace.steps if one.distribution is not None])
    found = run.found()
    made = _trace(trace, spec, decoding, setting.name, found.records, is_whole=found.is_whole)
    return Replaying(
        source="distributions" if is_rounded else "model",
        is_own=is_own,
        strategy=decoding.strategy,
        replayed=found,
        diff=diff(_first_steps(trace, len(found.steps)), made),
        trace=made,
        note=note,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """Whatever a job is made with. model: None where the logits are the stored ones. engine: of the model."""

    name: str
    vocab: Vocab
    compiler: Compiler
    model: StepModel | None = None
    engine: Engine | None = None

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        """As the tokenizer splits it. Raises InputError where it is not here."""
        from espalier.engines.local.engine import LocalEngine  # noqa: PLC0415  # as in loaded.py

        if self.vocab.encoder is not None and not add_special:
            return list(self.vocab.encoder(text))
        if isinstance(self.engine, LocalEngine):
            return self.engine.encode(text, add_special=add_special)
        raise InputError("this replay needs the tokenizer itself", hint="name the model: -m MODEL", field="model")

    def prompt(self, trace: Trace) -> tuple[int, ...]:
        """Its ids. Traces of before hold the text alone; without a model only penalties and DRY look at them."""
        if trace.prompt_ids:
            return trace.prompt_ids
        if self.model is None:
            active = SamplingConfig.from_json(_plain(trace)).active
            if "penalties" in active or "dry" in active:
                return tuple(self.encode(trace.prompt))
            return tuple(self.vocab.eos_ids[:1])
        # A chat template spells its own BOS; a plain prompt got what the tokenizer adds.
        return tuple(self.encode(trace.prompt, add_special=True))


def _check(trace: Trace) -> None:
    if trace.sums is not None:
        raise InputError(
            "this trace kept no steps", hint="record them: --trace-level steps, or full to replay without a model",
            field="trace",
        )  # fmt: skip
    if not trace.steps:
        raise InputError("this trace has no steps", field="trace")
    filters = trace.setup.get("filters") or ()
    if filters:
        raise InputError(
            f"this run had filters of your own ({', '.join(filters)}), and a trace cannot hold code",
            hint="generate again with the same filters and seed, and compare: espalier trace diff",
            field="filters",
        )


def _check_vocab(trace: Trace, vocab: Vocab) -> None:
    for step in trace.steps:
        token = step.token_id
        if not 0 <= token < vocab.width or vocab.bytes_of(token) != step.bytes:
            raise InputError(
                f"another vocabulary: at step {step.step} the trace has token {token} as {step.text!r}",
                hint=f"name the model that it was made with: {trace.model}" if trace.model else "-m MODEL",
                field="model",
            )
        if step.distribution is not None and step.distribution.logits.shape[0] != vocab.width:
            raise InputError(
                f"another vocabulary: {vocab.width} ids, and the stored distributions have "
                f"{step.distribution.logits.shape[0]}",
                field="model",
            )


def _of_engine(loaded: LoadedEngine) -> _Setting:
    from espalier.engines.local.engine import LocalEngine  # noqa: PLC0415  # as in loaded.py

    engine = loaded.engine
    if not isinstance(engine, LocalEngine):
        raise CapabilityError(f"{loaded.name} does not run in this process, so it gives no logits", field="model")
    return _Setting(name=engine.name, vocab=engine.vocab, compiler=engine.compiler, model=engine.model, engine=engine)


def _of_vocab(trace: Trace, vocab: Vocab | None, app: App) -> _Setting:
    if vocab is None:
        raise AssertionError("one of the two is given")
    if not has_distributions(trace):
        raise InputError(
            "this trace does not hold every step's distribution",
            hint="name the model: -m MODEL; or record with --trace-level full, and keep the .npz beside the .json",
            field="model",
        )
    return _Setting(name=trace.model, vocab=vocab, compiler=app.compiler(vocab))


def _own_spec(trace: Trace) -> Spec | None:
    return None if trace.constraint is None else Spec.from_json(trace.constraint)


def _plain(trace: Trace) -> dict[str, Any]:
    """The fields of a SamplingConfig. What `bad_words` ban is in the constraint already."""
    return {name: value for name, value in trace.sampling.items() if name not in ("sampler", "bad_words")}


def _job(trace: Trace, setting: _Setting, spec: Spec | None, decoding: Decoding) -> Job:
    """As the engine prepares one. Raises what it raises."""
    config = SamplingConfig.from_json(_plain(trace))
    if config.seed is None:
        raise InputError("this trace does not hold its seed", field="seed")
    if spec is not None and config.ignore_eos:
        raise InputError("ignore_eos cannot be combined with a constraint", field="ignore_eos")
    strategy: Strategy = STRATEGIES.load(decoding.strategy)
    strategy.check(decoding, config)
    vocab = setting.vocab
    fitted = fit(config, vocab, setting.encode)
    check_budget(
        decoding.on_budget,
        has_constraint=spec is not None,
        is_native=False,
        bans=[name for name, _ in fitted.bans],
    )
    limit = int(trace.setup.get("max_tokens") or config.max_tokens)
    compiled, matcher = _matcher(setting.compiler, spec, decoding, limit, before=str(trace.setup.get("before", "")))
    if compiled is not None:
        check_ends(fitted, vocab)
    soft = [SoftSpec.from_json(one).filter(setting.compiler) for one in trace.soft]
    return Job(
        vocab=vocab,
        prompt=setting.prompt(trace),
        matcher=matcher,
        chain=Chain(config, distinct(soft), fitted=fitted),
        stream=RandomStream(config.seed, int(trace.setup.get("stream", 0))),
        max_tokens=limit,
        watch=Watch("steps"),
        spelled=compiled.spelled if compiled else {},
        options=decoding,
        encode=setting.encode,
    )


def _matcher(
    compiler: Compiler, spec: Spec | None, decoding: Decoding, limit: int, *, before: str
) -> tuple[Compiled | None, Matcher | None]:
    if spec is None:
        return None, None
    closes = decoding.on_budget == "close"
    with closable(closes):
        compiled = (compiler.by_grammar if closes else compiler).compile(spec)
    matcher = compiled.matcher(before=before)
    if not closes:
        return compiled, matcher
    with closable(closes):
        return compiled, BudgetMatcher(matcher, limit, compiler.vocab, name=spec.kind)


def _afresh(
    trace: Trace, setting: _Setting, spec: Spec | None, job: Job, decoding: Decoding,
    *, is_own: bool, going_back: bool, note: str,
) -> Replaying:  # fmt: skip
    """The run again, with the same seed, and what comes out beside what came out then."""
    what = spec.kind if going_back and spec is not None else decoding.strategy
    if setting.model is None:
        raise CapabilityError(
            f"{what} goes ways that the trace does not hold, so it needs the model", hint="-m MODEL", field="model"
        )
    strategy: Strategy = STRATEGIES.load(decoding.strategy)
    make_plan: MakePlan = strategy.make_plan
    many = strategy.sequences(decoding)
    if many > setting.model.max_sequences:
        raise CapabilityError(
            f"{what} wants {many} sequences at once; {setting.name} holds {setting.model.max_sequences}",
            hint="load the model with more (sequences=)",
            field="strategy",
        )
    if (strategy.truncates or going_back) and not setting.model.can_truncate:
        raise CapabilityError(f"{setting.name} cannot take tokens back, which {what} needs", field="strategy")
    if going_back:
        inner = job.matcher.inner if isinstance(job.matcher, BudgetMatcher) else job.matcher
        if decoding.strategy != "mask" or not isinstance(inner, Rewinding):
            raise UnsupportedError(f"{what} cannot take text back under {decoding.strategy}", field="strategy")
        make_plan = rewind_plan
    records, outcome = _drive(setting.model, make_plan(job), size=len(job.prompt) + many * job.max_tokens, many=many)
    made = _trace(trace, spec, decoding, setting.name, records, is_whole=False)
    made = replace(
        made,
        text=outcome.text,
        finish_reason=trace.finish_reason if outcome.finish == "stop" and _stopped(trace) else outcome.finish,
        rewinds=outcome.rewinds,
        closed_by_budget=outcome.closed_by_budget,
        score=outcome.score,
    )
    return Replaying(
        source="model",
        is_own=is_own,
        strategy=decoding.strategy,
        replayed=None,
        diff=diff(trace, made),
        trace=made,
        note=note,
    )


def _stopped(trace: Trace) -> bool:
    """Whether it came to its end by itself; a turn that calls tools did too."""
    return trace.finish_reason in ("stop", "tool_calls")


def _drive(model: StepModel, plan: Any, *, size: int = 0, many: int = 1) -> tuple[tuple[StepRecord, ...], Outcome]:
    records: list[StepRecord] = []
    for _, happened in drive(model, [plan], [size], sequences=[many]):
        if isinstance(happened, Outcome):
            return tuple(records), happened
        if happened.record is not None:
            records.append(happened.record)
    raise AssertionError("a plan ends in an Outcome")


def _first_steps(trace: Trace, count: int) -> Trace:
    """Up to where the replay came."""
    if count == len(trace.steps):
        return trace
    steps = trace.steps[:count]
    return replace(trace, steps=steps, text=_text(steps), finish_reason="length")


def _text(steps: Sequence[StepRecord]) -> str:
    return b"".join(one.bytes for one in steps).decode("utf-8", "replace")


def _trace(
    trace: Trace, spec: Spec | None, decoding: Decoding, model: str, records: Sequence[StepRecord], *, is_whole: bool
) -> Trace:
    """What was found, as a trace of its own: as it was asked then, but for the constraint and the strategy."""
    return Trace(
        steps=tuple(records),
        text=trace.text if is_whole else _text(records),
        finish_reason=trace.finish_reason if is_whole else "length",
        model=model,
        prompt=trace.prompt,
        asked=trace.asked,
        constraint=None if spec is None else spec.to_json(),
        soft=trace.soft,
        sampling={name: value for name, value in trace.sampling.items() if name != "sampler"},
        strategy=decoding.strategy,
        decoding=decoding.to_json(),
        closed_by_budget=is_whole and trace.closed_by_budget,
        prompt_ids=trace.prompt_ids,
        setup=trace.setup,
    )
