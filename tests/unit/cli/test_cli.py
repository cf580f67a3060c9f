"""The command on the fake engine: streams, exit codes, and one clear line for every fault."""

import gc
import io
import json
import sys

import pytest

from espalier.cli import main
from espalier.cli.main import main_code
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonObject, JsonSchema
from espalier.constraints.verdict import REPORT

FAKE = ["generate", "-m", "fake"]


def write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return str(path)


def test_data_goes_to_stdout_and_nothing_else(run):
    assert run(*FAKE, "--json-object", "--temperature", "0", "hi") == (
        0,
        '{"name": "Ada Lovelace", "email": "ada@example.org", "age": 36}\n',
        "",
    )


def test_json_prints_the_whole_result_and_is_repeatable(run, tmp_path):
    schema = write(tmp_path / "s.json", {"type": "object", "properties": {"a": {"type": "integer"}}})
    first = run(*FAKE, "--schema", schema, "--seed", "1", "--json", "hi")
    assert first == run(*FAKE, "--schema", schema, "--seed", "1", "--json", "hi")
    result = json.loads(first[1])
    assert result["verdict"]["valid"] is True
    assert result["seed"] == 1
    assert result["usage"]["completion_tokens"] == result["trace"]["total_steps"]


def test_a_dash_and_a_pipe_read_stdin_without_the_last_newline(run):
    for arguments in (["-"], []):
        code, out, _ = run(*FAKE, "--choice", "yes", "--json", *arguments, stdin="a question\n")
        assert code == 0
        # The fake engine sees `user: ...`, a newline, and one token that ends the prompt.
        assert json.loads(out)["usage"]["prompt_tokens"] == len("user: a question\n") + 1


def test_each_constraint_flag_constrains(run, tmp_path):
    assert run(*FAKE, "--choice", "yes", "hi")[1] == "yes\n"
    assert run(*FAKE, "--regex", "[0-9]{4}", "--seed", "0", "hi")[1].strip().isdigit()
    grammar = write(tmp_path / "g.gbnf", 'root ::= "ab" | "ab" root\n')
    assert set(run(*FAKE, "--grammar", grammar, "--seed", "0", "hi")[1].strip()) == {"a", "b"}


def test_both_kinds_of_trace_are_written(run, tmp_path):
    for name in ("t.html", "t.json"):
        code, _, err = run(*FAKE, "--json-object", "--trace", name, "hi")
        assert (code, err) == (0, f"trace: {name}\n")
    assert json.loads((tmp_path / "t.json").read_text())["format"] == "espalier-trace"
    assert "<html" in (tmp_path / "t.html").read_text()


def test_a_cut_answer_is_said_and_is_a_failure_under_a_constraint(run):
    code, out, err = run(*FAKE, "--json-object", "--temperature", "0", "--max-tokens", "5", "hi")
    assert (code, out) == (1, '{"nam\n')
    assert "limit of 5 tokens" in err
    assert "not valid" in err


FAULTS = {
    "a missing schema": (["--schema", "nope.json", "hi"], "nope.json: there is no such file"),
    "a schema that is not JSON": (["--schema", "broken.json", "hi"], "line 2, column 1"),
    "a schema with a key twice": (["--schema", "twice.json", "hi"], "'a' occurs twice"),
    "a schema that is not one": (["--schema", "bad.json", "hi"], "at /properties/a/type"),
    "a schema that cannot be enforced": (["--schema", "hard.json", "hi"], "/properties/a/pattern"),
    "a schema nothing satisfies": (["--schema", "empty.json", "hi"], "no document can satisfy"),
    "a bad regex": (["--regex", "ab(c", "hi"], "offset 2: ab^(c"),
    "a regex with look-ahead": (["--regex", "a(?=b)", "hi"], "look-ahead cannot be enforced, at offset 1"),
    "a regex that ends in a backslash": (["--regex", "a\\", "hi"], "offset 1"),
    "a regex that matches nothing": (["--regex", r"[^\s\S]", "hi"], "no text matches"),
    "a choice that is not UTF-8": (["--choice", "\udcff", "hi"], "not valid Unicode"),
    "a regex that is not UTF-8": (["--regex", "\udcff", "hi"], "not valid Unicode"),
    "a prompt that is not UTF-8": (["\udcff"], "not valid Unicode"),
    "a system text that is not UTF-8": (["--system", "\udcff", "hi"], "not valid Unicode"),
    "a schema with a $schema that is no string": (["--schema", "five.json", "hi"], "at /$schema"),
    "a schema that requires itself": (["--schema", "endless.json", "hi"], "without end at the top"),
    "a reference to nothing": (["--schema", "nowhere.json", "hi"], "at /properties/a/$ref"),
    "a reference to another document": (["--schema", "remote.json", "hi"], "/properties/a/$ref"),
    "whitespace without JSON": (["--regex", "a", "--whitespace", "compact", "hi"], "--whitespace is for"),
    "a device the fake engine has not": (["--device", "cuda", "hi"], "the fake engine takes no device"),
    "a model without a name": (["-m", "", "hi"], "empty"),
    "a missing grammar": (["--grammar", "nope.gbnf", "hi"], "nope.gbnf: No such file"),
    "a bad grammar": (["--grammar", "bad.gbnf", "hi"], "line 2"),
    "constraints that contradict": (["--json-object", "--regex", "a", "hi"], "--regex and --json-object"),
    "max tokens 0": (["--max-tokens", "0", "hi"], "--max-tokens: 0 must be at least 1"),
    "max tokens that is no number": (["--max-tokens", "many", "hi"], "--max-tokens"),
    "a temperature below 0": (["--temperature", "-1", "hi"], "temperature"),
    "a temperature that is not a number": (["--temperature", "nan", "hi"], "not a finite number"),
    "whitespace of another kind": (["--json-object", "--whitespace", "wide", "hi"], "wide"),
    "an empty prompt": (["  "], "prompt is empty"),
    "a prompt longer than the context": (
        ["x" * 5000],
        "maximum context length is 4096 tokens: the prompt has 5008 tokens",
    ),
    "a trace of an unknown kind": (["--trace", "t.pdf", "hi"], ".html or .json"),
    "a trace in a folder that cannot be made": (["--trace", "bad.gbnf/t.html", "hi"], "cannot be made"),
    "a trace that is a folder": (["--trace", "folder.html", "hi"], "is a folder"),
    "an unknown flag": (["--nope", "hi"], "--nope"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_line_and_exit_code_2(run, tmp_path, fault):
    write(tmp_path / "broken.json", '{"a": 1\n')
    write(tmp_path / "twice.json", '{"a": 1, "a": 2}')
    write(tmp_path / "bad.json", {"type": "object", "properties": {"a": {"type": "strng"}}})
    write(tmp_path / "hard.json", {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(a*)b\1$"}}})
    write(tmp_path / "five.json", {"$schema": 5})
    for name, target in (("endless", "#"), ("nowhere", "#/nope"), ("remote", "https://example.org/s.json")):
        properties = {"a": {"$ref": target}}
        write(tmp_path / f"{name}.json", {"type": "object", "properties": properties, "required": ["a"]})
    write(tmp_path / "empty.json", {"type": "integer", "minimum": 5, "maximum": 3})
    write(tmp_path / "bad.gbnf", 'root ::= "a"\nb = "c"\n')
    (tmp_path / "folder.html").mkdir()
    arguments, words = FAULTS[fault]
    code, out, err = run(*FAKE, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 2  # the error, and perhaps a hint
    assert not list(tmp_path.glob("t.*")), "something was half written"


def test_input_that_is_not_utf8_is_one_line(run, monkeypatch):
    broken = io.TextIOWrapper(io.BytesIO(b"h\xff\n"), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", broken)
        assert main_code([*FAKE, "-"]) == 2
    _, _, err = run("doctor")
    assert "not UTF-8 at byte 1" in err


def test_a_trace_may_be_named_from_home_and_in_capitals(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(*FAKE, "--choice", "yes", "--trace", "~/t.HTML", "hi")[0] == 0
    assert (tmp_path / "t.HTML").is_file()


def test_a_grammar_that_was_cut_is_a_failure(run, tmp_path):
    grammar = write(tmp_path / "g.gbnf", 'root ::= "abcdef"')
    code, out, err = run(*FAKE, "--grammar", grammar, "--max-tokens", "2", "hi")
    assert (code, out) == (1, "ab\n")
    assert "cut before it was complete" in err


def test_an_unknown_model_and_command_are_one_line_and_a_hint(run):
    code, _, err = run("generate", "-m", "no/such/model.gguf", "hi")
    assert (code, [line.split(":")[0] for line in err.splitlines()]) == (2, ["error", "hint"])
    code, _, err = run("nope")
    assert (code, len(err.splitlines())) == (2, 1)


def test_a_misspelt_setting_is_not_ignored(run, monkeypatch):
    from espalier import api

    monkeypatch.setenv("ESPALIER_MODLE", "x")
    api.default_app.cache_clear()
    code, _, err = run(*FAKE, "hi")
    api.default_app.cache_clear()
    assert code == 2
    assert "ESPALIER_MODLE" in err


def test_version_and_doctor(run):
    assert run("--version")[1].startswith("espalier ")
    code, out, _ = run("doctor", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["engines"]["fake"]["can_run"] is True
    install = found["extras"]["llamacpp"]["install"]  # '.' or the clone's folder, from wherever it is asked
    assert install.startswith("pip install -e '")
    assert install.endswith("[llamacpp]'")
    text = run("doctor")[1]
    assert max(map(len, text.splitlines()[1:])) <= 80
    assert "Engines" in text


def test_the_program_ends_with_the_code_and_without_a_last_look_for_cycles(monkeypatch):
    """In all that a model needs to be imported, that look took a second and more."""
    done = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main.run(["no-such-command"])
    assert (ended.value.code, done) == (2, ["freeze"])


def test_chat_keeps_a_conversation_and_switches_the_constraint(run, tmp_path):
    lines = [
        "hello",
        "/choice yes no",
        "again",
        "/nope",
        "/regex (a",
        '/choice "a',
        "/free",
        "/trace c.json",
        "/help",
        "/quit",
        "never",
    ]
    code, out, err = run("chat", "-m", "fake", "--temperature", "0", stdin="\n".join(lines))
    assert code == 0
    answers = out.splitlines()
    assert len(answers) == 2  # data only: the two answers
    assert answers[0].startswith("Sure! Here is the JSON")
    assert answers[1] in ("yes", "no")
    for words in (
        "constraint: choice",
        "there is no /nope",
        "never closed",
        "cannot be read",
        "constraint: none",
        "trace: c.json",
    ):
        assert words in err
    assert json.loads((tmp_path / "c.json").read_text())["metadata"]["prompt"].count("user: ") == 2


@pytest.fixture
def planted(monkeypatch):
    """A matcher that is compiled from JSON mode, whatever schema was asked for."""
    compile_rightly = Compiler.compile

    def compile_loosely(self, spec, **more):
        return compile_rightly(self, JsonObject() if isinstance(spec, JsonSchema) else spec, **more)

    monkeypatch.setattr(Compiler, "compile", compile_loosely)


def test_a_text_that_breaks_what_was_enforced_is_reported_as_a_fault(run, tmp_path, planted):
    schema = {"type": "object", "properties": {"name": {"type": "integer"}}}
    path, name = write(tmp_path / "s.json", schema), JsonSchema(schema).fingerprint
    code, _, err = run(*FAKE, "--schema", path, "--temperature", "0", "--trace", "t.json", "hi")
    assert code == 1
    assert f"that was called enforced: {REPORT} (constraint {name})" in err
    assert json.loads((tmp_path / "t.json").read_text())["metadata"]["verdict"]["breaks"] == "enforced"
    assert f"that was called enforced: {REPORT}" in " ".join(run("trace", "show", "t.json")[1].split())
    code, out, _ = run("explain", "-m", "fake", "--schema", path, "--temperature", "0", "hi")
    assert code == 1
    assert "this was called enforced: a fault of Espalier or the engine, report it" in out
    code, out, _ = run("explain", "-m", "fake", "--schema", path, "--temperature", "0", "--json", "hi")
    assert json.loads(out)["verdict"]["breaks"] == "enforced"
    cases = [{"name": "c", "prompt": "hi", "json_schema": schema, "config": {"temperature": 0}}]
    code, out, err = run("test", "-m", "fake", write(tmp_path / "cases.json", cases))
    assert code == 1
    assert "this is a fault of the engine or of Espalier" in out + err


def test_a_text_that_breaks_what_is_only_checked_is_none_of_espaliers_faults(run, tmp_path):
    schema = {"type": "object", "properties": {"name": {"type": "string", "pattern": r"^(a+)\1$"}}}
    path = write(tmp_path / "s.json", schema)
    code, _, err = run(*FAKE, "--schema", path, "--allow-checked", "--temperature", "0", "hi")
    assert code == 1
    assert "not valid" in err
    assert "enforced" not in err
    out = run("explain", "-m", "fake", "--schema", path, "--allow-checked", "--temperature", "0", "hi")[1]
    assert "this is only checked, not enforced" in out
