"""Makes runs: checks a request, fits its sampling to the vocabulary, compiles its constraint, applies the token limit.

Requests and replays of traces are both prepared here, so a replay repeats its run. Prompts come rendered and encoded:
this module knows no chat template and no tokenizer, and runs no forward pass.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from espalier.activations.capture.tree import CaptureTree
from espalier.chat.reading.thoughts import marker_spellings
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.joining.rule import filters_in
from espalier.constraints.matching.rewinding import Rewinding, check_only_masks, rewinding_parts
from espalier.constraints.spec import Spec
from espalier.constraints.to_gbnf import portable
from espalier.decoding.drafting.kit import DraftKit
from espalier.decoding.line_limit import LineLimit
from espalier.decoding.masking import mask_plan
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.native import check_native, native_plan
from espalier.decoding.plan import Job, MakePlan, Strategy
from espalier.decoding.ports import StepModel, WatchedModel
from espalier.decoding.prompt_scores import PromptScores, reading
from espalier.decoding.rewinding.strategy import rewind_plan
from espalier.decoding.step.record import Watch
from espalier.decoding.strategies import STRATEGIES
from espalier.decoding.text.token_limit import check_on_budget, closable, with_token_limit
from espalier.engines.base import Request
from espalier.engines.local.lost_properties import LostProperties, property_names
from espalier.engines.local.lost_texts import LostTexts
from espalier.engines.local.ports import MakeNative
from espalier.engines.local.prepared_run import PreparedRun, watched
from espalier.engines.local.turns import PreparedTurn
from espalier.engines.scheduling.room import run_tokens
from espalier.errors import CapabilityError, InputError, PromptTooLong, UnsupportedError
from espalier.sampling.chain import Chain
from espalier.sampling.config import MAX_N
from espalier.sampling.config_names import llama_notes
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.candidates import DRAWS, ROWS
from espalier.sampling.filters import LogitFilter, distinct
from espalier.sampling.fit import check_ends, fit
from espalier.time_limit import is_limited
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.trace.listed import MOST_LISTED, StepTable

DRAFTS = "draft"
TAKES_BACK = ("mask", DRAFTS)
"""The strategies under which text may be taken back."""
CAPTURED = "nothing is drafted: hidden states are captured, so it runs as with the strategy mask"
SAME = "give a smaller model with the same tokenizer"
UNDRAFTED = "nothing is drafted: the constraint may take text back, so it runs as with the strategy mask"


class RunMaker:
    """Makes the runs of one model. Safe across threads.

    encode: tokenizes a text that continues another one (no BOS). native: makes the engine's own sampler, None if it has
    none. sibling: the smaller model that drafts. clock: seconds, to time compiling and masks.
    """

    def __init__(
        self,
        *,
        name: str,
        compiler: Compiler,
        encode: Callable[[str], Sequence[int]],
        native: MakeNative | None = None,
        sibling: StepModel | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._name = name
        self._compiler = compiler
        self._vocab = compiler.vocab
        self._encode = encode
        self._native = native
        self._clock = clock
        self._kit = DraftKit()
        if sibling is not None:
            self.draft_with(sibling)

    @property
    def has_sibling(self) -> bool:
        """Whether a smaller model drafts."""
        return self._kit.sibling is not None

    @property
    def kit(self) -> DraftKit:
        """What drafts of this model share."""
        return self._kit

    def draft_with(self, sibling: StepModel | None) -> None:
        """Draft with this model from now on; None for none. Raises CapabilityError for a model with too few logits."""
        if sibling is not None and sibling.width <= (last := int(np.flatnonzero(self._vocab.real_ids)[-1])):
            raise CapabilityError(
                f"the draft model has {sibling.width} logits, and the vocabulary of {self._name} {last + 1} tokens",
                hint=SAME,
                field="sibling",
            )
        self._kit.sibling = sibling

    def check(self, request: Request) -> None:
        """Refuse, before rendering and compiling, settings that do not go together. `check_capabilities` has already
        checked what the engine can do. Raises InputError, SamplingError, CapabilityError, naming the field."""
        config = request.sampling
        if (request.constraint is not None or request.tools or config.bad_words) and config.ignore_eos:
            raise InputError(
                "ignore_eos cannot be combined with a constraint",
                hint="a complete text must be allowed to end",
                field="ignore_eos",
            )
        for token in config.stop_ids:
            if token >= self._vocab.width:
                raise InputError(f"stop id {token} is outside 0..{self._vocab.width - 1}", field="stop_ids")
        if request.sampler == "native":
            check_native(
                config,
                strategy=request.strategy,
                soft=len(request.soft),
                filters=len(request.filters),
                stream=request.stream,
            )

    def make(self, request: Request, turn: PreparedTurn, prompt: Sequence[int], model: StepModel | None) -> PreparedRun:
        """The run of a request that `check` accepted. prompt: token ids. model: its limits apply; None when the logits
        are stored ones. Raises InputError and its subclasses for everything that can fail before the model is needed.
        """
        ROWS.load()
        DRAWS.is_ready()  # loaded now if they are compiled, and not within a text
        config, closes = request.sampling, request.decoding.on_budget == "close"
        strategy: Strategy = STRATEGIES.load(request.strategy)
        make_plan: MakePlan = strategy.make_plan
        make_native = self._native if request.sampler == "native" else None
        if "model" in (request.decoding.drafts or ()) and not self.has_sibling:
            raise CapabilityError(
                f"{self._name} was opened without a smaller model to draft with",
                hint="give one by --draft-model, draft_model= or ESPALIER_DRAFT_MODEL, or leave the source `model` out",
                field="drafts",
            )
        if make_native is not None:
            turn = replace(turn, notes=(*turn.notes, *llama_notes(config)))
        if request.strategy == DRAFTS and request.activations is not None:
            # A drafted token's state may be computed where `mask` computes none, and the other way round.
            make_plan = mask_plan
            turn = replace(turn, notes=(*turn.notes, CAPTURED))
        going_back = rewinding_parts(turn.spec)
        if going_back:
            self._check_rewinding(going_back[0], request, model)
        sequences = strategy.sequences(request.decoding)
        max_tokens = _max_tokens(config.max_tokens, len(prompt), sequences, model)
        fitted = fit(config, self._vocab, self._encode)
        check_on_budget(
            request.decoding.on_budget,
            has_constraint=turn.spec is not None,
            is_native=make_native is not None,
            bans=[name for name, _ in fitted.bans],
        )
        began = self._clock()
        matcher: Matcher | None = None
        with closable(closes):
            compiled = None if turn.spec is None else self._compiler.compile(turn.spec)
        if compiled is not None:
            matcher = compiled.matcher(before=turn.before)
            if going_back and not isinstance(matcher, Rewinding):
                raise UnsupportedError(
                    f"{going_back[0].kind} cannot take text back as a part of {compiled.spec.kind}",
                    hint="it can alone and as a member of AllOf; mask there instead",
                    field="constraint",
                )
            if going_back or self._may_go_back(matcher, request, model):
                make_plan = rewind_plan
                if request.strategy == DRAFTS:
                    turn = replace(turn, notes=(*turn.notes, UNDRAFTED))
            if closes:
                with closable(closes):
                    matcher = with_token_limit(matcher, max_tokens, self._vocab, name=compiled.spec.kind)
            if make_native is None and is_limited():
                _ask_once(matcher, self._vocab.width, is_explained=watched(request) != "off")
        compile_seconds = self._clock() - began
        # Below 2**32 - 1: llama.cpp reads that seed as "none given".
        seed = secrets.randbelow(2**32 - MAX_N) if config.seed is None else config.seed
        if compiled is not None:
            check_ends(fitted, self._vocab)
        lost = self._watch_losses(turn) if make_native is None else None
        job = Job(
            vocab=self._vocab,
            prompt=tuple(prompt),
            matcher=matcher,
            chain=Chain(config, self._filters(request), fitted=fitted),
            stream=RandomStream(seed, request.stream),
            max_tokens=max_tokens,
            watch=Watch(
                watched(request),
                request.trace_top_k,
                counts=bool(filters_in(turn.spec)),
                at_once=request.live or bool(request.recorders),
                refused=None if lost is None else lost.refused,
                table=_step_table(request),
            ),
            spelled=_spelled(turn, compiled, self._vocab),
            clock=self._clock,
            line_limit=None if request.line_seconds is None else LineLimit(request.line_seconds),
            options=request.decoding,
            encode=self._encode,
            kit=self._kit,
            constraint="" if turn.spec is None else turn.spec.key(),
            thoughts=None if turn.reasoning is None or request.hold_reasoning else turn.thoughts,
        )
        if make_native is not None:
            grammar = None if turn.spec is None else portable(turn.spec, self._compiler, before=turn.before)
            sampler = make_native(config, fitted, seed=seed + request.stream, grammar=grammar)
            make_plan = partial(native_plan, sampler=sampler)
        scores = None if request.prompt_top is None else PromptScores(request.prompt_top, self._vocab)
        if scores is not None or request.only_prompt:
            make_plan = reading(make_plan, scores, generates=not request.only_prompt)
        return PreparedRun(
            self._name,
            request,
            turn,
            seed,
            job,
            make_plan,
            self._compiler.words,
            compile_seconds,
            sequences=sequences,
            watch=_watch(request, len(prompt), model),
            scores=scores,
            lost=lost,
        )

    def _watch_losses(self, turn: PreparedTurn) -> LostProperties | LostTexts | None:
        """What says which properties the order of a schema lost, or which tags the texts of calls; None where nothing
        can be lost so."""
        spec = turn.spec
        if spec is None:
            return None
        if turn.format is not None and turn.format.text_ends:
            return LostTexts(turn.format.text_ends, turn.types, turn.parser)
        names = property_names(spec)
        return LostProperties(names, lambda: self._compiler.compile(spec.ordered("any"))) if names else None

    def _check_rewinding(self, part: Spec, request: Request, model: StepModel | None) -> None:
        """Whether this run can take text back. part: the constraint that needs it. Raises CapabilityError."""
        if request.sampler != "espalier":
            check_only_masks(part, "the engine's own sampler", field="sampler")
        if request.strategy not in TAKES_BACK:
            check_only_masks(part, request.strategy, field="strategy")
        if model is not None and not model.can_truncate:
            raise CapabilityError(
                f"{self._name} cannot take tokens back, which {part.kind} needs here",
                hint="its cache is recurrent or has a sliding window; use a constraint that only masks",
                field="constraint",
            )

    def _may_go_back(self, matcher: Matcher, request: Request, model: StepModel | None) -> bool:
        """Whether this run takes text back if it has to, though its constraint does not ask for it: a composition may
        find only later that no text satisfies all of its members."""
        can = request.sampler == "espalier" and request.strategy in TAKES_BACK
        return can and model is not None and model.can_truncate and isinstance(matcher, Rewinding)

    def _filters(self, request: Request) -> list[LogitFilter]:
        """The soft constraints, and copies of the request's filters: a filter follows one sequence."""
        own = [one.fork() for one in request.filters]
        return distinct([*(soft.filter(self._compiler) for soft in request.soft), *own])


def _step_table(request: Request) -> StepTable | None:
    """Where steps are listed by a kernel: at level `steps` alone, with lists that are short."""
    is_listed = watched(request) == "steps" and 1 <= request.trace_top_k <= MOST_LISTED
    return StepTable(request.trace_top_k) if is_listed else None


def _spelled(turn: PreparedTurn, compiled: Compiled | None, vocab: Vocab) -> Mapping[int, bytes]:
    """The special tokens that are part of the text, with their spelling."""
    spelled = {} if compiled is None else compiled.spelled
    return spelled if turn.reasoning is None else {**marker_spellings(turn.reasoning, vocab), **spelled}


def _ask_once(matcher: Matcher, width: int, *, is_explained: bool) -> None:
    """Make what the first step needs: a mask that takes too long raises here, where no other request waits for it, and
    so does what names the rules in records, which is made at the first question."""
    mask = matcher.mask()
    for token in masks.allowed_ids(mask, width)[:1].tolist() if is_explained else ():
        MatcherQuestions(matcher).rule_of(token)


def _watch(request: Request, prompt: int, model: StepModel | None) -> CaptureTree | None:
    """What gets the run's hidden states. Raises InputError for layers that the model has not."""
    if request.activations is None or not isinstance(model, WatchedModel):
        return None  # a replay has no model; `check_capabilities` has refused other models
    return CaptureTree(request.activations, request.activations.numbers(model.watched_layers), prompt)


def _max_tokens(asked: int, prompt: int, sequences: int, model: StepModel | None) -> int:
    """How many tokens may be generated. prompt: its length in tokens. Raises InputError, PromptTooLong."""
    if not prompt:
        raise InputError("the prompt is empty", hint="this model needs at least one token", field="prompt")
    if model is None:
        return asked
    if prompt >= model.max_positions:
        raise PromptTooLong.over(model.max_positions, tokens=prompt)
    # The last token taken needs no place in the cache, hence the one more.
    most = min(asked, model.max_positions - prompt + 1)
    if sequences == 1:
        return most
    # Every sequence must be able to grow to this length: a cache that fills up during a run is an error. Others find
    # room beside the largest run.
    return max(1, min(most, (run_tokens(model) - prompt) // sequences + 1))
