"""The use case behind `espalier trace replay`: runs a trace once more, with its own settings or with others.

A trace holds the constraint, sampling and prompt of its run. A strategy that takes one token from one row of logits is
followed token by token (`decoding/replay.py`); any other runs again from the start, and the two traces are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

from espalier.api.loaded import LoadedEngine
from espalier.api.use_cases import default_app
from espalier.chat.reasoning import Reasoning
from espalier.constraints.matching.rewinding import rewinding_parts
from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import Spec
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Outcome, Plan
from espalier.decoding.ports import StepModel
from espalier.decoding.replay import ReplayResult, SequenceReplay, replay_plan, replay_rows
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import Request
from espalier.engines.capabilities import check_capabilities
from espalier.engines.local.ports import EncodePrompt
from espalier.engines.local.prepared_run import PreparedRun
from espalier.engines.local.run_maker import RunMaker
from espalier.engines.local.step_engine import StepEngine
from espalier.engines.local.turns import PreparedTurn
from espalier.engines.scheduling.drive import drive
from espalier.errors import CapabilityError, InputError
from espalier.sampling.config import SamplingConfig
from espalier.tokens.vocab import Vocab
from espalier.trace.records import StepRecord, Trace
from espalier.trace.report.diff import TraceDiff, diff
from espalier.wiring import App

Source: TypeAlias = Literal["model", "distributions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """source: where the logits come from. is_own: whether constraint and strategy are the trace's own. replayed: step
    by step; None if the strategy had to run again from the start. diff: the stored trace against this one. trace: this
    one, with the stored tokens as far as it followed them. note: what a reader should know, or ""."""

    source: Source
    is_own: bool
    strategy: str
    replayed: ReplayResult | None
    diff: TraceDiff
    trace: Trace
    note: str = ""

    @property
    def is_same(self) -> bool:
        """Whether the same tokens are taken now, apart from half-precision rounding."""
        return self.replayed.is_same if self.replayed is not None else self.diff.is_same

    @property
    def is_exact(self) -> bool:
        """Whether the same tokens are taken now, with exactly the same taxes."""
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
    return bool(trace.steps) and all(step.distribution is not None for step in trace.steps)


def replay(
    trace: Trace,
    *,
    engine: LoadedEngine | None = None,
    vocab: Vocab | None = None,
    constraint: Spec | None = None,
    strategy: str | None = None,
    app: App | None = None,
) -> Replaying:
    """Run a trace once more: under its own constraint or another, with its own strategy or another.

    engine: the model that made the trace, which computes the logits again; nobody else may use it meanwhile. vocab: the
    model's vocabulary, for a trace of level `full`, whose stored distributions need no model. Give one of the two.

    Raises InputError and its subclasses for a trace that cannot be replayed (no steps, filters of the user's own,
    another vocabulary), CapabilityError if a model, or another kind of engine, is needed, UnknownName, SpecError and so
    on for the other arguments.
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
    prepared = _prepare(trace, setting, spec, decoding)
    is_native = trace.sampling.get("sampler") is not None
    is_own = decoding == own and not is_native and (constraint is None or constraint.to_json() == trace.constraint)
    note = "it was drawn by the engine's own sampler, which draws other random numbers" if is_native else ""
    going_back = bool(rewinding_parts(spec))
    make_take = STRATEGIES.load(decoding.strategy).make_take
    if make_take is None or going_back or (is_own and trace.rewinds):
        return _rerun(trace, setting, spec, prepared, decoding, is_own=is_own, going_back=going_back, note=note)
    is_rounded = setting.model is None
    run = SequenceReplay(prepared.job, trace.steps, take=make_take(prepared.job), is_own=is_own, is_rounded=is_rounded)
    if setting.model is not None:
        _drive(setting.model, replay_plan(run))
    else:
        replay_rows(run, [step.distribution for step in trace.steps if step.distribution is not None])
    replayed = run.found()
    made = _trace(trace, spec, decoding, setting.name, replayed.records, is_whole=replayed.is_whole)
    return Replaying(
        source="distributions" if is_rounded else "model",
        is_own=is_own,
        strategy=decoding.strategy,
        replayed=replayed,
        diff=diff(_first_steps(trace, len(replayed.steps)), made),
        trace=made,
        note=note,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplaySetting:
    """What a replay runs with. runs: prepares the run. encode: the tokenizer. model, engine: None if the logits are the
    stored ones."""

    name: str
    vocab: Vocab
    runs: RunMaker
    encode: EncodePrompt
    model: StepModel | None = None
    engine: StepEngine | None = None

    def prompt(self, trace: Trace) -> tuple[int, ...]:
        """The prompt's token ids. An old trace holds only its text; without a model, only penalties and DRY need the
        ids."""
        if trace.prompt_ids:
            return trace.prompt_ids
        if self.model is None:
            active = SamplingConfig.from_json(sampling_fields(trace)).active
            if "penalties" in active or "dry" in active:
                return tuple(self.encode(trace.prompt, add_special=False))
            return tuple(self.vocab.eos_ids[:1])
        # A chat template spells its own BOS; a plain prompt got what the tokenizer adds.
        return tuple(self.encode(trace.prompt, add_special=True))


def _check(trace: Trace) -> None:
    if trace.sums is not None:
        raise InputError(
            "this trace kept no steps",
            hint="record them: --trace-level steps, or full to replay without a model",
            field="trace",
        )
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


def _of_engine(loaded: LoadedEngine) -> _ReplaySetting:
    engine = loaded.engine
    if not isinstance(engine, StepEngine):
        raise CapabilityError(f"{loaded.name} does not run in this process, so it gives no logits", field="model")
    return _ReplaySetting(
        name=engine.name, vocab=engine.vocab, runs=engine.runs, encode=engine.encode, model=engine.model, engine=engine
    )


def _of_vocab(trace: Trace, vocab: Vocab | None, app: App) -> _ReplaySetting:
    if vocab is None:
        raise AssertionError("one of the two is given")
    if not has_distributions(trace):
        raise InputError(
            "this trace does not hold every step's distribution",
            hint="name the model: -m MODEL; or record with --trace-level full, and keep the .npz beside the .json",
            field="model",
        )

    def encode(text: str, *, add_special: bool) -> list[int]:
        if vocab.encoder is None or add_special:
            raise InputError("this replay needs the model's tokenizer", hint="name the model: -m MODEL", field="model")
        return list(vocab.encoder(text))

    runs = RunMaker(name=trace.model, compiler=app.compiler(vocab), encode=partial(encode, add_special=False))
    return _ReplaySetting(name=trace.model, vocab=vocab, runs=runs, encode=encode)


def _own_spec(trace: Trace) -> Spec | None:
    return None if trace.constraint is None else Spec.from_json(trace.constraint)


def sampling_fields(trace: Trace) -> dict[str, Any]:
    """The fields of a SamplingConfig. The ban of `bad_words` is already part of the trace's constraint."""
    return {name: value for name, value in trace.sampling.items() if name not in ("sampler", "bad_words")}


def _prepare(trace: Trace, setting: _ReplaySetting, spec: Spec | None, decoding: Decoding) -> PreparedRun:
    """The run, prepared as its engine prepares runs. Raises what `RunMaker` raises."""
    config = SamplingConfig.from_json(sampling_fields(trace))
    if config.seed is None:
        raise InputError("this trace does not hold its seed", field="seed")
    limit = int(trace.setup.get("max_tokens") or config.max_tokens)
    is_new = spec is not None and spec.to_json() != trace.constraint  # its own was checked when the run was made
    request = Request(
        prompt=trace.prompt,
        raw=True,
        constraint=spec if is_new else None,
        soft=tuple(SoftSpec.from_json(constraint) for constraint in trace.soft),
        sampling=replace(config, max_tokens=limit),
        decoding=decoding,
        stream=int(trace.setup.get("stream", 0)),
    )
    markers = trace.setup.get("reasoning")
    turn = PreparedTurn(
        text=trace.prompt,
        before=str(trace.setup.get("before", "")),
        spec=spec,
        reasoning=None if markers is None else Reasoning(start=markers[0], end=markers[1]),
        inside=bool(trace.setup.get("inside")),
    )
    if setting.engine is not None:
        check_capabilities(setting.engine, request)
    setting.runs.check(request)
    return setting.runs.make(request, turn, setting.prompt(trace), setting.model)


def _rerun(
    trace: Trace,
    setting: _ReplaySetting,
    spec: Spec | None,
    prepared: PreparedRun,
    decoding: Decoding,
    *,
    is_own: bool,
    going_back: bool,
    note: str,
) -> Replaying:
    """Run again from the start, with the same seed, and compare the result with the trace."""
    if setting.model is None:
        what = spec.kind if going_back and spec is not None else decoding.strategy
        raise CapabilityError(
            f"{what} does not follow the stored tokens one by one, so it needs the model",
            hint="-m MODEL",
            field="model",
        )
    records, outcome = _drive(setting.model, prepared.plan(), size=prepared.size, many=prepared.sequences)
    made = _trace(trace, spec, decoding, setting.name, records, is_whole=False)
    made = replace(
        made,
        text=outcome.text,
        finish_reason=trace.finish_reason if outcome.finish == "stop" and _ended_itself(trace) else outcome.finish,
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


def _ended_itself(trace: Trace) -> bool:
    """Whether the run ended by itself; a turn that calls tools did too."""
    return trace.finish_reason in ("stop", "tool_calls")


def _drive(model: StepModel, plan: Plan, *, size: int = 0, many: int = 1) -> tuple[tuple[StepRecord, ...], Outcome]:
    records: list[StepRecord] = []
    for _, happened in drive(model, [plan], [size], sequences=[many]):
        if isinstance(happened, Outcome):
            return tuple(records), happened
        if happened.record is not None:
            records.append(happened.record)
    raise AssertionError("a plan ends in an Outcome")


def _first_steps(trace: Trace, count: int) -> Trace:
    """The trace up to the step that the replay reached."""
    if count == len(trace.steps):
        return trace
    steps = trace.steps[:count]
    return replace(trace, steps=steps, text=_text(steps), finish_reason="length")


def _text(steps: Sequence[StepRecord]) -> str:
    return b"".join(step.bytes for step in steps).decode("utf-8", "replace")


def _trace(
    trace: Trace, spec: Spec | None, decoding: Decoding, model: str, records: Sequence[StepRecord], *, is_whole: bool
) -> Trace:
    """The replay as a trace: the stored settings with the replay's constraint, strategy and steps."""
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
