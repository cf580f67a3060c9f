"""What `generate` takes stands in one table with types: complete, shown by `help`, and unknown names are told."""

from __future__ import annotations

import inspect

import pytest

import espalier
from espalier import api
from espalier.api.options import DECLARED, FOREIGN, OPTIONS, USUAL
from espalier.decoding.options import OPTIONS as DECODING
from espalier.errors import GrammarError, InputError, RegexError, UnsupportedError
from espalier.sampling.config import FIELDS as SAMPLING

OF_EDGES = {"presets", "default_order", "default_reasoning"}
"""What edges pass on, and no user."""


def test_the_table_names_what_is_taken_and_nothing_else() -> None:
    parameters = inspect.signature(api.make_request).parameters.values()
    own = {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY} - OF_EDGES
    assert set(OPTIONS) == own | {*SAMPLING} | {*DECODING}


def test_the_defaults_that_are_shown_are_those_of_a_request() -> None:
    parameters = inspect.signature(api.make_request).parameters
    shown = {name: USUAL.get(name, DECLARED[name].default if name in DECLARED else None) for name in OPTIONS}
    shown["strategy"] = None  # the default of Decoding, or a server's
    taken = {name: one.default for name, one in parameters.items() if name in OPTIONS}
    assert taken == {name: shown[name] for name in taken}


@pytest.mark.parametrize("function", [espalier.generate, espalier.LoadedEngine.generate, espalier.LoadedEngine.stream])
def test_a_signature_names_every_option(function: object) -> None:
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]  # a function
    assert set(OPTIONS) <= set(parameters)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in OPTIONS if name != "constraint")
    assert parameters["temperature"].default == espalier.SamplingConfig().temperature
    assert parameters["sampler"].default == "espalier"
    assert inspect.signature(function).return_annotation not in ("Any", inspect.Signature.empty)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_new_tokens", "max_new_tokens, as transformers calls it, is max_tokens here"),
        ("schema", "is json_schema here"),
        ("guided_json", "as vLLM calls it, is json_schema here"),
        ("temprature", "did you mean 'temperature'"),
        ("constrain", "did you mean 'constraint'"),
        ("top_q", "did you mean 'top_p', 'top_k' or"),
        ("num_beam", "did you mean 'num_beams'"),
    ],
)
def test_an_unknown_option_is_told_with_what_it_may_have_meant(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=name) as caught:
        api.make_request("a", **{name: 1})
    assert hint in str(caught.value)


def test_an_option_of_another_library_is_none_of_ours() -> None:
    assert not {*FOREIGN} & {*OPTIONS}
    for whose, ours in FOREIGN.values():
        assert whose
        assert ours.partition("=")[0] in OPTIONS or ours.startswith("the method"), ours


def test_a_wrong_value_of_a_known_option_keeps_its_own_hint() -> None:
    with pytest.raises(InputError, match="no sampler") as caught:
        api.make_request("a", samplers=["heat"])
    assert "did you mean" not in str(caught.value)


def test_a_pattern_is_checked_when_it_is_made() -> None:
    with pytest.raises(RegexError, match="offset 0") as caught:
        espalier.Regex("[a")
    assert caught.value.offset == 0
    with pytest.raises(UnsupportedError, match="back-reference"):
        espalier.Regex(r"(a)\1")


def test_a_grammar_is_checked_when_it_is_made() -> None:
    with pytest.raises(GrammarError, match="line 2, column") as caught:
        espalier.Gbnf('root ::= "a" b\nb ::= [c')
    assert caught.value.line == 2


def test_a_long_pattern_is_checked_when_it_is_compiled() -> None:
    spec = espalier.Regex("a" * 2000 + "[")
    with pytest.raises(RegexError, match="offset 2000"):
        espalier.compile(spec)
