"""The measures of benchmarks/schema on three small schemas, with judges that are right, lax, strict and broken."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from benchmarks.harness import Steps, print_times, time_text
from benchmarks.schema import peers, suite
from benchmarks.schema.cases import Case, Instance, Missing, as_spelled, needs_remote, real
from benchmarks.schema.cases import suite as groups_of
from benchmarks.schema.judging import by_kind, figures, measure, reasons
from benchmarks.schema.spelling import canonical, compact, in_order, plain_number, spellings
from espalier.errors import LimitExceeded, UnsupportedError
from espalier.tokens.vocab import Vocab
from tests.tokenizers import byte_level_vocab


def case(name: str, schema: Any, *instances: tuple[str, bool]) -> Case:
    made = tuple(Instance(data=as_spelled(text), valid=valid) for text, valid in instances)
    return Case(id=name, kind="inline", schema=schema, instances=made)


CASES = [
    case(
        "user",
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name"],
        },
        ('{"age": 3, "name": "a"}', True),
        ('{"name": "a", "age": 3.0}', True),
        ('{"age": 3}', False),
    ),
    case("list", {"type": "array", "items": {"enum": ["a", "b"]}}, ('["a","b"]', True), ('["c"]', False)),
    case("never", False, ("1", False)),
]


class Judge:
    """Accepts what `jsonschema` finds valid."""

    def __init__(self, schema: Any) -> None:
        self.validator = jsonschema.Draft202012Validator(schema)

    def accepts(self, text: str, /) -> bool:
        return bool(self.validator.is_valid(json.loads(text)))


def test_a_right_judge() -> None:
    total = figures(measure(CASES, Judge))
    assert (total.schemas, total.compiled, total.right) == (3, 3, 3)
    assert (total.valid, total.accepted, total.invalid, total.wrong, total.lost) == (3, 3, 3, 0, 0)


def test_a_lax_and_a_strict_judge() -> None:
    class Lax(Judge):
        def accepts(self, text: str, /) -> bool:
            return True

    class Strict(Judge):
        def accepts(self, text: str, /) -> bool:
            return False

    assert figures(measure(CASES, Lax)).wrong == 3
    strict = figures(measure(CASES, Strict))
    assert (strict.lost, strict.wrong, strict.right) == (3, 0, 1)


def test_a_judge_that_fails() -> None:
    class Broken(Judge):
        def accepts(self, text: str, /) -> bool:
            raise LimitExceeded

    def refuse(schema: Any) -> Judge:
        raise UnsupportedError("not yet")

    broken = figures(measure(CASES, Broken))
    assert (broken.broken, broken.nearly_right) == (6, 0)
    refused = measure(CASES, refuse)
    assert figures(refused).compiled == 0
    assert reasons(refused, str) == [("not yet", ["user", "list", "never"])]
    assert by_kind(refused) == [("inline", 3, 0, 0)]


def test_espalier_and_llguidance_alone() -> None:
    for compile_schema in (peers.ours(), peers.llguidance_alone()):
        outcomes = measure(CASES, compile_schema)
        user, listed, never = outcomes
        assert listed.right
        assert user.nearly_right
        assert len(user.spelled) <= 1  # 3.0 for an integer
        assert not never.wrong
        assert figures(outcomes).wrong == 0


def test_the_table_names_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    class Lax(Judge):
        def accepts(self, text: str, /) -> bool:
            return True

    suite.table(measure(CASES, Lax), kinds=True)
    out = capsys.readouterr().out
    assert 'WRONGLY ACCEPTED: list: ["c"]' in out
    assert "inline 3/3/0" in out


def test_spellings_are_one_value() -> None:
    data = as_spelled('{"b": 1.50, "a": ["é", {"y": 1e2, "x": -0}]}')
    schema = {"properties": {"a": {"items": {"properties": {"x": {}, "y": {}}}}, "b": {}}}
    assert compact(in_order(data, schema)) == '{"a":["é",{"x":-0,"y":1e2}],"b":1.50}'
    assert canonical(in_order(data, schema)) == '{"a":["é",{"x":0,"y":100}],"b":1.5}'
    wanted = json.loads(compact(data))
    texts = set(spellings(data, schema))
    assert len(texts) > 5
    assert all(json.loads(text) == wanted for text in texts)


@pytest.mark.parametrize(("spelled", "plain"), [("1.0", "1"), ("10", "10"), ("1e3", "1000"), ("0.10", "0.1")])
def test_plain_numbers(spelled: str, plain: str) -> None:
    assert plain_number(spelled) == plain


def test_the_order_follows_references_and_all_of() -> None:
    schema = {
        "allOf": [{"properties": {"b": {}}}, {"$ref": "#/$defs/rest"}],
        "$defs": {"rest": {"properties": {"a": {}}}},
    }
    assert list(in_order({"z": 1, "a": 1, "b": 1}, schema)) == ["b", "a", "z"]
    assert in_order({"a": 1}, {"$ref": "#"}) == {"a": 1}


@pytest.mark.parametrize(
    ("schema", "remote"),
    [
        ({"$ref": "#/$defs/a", "$defs": {"a": True}}, False),
        ({"$ref": "http://localhost:1234/a.json"}, True),
        ({"$id": "http://x/", "$ref": "a", "$defs": {"a": {"$id": "a"}}}, False),
        ({"$id": "urn:uuid:1", "$ref": "#/$defs/a", "$defs": {"a": True}}, False),
        ({"$schema": "http://localhost:1234/own"}, True),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, False),
        ({"enum": [{"$ref": "http://localhost:1234/a.json"}]}, False),
    ],
)
def test_who_needs_another_document(schema: Any, remote: bool) -> None:
    assert needs_remote(schema) is remote


def test_data_that_is_not_there(tmp_path: Any) -> None:
    with pytest.raises(Missing, match="BENCH_REAL_SCHEMAS"):
        real(tmp_path / "none.jsonl.gz")


def test_times_of_a_text_by_two_engines(capsys: pytest.CaptureFixture[str]) -> None:
    from espalier.constraints.compiler import Compiler
    from espalier.constraints.spec import JsonSchema

    vocab: Vocab = byte_level_vocab()
    assert vocab.encoder is not None
    tokens = vocab.encoder('{"a":12}')

    def compiled() -> Callable[[], Steps]:
        matcher = Compiler(vocab).compile(JsonSchema({"properties": {"a": {"type": "integer"}}})).matcher
        return lambda: ((one := matcher()).mask, one.advance)

    text = time_text(compiled, tokens)
    assert len(text.masks) == len(text.advances) == len(tokens)
    assert text.whole >= sum(text.masks) + text.compile > 0
    print_times({"ours": [text], "slow": [replace(text, compile=2 * text.compile)]})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(rows) == 12
    assert rows[0][:2] == ["compile", "ours"]
    assert rows[0][-1] == "0.50"
    assert rows[1][-1] == rows[4][-1] == "1.00"


def test_the_suite_of_a_draft_is_read_from_a_source_distribution(tmp_path: Path) -> None:
    groups = [
        {"description": "one", "schema": {"minimum": 1}, "tests": [{"description": "", "data": 1.0, "valid": True}]},
        {"description": "two", "schema": True, "tests": []},
    ]
    archive = tmp_path / "jsonschema.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        for name in (
            "json/tests/draft7/a.json",
            "json/tests/draft7/optional/b.json",
            "json/tests/draft4/c.json",
            "json/remotes/draft7/d.json",
        ):
            data = json.dumps({} if "remotes" in name else groups).encode()
            entry = tarfile.TarInfo(f"jsonschema-1/{name}")
            entry.size = len(data)
            made.addfile(entry, io.BytesIO(data))
    found = groups_of(archive, "draft7")
    assert [case.id for case in found] == ["a/0 one", "a/1 two"]
    assert found[0].schema == {"$schema": "http://json-schema.org/draft-07/schema#", "minimum": 1}
    assert found[1].schema is True
    with tarfile.open(tmp_path / "one.tar.gz", "w:gz"):
        pass
    with pytest.raises(Missing, match="no other drafts"):
        groups_of(tmp_path / "one.tar.gz", "draft7")
