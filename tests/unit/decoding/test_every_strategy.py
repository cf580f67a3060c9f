"""What holds for every strategy: under every kind of constraint, at every trace level, told, stopped and failed."""

from __future__ import annotations

import json
import re
import threading
from contextlib import closing

import numpy as np
import pytest

import espalier
from espalier import AllOf, Ban, Choice, Gbnf, JsonSchema, MemoryRecorder, Regex, TokenBan, Wordlist
from espalier.api import make_request
from espalier.chat.prompt.template import ChatTemplate
from espalier.decoding.options import FAITHFUL, Decoding
from espalier.decoding.options import OPTIONS as DECLARED
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import FinishEvent
from espalier.engines.fake import TEMPLATE, FakeStepModel, noise, wishing
from espalier.engines.local.engine import LocalEngine
from espalier.errors import BudgetExceeded, Cancelled, CapabilityError, GenerationError, InputError, OutputError
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.trace.records import LEVELS, Trace
from tests.traces import alike

NAMES = STRATEGIES.names()
SEVERAL = {"num_return_sequences": 2}
OPTIONS = {"beam": {"num_beams": 3, **SEVERAL}, **{name: {"particles": 3, **SEVERAL} for name in FAITHFUL}}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Grace"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {
    "add": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
}
CONSTRAINTS = {
    "schema": {"constraint": JsonSchema(SCHEMA)},
    "compact": {"constraint": JsonSchema(SCHEMA, whitespace="compact")},
    "gbnf": {
        "constraint": Gbnf(
            'root ::= "(" list ")"\nlist ::= item ("," item){1,3}\nitem ::= [a-c]{1,2} | root2\n'
            'root2 ::= "[" [a-c]{1,2} "]"'
        )
    },
    "regex": {"constraint": Regex(r"[A-Z][a-z]{1,5}(-[0-9]{2})?")},
    "choice": {"constraint": Choice(["yes", "yes!", "no", "never"])},
    "wordlist": {"constraint": Wordlist(["ada", "bear", "bee"], max_run=1)},
    "all_of": {"constraint": AllOf([Regex("[a-z ]{4,9}"), Ban(["e"])])},
    "tools": {"tools": TOOL, "tool_choice": "required", "parallel_tool_calls": False},
    "none": {},
}
ITEM = r"([a-c]{1,2}|\[[a-c]{1,2}\])"
GRAMMAR_BY_RE = rf"\({ITEM}(,{ITEM}){{1,3}}\)"
VOCAB = Vocab.bytes()
WISH = 'Sure: {"name": "Ada", "age": 36}'
MOST = 60


class Counting(FakeStepModel):
    """Counts how many sequences it held at once; fails, or waits, from a pass on."""

    def __init__(self, room=None, **more):
        self.room = room
        self.most, self.passes, self.fails_from, self.waits_from = 0, 0, None, None
        self.reached, self.open = threading.Event(), threading.Event()
        near = wishing(VOCAB, WISH, 2)  # of the wish the first bytes are far from any constraint's
        super().__init__(
            lambda tokens: near(tokens) * np.float32(0.7) + noise(tokens, VOCAB.width), width=VOCAB.width, **more
        )

    @property
    def capacity(self):
        return super().capacity if self.room is None else self.room

    def _add(self, tokens):
        found = super()._add(tokens)
        self.most = max(self.most, self.live)
        return found

    def extend(self, work):
        self.passes += 1
        if self.fails_from is not None and self.passes >= self.fails_from:
            raise GenerationError("the model is gone")
        if self.waits_from is not None and self.passes >= self.waits_from:
            self.reached.set()
            assert self.open.wait(60)
        return super().extend(work)


def loaded(**more):
    def encode(text, *, add_special):
        return [*text.encode()]

    return espalier.LoadedEngine(
        LocalEngine(name="toy", model=Counting(**more), vocab=VOCAB, encode=encode, template=ChatTemplate(TEMPLATE))
    )


@pytest.fixture(scope="module")
def eng():
    with loaded() as found:
        yield found
        assert found.engine.model.live == 0


def ask(strategy, *, prompt="hi", **more):
    return make_request(
        prompt,
        strategy=strategy,
        raw="tools" not in more,
        **OPTIONS.get(strategy, {}),
        **{"seed": 5, "max_tokens": MOST, "temperature": 0.9, **more},
    )


def run(eng, request):
    return [*eng.engine.run([request])][-1].result


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_a_trace_that_is_read_at_the_end_equals_one_that_was_made_step_by_step(eng, kind):
    def trace(strategy):
        return run(eng, ask(strategy, trace="steps", **CONSTRAINTS[kind])).trace

    for strategy in ("mask", "rejection", "jump", "draft", "smc"):
        found = trace(strategy)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("espalier.decoding.step.observed.SHORT", 0)
            expected = trace(strategy)
        assert (found.text, len(found.steps)) == (expected.text, len(expected.steps))
        for mine, theirs in zip(found.steps, expected.steps, strict=True):
            alike(mine, theirs)


def texts(result):
    return [(one.text, one.token_ids, one.finish_reason) for one in (result, *result.others)]


@pytest.mark.parametrize("kind", CONSTRAINTS)
@pytest.mark.parametrize("strategy", NAMES)
def test_every_strategy_keeps_every_kind_of_constraint_alone_and_served(strategy, kind):
    with loaded() as eng:
        model = eng.engine.model
        requests = [ask(strategy, seed=seed, **CONSTRAINTS[kind]) for seed in (1, 2, 3)]
        alone = []
        for request in requests:
            model.most = 0
            alone.append(run(eng, request))
            assert model.most <= STRATEGIES.load(strategy).sequences(request.decoding)
            assert model.live == 0
        ended = 0
        for result in alone:
            for one in (result, *result.others):
                assert len(one.token_ids) == one.usage.completion_tokens <= MOST
                if one.finish_reason == "length" or kind == "none":
                    continue
                ended += 1
                if kind == "gbnf":  # nobody else judges a grammar
                    assert re.fullmatch(GRAMMAR_BY_RE, one.text)
                else:
                    assert one.verdict.valid is True, one.text
        assert kind == "none" or ended  # what is cut shows nothing
        assert texts(run(eng, requests[0])) == texts(alone[0])
        with closing(eng.serve()) as served:
            runnings = [served.submit(request) for request in requests]
            assert [texts([*running][-1].result) for running in runnings] == [texts(one) for one in alone]
        assert model.live == 0


@pytest.mark.parametrize("strategy", NAMES)
def test_another_seed_gives_another_text_where_something_is_drawn(eng, strategy):
    found = {run(eng, ask(strategy, seed=seed, constraint=Regex("[a-z]{8}"))).text for seed in range(4)}
    assert len(found) == (1 if strategy == "beam" else 4)


@pytest.mark.parametrize("strategy", NAMES)
def test_each_of_n_outputs_is_what_its_stream_gives_alone(eng, strategy):
    prompts = {
        "n": 3,
        "constraint": Regex("[a-z]{6}"),
        "strategy": strategy,
        "seed": 5,
        "max_tokens": 20,
        "temperature": 0.9,
        "raw": True,
        **OPTIONS.get(strategy, {}),
    }
    requests, _ = eng.requests("hi", **prompts)
    assert [request.stream for request in requests] == [0, 1, 2]
    together = {e.index: e.result for e in eng.engine.run(requests) if isinstance(e, FinishEvent)}
    assert [texts(together[at]) for at in range(3)] == [texts(run(eng, request)) for request in requests]


@pytest.mark.parametrize("kind", ["schema", "gbnf", "all_of", "tools", "none"])
@pytest.mark.parametrize("strategy", NAMES)
def test_the_sums_are_those_of_the_steps_at_every_level(eng, strategy, kind):
    asked = {"max_tokens": 12} if kind == "none" else CONSTRAINTS[kind]
    off, *others = (run(eng, ask(strategy, trace=level, **asked)) for level in LEVELS)
    assert off.trace is None
    for level in others:
        assert texts(level) == texts(off)
    for place in range(1 + len(off.others)):
        summed, steps, full = ((one, *one.others)[place].trace for one in others)
        assert (summed.steps, len(steps.steps)) == ((), len(full.steps))
        assert summed.summary() == steps.summary() == full.summary()
        assert summed.summary()["total_steps"] == len((off, *off.others)[place].token_ids)
        for one in (summed, steps, full):
            again = Trace.from_json(json.loads(json.dumps(one.to_json())))
            assert again.to_json() == one.to_json()
            assert again.summary() == one.summary()
        changed = 0
        for slim, step in zip(steps.steps, full.steps, strict=True):
            assert slim.distribution is None
            row, allowed = step.distribution.logits.astype(np.float64), step.distribution.allowed()
            probs = step.distribution.probs()
            best = slim.pre_masking[0]
            assert row[best.id] == row.max()
            assert slim.was_changed == step.was_changed == (not allowed[best.id])
            changed += slim.was_changed
            assert step.allowed_count == np.count_nonzero(allowed)
            assert step.removed_mass == pytest.approx(1 - probs[allowed].sum(), abs=2e-3)
            assert np.exp(step.logprob) == pytest.approx(probs[step.token_id], rel=2e-2)
            assert allowed[step.token_id]
            has_rules = kind in ("gbnf", "all_of", "schema") and step.token_id not in VOCAB.eos_ids
            assert (step.rule is not None) == has_rules or kind == "tools"
        assert steps.summary()["changed_steps"] == steps.changed_steps == changed


@pytest.mark.parametrize("strategy", NAMES)
def test_a_saved_trace_has_its_distributions_beside_it(eng, strategy, tmp_path):
    trace = run(eng, ask(strategy, trace="full", **CONSTRAINTS["choice"])).trace
    trace.save(tmp_path / "x.json")
    again = Trace.load(tmp_path / "x.json")
    assert again.to_json() == trace.to_json()
    for one, other in zip(again.steps, trace.steps, strict=True):
        assert np.array_equal(one.distribution.logits, other.distribution.logits)
        assert np.array_equal(one.distribution.mask, other.distribution.mask)
        assert masks.test(one.distribution.mask, one.token_id)


@pytest.mark.parametrize("strategy", NAMES)
def test_rules_are_told_also_where_the_limit_closes_the_text(eng, strategy):
    found = run(eng, ask(strategy, on_budget="close", max_tokens=6, **CONSTRAINTS["gbnf"]))
    assert re.fullmatch(GRAMMAR_BY_RE, found.text)
    assert len(found.token_ids) == 6
    assert set(found.trace.by_rule()) == {"root", "list", "item"}
    assert any(dict(step.removed_by).get("budget", 0) > 0 for step in found.trace.steps)


@pytest.mark.parametrize("strategy", NAMES)
def test_a_limit_that_decides_raises_where_an_error_was_asked_for(eng, strategy):
    request = ask(strategy, constraint=Regex("x{9}"), max_tokens=4, on_budget="error")
    with pytest.raises(BudgetExceeded, match="after 4 tokens") as told:
        run(eng, request)
    assert told.value.field == "max_tokens"
    assert eng.engine.model.live == 0
    with loaded() as other:
        with closing(other.serve()) as served:
            with pytest.raises(BudgetExceeded):
                list(served.submit(request))
            whole = ask(strategy, constraint=Regex("x{9}"), max_tokens=10, on_budget="error")
            assert run(other, whole).text == "x" * 9
        assert other.engine.model.live == 0


A, B, X = (ord(letter) for letter in "abx")
HELD = {
    "bad_words": ({"bad_words": ["a"], "constraint": Regex("[ab]{6}")}, lambda text: text == "bbbbbb"),
    "logit_bias": ({"logit_bias": {A: -float("inf")}, "constraint": Regex("[ab]{6}")}, lambda text: text == "bbbbbb"),
    "a finite bias": ({"logit_bias": {A: 100.0}, "constraint": Regex("[ab]{6}")}, lambda text: text == "aaaaaa"),
    "allowed_ids": ({"allowed_ids": [B, 256], "constraint": Regex("[ab]{6}")}, lambda text: text == "bbbbbb"),
    "a filter": ({"filters": TokenBan([A]), "constraint": Regex("[ab]{6}")}, lambda text: text == "bbbbbb"),
    "soft": (
        {"soft": espalier.SoftWordlist(Wordlist(["ab"], top=1), tier3_penalty=60.0), "constraint": Regex("[abc]{2}")},
        lambda text: text == "ab",
    ),
    "min_tokens": (
        {"min_tokens": 5, "constraint": Regex("a{1,6}"), "logit_bias": {256: 50.0}},
        lambda text: len(text) == 5,
    ),
    "max_tokens": ({"max_tokens": 3, "constraint": Regex("a{6}")}, lambda text: text == "aaa"),
    "stop": ({"stop": ["ab"], "constraint": Regex("xxab[ab]{4}")}, lambda text: text == "xx"),
    "stop_ids": ({"stop_ids": [B], "constraint": Regex("xxab[ab]{4}")}, lambda text: text == "xxa"),
    "ignore_eos": ({"ignore_eos": True, "max_tokens": 12, "logit_bias": {256: 50.0}}, lambda text: len(text) > 0),
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("strategy", NAMES)
def test_no_field_of_a_request_is_dropped(eng, strategy, name):
    options, holds = HELD[name]
    result = run(eng, ask(strategy, **options))
    biased = name in ("a finite bias", "soft", "min_tokens")  # of a search the best alone
    for one in (result, *([] if biased and strategy == "beam" else result.others)):
        assert holds(one.text), (one.text, one.finish_reason)
        if name in ("max_tokens", "ignore_eos"):
            assert (one.finish_reason, len(one.token_ids)) == ("length", options["max_tokens"])
        elif name == "stop":
            assert one.stop_reason == "ab"
        elif name == "stop_ids":
            assert one.stop_reason == B


@pytest.mark.parametrize("strategy", NAMES)
def test_what_means_nothing_to_a_strategy_is_refused_by_name(strategy):
    given = {
        "num_beams": 2,
        "length_penalty": 2.0,
        "early_stopping": True,
        "num_return_sequences": 2,
        "particles": 9,
        "ess_threshold": 0.1,
        "target": "truncated",
        "max_rewinds": 3,
        "drafts": ("lookup",),
    }
    assert set(given) == {name for name, option in DECLARED.items() if option.strategies}
    for name, value in given.items():
        if strategy in DECLARED[name].strategies:
            assert getattr(Decoding(strategy=strategy, **{name: value}), name) == value
            continue
        with pytest.raises(InputError, match=f"means nothing to the strategy {strategy}") as told:
            Decoding(strategy=strategy, **{name: value})
        assert told.value.field == name


@pytest.mark.parametrize("strategy", [name for name in NAMES if name not in ("mask", "draft")])
@pytest.mark.parametrize(
    "spec",
    [
        Ban(["as an AI"], mode="rewind"),
        AllOf([Gbnf('root ::= "a" root? "b"'), Gbnf("root ::= [ab]+")], dead_ends="rewind"),
        AllOf([Regex("[a-z ]{3,9}"), Ban(["ab"], mode="rewind")]),
    ],
)
def test_text_is_taken_back_by_mask_and_draft_alone_and_the_others_say_so(eng, strategy, spec):
    with pytest.raises(CapabilityError, match="takes text back") as told:
        eng.engine.prepare(ask(strategy, constraint=spec))
    assert told.value.field == "strategy"


@pytest.mark.parametrize("strategy", [name for name in NAMES if name not in ("mask", "rejection")])
def test_the_engines_own_sampler_goes_with_no_strategy_of_ours(strategy):
    from espalier.decoding.native import check_native

    with pytest.raises(CapabilityError) as told:
        check_native(espalier.SamplingConfig(), strategy=strategy, soft=0, filters=0, stream=0)
    assert told.value.field == "strategy"


@pytest.mark.parametrize(("strategy", "field"), [("beam", "num_beams"), *((name, "particles") for name in FAITHFUL)])
def test_more_sequences_than_the_model_holds_are_refused_by_name(strategy, field):
    for options in ({}, {field: 3}):
        with loaded(slots=2) as small, pytest.raises(CapabilityError, match="holds 2") as told:
            small.engine.prepare(make_request("hi", strategy=strategy, temperature=1.0, **options))
        assert told.value.field == field


@pytest.mark.parametrize("strategy", ["beam", *FAITHFUL])
def test_a_cache_that_is_too_small_for_all_of_them_limits_their_length(strategy):
    with loaded(slots=4, room=64) as small:
        options = {**OPTIONS[strategy], "num_return_sequences": 1}
        request = make_request(
            "hi", strategy=strategy, raw=True, temperature=1.0, constraint=Regex("[a-z]{80}"), **options
        )
        found = run(small, request)
        most = 64 - 64 // 8  # the rest is left to others
        assert (found.finish_reason, len(found.token_ids)) == ("length", (most - 2) // 3 + 1)


ENDLESS = {"constraint": Regex("z*"), "logit_bias": {256: -60.0}, "max_tokens": 50}


def listen(events, heard):
    for event in events:
        heard.append(event)  # what came before an error counts


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("strategy", NAMES)
def test_recorders_are_told_once_and_of_the_end_whatever_comes(strategy, served):
    """Of a run that is read to its end, one that its reader leaves, and one that the model fails. A run of which
    nothing was ever told has not begun for them."""
    with loaded() as eng:
        model = eng.engine.model
        service = eng.serve() if served else None
        book, *books = (MemoryRecorder(level="summary") for _ in range(3))

        def events(recorder, **more):
            request = ask(strategy, trace="off", recorders=recorder, **more)
            return iter(eng.engine.run([request]) if service is None else service.submit(request))

        whole = [*events(book, **CONSTRAINTS["choice"])][-1].result
        running = events(books[0], **ENDLESS)
        next(running)
        running.close()
        model.fails_from = model.passes + 3  # `draft` takes up to 16 tokens a pass
        heard = []
        with pytest.raises(GenerationError):
            listen(events(books[1], **ENDLESS), heard)
        if service is not None:
            service.close()
        assert model.live == 0
        (run,) = book.runs
        assert [(step.token_id, step.step) for step in run.steps] == [
            (token, at) for at, token in enumerate(whole.token_ids)
        ]
        assert run.is_over
        assert [[(len(run.steps), run.is_over, run.trace) for run in one.runs] for one in books] == [
            [(1, True, None)],
            [(len(heard), True, None)] if heard else [],
        ]


@pytest.mark.parametrize("strategy", NAMES)
def test_a_request_that_is_cancelled_frees_every_sequence(strategy):
    with loaded() as eng, closing(eng.serve(prefix_tokens=0)) as service:
        model = eng.engine.model
        model.waits_from = 5
        running = service.submit(ask(strategy, trace="off", **ENDLESS))
        assert model.reached.wait(60)
        running.cancel()
        model.open.set()
        with pytest.raises(Cancelled):
            list(running)
        assert service._scheduler.wait_idle(60)
        assert model.live == 0


class Broken:
    """A recorder that cannot write the end down."""

    level = "summary"

    def begin(self, info):
        return self

    def step(self, record):
        pass

    def end(self, trace):
        raise OutputError("the disk is full")


def test_a_recorder_that_fails_at_the_end_keeps_it_from_no_other(eng):
    books = MemoryRecorder(), MemoryRecorder()
    with pytest.raises(OutputError):
        run(eng, ask("mask", recorders=[books[0], Broken(), books[1]], **CONSTRAINTS["choice"]))
    assert [book.runs[0].is_over for book in books] == [True, True]
    assert [book.runs[0].trace is not None for book in books] == [True, True]


@pytest.mark.parametrize("strategy", ["beam", *FAITHFUL])
def test_the_reasoning_of_every_text_is_counted(strategy):
    eng = loaded()
    request = ask(strategy, constraint=Regex("<think>[ab]{4}</think>[0-9]{2}"), reasoning=("<think>", "</think>"))
    result = run(eng, request)
    assert result.others
    for one in (result, *result.others):
        assert one.turn.reasoning
        assert one.usage.reasoning_tokens == result.usage.reasoning_tokens > 0
