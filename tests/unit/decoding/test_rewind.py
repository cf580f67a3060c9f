"""The plan that takes tokens back: dead ends by known trees, bans across token borders, and what was shown stays."""

from __future__ import annotations

import hashlib
import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import espalier
import tests.tokenizers as tokenizers
from espalier import Gbnf, JsonSchema, Regex, Vocab
from espalier.constraints.after.spec import After
from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.matching.rewinding import RewindingMatcher
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import FinishEvent, TokenEvent
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.errors import CapabilityError, DeadEnd, UnsupportedError
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import TokenBan
from espalier.trace.records import Trace
from tests.examples import examples
from tests.opaque import Opaque, declared

SAID = "The quick brown fox jumps over the lazy dog; el año del pingüino 日本. "
PROMPT = "Say: "


class Watched(FakeStepModel):
    """Counts passes, and can be told that it cannot truncate."""

    can = True
    passes = 0

    @property
    def can_truncate(self):
        return self.can

    def extend(self, work):
        self.passes += 1
        return super().extend(work)


def parrot(vocab, prompt_length, said=SAID):
    """Goes on with `said` wherever the end of its text occurs in it, spelled with any token; noise else. It ends when
    it has said enough."""
    target = said.encode() * 2

    def logits_of(tokens):
        text = vocab.decode(tokens[prompt_length:])
        row = noise(tokens, vocab.width, 0.3)
        size = next(n for n in range(min(len(text), len(said) // 2), -1, -1) if text[len(text) - n :] in target)
        rest = target[target.index(text[len(text) - size :]) + size :]
        for token, data in enumerate(vocab.tokens):
            if data and rest.startswith(data):
                row[token] += np.float32(5.0)
        row[vocab.eos_ids[0]] += np.float32(len(tokens) / 12)
        return row

    return logits_of


def engine(vocab=None, logits_of=None, said=SAID):
    vocab = vocab or Vocab.bytes()
    ids = list(PROMPT.encode()) if vocab.tokens[65] == b"A" else [vocab.tokens.index(b"S")]
    model = Watched(logits_of or parrot(vocab, len(ids), said), width=vocab.width)
    made = LocalEngine(name="parrot", model=model, vocab=vocab, encode=lambda text, *, add_special: list(ids))
    return espalier.LoadedEngine(made)


def followed(eng, constraint, **options):
    """The result, after looking at every event on the way: what is shown is the beginning of the end's text."""
    (request,), _ = eng.requests(PROMPT, constraint=constraint, **options)
    shown, tokens = [""], []
    for event in eng.engine.run([request]):
        shown.append(shown[-1] + event.text)
        if isinstance(event, TokenEvent):
            tokens.append(event.token_id)
        else:
            assert isinstance(event, FinishEvent)
            result = event.result
    assert shown[-1] == result.text
    assert tuple(tokens) == result.token_ids
    assert [step.token_id for step in result.trace.steps] == tokens
    assert [step.step for step in result.trace.steps] == list(range(len(tokens)))
    return result


# Dead ends


@pytest.fixture(autouse=True)
def _opaque(monkeypatch):
    declared(monkeypatch)


def listed(words, opened, closed):
    """A grammar of these words that no search can look into, so that two of them may lead into a dead end."""
    options = " | ".join(json.dumps(word) for word in sorted(words))
    return Opaque(f"root ::= {json.dumps(opened)} root {json.dumps(closed)} | {options}")


def both(one, other):
    return AllOf(listed(one, "(", ")"), listed(other, "[", "]"), dead_ends="rewind")


def ordered(vocab):
    """Wants a before b before c, and the end last."""

    def logits_of(tokens):
        row = np.zeros(vocab.width, dtype=np.float32)
        row[list(b"abcdef")] = np.arange(6, 0, -1, dtype=np.float32)
        return row

    return logits_of


def letters():
    return engine(logits_of=ordered(Vocab.bytes()))


@pytest.mark.parametrize(
    ("one", "other", "text", "rewinds"),
    [
        (["abc", "abd", "ae"], ["abx", "aby", "ae"], "ae", [(1, "b")]),
        (["abc", "acd", "f"], ["abx", "acy", "f"], "f", [(1, "b"), (1, "c"), (0, "a")]),
        (["abca", "b"], ["abcb", "b"], "b", [(2, "c"), (1, "b"), (0, "a")]),
        (["a", "ab"], ["a", "ac"], "a", []),
    ],
)
def test_a_known_tree_is_searched_depth_first(one, other, text, rewinds):
    eng = letters()
    found = followed(eng, both(one, other), temperature=0)
    assert (found.text, found.finish_reason) == (text, "stop")
    assert [(r.step, r.text) for r in found.trace.rewinds] == rewinds
    assert all(r.blame.member == "rewind" for r in found.trace.rewinds)
    assert all("all_of[0].opaque and all_of[1].opaque" in r.blame.reason for r in found.trace.rewinds)
    assert eng.engine.model.live == 0


def test_penalties_look_at_the_prompt():
    assert "a" in PROMPT
    words = both(["a", "b"], ["a", "b"])
    assert followed(letters(), words, temperature=0).text == "a"
    assert followed(letters(), words, temperature=0, repetition_penalty=10.0).text == "b"


@given(
    st.sets(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=8),
    st.sets(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=8),
)
def test_random_trees_against_a_search_by_recursion(one, other):
    text, taken_back = searched(one, other)
    eng = letters()
    if text is None:
        with pytest.raises(DeadEnd, match="step 0"):
            eng.generate(PROMPT, constraint=both(one, other), temperature=0)
        return
    found = followed(eng, both(one, other), temperature=0)
    assert found.text == text
    assert [(r.step, r.text) for r in found.trace.rewinds] == taken_back
    assert Trace.from_json(json.loads(json.dumps(found.trace.to_json()))).rewinds == found.trace.rewinds


def searched(one, other):
    """The first text of both by letters, the end last, and what a search by recursion takes back on the way."""
    taken_back = []

    def leads(prefix):
        return any(word.startswith(prefix) for word in one) and any(word.startswith(prefix) for word in other)

    def search(prefix):
        for letter in "abc":
            if leads(prefix + letter):
                found = search(prefix + letter)
                if found is not None:
                    return found
                taken_back.append((len(prefix), letter))
        return prefix if prefix in one and prefix in other else None

    return search(""), taken_back


def test_a_search_that_is_exhausted_names_both_members_and_what_was_tried():
    with pytest.raises(DeadEnd) as dead:
        letters().generate(PROMPT, constraint=both(["abc", "b"], ["abd", "c"]), temperature=0)
    message = str(dead.value)
    assert "all_of[0].opaque and all_of[1].opaque" in message
    assert "text was taken back 2 times, last: 'b', 'a'" in message
    assert dead.value.hint == "every text was tried"


def test_max_rewinds_are_not_passed():
    one, other = ["abc", "acd", "f"], ["abx", "acy", "f"]
    found = letters().generate(PROMPT, constraint=both(one, other), temperature=0, max_rewinds=3)
    assert len(found.trace.rewinds) == 3
    with pytest.raises(DeadEnd, match="text was taken back 2 times") as dead:
        letters().generate(PROMPT, constraint=both(one, other), temperature=0, max_rewinds=2)
    assert "max_rewinds=2 is used up" in dead.value.hint
    with pytest.raises(DeadEnd, match=r"step 2 .*: all_of\[0\].opaque and all_of\[1\].opaque allow none"):
        letters().generate(PROMPT, constraint=both(one, other), temperature=0, max_rewinds=0)


def test_a_dead_end_at_the_very_first_token_is_one_at_once():
    with pytest.raises(DeadEnd, match="step 0"):
        letters().generate(PROMPT, constraint=both(["a"], ["b"]), temperature=0)


def test_going_back_over_several_places_takes_one_pass():
    eng = letters()
    eng.generate(PROMPT, constraint=both(["abcabc", "b"], ["abcabd", "b"]), temperature=0)
    assert eng.engine.model.passes == 1 + 5 + 1 + 1  # prompt, five letters; back to the prompt once; "b"


def test_a_filter_that_leaves_nothing_is_a_dead_end_too():
    """What a filter bans is found out only with the logits at hand; the way on may lie before."""
    found = followed(letters(), both(["abd", "ac"], ["abd", "ac"]), temperature=0, filters=[TokenBan([ord("d")])])
    assert found.text == "ac"
    assert [(r.step, r.text) for r in found.trace.rewinds] == [(1, "b")]
    assert "token_ban" in found.trace.rewinds[0].blame.reason


def test_penalties_forget_what_was_taken_back():
    """The chain goes back with the text: a letter that was taken back was not said."""
    one, other = ["abc", "b" * 6], ["abd", "b" * 6]
    options = {"repetition_penalty": 1.7, "temperature": 0, "trace": "steps"}
    found = followed(letters(), both(one, other), **options)
    plain = followed(letters(), Regex("b{6}"), **options)
    assert found.text == plain.text == "b" * 6
    drawn = [[(c.id, c.prob) for c in s.post_chain] for s in found.trace.steps]
    assert drawn[1:] == [[(c.id, c.prob) for c in s.post_chain] for s in plain.trace.steps][1:]


def test_what_may_meet_a_dead_end_is_shown_at_the_end_and_what_cannot_at_once():
    eng = letters()

    def passes(constraint, **options):
        (request,), _ = eng.requests(PROMPT, constraint=constraint, temperature=0, **options)
        eng.engine.model.passes = 0
        return [eng.engine.model.passes for event in eng.engine.run([request]) if isinstance(event, TokenEvent)]

    one, other = ["abcd", "ac", "abe", "f"], ["abcd", "ae", "abf", "f"]
    assert passes(AllOf(*both(one, other).members)) == [3, 3, 3, 4, 5]  # only then an end of both is known
    assert passes(AllOf(*both(one, other).members), max_rewinds=0) == [1, 2, 3, 4, 5]
    assert passes(both(["abc"], ["abc"])) == [4, 4, 4, 4]
    assert passes(both(["abc"], ["abc"]), max_rewinds=0) == [1, 2, 3, 4]
    assert passes(Regex("abc")) == [1, 2, 3, 4]
    assert passes(AllOf(Regex("abc"), Ban(["bd"], mode="rewind"))) == [1, 3, 3, 4]  # b waits for what follows


# Bans


@pytest.mark.parametrize("vocab", tokenizers.VOCABS)
def test_a_phrase_across_token_borders_goes_back_to_the_token_in_which_it_begins(vocab):
    eng = engine(tokenizers.VOCABS[vocab]())
    phrases = ["quick", "ver the", "pingüino"]
    found = followed(eng, Ban(phrases, mode="rewind"), temperature=0, max_tokens=120)
    assert not [phrase for phrase in phrases if phrase in found.text]
    assert found.trace.rewinds
    for one in found.trace.rewinds:
        assert one.blame.member == "ban"
        assert any(phrase in one.text for phrase in phrases)
        vocabulary = eng.engine.vocab
        phrase = next(phrase for phrase in phrases if phrase in one.text)
        assert one.text.encode().index(phrase.encode()) < len(vocabulary.bytes_of(one.tokens[0]))
        assert len(one.tokens) > 1
    assert found.verdict.valid


def test_the_token_that_is_not_taken_again_is_removed_and_blamed():
    found = followed(engine(), Ban(["quick"], mode="rewind"), temperature=0, max_tokens=30)
    rewind = found.trace.rewinds[0]
    assert (rewind.step, rewind.text) == (4, "quick")
    record = found.trace.steps[4]
    assert record.blame == rewind.blame
    removed = dict(record.removed_by)
    assert removed["ban"] == pytest.approx(np.exp(record.pre_masking[0].logit) / total(found, 4), rel=1e-3)
    assert sum(removed.values()) == pytest.approx(record.removed_mass)


def total(found, step):
    logits = parrot(Vocab.bytes(), len(PROMPT))((*PROMPT.encode(), *found.token_ids[:step])).astype(np.float64)
    return np.exp(logits).sum()


def test_after_max_rewinds_it_masks_and_without_any_it_is_a_ban_that_masks():
    options = {"temperature": 0, "max_tokens": 60}
    rewound = followed(engine(), Ban(["quick", "fox", "dog"], mode="rewind"), max_rewinds=1, **options)
    assert [r.text for r in rewound.trace.rewinds] == ["quick"]
    assert not [phrase for phrase in ("quick", "fox", "dog") if phrase in rewound.text]
    none = followed(engine(), Ban(["quick", "fox"], mode="rewind"), max_rewinds=0, **options)
    masked = followed(engine(), Ban(["quick", "fox"]), **options)
    assert none.token_ids == masked.token_ids
    assert none.trace.rewinds == ()


@pytest.mark.parametrize(
    ("pattern", "text"), [("The (quick|quicz)", "The quicz"), ("The (quick|quie|quicz)", "The quie")]
)
def test_where_nothing_else_may_stand_the_phrase_is_left_later(pattern, text):
    """Another first letter leads nowhere: what was put off is taken up, and left as soon as there is another way."""
    found = followed(engine(said="The quick"), AllOf(Regex(pattern), Ban(["quick"], mode="rewind")), temperature=0)
    assert found.text == text
    assert [(r.step, r.text) for r in found.trace.rewinds] == [(4, "quick")]


def test_what_leads_to_a_phrase_and_nowhere_else_is_not_even_begun():
    found = followed(
        engine(said="The quick"), AllOf(Regex("The qui(ck|et)"), Ban(["quick"], mode="rewind")), temperature=0
    )
    assert (found.text, found.trace.rewinds) == ("The quiet", ())


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=examples(60))
@given(
    vocab=st.sampled_from(list(tokenizers.VOCABS)),
    phrases=st.lists(
        st.tuples(st.integers(0, len(SAID) - 2), st.integers(1, 9)).map(lambda at: SAID[at[0] : at[0] + at[1]]),
        min_size=1,
        max_size=5,
    ),
    stop=st.sampled_from([(), ("ox",), ("o", "y d")]),
    max_rewinds=st.sampled_from([0, 1, 4, 100]),
    temperature=st.sampled_from([0, 0.7]),
    seed=st.integers(0, 99),
    inside=st.booleans(),
)
def test_what_was_shown_stays_whatever_is_banned(vocab, phrases, stop, max_rewinds, temperature, seed, inside):
    eng = engine(tokenizers.VOCABS[vocab]())
    ban = Ban(phrases, mode="rewind")
    constraint = AllOf(Regex(r"[^~]*"), ban) if inside else ban
    found = followed(
        eng, constraint, stop=stop, max_rewinds=max_rewinds, temperature=temperature, seed=seed, max_tokens=25
    )
    assert not [phrase for phrase in phrases if phrase in found.text]
    assert not [text for text in stop if text in found.text]
    assert len(found.trace.rewinds) <= max_rewinds
    assert len(found.token_ids) <= 25
    assert eng.engine.model.live == 0
    ways = [(found.token_ids[: r.step], r.tokens) for r in found.trace.rewinds]
    # Within one place of the final text the same tokens went back once.
    assert len(set(ways)) == len(ways) or max(r.step for r in found.trace.rewinds) > len(found.token_ids)
    if not max_rewinds:
        plain = AllOf(Regex(r"[^~]*"), Ban(phrases)) if inside else Ban(phrases)
        masked = followed(eng, plain, stop=stop, temperature=temperature, seed=seed, max_tokens=25)
        assert masked.token_ids == found.token_ids


def wanting(*wishes):
    """Wants the letters of the n-th wish after n tokens, the first one most."""

    def logits_of(tokens):
        row = np.zeros(Vocab.bytes().width, dtype=np.float32)
        place = min(len(tokens) - len(PROMPT), len(wishes) - 1)
        row[list(wishes[place].encode())] = np.arange(len(wishes[place]), 0, -1, dtype=np.float32) * 9
        return row

    return logits_of


@pytest.mark.parametrize(
    ("phrases", "wishes", "text"),
    [
        (["ab"], ("a", "abc", "b", "c"), "acbc"),  # after "aa" the first "a" was shown: "ab" cannot go back from there
        (["cad", "ab"], ("c", "a", "abd", "b", "c"), "cacb"),
        (["aab", "ab"], ("a", "abc", "a", "b", "c"), "aacb"),
    ],
)
def test_after_a_rewind_nothing_is_tried_that_would_take_back_shown_text(phrases, wishes, text):
    eng = engine(logits_of=wanting(*wishes))
    constraint = AllOf(Regex("[abcd]{3,4}"), Ban(phrases, mode="rewind"))
    found = followed(eng, constraint, temperature=0, max_tokens=4)
    assert (found.text, len(found.trace.rewinds)) == (text, 1)


def test_phrases_that_overlap_themselves_go_back_without_touching_what_was_shown():
    eng = engine(logits_of=lambda tokens: noise(tokens, Vocab.bytes().width, 1.0))
    rewound = 0
    phrases = ["ab", "aab", "caab", "bcb", "acac", "cc"]
    for seed in range(examples(30)):
        banned = [one for place, one in enumerate(phrases) if seed + 1 >> place & 1]
        constraint = AllOf(Regex("[abc]{4,12}"), Ban(banned, mode="rewind"))
        found = followed(eng, constraint, seed=seed, max_rewinds=30, max_tokens=14)
        assert not [phrase for phrase in banned if phrase in found.text]
        rewound += len(found.trace.rewinds)
    assert rewound


def test_the_random_stream_goes_on_where_text_went_back(monkeypatch):
    """Every draw takes a number of its own, those of what was taken back too. A record that is read draws again, with
    the number that it had."""
    numbers, following = [], RandomStream.next
    monkeypatch.setattr(RandomStream, "next", lambda self: numbers.append(following(self)) or numbers[-1])
    options = {"constraint": Ban(["the", "qu", "fox"], mode="rewind"), "temperature": 1.0, "seed": 5, "max_tokens": 60}
    eng = engine()
    found = followed(eng, **options)
    assert found.trace.rewinds
    assert len(set(numbers)) == len(found.token_ids) + sum(len(r.tokens) for r in found.trace.rewinds)
    assert followed(eng, **options) == found


# Drivers, engines, refusals

CASES = {
    "ban": Ban(["quick", "over", "dog"], mode="rewind"),
    "ban in regex": AllOf(Regex("[ -~]{4,30}"), Ban(["quick", "over"], mode="rewind")),
    "ban in JSON": AllOf(JsonSchema({"type": "array", "items": {"type": "string"}}), Ban(["T", "he q"], mode="rewind")),
    "ban after a marker": AllOf(After("o", Regex("[a-z ]{1,9}")), Ban(["quick", "fo"], mode="rewind")),
    "two grammars": AllOf(
        Gbnf('root ::= "(" root ")" | [a-e]+'), Gbnf('root ::= [a-e] root [a-e] | "ab" | "ce"'), dead_ends="rewind"
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("vocab", ["bytes", "byte-level"])
def test_the_scheduler_gives_what_the_driver_of_one_gives(name, vocab):
    eng = engine(tokenizers.VOCABS[vocab]())
    asked = [
        eng.requests(PROMPT, constraint=CASES[name], seed=seed, temperature=t, max_tokens=24)[0][0]
        for seed, t in itertools.product(range(4), (0, 1.0))
    ]
    alone = [[*eng.engine.run([request])] for request in asked]
    for options in ({}, {"prefix_tokens": 0, "prefill_chunk": 2, "lanes": 3}):
        served = eng.serve(**options)
        runnings = [served.submit(request) for request in asked]
        for running, expected in zip(runnings, alone, strict=True):
            events = list(running)
            assert [e.text for e in events] == [e.text for e in expected]
            got, wanted = events[-1].result, expected[-1].result
            assert (got.token_ids, got.text, got.finish_reason) == (wanted.token_ids, wanted.text, wanted.finish_reason)
            assert got.trace.rewinds == wanted.trace.rewinds
        served.close()
        assert eng.engine.model.live == 0


def test_on_budget_close_closes_a_text_that_rewinds():
    constraint = AllOf(Regex(r'"[a-zA-Z ]+(, [a-zA-Z ]+)*"'), Ban(["quick", "own"], mode="rewind"))
    found = followed(engine(), constraint, temperature=0, max_tokens=18, on_budget="close")
    assert found.closed_by_budget
    assert found.verdict.valid
    assert found.trace.rewinds


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES.names() if name not in ("mask", "draft")])
def test_other_strategies_are_refused_by_name(strategy):
    for constraint in (CASES["ban"], CASES["ban in JSON"], CASES["two grammars"]):
        with pytest.raises(CapabilityError, match=strategy) as refused:
            engine().generate(PROMPT, constraint=constraint, strategy=strategy, temperature=1.0, top_k=0, top_p=1.0)
        assert refused.value.field == "strategy"


def test_a_model_that_cannot_go_back_is_refused():
    eng = engine()
    eng.engine.model.can = False
    with pytest.raises(CapabilityError, match="cannot take tokens back") as refused:
        eng.generate(PROMPT, constraint=CASES["ban"])
    assert refused.value.field == "constraint"


def test_a_part_of_what_cannot_go_back_is_refused():
    for constraint in (AnyOf(Regex("a+"), CASES["ban"]), After("!", CASES["ban"])):
        with pytest.raises(UnsupportedError, match="ban cannot take text back") as refused:
            engine().generate(PROMPT, constraint=constraint)
        assert refused.value.field == "constraint"


def test_bad_words_beside_a_constraint_that_rewinds():
    found = followed(engine(), CASES["ban"], temperature=0, max_tokens=40, bad_words=["brown"])
    assert not [word for word in ("quick", "over", "dog", "brown") if word in found.text]
    assert {r.blame.member for r in found.trace.rewinds} == {"all_of[0].ban"}


@pytest.mark.parametrize("level", ["off", "summary", "steps", "full"])
def test_the_level_of_the_trace_changes_nothing(level):
    options = {"temperature": 1.0, "seed": 3, "max_tokens": 40, "constraint": CASES["ban"]}
    eng = engine()
    assert eng.generate(PROMPT, trace=level, **options).token_ids == eng.generate(PROMPT, **options).token_ids


def test_the_toy_model_is_a_function_of_its_tokens():
    vocab = Vocab.bytes()
    row = parrot(vocab, 0)((84, 104))
    assert hashlib.sha256(row.tobytes()).digest() == hashlib.sha256(parrot(vocab, 0)((84, 104)).tobytes()).digest()
    assert isinstance(engine().engine.compiler.compile(CASES["ban"]).matcher(), RewindingMatcher)
