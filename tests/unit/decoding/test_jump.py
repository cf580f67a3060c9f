"""`jump` against its laws, over random vocabularies, constraints and models whose logits are a function of the tokens.

Such a model is the oracle for the cache: logits after a wrong or missing token are others, and so is the text.
"""

from __future__ import annotations

import math
import re
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import espalier
from espalier.decoding.jump.strategy import HELD
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import FinishEvent, TokenEvent
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.sampling.filters import Priority
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import measure
from tests.examples import examples

LETTERS = 'ab{":,1 é'
MERGES = (b'{"', b'":', b'",', b"ab", b"na", b"me", b"name", b'"name', b'":"', b'","', b"aa", b"ba", b" a", b"11")


class Merging:
    """Byte-pair encoding by rank, whole text at once or in pieces that a pre-tokenizer cuts."""

    def __init__(self, tokens: list[bytes], *, pieces: bool) -> None:
        self.ranks = {token: place for place, token in enumerate(tokens)}
        self.cut = re.compile(rb"[a-z]+|[0-9]{1,2}|[^a-z0-9]+" if pieces else rb"[\s\S]+")

    def __call__(self, text: str) -> list[int]:
        return [token for piece in self.cut.findall(text.encode()) for token in self._merged(piece)]

    def _merged(self, piece: bytes) -> list[int]:
        parts = [piece[i : i + 1] for i in range(len(piece))]
        while True:
            found = [(self.ranks.get(a + b, math.inf), at) for at, (a, b) in enumerate(pairwise(parts))]
            if not found or (best := min(found))[0] == math.inf:
                return [self.ranks[part] for part in parts]
            at = best[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]


def vocab_of(merges: tuple[bytes, ...] = MERGES, *, pieces: bool = False, eos: int = 1) -> Vocab:
    """All bytes, the merges, then EOS."""
    tokens = [bytes([b]) for b in range(256)] + list(dict.fromkeys(merges))
    ends = list(range(len(tokens), len(tokens) + eos))
    return Vocab.from_tokens(
        [*tokens, *(b"" for _ in ends)],
        eos_ids=ends,
        special_ids={token: f"<end{token}>" for token in ends},
        encoder=Merging(tokens, pieces=pieces),
    )


class Counted(FakeStepModel):
    """Counts passes, and what was cut off."""

    passes = appended = cut = 0

    def extend(self, work):
        self.passes += 1
        self.appended += sum(len(item.tokens) for item in work)
        return super().extend(work)

    def truncate(self, sequence, length):
        self.cut += self.length(sequence) - length
        super().truncate(sequence, length)


def loaded(vocab: Vocab, **more):
    model = Counted(lambda tokens: noise(tokens, vocab.width, 3.0), width=vocab.width, **more)
    engine = LocalEngine(name="noise", model=model, vocab=vocab, encode=lambda text, *, add_special: [*text.encode()])
    return espalier.LoadedEngine(engine)


def generated(eng, spec, prompt="p", **more):
    return eng.generate(prompt, **{"constraint": spec, "strategy": "jump", "raw": True, "max_tokens": 60, **more})


def served(eng, spec, prompt="p", **more):
    asked = {"constraint": spec, "strategy": "jump", "raw": True, "max_tokens": 60, **more}
    with closing(eng.serve()) as service:
        *events, last = list(service.submit(eng.requests(prompt, **asked)[0][0]))
    assert isinstance(last, FinishEvent)
    assert tuple(one.token_id for one in events if isinstance(one, TokenEvent)) == last.result.token_ids
    return last.result


def check(eng, spec, result, prompt=b"p"):
    """All that holds for every result."""
    vocab, compiled = eng.engine.vocab, eng.engine.compiler.compile(spec)
    matcher = compiled.matcher()
    for token in result.token_ids:
        assert matcher.allows(token)
        matcher.advance(token)
    assert vocab.decode(result.token_ids).decode("utf-8", "replace") == result.text
    if result.finish_reason == "stop":
        assert matcher.is_finished
        assert compiled.accepts(result.text)
    if result.trace is None:
        return
    steps = result.trace.steps
    assert tuple(step.token_id for step in steps) == result.token_ids
    assert [step.step for step in steps] == list(range(len(steps)))
    matcher = compiled.matcher()
    for place, step in enumerate(steps):
        row = noise((*prompt, *result.token_ids[:place]), vocab.width, 3.0)
        flags = np.array([matcher.allows(token) for token in range(vocab.width)])
        numbers = measure(row, flags)
        assert step.logprob == pytest.approx(float(row[step.token_id]) - numbers.log_total, abs=1e-6)
        assert step.tax_nats == pytest.approx(numbers.tax_nats, abs=1e-6)
        assert step.allowed_count == int(flags.sum())
        assert step.bytes == vocab.bytes_of(step.token_id)
        if step.pre_masking:
            assert {step.token_id} <= {one.id for one in step.pre_masking}
            assert {step.token_id} <= {one.id for one in step.post_grammar}
            chosen = next(one for one in step.post_grammar if one.id == step.token_id)
            assert chosen.prob == pytest.approx(math.exp(float(row[step.token_id]) - numbers.log_allowed), abs=1e-6)
        matcher.advance(step.token_id)


LITERALS = st.text(LETTERS, min_size=1, max_size=6).map(re.escape)
REGEXES = st.recursive(
    LITERALS | st.sampled_from(["[ab]", "[0-9]{1,3}", "name", '"name":', "é"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        inner.map(lambda one: f"({one}){{1,2}}"),
        inner.map(lambda one: f"({one})?"),
    ),
    max_leaves=6,
)
SPECS = st.one_of(
    REGEXES.map(espalier.Regex),
    st.lists(st.text(LETTERS, min_size=1, max_size=9), min_size=1, max_size=4, unique=True).map(espalier.Choice),
)
VOCABS = st.builds(
    vocab_of,
    st.lists(st.sampled_from([*MERGES, b"\xc3\xa9", b"a\xc3\xa9", b"1 ", b"b{"]), max_size=12).map(tuple),
    pieces=st.booleans(),
    eos=st.integers(1, 2),
)
SAMPLINGS = st.sampled_from([{"temperature": 0}, {"temperature": 1.0, "top_k": 0}, {"temperature": 1.3, "top_p": 0.8}])


@hypothesis_settings(max_examples=examples(60))
@given(vocab=VOCABS, spec=SPECS, sampling=SAMPLINGS, seed=st.integers(0, 99), most=st.integers(1, 14) | st.just(60))
@example(vocab_of(), espalier.Regex('\\{"name":"(ab|aa)","ba":"(1|11)"\\}'), {"temperature": 0}, 0, 60)
def test_the_laws_hold_however_it_is_driven_or_watched(vocab, spec, sampling, seed, most):
    eng = loaded(vocab)
    asked = {**sampling, "seed": seed, "max_tokens": most}
    traced = generated(eng, spec, **asked, trace="steps")
    plain = generated(eng, spec, **asked, trace="off")
    check(eng, spec, traced)
    check(eng, spec, plain)
    both = served(eng, spec, **asked, trace="off"), served(eng, spec, **asked, trace="steps")
    assert plain.token_ids == traced.token_ids == both[0].token_ids == both[1].token_ids
    assert plain.finish_reason == traced.finish_reason == both[0].finish_reason == both[1].finish_reason
    assert len(plain.token_ids) <= most
    assert eng.engine.model.live == 0


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"temperature": 1.0}, {"temperature": 1.0, "ignore_eos": True}]
)
def test_without_a_constraint_it_is_mask(sampling):
    eng = loaded(vocab_of())
    mine, theirs = (eng.generate("p", strategy=name, seed=3, max_tokens=40, **sampling) for name in ("jump", "mask"))
    assert mine.token_ids == theirs.token_ids
    assert mine.trace.steps == theirs.trace.steps


def test_over_bytes_nothing_is_held_back_for_long_and_greedy_is_mask():
    eng = espalier.load("fake")
    spec = espalier.Regex(r'\{"name":"[a-z]{2}","colour":"(green|grey)"\}')
    mine, theirs = (eng.generate("p", constraint=spec, strategy=name, temperature=0) for name in ("jump", "mask"))
    assert mine.token_ids == theirs.token_ids
    assert sum(step.was_forced for step in mine.trace.steps) >= 20


def test_what_is_forced_takes_no_passes_of_its_own():
    eng = loaded(vocab_of())
    model = eng.engine.model
    spec = espalier.Regex('\\{"name":"(a|b)' + " name" * 9 + '"\\}')
    generated(eng, spec, trace="off", temperature=0)
    jumping, model.passes = model.passes, 0
    generated(eng, spec, trace="off", temperature=0, strategy="mask")
    assert 2 * jumping < model.passes


def wishing(vocab, wishes):
    """A model that says one byte after each of some texts, and a row of noise after others."""

    def logits_of(tokens):
        row = noise(tokens, vocab.width)
        wish = wishes.get(vocab.decode(tokens[1:]))
        if wish is not None:
            row[wish[0]] += 50
        return row

    model = Counted(logits_of, width=vocab.width)
    engine = LocalEngine(name="one", model=model, vocab=vocab, encode=lambda text, *, add_special: [*text.encode()])
    return espalier.LoadedEngine(engine)


@pytest.mark.parametrize("trace", ["off", "steps"])
def test_drawn_tokens_are_replaced_by_the_tokenizers_own_split_and_the_cache_is_cut(trace):
    vocab = vocab_of((b"ab", b"abc", b"abcd"))
    eng = wishing(vocab, {b"": b"a", b"a": b"b"})  # the letters one by one
    found = generated(eng, espalier.Regex("(abcdxy1|aczz|b)"), temperature=0, trace=trace)
    # "a" was in the cache, and "b" was drawn after it: "abcd" stands for both.
    assert [vocab.bytes_of(t) for t in found.token_ids[:3]] == [b"abcd", b"x", b"y"]
    assert eng.engine.model.cut == 1
    if found.trace is not None:
        assert [step.was_forced for step in found.trace.steps[:3]] == [True, True, True]


def test_a_drawn_token_that_the_tokenizer_keeps_stays_drawn():
    vocab = vocab_of((b"ab", b"abc"))
    eng = wishing(vocab, {b"": b"a"})
    found = generated(eng, espalier.Regex("(axyz|b)"), temperature=0)
    assert [step.was_forced for step in found.trace.steps[:3]] == [False, True, True]
    assert eng.engine.model.cut == 0


def test_what_was_told_never_changes():
    eng = loaded(vocab_of())
    spec = espalier.Regex("(name|na|me|ab)*:(name|nab)(aa|ab)11")
    asked = {"constraint": spec, "strategy": "jump", "raw": True, "temperature": 1.5, "max_tokens": 30}
    for seed in range(20):
        events = list(eng.stream("p", seed=seed, **asked))
        tokens = [event.token_id for event in events if isinstance(event, TokenEvent)]
        result = events[-1].result
        assert tuple(tokens) == result.token_ids
        assert "".join(event.text for event in events) == result.text


@pytest.mark.parametrize("trace", ["off", "steps"])
@pytest.mark.parametrize(
    ("stop", "text"), [("me", '{"na'), ('":', '{"name'), ('"na', "{"), ('{"name":"ab', ""), ("x", None)]
)
def test_a_stop_text_ends_it_where_it_is_met(trace, stop, text):
    eng = loaded(vocab_of())
    for seed in range(5):
        found = generated(eng, espalier.Regex('\\{"name":"ab(aa|ba)11"\\}'), stop=[stop], seed=seed, trace=trace)
        if text is None:
            assert (found.stop_reason, found.text[-1]) == (None, "}")
        else:
            assert (found.text, found.stop_reason, found.finish_reason) == (text, stop, "stop")


@pytest.mark.parametrize("trace", ["off", "summary"])
def test_a_forced_stop_id_ends_it(trace):
    vocab = vocab_of()
    name = vocab.tokens.index(b'"name')
    found = generated(loaded(vocab), espalier.Regex('x"name":(a|b)'), stop_ids=[name], trace=trace, seed=1)
    assert (found.token_ids[-1], found.stop_reason, found.finish_reason, found.text) == (name, name, "stop", "x")


class Refusing:
    """Bans one token at every step."""

    name = "refusing"
    priority = Priority.NORMAL

    def __init__(self, token):
        self.token, self.seen = token, []

    def apply(self, logits, context):
        assert list(context.generated) == self.seen
        out = logits.copy()
        out[self.token] = -np.inf
        return out

    def on_token(self, token):
        self.seen.append(token)

    def rollback(self, count):
        assert count <= len(self.seen)
        del self.seen[len(self.seen) - count :]

    def fork(self):
        copy = Refusing(self.token)
        copy.seen = self.seen.copy()
        return copy


@pytest.mark.parametrize("trace", ["off", "steps"])
@pytest.mark.parametrize("banned", [b"name", b'":', b'{"'])
def test_a_token_that_a_filter_bans_is_not_jumped_over(trace, banned):
    vocab = vocab_of()
    eng = loaded(vocab)
    spec = espalier.Regex('\\{"name":"(a|b)","name":"(ab|aa)"\\}')
    for seed in range(4):
        token = vocab.tokens.index(banned)
        found = generated(eng, spec, filters=[Refusing(token)], seed=seed, trace=trace)
        assert token not in found.token_ids
        assert found.finish_reason == "stop"
        matcher = eng.engine.compiler.compile(spec).matcher()
        for one in found.token_ids:
            matcher.advance(one)
        assert found.token_ids == served(eng, spec, filters=[Refusing(token)], seed=seed, trace=trace).token_ids


@pytest.mark.parametrize("bans", ["logit_bias", "allowed_ids"])
def test_a_token_that_the_config_bans_is_not_jumped_over(bans):
    vocab = vocab_of()
    eng = loaded(vocab)
    token = vocab.tokens.index(b"name")
    more = {"logit_bias": {token: -math.inf}}
    if bans == "allowed_ids":
        more = {"allowed_ids": [one for one in range(vocab.width) if one != token]}
    found = generated(eng, espalier.Regex('\\{"name":"(a|b)"\\}'), **more)
    assert token not in found.token_ids
    assert found.finish_reason == "stop"


def test_min_tokens_does_not_jump_over_a_stop_id():
    vocab = vocab_of()
    name = vocab.tokens.index(b'"name')
    asked = {"stop_ids": [name], "seed": 1, "trace": "off"}
    found = generated(loaded(vocab), espalier.Regex('x"name":(a|b)'), min_tokens=4, **asked)
    assert len(found.token_ids) >= 4
    assert name not in found.token_ids[:4]


def test_penalties_and_weights_see_forced_tokens_in_their_place():
    """z_sampled of a forced token is its own probability after penalties and temperature, on the whole vocabulary."""
    vocab = vocab_of()
    eng = loaded(vocab)
    spec = espalier.Regex('\\{"name":"(a|b)","name":"(a|b)"\\}')
    found = generated(eng, spec, temperature=0.7, top_k=0, repetition_penalty=1.4, seed=5)
    forced = [step for step in found.trace.steps if step.was_forced]
    assert forced
    for step in forced:
        before = (*b"p", *found.token_ids[: step.step])
        row = noise(before, vocab.width, 3.0).astype(np.float64)
        for one in set(before):
            row[one] = row[one] / 1.4 if row[one] > 0 else row[one] * 1.4
        row /= 0.7
        log_p = row[step.token_id] - (row.max() + math.log(np.exp(row - row.max()).sum()))
        assert math.log(step.z_sampled) == pytest.approx(log_p, abs=1e-4)


def test_a_limit_in_the_middle_of_a_forced_run_is_met_exactly():
    vocab = vocab_of()
    spec = espalier.Regex('\\{"name":"(a|b)","name":"(a|b)"\\}')
    for most in range(2, 14):
        eng = loaded(vocab, max_positions=most)  # a prompt of one token leaves room for so many, the last outside
        for trace in ("off", "steps"):
            found = generated(eng, spec, max_tokens=60, trace=trace, temperature=0)
            assert len(found.token_ids) <= most
            assert found.finish_reason == ("length" if len(found.token_ids) == most else "stop") or most >= 12


def test_it_goes_with_a_budget():
    eng = loaded(vocab_of())
    spec = espalier.Regex('\\{"name":"[ab]{1,20}","name":"(a|b)"\\}')
    for most in (24, 26, 30):
        for trace in ("off", "steps"):
            found = generated(eng, spec, max_tokens=most, on_budget="close", trace=trace, seed=2, temperature=1.0)
            assert eng.engine.compiler.compile(spec).accepts(found.text)
            assert len(found.token_ids) <= most


@pytest.mark.parametrize("encoder", ["none", "lower", "nothing"])
def test_where_the_tokenizer_does_not_spell_the_text_it_is_mask(encoder):
    """One that cannot be asked, one that changes capitals, one that drops everything."""
    merged = vocab_of()
    made = {"none": None, "lower": lambda text: merged.encoder(text.lower()), "nothing": lambda text: []}[encoder]
    vocab = Vocab.from_tokens(
        merged.tokens, eos_ids=merged.eos_ids, special_ids=merged.special_texts, encoder=made, width=merged.width
    )
    engine = LocalEngine(
        name="noise",
        model=FakeStepModel(lambda tokens: noise(tokens, vocab.width, 3.0), width=vocab.width),
        vocab=vocab,
        encode=lambda text, *, add_special: [ord("?")] if not add_special else [*text.encode()],
    )
    eng = espalier.LoadedEngine(engine)
    spec = espalier.Regex("NAME:(A|B):(NAME|NABE)")
    mine = generated(eng, spec, seed=1)
    assert mine.token_ids == generated(eng, spec, seed=1, strategy="mask").token_ids
    assert not any(step.was_forced for step in mine.trace.steps)


def test_a_special_token_that_a_grammar_names_is_a_border():
    tokens = [bytes([b]) for b in range(256)] + [b"ab", b"ba", b"", b""]
    vocab = Vocab.from_tokens(
        tokens, eos_ids=[259], special_ids={258: "<mark>", 259: "</s>"}, encoder=Merging(tokens[:258], pieces=False)
    )
    spec = espalier.Gbnf('root ::= "x" [01] "aba" <[258]> "bab" ("!" | "?")')
    for trace in ("off", "steps"):
        eng = loaded(vocab)
        found = generated(eng, spec, trace=trace)
        place = found.token_ids.index(258)
        assert [vocab.bytes_of(t) for t in found.token_ids[2:place]] == [b"ab", b"a"]  # the end is fixed by the border
        assert vocab.decode(found.token_ids[place:])[:3] == b"bab"
        assert found.finish_reason == "stop"


def test_streaming_is_behind_by_what_is_held_and_no_more():
    eng = loaded(vocab_of())
    asked = {"constraint": espalier.Regex("[ab]{30}!"), "strategy": "jump", "raw": True, "trace": "off", "seed": 1}
    passes = [eng.engine.model.passes for _ in eng.stream("p", **asked)]
    assert passes[0] <= HELD + 1
    assert STRATEGIES.load("jump").truncates
