"""`draft` gives the tokens of `mask`, whatever is proposed: hostile sources over models whose logits are a function of
the tokens.

Such a model is the oracle for the cache: after a wrong or a missing token its logits are others, and so is the text.
"""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace

import pytest

import espalier
from espalier import AllOf, Ban, Choice, Gbnf, JsonSchema, Regex, Thinking, TokenBan, Wordlist
from espalier.api import make_request
from espalier.api.replaying import replay
from espalier.decoding.drafting.continuations import Continuations
from espalier.decoding.drafting.pass_costs import PassCosts
from espalier.decoding.drafting.worth import Worth
from espalier.decoding.drafts.grammar import GrammarDrafter
from espalier.decoding.drafts.pace import Pace
from espalier.decoding.drafts.source import DraftSource
from espalier.decoding.drafts.sources import SOURCES
from espalier.decoding.options import Decoding
from espalier.engines.base import FinishEvent, TokenEvent
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.errors import CapabilityError, DeadEnd, InputError
from espalier.tokens import mask as masks
from espalier.trace.records import Trace
from tests.examples import examples
from tests.unit.decoding.test_jump import Counted, vocab_of

SCHEMA = {
    "type": "object",
    "properties": {"na": {"enum": ["ab", "na"]}, "b": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["na", "b"],
    "additionalProperties": False,
}
SPECS = {
    "none": None,
    "schema": JsonSchema(SCHEMA),
    "compact": JsonSchema(SCHEMA, whitespace="compact"),
    "gbnf": Gbnf('root ::= "(" list ")"\nlist ::= item ("," item){1,3}\nitem ::= [a-c]{1,2} | "[" list "]"'),
    "regex": Regex("(name|nab)(ab|ba){2,6}!"),
    "choice": Choice(["na", "name", "nab", "ab aa"]),
    "wordlist": Wordlist(["ab", "name", "ba"], max_run=1),
    "all_of": AllOf([Regex("[a-z ]{4,9}"), Ban(["e"])]),
    "reasoning": Thinking(Regex("(ab){2,5}"), start="{", end=":"),
    "rewinding": AllOf([Regex("[a-b ]{3,9}"), Ban(["ab"], mode="rewind")]),
}
SAMPLERS = {
    "greedy": {"temperature": 0},
    "warm": {"temperature": 1.3, "top_k": 0, "top_p": 1.0},
    "penalties": {"temperature": 0.9, "repetition_penalty": 1.4, "frequency_penalty": 0.3, "repetition_window": 8},
    "dry": {"temperature": 1.0, "dry_multiplier": 1.2, "dry_allowed_length": 2, "dry_base": 2.0},
    "mirostat": {"temperature": 1.0, "mirostat": 2, "mirostat_tau": 3.0},
    "xtc": {"temperature": 1.0, "xtc_probability": 0.6, "xtc_threshold": 0.05},
}
ENDINGS = (
    {},
    {},
    {"stop": ["ab", "ba!"]},
    {"max_tokens": 7},
    {"min_tokens": 6},
    {"filters": [TokenBan.single(ord("b"))]},
    {"on_budget": "close", "max_tokens": 24},
    {"stop_ids": [ord("b")]},
    {"logit_bias": {ord("a"): -100.0}},
)


def loaded(vocab, **more):
    model = Counted(lambda tokens: noise(tokens, vocab.width, 3.0), width=vocab.width)

    def encode(text, *, add_special):
        return [*text.encode()]

    return espalier.LoadedEngine(LocalEngine(name="noise", model=model, vocab=vocab, encode=encode, **more))


class Hostile:
    """Proposes what `mask` took, with random ids in between: ends, padding, and ids that are none."""

    truth: tuple[int, ...] = ()
    dice = random.Random(0)

    def __init__(self, text):
        self.text = text

    def propose(self, ahead, most):
        at, dice, width = len(self.text.tokens) + len(ahead), self.dice, self.text.job.vocab.width
        share = dice.choice((0.0, 0.2, 1.0))
        found = [dice.randrange(-1, width + 2) if dice.random() < share else one for one in self.truth[at : at + most]]
        return [*found, *(dice.randrange(width) for _ in range(dice.randrange(2)))]


HOSTILE = DraftSource(make=Hostile)


@pytest.fixture
def hostile(monkeypatch):
    """Draws how much is proposed; the usual pace would soon propose nothing from a source that is often wrong."""
    monkeypatch.setitem(SOURCES._builtin, "hostile", HOSTILE)
    monkeypatch.setattr(Pace, "wanted", lambda self, rate, room, *, seconds=0.0, hit=1.0: Hostile.dice.randint(0, room))
    monkeypatch.setattr(Pace, "kept", lambda self, rates: Hostile.dice.randint(0, len(rates)))

    def pause(self, source, least=0):
        self.due[source] = self.taken + Hostile.dice.randint(0, 4)

    monkeypatch.setattr(Continuations, "pause", pause)


@pytest.fixture(scope="module")
def eng():
    with loaded(vocab_of()) as found:
        yield found
        assert found.engine.model.live == 0


def outcome(eng, strategy, **asked):
    """Tokens that were streamed, then the result or the error."""
    streamed = []
    try:
        with closing(eng.engine.run([make_request("p" * 3, raw=True, strategy=strategy, **asked)])) as events:
            for event in events:
                if isinstance(event, TokenEvent):
                    streamed.append((event.token_id, event.text))
                elif isinstance(event, FinishEvent):
                    return streamed, event.result
    except DeadEnd as error:
        return streamed, str(error)
    raise AssertionError("no end")


def steps_of(trace):
    return [{**one.to_json(), "token": one.token_id} for one in trace.steps]


def check_equal(eng, spec, **asked):
    Hostile.truth = ()
    shown, mine = outcome(eng, "mask", constraint=spec, **asked)
    Hostile.truth = tuple(token for token, _ in shown)
    drafts = Hostile.dice.choice((("hostile",), ("forced", "hostile"), ("hostile", "grammar", "lookup"), None))
    also, theirs = outcome(eng, "draft", constraint=spec, drafts=drafts, **asked)
    assert also == shown
    if isinstance(mine, str):
        assert theirs == mine
        return None
    assert replace(theirs, trace=None, notes=()) == replace(mine, trace=None, notes=())
    if mine.trace is not None:
        assert steps_of(theirs.trace) == steps_of(mine.trace)
        assert theirs.trace.rewinds == mine.trace.rewinds
    return theirs


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", SPECS)
def test_the_tokens_are_those_of_mask_whatever_is_proposed(eng, hostile, kind, sampler):
    accepted = drafted = 0
    for seed in range(examples(24)):
        Hostile.dice = random.Random(seed)
        ending = ENDINGS[seed % len(ENDINGS)]
        if SPECS[kind] is None:
            ending = {name: value for name, value in ending.items() if name != "on_budget"}
        if "logit_bias" in ending and kind != "none":
            ending = {}
        if ending.get("on_budget") == "close" and kind in ("rewinding", "all_of"):
            ending = {}
        found = check_equal(
            eng,
            SPECS[kind],
            seed=seed,
            trace=("off", "steps")[seed // 9 % 2],
            **{"max_tokens": 40, **SAMPLERS[sampler], **ending},
        )
        if found is not None and found.drafting is not None:
            accepted, drafted = accepted + found.drafting.accepted, drafted + found.drafting.drafted
    assert kind == "rewinding" or 0 < accepted < drafted


def test_a_source_that_the_draft_has_no_room_for_is_not_asked(eng, hostile, monkeypatch):
    asked, real = [], GrammarDrafter.propose
    monkeypatch.setattr(GrammarDrafter, "propose", lambda *given: asked.append(given[2]) or real(*given))
    monkeypatch.setattr(Pace, "wanted", lambda self, rate, room, *, seconds=0.0, hit=1.0: room)
    for most in (6, 30):
        known = {"constraint": SPECS["gbnf"], "seed": 1, "max_tokens": most}
        Hostile.truth = tuple(token for token, _ in outcome(eng, "mask", **known)[0])
        for seed in range(4):
            Hostile.dice = random.Random(seed)
            outcome(eng, "draft", drafts=("hostile", "grammar"), **known)
    assert asked
    assert 0 not in asked


def test_many_rows_of_one_batch_are_as_alone(eng, hostile):
    requests = [
        make_request("p", raw=True, constraint=SPECS["gbnf"], strategy=name, seed=seed, max_tokens=30)
        for seed in range(6)
        for name in ("mask", "draft")
    ]
    found = {event.index: event.result for event in eng.engine.run(requests) if isinstance(event, FinishEvent)}
    for index in range(0, len(requests), 2):
        assert found[index].token_ids == found[index + 1].token_ids


@pytest.fixture
def cheap(monkeypatch):
    """Passes that cost the same whatever their size; the toy's own cost what their tokens cost."""
    monkeypatch.setattr(PassCosts, "listed", lambda self: [1e9] * 32)
    monkeypatch.setattr(Worth, "note", lambda self, seconds, tokens, *, drafted: None)


def test_a_good_draft_saves_passes_and_the_result_says_how_many(cheap):
    with loaded(vocab_of()) as eng:
        check_saves_passes(eng)


def check_saves_passes(eng):
    asked = {"constraint": Regex("(name){9}!"), "raw": True, "temperature": 0, "trace": "off"}
    eng.generate("p", strategy="draft", drafts=["grammar"], **asked)
    model = eng.engine.model
    model.passes = 0
    found = eng.generate("p", strategy="draft", drafts=["grammar"], **asked)
    assert found.token_ids == eng.generate("p", strategy="mask", **asked).token_ids
    told = found.drafting.to_json()
    assert found.drafting.passes < len(found.token_ids)
    assert told["acceptance"] == told["accepted"] / told["drafted"]
    assert told["tokens_per_pass"] == len(found.token_ids) / found.drafting.passes > 1
    assert told["sources"].keys() == {"grammar"}


def test_tokens_that_alone_are_allowed_need_no_pass(cheap, monkeypatch):
    asked = {"constraint": Regex("(é){3}"), "raw": True, "trace": "off", "seed": 4}  # no merges hold these bytes
    with loaded(vocab_of()) as eng:
        found = eng.generate("p", strategy="draft", drafts=["forced"], **asked)
        assert found.token_ids == eng.generate("p", strategy="mask", **asked).token_ids
        assert found.drafting.passes == 1
    # Where a longer pass takes as long as the passes that it saves, each token has its own.
    each = [1.1 * size for size in range(32)]
    monkeypatch.setattr(PassCosts, "listed", lambda self: each)
    monkeypatch.setattr(PassCosts, "switch", 0.1)
    with loaded(vocab_of()) as eng:
        eng.engine.runs._kit.listed = each
        again = eng.generate("p", strategy="draft", drafts=["forced"], **asked)
        assert again.token_ids == found.token_ids
        assert again.drafting.passes == len(found.token_ids)


def test_the_trace_marks_what_was_drafted_and_taken_and_replays(eng, hostile, tmp_path):
    Hostile.dice = random.Random(3)
    asked = {"constraint": SPECS["gbnf"], "raw": True, "seed": 8, "max_tokens": 30}
    Hostile.truth = eng.generate("p", strategy="mask", **asked).token_ids
    found = eng.generate("p", strategy="draft", drafts=["hostile"], **asked)
    marks = found.trace.drafts
    assert marks == found.drafting.drafts
    assert sum(one.accepted for one in marks) > 0
    ends = 0
    for one in marks:
        assert one.source == "hostile"
        assert ends <= one.step < len(found.token_ids)
        ends = one.step + one.accepted
    found.trace.save(tmp_path / "t.json")
    assert Trace.load(tmp_path / "t.json") == found.trace
    again = replay(found.trace, engine=eng)
    assert again.is_own
    assert again.replayed.first is None


def test_a_constraint_that_takes_text_back_runs_as_mask_and_says_so(eng):
    asked = {"constraint": SPECS["rewinding"], "raw": True, "seed": 1}
    found = eng.generate("p", strategy="draft", **asked)
    assert found.token_ids == eng.generate("p", strategy="mask", **asked).token_ids
    assert any("nothing is drafted" in note for note in found.notes)
    assert found.drafting is None


@pytest.mark.parametrize("given", [[], "forced", ["forced", "forced"], [""], [3]])
def test_sources_are_a_list_of_different_names(given):
    with pytest.raises(InputError) as told:
        Decoding(strategy="draft", drafts=given)
    assert told.value.field == "drafts"


def test_a_source_that_does_not_exist_is_refused_by_name(eng):
    with pytest.raises(InputError, match="no source 'oracle'") as told:
        eng.generate("p", strategy="draft", drafts=["lookup", "oracle"])
    assert told.value.field == "drafts"
    assert "forced" in (told.value.hint or "")


def test_a_cache_that_cannot_be_cut_is_refused(monkeypatch, eng):
    monkeypatch.setattr(type(eng.engine.model), "can_truncate", property(lambda self: False))
    with pytest.raises(CapabilityError) as told:
        eng.generate("p", strategy="draft")
    assert told.value.field == "strategy"


def test_the_only_allowed_id_of_a_mask():
    for width in (1, 31, 32, 33, 96):
        assert masks.single(masks.empty(width)) is None
        for token in range(width):
            assert masks.single(masks.from_ids([token], width)) == token
            assert width == 1 or masks.single(masks.from_ids([token, (token + 1) % width], width)) is None


def test_a_smaller_model_drafts_and_its_cache_is_given_back(cheap):
    vocab = vocab_of()
    same = FakeStepModel(lambda tokens: noise(tokens, vocab.width, 3.0), width=vocab.width)
    with loaded(vocab) as alone, loaded(vocab, sibling=same) as eng:
        for spec in (None, SPECS["gbnf"]):
            asked = {"constraint": spec, "raw": True, "temperature": 0, "max_tokens": 30, "seed": 2}
            found = eng.generate("p", strategy="draft", drafts=["model"], **asked)
            assert found.token_ids == alone.generate("p", strategy="mask", **asked).token_ids
            assert found.drafting.passes < len(found.token_ids)
            assert same.live == 0
        with pytest.raises(CapabilityError) as told:
            alone.generate("p", strategy="draft", drafts=["model"])
        assert told.value.field == "drafts"
        with pytest.raises(CapabilityError, match="logits"):
            loaded(vocab, sibling=FakeStepModel(lambda tokens: noise(tokens, 7), width=7))


def test_a_draft_model_is_asked_unless_sources_are_named_and_is_closed_with_its_engine(cheap):
    with loaded(vocab_of()) as eng:
        smaller = loaded(vocab_of()).engine
        assert not eng.engine.capabilities.draft_model
        eng.engine.draft_with(smaller)
        assert eng.engine.capabilities.draft_model
        asked = {"raw": True, "temperature": 0, "max_tokens": 20, "strategy": "draft"}
        assert "model" in eng.generate("p", **asked).drafting.to_json()["sources"]
        assert "model" not in eng.generate("p", drafts=["lookup"], **asked).drafting.to_json()["sources"]
        assert smaller.model.live == 0
    with pytest.raises(InputError, match="closed"):
        _ = smaller.model


def test_a_draft_model_has_the_same_tokens_whatever_its_padding():
    vocab = vocab_of()
    others = {
        "token 65 is 'xyz', not 'A'": replace(vocab, tokens=(*vocab.tokens[:65], b"xyz", *vocab.tokens[66:])),
        f"token {vocab.eos_ids[0]} is": replace(vocab, special_texts={vocab.eos_ids[0]: "<end>"}),
    }
    with loaded(vocab) as eng:
        eng.engine.draft_with(loaded(replace(vocab, width=vocab.width + 3)).engine)
        for said, other in others.items():
            smaller = loaded(other).engine
            with pytest.raises(InputError, match=said):
                eng.engine.draft_with(smaller)


def test_on_a_server_drafts_get_only_the_room_that_is_free(eng, hostile):
    asked = {"constraint": SPECS["gbnf"], "max_tokens": 30}
    want = {seed: outcome(eng, "mask", seed=seed, **asked)[1].token_ids for seed in range(6)}
    for chunk in (1, 3, 512):
        with closing(eng.serve(prefill_chunk=chunk)) as service:
            running = []
            for seed in range(6):
                Hostile.truth = want[seed]
                request = make_request("p" * 3, raw=True, strategy="draft", drafts=["hostile"], seed=seed, **asked)
                running.append(service.submit(request))
            for seed, run in enumerate(running):
                last = [*run][-1]
                assert isinstance(last, FinishEvent)
                assert last.result.token_ids == want[seed]
