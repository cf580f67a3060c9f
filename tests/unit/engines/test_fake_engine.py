"""The whole path on the fake engine: no weights, every event exact."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import espalier
from espalier.constraints.verdict import judge
from espalier.engines.base import FinishEvent, Request, TokenEvent
from espalier.engines.fake import FakeStepModel, noise, open_engine
from espalier.engines.local.engine import LocalEngine
from espalier.engines.options import EngineOptions
from espalier.errors import BadLogits, CapabilityError, InputError, PromptTooLong, UnknownName
from espalier.settings import KernelSettings
from espalier.tokens.vocab import Vocab
from espalier.wiring import build_app

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture
def eng():
    return espalier.load("fake")


def random_engine(max_positions=400):
    """Pure noise: whatever comes out, comes from the constraint."""
    vocab = Vocab.bytes()
    model = FakeStepModel(lambda tokens: noise(tokens, vocab.width), width=vocab.width, max_positions=max_positions)
    engine = LocalEngine(
        name="noise", model=model, vocab=vocab, encode=lambda text, *, add_special: list(text.encode())
    )
    return espalier.LoadedEngine(engine)


def test_unconstrained_it_says_what_it_wishes(eng):
    result = eng.generate("hi", temperature=0)
    assert result.text.startswith("Sure! Here is the JSON")
    assert result.finish_reason == "stop"
    assert result.verdict is None
    assert result.parsed == result.text
    assert result.trace.summary()["total_tax_nats"] == 0.0


def test_constrained_it_says_json_and_the_trace_shows_what_it_wanted(eng):
    result = eng.generate("hi", constraint=espalier.JsonObject(), temperature=0)
    assert result.parsed == {"name": "Ada Lovelace", "email": "ada@example.org", "age": 36}
    assert result.verdict.valid is True
    first = result.trace.steps[0]
    assert (first.pre_masking[0].text, first.pre_masking[0].allowed) == ("S", False)
    assert first.text == "{"
    assert first.tax_nats > 1
    assert result.trace.changed_steps >= 1


@pytest.mark.parametrize(
    "spec",
    [
        espalier.JsonSchema(SCHEMA),
        espalier.JsonSchema(SCHEMA, whitespace="compact"),
        espalier.Regex(r"\d{3}-[a-z]+"),
        espalier.Choice(["yes", "yes!", "no"]),
        espalier.JsonSchema({"enum": [1, "two", None, [3]]}),
    ],
)
def test_every_finished_output_of_pure_noise_is_valid(spec):
    finished = 0
    prompts = [f"seed {i}" for i in range(60)]
    wild = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 300, "seed": 1, "trace": "off"}
    for result in random_engine().generate(prompts, constraint=spec, **wild):
        if result.finish_reason == "stop":
            finished += 1
            assert result.verdict.valid is True, result.text
            assert judge(spec, result.text).valid is True
    assert finished > 20


def test_the_same_seed_gives_the_same_result_alone_and_in_a_batch(eng):
    options = {"constraint": espalier.JsonObject(), "seed": 3, "temperature": 1.5, "max_tokens": 60}
    alone = eng.generate("hi", **options)
    batch = eng.generate(["hi", "something longer", "hi"], **options)
    assert [r.token_ids for r in batch] == [alone.token_ids, batch[1].token_ids, alone.token_ids]
    assert eng.generate("hi", **options) == alone


def test_a_drawn_seed_is_stated_and_repeats_the_run(eng):
    first = eng.generate("hi", temperature=2.0, max_tokens=30)
    again = eng.generate("hi", temperature=2.0, max_tokens=30, seed=first.seed)
    assert again.token_ids == first.token_ids
    assert first.trace.sampling["seed"] == first.seed


def test_streamed_pieces_are_the_text_and_events_carry_the_records(eng):
    events = list(eng.stream("hi", constraint=espalier.JsonObject(), temperature=0))
    assert isinstance(events[-1], FinishEvent)
    result = events[-1].result
    assert "".join(e.text for e in events) == result.text
    tokens = [e for e in events if isinstance(e, TokenEvent)]
    assert tuple(e.token_id for e in tokens) == result.token_ids
    assert [e.record.step for e in tokens] == list(range(len(tokens)))


def test_closing_a_stream_frees_the_sequences(eng):
    events = eng.stream(["hi", "there"], temperature=0)
    next(events)
    assert eng.engine.model.live == 2
    events.close()
    assert eng.engine.model.live == 0


def test_an_error_in_one_sequence_frees_all():
    vocab = Vocab.bytes()
    rows = lambda tokens: noise(tokens, 257) if len(tokens) < 6 else np.full(257, np.nan, dtype=np.float32)  # noqa: E731
    model = FakeStepModel(rows, width=257)
    engine = espalier.LoadedEngine(
        LocalEngine(name="nan", model=model, vocab=vocab, encode=lambda t, *, add_special: list(t.encode()))
    )
    with pytest.raises(BadLogits):
        engine.generate(["ab", "abc"])
    assert model.live == 0


def test_a_stop_text_ends_the_output_and_is_not_part_of_it(eng):
    result = eng.generate("hi", temperature=0, stop=["JSON"])
    assert result.text == "Sure! Here is the "
    assert (result.finish_reason, result.stop_reason) == ("stop", "JSON")


def test_a_stop_id_ends_the_output(eng):
    result = eng.generate("hi", temperature=0, stop_ids=[ord("!")])
    assert (result.text, result.stop_reason) == ("Sure", ord("!"))


def test_a_cut_output_says_so_and_is_not_called_valid(eng):
    result = eng.generate("hi", constraint=espalier.JsonObject(), temperature=0, max_tokens=10)
    assert result.finish_reason == "length"
    assert result.usage.completion_tokens == 10
    assert result.verdict.valid is False
    assert result.parsed is None


def test_a_stop_text_inside_a_constrained_output_is_judged_not_valid(eng):
    result = eng.generate("hi", constraint=espalier.JsonObject(), temperature=0, stop=["Ada"])
    assert result.finish_reason == "stop"
    assert result.verdict.valid is False
    assert result.parsed is None


def test_the_context_limits_the_output_to_the_last_token_that_fits():
    engine = random_engine(max_positions=20)
    result = engine.generate("x" * 15, ignore_eos=True, max_tokens=100)
    assert result.finish_reason == "length"
    assert result.usage.completion_tokens == 6  # five positions, and one token that needs none


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"constraint": espalier.JsonObject(), "ignore_eos": True}, InputError, "ignore_eos"),
        ({"constraint": 5}, InputError, "Spec"),
        ({"strategy": "nope"}, UnknownName, "mask"),
        ({"trace": "some"}, InputError, "trace level"),
        ({"trace_top_k": -1}, InputError, "trace_top_k"),
        ({"stop_ids": [999]}, InputError, "999"),
        ({"temprature": 1}, InputError, "temprature"),
        ({"system": "s", "raw": True}, InputError, "raw"),
        ({"sampling": [("seed", 1)]}, InputError, "SamplingConfig"),
        ({"stop": 1.5}, InputError, "stop"),
    ],
)
def test_a_request_that_is_wrong_is_refused_before_anything_is_generated(eng, options, error, words):
    with pytest.raises(error, match=words):
        eng.generate("hi", **options)
    with pytest.raises(error, match=words):
        eng.stream("hi", **options)  # at once, not at the first event


@pytest.mark.parametrize("prompt", [3, None, [], {}, b"hi", [1, 2], [None], "\udcff"])
def test_a_prompt_that_is_none_is_refused(eng, prompt):
    with pytest.raises(InputError):
        eng.generate(prompt)


def test_messages_without_a_chat_template_are_refused():
    with pytest.raises(InputError, match="no chat template"):
        random_engine().generate("hi", system="s")


def test_a_prompt_longer_than_the_context_says_both_numbers():
    with pytest.raises(PromptTooLong, match=r"is 20 tokens: the prompt has 25 tokens"):
        random_engine(max_positions=20).generate("x" * 25)


def test_an_empty_prompt_is_refused():
    with pytest.raises(InputError, match="empty"):
        random_engine().generate("")


def test_an_option_that_the_engine_has_not_is_refused_and_a_setting_is_not_given_to_it():
    with pytest.raises(InputError, match="the fake engine takes no context") as caught:
        espalier.load("fake", context=64)
    assert caught.value.field == "context"
    app = build_app(KernelSettings(options=EngineOptions(context=64, device="cuda", tool_format="hermes")))
    assert espalier.load("fake", app=app).capabilities.max_context == 4096


def test_threads_share_an_engine_and_get_what_they_get_alone(eng):
    options = {"constraint": espalier.JsonObject(), "seed": 3, "temperature": 1.5, "max_tokens": 60}
    alone = {prompt: eng.generate(prompt, **options).token_ids for prompt in ("one", "another one")}
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda p: (p, eng.generate(p, **options).token_ids), ["one", "another one"] * 6))
    assert all(tokens == alone[prompt] for prompt, tokens in found)
    assert eng.engine.model.live == 0


def test_more_prompts_than_sequences_wait_their_turn(eng):
    results = eng.generate(["x"] * 300, constraint=espalier.Choice(["yes", "no"]), seed=0, trace="off")
    assert len(results) == 300
    assert {r.text for r in results} <= {"yes", "no"}


def test_a_closed_engine_says_so(eng):
    eng.close()
    with pytest.raises(InputError, match="closed"):
        eng.generate("hi")


def test_a_constraint_the_engine_cannot_enforce_is_refused_and_not_dropped(eng):
    class Odd(espalier.Regex):
        kind = "odd"

    with pytest.raises(CapabilityError, match="odd"):
        eng.generate("hi", constraint=Odd("a"))


def test_both_prompt_and_messages_or_neither_is_refused():
    engine = open_engine()
    with pytest.raises(InputError, match="either a prompt or messages"):
        engine.run([Request()])
    with pytest.raises(InputError, match="either a prompt or messages"):
        engine.run([Request(prompt="a", messages=({"role": "user", "content": "a"},))])
