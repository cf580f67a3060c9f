"""One declaration of an option: what is generated from it is up to date, and every edge has the option."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from espalier.agents.arguments import DECODING as OF_AGENTS
from espalier.agents.arguments import SAMPLING as COMMON_OF_AGENTS
from espalier.api.options import DECLARED, GenerateOptions
from espalier.decoding.drafts.source import USUAL
from espalier.decoding.options import OPTIONS as DECODING
from espalier.decoding.options import Decoding
from espalier.engines.base import SamplerName
from espalier.engines.request_options import OPTIONS as REQUEST
from espalier.engines.request_options import SAMPLERS
from espalier.errors import InputError, SamplingError
from espalier.option_types import IN_ESPALIER, CommonSetters
from espalier.sampling.config import COMMON, FIELDS, SamplingConfig
from scripts.option_tables import PAGE, TYPES, page, types_file
from tests.footprint import ROOT

FILES_THAT_KNOW = {"min_p": 9, "num_beams": 7, "schema_order": 9}
"""An option -> how many files of `src` may name it: its declaration, its generated type, and what implements it."""


@pytest.mark.parametrize(("path", "written"), [(TYPES, types_file), (PAGE, page)])
def test_what_is_generated_is_up_to_date(path: Path, written: typing.Callable[[], str]) -> None:
    assert path.read_text(encoding="utf-8") == written(), "python scripts/option_tables.py"


@pytest.mark.parametrize("name", FILES_THAT_KNOW)
def test_few_files_name_an_option(name: str) -> None:
    word = re.compile(rf"\b{name}\b")
    paths = (path for path in (ROOT / "src").rglob("*.py") if word.search(path.read_text(encoding="utf-8")))
    assert len(sorted(paths)) <= FILES_THAT_KNOW[name]


def test_every_option_says_what_it_does_and_its_default_is_a_value_of_it() -> None:
    for name, option in DECLARED.items():
        assert option.name == name
        assert option.help.endswith("."), name
        assert option.check(option.default) == option.default, name
        if option.off is not None:
            assert option.check(option.off) == option.off, name


def test_the_configs_have_the_declared_options_with_the_declared_defaults() -> None:
    configs = {SamplingConfig: FIELDS, Decoding: DECODING}
    for cls, options in configs.items():
        names = {field.name for field in dataclasses.fields(cls) if field.init}
        assert names == set(options)
        made = cls()
        assert all(getattr(made, name) == option.default for name, option in options.items())


def test_every_option_is_a_typed_argument_of_generate() -> None:
    assert set(DECLARED) <= set(GenerateOptions.__annotations__)


def test_the_common_options_stand_first_in_their_order_at_every_edge() -> None:
    names = [option.name for option in COMMON]
    assert names[:4] == ["temperature", "top_k", "top_p", "min_p"]
    assert list(COMMON_OF_AGENTS) == names
    assert all(hasattr(CommonSetters, name) for name in names)
    assert OF_AGENTS["on_budget"]["enum"] == ["close", "truncate", "error"]


def test_an_option_of_strategies_is_refused_with_an_error_of_its_own_class() -> None:
    with pytest.raises(InputError) as refused:
        Decoding(on_budget="later")  # type: ignore[arg-type]  # what is wrong
    assert type(refused.value) is InputError
    with pytest.raises(SamplingError):
        SamplingConfig(top_p=2.0)


def test_what_a_declaration_repeats_from_above_its_rank_is_true() -> None:
    assert typing.get_args(SamplerName) == SAMPLERS
    assert all(name in DECODING["drafts"].help for name in USUAL)


def test_bodies_have_every_option_under_its_name_there() -> None:
    openai = pytest.importorskip("espalier.server.bodies.openai")
    llama = pytest.importorskip("espalier.server.bodies.llama")
    ours = set(openai.EspalierOptions.model_fields)
    theirs = set(openai.ChatBody.model_fields)
    assert {option.openai for option in DECLARED.values() if option.openai} <= theirs
    assert {option.llama for option in FIELDS.values() if option.llama} <= theirs & set(llama.LlamaBody.model_fields)
    assert {*DECODING, *REQUEST, "extra"} <= ours
    assert ours >= IN_ESPALIER
    assert not IN_ESPALIER & theirs


@pytest.mark.parametrize(("name", "value"), [("top_k", -1), ("seed", -1), ("n_predict", -1), ("top_n_sigma", -1)])
def test_the_openapi_document_allows_what_other_clients_send(name: str, value: int) -> None:
    llama = pytest.importorskip("espalier.server.bodies.llama")
    jsonschema = pytest.importorskip("jsonschema")
    schema = llama.LlamaBody.model_json_schema()
    jsonschema.Draft202012Validator(schema).validate({"prompt": "a", name: value})
    assert not jsonschema.Draft202012Validator(schema).is_valid({"prompt": "a", "min_p": 2})
