"""The grammar backend for SGLang, driven as its scheduler drives one. Where SGLang is not installed, its interface as
published stands in: the tests' names say which of the two it was."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from sglang.srt.constrained.base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, InvalidGrammarObject  # noqa: E402

from espalier.constraints.base import Compiled  # noqa: E402
from espalier.constraints.spec import Regex  # noqa: E402
from espalier.errors import CapabilityError  # noqa: E402
from espalier.integrations.sglang import ConstraintBackend, ConstraintGrammar, register  # noqa: E402
from espalier.integrations.sglang.backend import create  # noqa: E402
from espalier.tokens.vocab import Vocab  # noqa: E402
from espalier.wiring import demo_model  # noqa: E402
from tests.engine_doubles import HAS_SGLANG  # noqa: E402
from tests.examples import examples  # noqa: E402
from tests.toy_engines import ASKED, PERSON, ToySglang, compile_asked, requests_of  # noqa: E402

BASE = "sglangs-own-base-class" if HAS_SGLANG else "recorded-interface"
against = pytest.mark.parametrize("base", [BASE])
TOKENIZER = str(demo_model() / "tokenizer.json")
VOCAB = Vocab.from_tokenizer(TOKENIZER)


@pytest.fixture(scope="module")
def backend() -> Any:
    made = ConstraintBackend(VOCAB)
    yield made
    made.executor.shutdown()


@pytest.fixture(scope="module")
def compiled() -> dict[str, Compiled]:
    return compile_asked(VOCAB)


def key_of(kind: str | None) -> tuple[str, str] | None:
    """As SGLang makes it from the sampling params."""
    if kind is None:
        return None
    asked, _ = ASKED[kind]
    if kind == "schema":
        return "json", json.dumps(asked["json_schema"])
    if kind == "grammar":
        return "ebnf", asked["grammar"]
    if kind == "regex":
        return "regex", asked["constraint"]["pattern"]
    return "ebnf", json.dumps({"espalier": asked})


def schedules(count: int, backend: Any, compiled: dict[str, Compiled]) -> None:
    seen = {"retracted": 0, "cached": 0, "rolled_back": 0, "ended": 0}
    for seed in range(count):
        rng = random.Random(seed)
        engine = ToySglang(backend, VOCAB, rng)
        coming = requests_of(rng, compiled, rng.randint(2, 7))
        total = len(coming)
        for _ in range(2000):
            if coming and rng.random() < 0.4:
                one = coming.pop()
                engine.arrive(one, key_of(one.kind))
            engine.step()
            if len(engine.done) == total:
                break
        assert len(engine.done) == total
        for one in engine.done:
            if one.has_ended and one.kind is not None:
                assert ASKED[one.kind][1](one.text(VOCAB)), (seed, one.kind, one.text(VOCAB))
        for name, number in engine.seen.items():
            seen[name] += number
        seen["ended"] += sum(one.has_ended for one in engine.done)
    assert min(seen.values()) > 0, seen


@against
def test_every_row_keeps_its_own_constraint_through_random_schedules(
    base: str, backend: Any, compiled: dict[str, Compiled]
) -> None:
    schedules(examples(60), backend, compiled)


@pytest.mark.slow
@against
def test_hundreds_of_random_schedules(base: str, backend: Any, compiled: dict[str, Compiled]) -> None:
    schedules(examples(1000), backend, compiled)


@against
def test_the_backend_and_its_grammars_are_of_the_base_classes(base: str, backend: Any) -> None:
    assert isinstance(backend, BaseGrammarBackend)
    assert isinstance(backend.dispatch_json(json.dumps(PERSON)), BaseGrammarObject)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (("json", "{"), "not JSON"),
        (("json", '{"type": "nothing"}'), "type"),
        (("regex", "("), "espalier"),
        (("ebnf", "root ::= root"), "root"),
        (("ebnf", '{"espalier": {}}'), "nothing to enforce"),
        (("ebnf", '{"other": {}}'), "one key"),
        (("ebnf", '{"espalier": {"grammar": "root ::= \\"a\\"", "report": true}}'), "no report"),
        (("ebnf", "root ::= <nosuchtoken>"), "nosuchtoken"),
        (("structural_tag", "{}"), "structural_tag"),
    ],
)
@against
def test_what_cannot_be_enforced_ends_the_request_with_the_reason(
    base: str, backend: Any, key: tuple[str, str], said: str
) -> None:
    future, _ = backend.get_cached_or_future_value(key, False)
    found = future.result()
    assert isinstance(found, InvalidGrammarObject)
    assert said in found.error_message


@against
def test_more_constraints_than_a_server_keeps_for_one_owner_are_found_again(base: str, backend: Any) -> None:
    patterns = [f"[ab]{{{count}}}" for count in range(1, 40)]
    for pattern in patterns:
        assert isinstance(backend.dispatch_regex(pattern), ConstraintGrammar)
    assert all(backend._compiler.has(Regex(pattern)) for pattern in patterns)


@against
def test_json_mode_is_an_object(base: str, backend: Any) -> None:
    found = backend.dispatch_json("$$ANY$$")
    assert isinstance(found, ConstraintGrammar)
    found.accept_token(VOCAB.tokens.index(b"{"))
    with pytest.raises(ValueError, match="espalier"):
        found.accept_token(VOCAB.tokens.index(b"]"))


@against
def test_after_a_token_against_the_mask_only_the_end_is_allowed(base: str, backend: Any) -> None:
    found = backend.dispatch_regex("ab")
    with pytest.raises(ValueError, match="against the mask"):
        found.accept_token(VOCAB.tokens.index(b"z"))
    mask = found.allocate_vocab_mask(VOCAB.width, 1, "cpu")
    found.fill_vocab_mask(mask, 0)
    logits = torch.zeros((1, VOCAB.width))
    found.apply_vocab_mask(logits, mask)
    assert set(torch.isfinite(logits[0]).nonzero().flatten().tolist()) == set(VOCAB.eos_ids)
    assert found.failure is not None


@against
def test_settings_that_a_backend_is_not_told_of_are_refused(base: str) -> None:
    for given, said in (("speculative_algorithm", "speculative"), ("reasoning_parser", "reasoning")):
        args = SimpleNamespace(**{"speculative_algorithm": None, "reasoning_parser": None, given: "x"})
        with pytest.raises(CapabilityError, match=said):
            create(args, TOKENIZER, VOCAB.width, {2})


@pytest.mark.skipif(HAS_SGLANG, reason="SGLang has a registry of its own")
def test_the_backend_registers_itself_in_the_recorded_registry() -> None:
    from sglang.srt.constrained.base_grammar_backend import GRAMMAR_BACKEND_REGISTRY

    register()
    made = GRAMMAR_BACKEND_REGISTRY.pop("espalier")(SimpleNamespace(), TOKENIZER, VOCAB.width, {2})
    assert isinstance(made, ConstraintBackend)
    made.executor.shutdown()
