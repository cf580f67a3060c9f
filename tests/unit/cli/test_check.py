"""`espalier check`: the contract as a table, hazards, costs, and documents held against a schema."""

import json
from functools import partial

import pytest
from rich.cells import cell_len

from espalier.cli.check import middle, page, wrapped
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.check import SchemaReport, check_schema
from espalier.constraints.json_schema.instances import Instance, numerals, read_instances
from espalier.constraints.spec import JsonSchema
from espalier.errors import InputError, UnknownName
from espalier.schema.contract import Contract, ContractEntry
from espalier.tokens.vocab import Vocab

USER = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
LOOSE = {"type": "string", "pattern": r"^(a*)b\1$"}


@pytest.fixture
def run(run):
    return partial(run, "check")


@pytest.fixture(scope="module")
def compiler():
    return Compiler(Vocab.bytes())


def held(compiler, schema, *documents, engine="transformers", **options):
    texts = [one if isinstance(one, str) else json.dumps(one) for one in documents]
    spec = JsonSchema(schema, **options)
    return check_schema(spec, compiler, engine=engine, instances=list(enumerate(texts, 1)))


@pytest.mark.parametrize("engine", [[], ["--engine", "llamacpp"]])
def test_ours_is_named_without_a_library_that_may_have_no_part_in_it(run, engine):
    """A GGUF file as the tokenizer has nothing to do with transformers."""
    assert run(json.dumps(USER), *engine)[1].startswith("engine      Espalier\n")


def test_what_is_enforced_is_exit_code_0(run):
    code, out, err = run(json.dumps(USER))
    assert (code, err) == (0, "all is enforced\n")
    assert "/properties/name/maxLength" in out
    assert "compiled" in out
    assert all(cell_len(line) <= 80 for line in out.splitlines())


def test_what_can_only_be_checked_is_exit_code_1_unless_it_is_allowed(run):
    code, out, err = run(json.dumps(LOOSE))
    assert code == 1
    assert "checked   /pattern" in out
    assert "1 keyword would not be enforced" in err
    code, _, err = run(json.dumps(LOOSE), "--allow", "checked")
    assert (code, err) == (0, "all is enforced, or checked afterwards\n")


def test_what_cannot_be_had_at_all_is_exit_code_1(run):
    remote = json.dumps({"$ref": "https://example.com/other.json"})
    code, out, err = run(remote)
    assert (code, out) == (1, "")
    assert "example.com" in err
    code, out, _ = run(remote, "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_shorthand_files_and_stdin(run, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(USER))
    for argument in ("name, age int", "s.json", "-"):
        code, out, _ = run(argument, stdin=json.dumps(USER))
        assert code == 0
        assert "/properties/age/type" in out


def test_json_says_everything(run, tmp_path):
    (tmp_path / "i.jsonl").write_text('{"name":"Ada","age":36}\n')
    code, out, _ = run(json.dumps(USER), "--instances", "i.jsonl", "--json")
    found = json.loads(out)
    assert code == 0
    assert found.keys() == {"ok", "engine", "contract", "unknown", "hazards", "cost", "instances"}
    assert {entry["pointer"] for entry in found["contract"]} >= {"/type", "/properties/name/maxLength"}
    assert found["instances"][0]["accepted"] is True
    assert found["cost"]["seconds"] >= 0


def test_the_grammar_backend_tells_states_and_refuses_what_it_cannot_say(compiler):
    report = check_schema(JsonSchema(USER), compiler, engine="gbnf")
    assert report.cost.backend == "automaton"
    assert report.cost.states > 10
    assert report.cost.memory > 1000
    assert report.ok
    lacking = check_schema(JsonSchema(LOOSE, allow="checked"), compiler, engine="gbnf").lacking
    assert [(entry.pointer, entry.verdict) for entry in lacking] == [("/pattern", "refused")]


@pytest.mark.parametrize(
    ("engine", "schema", "pointer", "verdict"),
    [
        ("llama-server", {"type": "array", "uniqueItems": True}, "/uniqueItems", "checked"),
        ("vllm", {"type": "array", "uniqueItems": True}, "/uniqueItems", "refused"),
        ("openai", {"type": "object", "properties": {"a": {"type": "null"}}}, "/properties", "refused"),
        ("vllm", USER | {"if": True, "then": {"required": ["age"]}}, "/then", "checked"),
        ("llama-server", {"$ref": "#/$defs/a", "type": "string", "$defs": {"a": True}}, "/type", "checked"),
        ("vllm", {"type": "string", "pattern": "^a*$", "maxLength": 3}, "/maxLength", "refused"),
        ("openai", {"type": "string"}, "", "refused"),
        ("llama-server", {"type": "string", "pattern": "a"}, "/pattern", "checked"),
    ],
)
def test_other_engines_by_what_they_drop_and_refuse(compiler, engine, schema, pointer, verdict):
    report = check_schema(JsonSchema(schema), compiler, engine=engine)
    assert {entry.pointer: entry.verdict for entry in report.contract.entries}[pointer] == verdict
    assert report.cost is None
    assert not report.ok


def test_what_asserts_nothing_is_not_dropped(compiler):
    schema = {"type": "string", "format": "email", "then": False}
    report = check_schema(JsonSchema(schema), compiler, engine="llama-server")
    assert report.ok
    assert report.contract.by_verdict("checked") == ()


def test_an_engine_nobody_knows(run, compiler):
    with pytest.raises(UnknownName, match="unknown engine"):
        check_schema(JsonSchema(USER), compiler, engine="nope")
    assert run(json.dumps(USER), "--engine", "nope")[0] == 2


def test_documents_are_written_in_the_order_of_the_schema(compiler):
    report = held(compiler, USER, {"age": 3, "name": "Ada"}, {"name": "Ada", "age": 3})
    assert [one.accepted for one in report.instances] == [True, True]
    assert report.ok


def test_keys_within_keys_and_options_are_ordered_too(compiler):
    schema = {
        "properties": {
            "list": {"items": {"anyOf": [USER, {"properties": {"b": {}, "a": {}}, "required": ["b"]}]}},
            "one": {"enum": [{"x": 1, "y": {"p": 1, "q": 2}}]},
        }
    }
    document = {"one": {"y": {"q": 2, "p": 1}, "x": 1}, "list": [{"age": 1, "name": "A"}, {"a": 0, "b": 0}]}
    assert held(compiler, schema, document).instances[0].accepted


@pytest.mark.parametrize("whitespace", ["natural", "compact", "flexible", "indented"])
def test_documents_in_every_style(compiler, whitespace):
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {}}}
    report = held(compiler, schema, {"b": {}, "a": [1, 2]}, {"a": []}, {}, {"a": {}}, whitespace=whitespace)
    assert [one.accepted for one in report.instances] == [True, True, True, False]
    assert report.ok


def test_documents_with_separators_of_their_own(compiler):
    assert held(compiler, USER, {"age": 3, "name": "A"}, separators=(", {1,9}", " : ")).instances[0].accepted


def test_a_refused_document_has_a_byte_and_a_reason(compiler):
    (one,) = held(compiler, USER, {"age": -1, "name": "é"}).instances
    assert (one.accepted, one.valid, one.disputed) == (False, False, False)
    assert one.before == '{"name":"é","age":'
    assert one.byte == len(one.before.encode())
    assert '"-"' in one.reason
    assert "minimum" in one.errors[0]


def test_a_text_that_ends_too_soon_for_the_schema(compiler):
    (one,) = held(compiler, {"type": "integer", "minimum": 10, "maximum": 19}, "1").instances
    assert (one.accepted, one.byte) == (False, 1)
    assert "cannot end here" in one.reason


def test_a_number_counts_by_its_value(compiler):
    report = held(compiler, {"type": "integer", "minimum": 0}, "3.0", "3e1", "-0.0", "3.5")
    assert [one.accepted for one in report.instances] == [True, True, True, False]


def test_spellings_of_numbers():
    assert numerals("3.50") == ["3.50", "3.5"]
    assert numerals("1e3") == ["1e3", "1000"]
    assert numerals("-0") == ["-0", "0"]
    assert numerals("1e99999999") == ["1e99999999"]


def test_a_valid_document_that_cannot_come_out_fails(run):
    code, out, err = run('{"type":"integer"}', "--instances", "-", "--engine", "gbnf", stdin="9" * 30)
    assert code == 1
    assert "see what is narrowed" in out
    assert "1 document judged otherwise" in err
    assert "BUG" not in out + err


def test_what_is_only_checked_may_come_out(compiler):
    report = held(compiler, LOOSE, '"aab"', '"aba"', allow="checked")
    assert [one.accepted for one in report.instances] == [True, True]
    assert report.ok


def test_a_wrong_acceptance_is_called_a_bug():
    wrong = Instance(line=1, accepted=True, valid=False, errors=("no",))
    contract = Contract((ContractEntry(pointer="/type", keyword="type", verdict="enforced"),))
    report = SchemaReport(engine="transformers", contract=contract, hazards=(), instances=(wrong,))
    assert not report.ok
    assert any("BUG" in line for line in page(report))


def test_many_optional_keys_in_reverse_do_not_take_for_ever(compiler):
    names = [f"k{i}" for i in range(60)]
    schema = {"type": "object", "properties": {n: {"type": "null"} for n in names}, "additionalProperties": False}
    document = dict.fromkeys(reversed(names))
    report = held(compiler, schema, document, document | {"zz": None})
    assert [one.accepted for one in report.instances] == [True, False]


def test_lines_that_are_not_json_are_named():
    assert read_instances('1\r\n\n"a"\n', "f") == [(1, "1"), (3, '"a"')]
    for text, words in (
        ("1\n{", "f, line 2: not JSON"),
        ('{"a":1,"a":2}', "line 1: a key occurs twice"),
        ("NaN", "NaN is not JSON"),
        ("[" * 100_000, "nested too deeply"),
    ):
        with pytest.raises(InputError, match=words):
            read_instances(text, "f")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope.json"], "no such file"),
        (['{"type": 1}'], "/type"),
        ([json.dumps(USER), "--instances", "nope.jsonl"], "nope.jsonl"),
        ([json.dumps(USER), "--instances", "bad.jsonl"], "bad.jsonl, line 1"),
        ([json.dumps(USER), "--instances", "good.jsonl", "--engine", "vllm"], "our own engines"),
        (["-", "--instances", "-"], "standard input"),
        ([json.dumps(USER), "--tokenizer", "./nope"], "./nope"),
        ([json.dumps(USER), "--whitespace", "loose"], "loose"),
        ([json.dumps(USER), "--format", "maybe"], "annotate or assert"),
        ([json.dumps(USER), "--order", "age,nme"], "'nme' is no property"),
        ([json.dumps(USER), "--allow", "refused"], "checked"),
    ],
)
def test_a_fault_is_exit_code_2(run, tmp_path, arguments, words):
    (tmp_path / "bad.jsonl").write_text("{x}\n")
    (tmp_path / "good.jsonl").write_text("1\n")
    code, out, err = run(*arguments, stdin="{}")
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


def test_annotations_and_hazards_of_others_on_demand(run):
    schema = json.dumps({"title": "T", "type": "array", "maxItems": 3, "uniqueItems": True, "items": {"enum": [1, 2]}})
    code, out, _ = run(schema)
    assert code == 0
    assert "/title" not in out
    assert "for other engines; --all shows them" in out
    out = run(schema, "--all")[1]
    assert "annotation  /title" in out
    assert "[llama-server]" in out


def test_long_wide_and_unprintable_names_leave_it_80_columns_wide(run):
    name = "漢" * 90 + "\x1b[31m\n"
    schema = {"type": "object", "properties": {name: {"properties": {name: {"type": "string"}}}}, "required": [name]}
    _, out, _ = run(json.dumps(schema), "--all", "--instances", "-", stdin=json.dumps({name: {name: 1}}))
    assert "\x1b" not in out
    assert all(cell_len(line) <= 80 for line in out.splitlines())


def test_shortened_and_wrapped():
    assert middle("abcdefghij", 10) == "abcdefghij"
    assert middle("abcdefghijk", 7) == "abc…ijk"
    assert cell_len(middle("漢" * 30, 11)) <= 11
    assert wrapped("aa bb cccccccc d", 5) == ["aa bb", "ccccc", "ccc d"]
    assert wrapped("", 5) == []


def test_the_masks_of_a_tokenizer(run):
    import espalier.wiring

    folder = espalier.wiring.demo_model()
    out = run(json.dumps(USER), "--tokenizer", folder)[1]
    assert "vocabulary  demo, 2,304 ids" in out


def test_an_unknown_keyword_is_exit_code_1_unless_it_is_allowed(run):
    typo = json.dumps(USER | {"requried": ["name"], "title": "User", "x-order": 1})
    code, out, err = run(typo)
    assert code == 1
    assert "  /requried\n    did you mean `required`?" in out
    assert err == "1 unknown keyword\n"
    code, _, err = run(typo, "--allow-unknown")
    assert (code, err) == (0, "1 unknown keyword (allowed)\n")
    code, out, err = run(typo, "--json")
    assert (code, json.loads(out)["unknown"]) == (
        1,
        [{"pointer": "/requried", "keyword": "requried", "meant": ["required"]}],
    )
    assert "schema: /requried is no keyword" in err
