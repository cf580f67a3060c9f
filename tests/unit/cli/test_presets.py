"""`espalier presets`, and `--preset` and `-o` where text is generated."""

import json
import re

import pytest

from espalier.cli.flags.sampling import read_fields
from espalier.errors import InputError, SamplingError
from espalier.sampling.presets.catalogue import BUILTIN

FAKE = ["generate", "-m", "fake"]


@pytest.fixture(autouse=True)
def own_configuration(monkeypatch, tmp_path):
    monkeypatch.setenv("ESPALIER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path}/a.db")


def test_add_list_show_remove(run, tmp_path):
    code, out, err = run(
        "presets", "add", "mine", "--like", "json_strict", "-o", "temperature", "0.9", "--description", "My own"
    )
    path = tmp_path / "config" / "presets" / "mine.toml"
    assert (code, out, err) == (0, "", f"wrote {path}\n")
    code, out, _ = run("presets", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:] if line] == [*BUILTIN, "mine", "*"]
    assert max(map(len, out.splitlines())) <= 80
    assert "My own" in out
    assert "unusable" not in out
    shown = run("presets", "show", "mine")
    assert shown[0] == 0
    assert "temperature = 0.9" in shown[1]
    told = json.loads(run("presets", "show", "mine", "--json")[1])
    assert told["config"] == BUILTIN["json_strict"].to_json()["config"] | {"temperature": 0.9}
    (tmp_path / "copy.toml").write_text(shown[1])
    assert run("presets", "add", "copy.toml")[0] == 0
    assert run("presets", "show", "copy")[1] == shown[1]
    assert run("presets", "remove", "copy")[2] == f"removed {path.with_name('copy.toml')}\n"
    assert run("presets", "remove", "mine")[0] == 0
    assert not path.exists()
    assert run("presets", "remove", "mine")[0] == 2
    assert run("presets", "path")[1] == f"{path.parent}\n"


def test_list_as_json_says_what_cannot_be_used(run, tmp_path):
    folder = tmp_path / "config" / "presets"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("x = \n")
    (folder / "not a name.toml").write_text("")
    (folder / "creative.toml").write_text("")
    rows = {row["name"]: row for row in json.loads(run("presets", "list", "--json")[1])}
    assert rows["deterministic"]["problem"] is None
    assert rows["deterministic"]["source"] == "built-in"
    assert rows["code_generation"]["problem"] is None
    assert "line 1" in rows["broken"]["problem"]
    assert "no name of a preset" in rows["not a name"]["problem"]
    assert "comes with Espalier" in rows["creative"]["problem"]
    assert run("presets", "list")[0] == 0


def test_add_reads_json_and_flags(run, tmp_path):
    (tmp_path / "theirs.json").write_text(json.dumps(BUILTIN["tool_call"].to_json() | {"name": "calls"}))
    assert run("presets", "add", "theirs.json")[0] == 0
    assert json.loads(run("presets", "show", "calls", "--json")[1])["grammar"] == "@tool_call"
    assert run("presets", "add", "user", "--schema", "name, age int", "-o", "top_k=3", "-o", "stop", "END")[0] == 0
    told = json.loads(run("presets", "show", "user", "--json")[1])
    assert told["config"] == {"top_k": 3, "stop": ["END"]}
    assert list(json.loads(told["json_schema"])["properties"]) == ["name", "age"]
    (tmp_path / "g.gbnf").write_text('root ::= "x"\n')
    assert run("presets", "add", "g", "--like", "tool_call", "--grammar", "g.gbnf")[0] == 0
    told = json.loads(run("presets", "show", "g", "--json")[1])
    assert (told["grammar"], told["filters"]) == ('root ::= "x"\n', [])
    assert run("generate", "-m", "fake", "--preset", "g", "hi")[:2] == (0, "x\n")


def test_add_names_the_start_rule_of_a_grammar(run, tmp_path):
    (tmp_path / "g.gbnf").write_text('root ::= "x"\nitem ::= "y"\n')
    assert run("presets", "add", "g", "--grammar", "g.gbnf", "--root", "item")[0] == 0
    assert run("generate", "-m", "fake", "--preset", "g", "hi")[:2] == (0, "y\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "creative"], "comes with Espalier"),
        (["add", "../x"], "no name of a preset"),
        (["add", "a b"], "no name of a preset"),
        (["add", "mine", "--like", "nope"], "there is no preset 'nope'"),
        (["add", "mine", "-o", "temperature", "hot"], "temperature: 'hot'"),
        (["add", "mine", "-o", "heat", "1"], "-o heat: there is no such field"),
        (["add", "mine", "--grammar", "@json", "--schema", "a"], "a grammar and a schema"),
        (["add", "mine", "--grammar", "@nope"], "nope"),
        (["add", "mine", "--root", "item"], "--root needs --grammar"),
        (["add", "mine", "--grammar", "@json", "--root", "nope"], "there is no rule named 'nope'"),
        (["add", "missing.toml"], "cannot read"),
        (["add", "bad.toml"], "line 1"),
        (["add", "bad.json"], "line 1"),
        (["add", "list.json"], "a preset is a mapping"),
        (["add", "bad.toml", "-o", "top_k", "1"], "-o is for a preset by name, and bad.toml is a file"),
        (["show", "nope"], "there is no preset"),
        (["remove", "creative"], "cannot be removed"),
    ],
)
def test_every_fault_is_one_line(run, tmp_path, arguments, words):
    (tmp_path / "bad.toml").write_text("=")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    code, out, err = run("presets", *arguments)
    assert (code, out) == (2, "")
    assert words in err.splitlines()[0]


def test_a_preset_is_not_overwritten_unasked(run):
    assert run("presets", "add", "mine", "-o", "top_k", "1")[0] == 0
    code, _, err = run("presets", "add", "mine", "-o", "top_k", "2")
    assert code == 2
    assert "--force" in err
    assert run("presets", "add", "mine", "-o", "top_k", "2", "--force")[0] == 0
    assert "top_k = 2" in run("presets", "show", "mine")[1]


def sampling(run, tmp_path, *arguments):
    assert run(*FAKE, "--trace", "t.json", "--seed", "1", *arguments, "hi")[0] == 0
    return json.loads((tmp_path / "t.json").read_text())["metadata"]["sampling"]


def test_generate_takes_a_preset_and_what_is_given_replaces_its_fields(run, tmp_path):
    code, out, _ = run(*FAKE, "--preset", "tool_call", "-o", "top_k", "20", "Read the file /etc/hosts")
    assert code == 0
    assert list(json.loads(out)) == ["name", "args"]
    used = sampling(run, tmp_path, "--preset", "json_strict", "-o", "top_k", "20", "--temperature", "0", "-o", "n=1")
    assert used == BUILTIN["json_strict"].sampling.to_json() | {"top_k": 20, "temperature": 0.0, "seed": 1}
    assert run(*FAKE, "--preset", "json_strict", "--choice", "yes", "hi")[1] == "yes\n"


def test_without_a_preset_the_defaults_are_the_config_s(run, tmp_path):
    used = sampling(run, tmp_path, "--json-object")
    assert (used["temperature"], used["top_k"], used["top_p"], used["min_p"]) == (0.7, 40, 0.95, 0.05)
    out = run("generate", "--help")[1]
    for words in ("Default: 0.7", "Default: 40", "Default: 0.95", "Default: 0.05", "Default: 2048"):
        assert words in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--safety", "strikt"], "did you mean 'strict'"),
        (["--preset", "nope"], "there is no preset 'nope'"),
        (["--preset", "../x"], "no name of a preset"),
        (["-o", "top_q", "1"], "-o top_q: there is no such field"),
        (["-o", "top_k", "-3"], "--top-k"),
        (["-o", "n", "2"], "one answer, not 2"),
        (["-o", "temperature", "1", "--temperature", "2"], "temperature is given twice"),
        (["-o", "top_k", "1", "-o", "top_k", "2"], "--top-k is given twice"),
    ],
)
def test_what_is_wrong_is_said_before_the_model_is_loaded(run, arguments, words):
    code, out, err = run("generate", "-m", "no/such/model", *arguments, "hi")
    assert (code, out) == (2, "")
    assert words in err


def test_an_override_without_a_value_and_one_after_the_end_of_options(run):
    assert "-o top_k needs a value" in run(*FAKE, "hi", "-o", "top_k")[2]
    assert run(*FAKE, "hi", "-o")[0] == 2
    assert run(*FAKE, "--choice", "-o", "hi")[1] == "-o\n"
    assert run(*FAKE, "--choice", "x", "--", "-o")[:2] == (0, "x\n")


def test_values_are_json_where_they_are():
    assert read_fields(
        ["top_k=20", "stop=END", 'bad_words=["a", "b"]', "seed=null", 'logit_bias={"5": -1}', "ignore_eos=true"]
    ) == {
        "top_k": 20,
        "stop": "END",
        "bad_words": ["a", "b"],
        "seed": None,
        "logit_bias": {"5": -1},
        "ignore_eos": True,
    }
    assert read_fields(["stop=5", "sampler_order=[]"], top_k=0) == {"stop": "5", "sampler_order": [], "top_k": 0}
    with pytest.raises(SamplingError):
        read_fields(["=5"])
    with pytest.raises(InputError):
        read_fields(["top_k"])


def test_chat_takes_a_preset(run):
    code, out, err = run("chat", "-m", "fake", "--preset", "json_strict", "--temperature", "0", stdin="hi\n/free\nhi\n")
    assert code == 0
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["Ada Lovelace"] * 2
    assert "constraint: the preset's" in err
    assert run("chat", "-m", "fake", "--preset", "safe_chat", stdin="hi\n")[0] == 0


def test_one_bad_file_broke_the_list(run, tmp_path, monkeypatch):
    folder = tmp_path / "config" / "presets"
    folder.mkdir(parents=True)
    (folder / "dated.toml").write_text("[config]\nlogit_bias = 2026-01-31\n")
    (folder / "five.toml").write_text("[[filters]]\ntype = 'token_ban'\noptions = { ids = 5 }\n")
    (folder / "folder.toml").mkdir()
    (folder / "bytes.toml").write_bytes(b"x = '\xff'")
    (folder / "good.toml").write_text("description = 'Good'\n")
    code, out, _ = run("presets", "list")
    assert code == 0
    for name in ("dated", "five", "bytes", "folder"):
        assert re.search(rf"^{name} .*unusable: ", out, re.MULTILINE)
    assert "Good" in out

    def fail(_):
        raise ZeroDivisionError("nobody expects it")

    monkeypatch.setattr("espalier.api.preset_rows.preset_parts", fail)
    code, out, _ = run("presets", "list")
    assert code == 0
    assert "unusable: ZeroDivisionError: nobody expects it" in out


def test_the_list_wrote_controls_and_paths(run, tmp_path):
    folder = tmp_path / "config" / "presets"
    folder.mkdir(parents=True)
    (folder / "a\x1b[31mb.toml").write_text("")
    (folder / "own.toml").write_text('description = "red \\u001b[31m\\u0007\\u009b two\\nlines"')
    (folder / "broken.toml").write_text("[config]\ntemperature = -1\n")
    (folder / "bad.toml").write_text("x =\n")
    code, out, _ = run("presets", "list")
    assert code == 0
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in out.replace("\n", ""))
    assert "a\\x1b[31mb" in out
    assert "red \\x1b[31m\\x07\\u009b two\\nlines" in out
    assert "unusable: temperature: -1" in out
    assert "unusable: is not TOML" in out
    assert str(folder) not in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_file_named_as_a_built_in_preset_made_that_one_unusable(run, tmp_path):
    folder = tmp_path / "config" / "presets"
    folder.mkdir(parents=True)
    (folder / "creative.toml").write_text("")
    out = run("presets", "list")[1]
    lines = [line for line in out.splitlines() if line.startswith("creative")]
    assert "Free writing" in lines[0]
    assert "unusable: has the name of one that comes" in lines[1]
    assert run(*FAKE, "--preset", "creative", "--max-tokens", "3", "--choice", "x", "hi")[:2] == (0, "x\n")
    assert run("presets", "remove", "creative")[0] == 0
    assert run("presets", "list")[1].count("creative") == 1
    assert "cannot be removed" in run("presets", "remove", "creative")[2]


def test_an_invalidly_named_file_could_not_be_removed(run, tmp_path):
    folder = tmp_path / "config" / "presets"
    folder.mkdir(parents=True)
    (folder / "not a name.toml").write_text("")
    assert run("presets", "remove", "not a name")[0] == 0
    assert list(folder.iterdir()) == []
    assert run("presets", "remove", "../presets/x")[0] == 2


def test_a_ban_was_lost_between_show_and_add(run, tmp_path):
    theirs = {"name": "a", "filters": [{"type": "logit_bias", "options": {"biases": {"7": None, "8": 1}}}]}
    (tmp_path / "a.json").write_text(json.dumps(theirs))
    assert run("presets", "add", "a.json")[0] == 0
    shown = json.loads(run("presets", "show", "a", "--json")[1])
    assert shown["filters"][0]["options"] == {"biases": [[7, None], [8, 1.0]]}
    (tmp_path / "b.json").write_text(json.dumps(shown | {"name": "b"}))
    assert run("presets", "add", "b.json")[0] == 0
    assert run("presets", "show", "b")[1] == run("presets", "show", "a")[1]
    assert "-inf" in run("presets", "show", "b")[1]


def test_add_did_not_read_stdin(run, tmp_path):
    assert run("presets", "add", "-", stdin='name = "one"\n[config]\ntop_k = 3\n')[0] == 0
    assert run("presets", "add", "-", stdin='{"name": "two", "config": {"top_k": 4}}')[0] == 0
    assert "top_k = 3" in run("presets", "show", "one")[1]
    assert "top_k = 4" in run("presets", "show", "two")[1]
    for text, words in (
        ("top_k = 3", "needs a `name`"),
        ("{}", "needs a `name`"),
        ("{", "standard input is not JSON"),
        ("=", "standard input is not TOML"),
        ('name = "../x"', "no name of a preset"),
    ):
        code, _, err = run("presets", "add", "-", stdin=text)
        assert code == 2
        assert words in err
    assert "-o is for a preset by name" in run("presets", "add", "-", "-o", "top_k", "1", stdin="")[2]


def test_no_built_in_preset_could_be_combined_with_mirostat(run, tmp_path):
    used = sampling(run, tmp_path, "--preset", "creative", "-o", "mirostat", "2", "--max-tokens", "3")
    assert (used["mirostat"], used["top_k"], used["temperature"]) == (2, 0, 0.8)
    assert run("presets", "add", "mine", "--like", "creative", "-o", "mirostat", "2")[0] == 0
    config = json.loads(run("presets", "show", "mine", "--json")[1])["config"]
    assert config["mirostat"] == 2
    assert "top_k" not in config
    code, _, err = run("presets", "add", "yours", "--like", "creative", "-o", "mirostat", "2", "-o", "top_k", "3")
    assert code == 0
    assert "mirostat takes the place of top_k, which has no effect" in err


def test_chat_had_no_overrides(run):
    code, out, _ = run("chat", "-m", "fake", "--choice", "x", "-o", "top_k", "3", "-o", "temperature=0", stdin="hi\n")
    assert (code, out) == (0, "x\n")
    assert "top_q: there is no such field" in run("chat", "-m", "fake", "-o", "top_q", "3")[2]
    assert "given twice" in run("chat", "-m", "fake", "--top-k", "3", "-o", "top_k", "3")[2]


def test_a_chat_says_once_what_takes_the_place_of_a_preset_s_form(run):
    lines = "hi\n/choice yes no\nhi\nhi\n/free\nhi\n"
    code, _, err = run("chat", "-m", "fake", "--preset", "json_strict", stdin=lines)
    assert code == 0
    assert err.count("json_object of the preset 'json_strict' is replaced by the request's choice") == 1
    err = run("chat", "-m", "fake", "--preset", "safe_chat", "-o", "max_tokens", "3", stdin="hi\nhi\n")[2]
    assert err.count("safety: violence: nothing is enforced") == 1


def test_a_preset_in_the_store_is_listed_shown_used_and_removed(run, tmp_path):
    assert run("presets", "list")[0] == 0
    assert not (tmp_path / "a.db").exists()  # nothing is made to look
    code, out, err = run("presets", "add", "shared", "--store", "-o", "temperature", "0", "--description", "Ours")
    assert (code, out, err) == (0, "", f"wrote shared to {tmp_path / 'a.db'}\n")
    assert not (tmp_path / "config").exists()
    row = next(one for one in json.loads(run("presets", "list", "--json")[1]) if one["name"] == "shared")
    assert (row["source"], row["problem"], row["config"]) == ("store", None, {"temperature": 0.0})
    out = run("presets", "list")[1]
    assert re.search(r"^shared +\+ +0 ", out, re.MULTILINE)
    assert "+ your own, in the store" in out
    assert "temperature = 0.0" in run("presets", "show", "shared")[1]
    assert run(*FAKE, "--preset", "shared", "--max-tokens", "2", "Hi")[0] == 0
    assert run("presets", "add", "shared", "--store")[0] == 2
    assert run("presets", "add", "shared", "--store", "--force", "-o", "temperature", "1")[0] == 0
    assert "temperature = 1.0" in run("presets", "show", "shared")[1]
    assert run("presets", "remove", "shared")[2] == f"removed shared from {tmp_path / 'a.db'}\n"
    assert run("presets", "remove", "shared")[0] == 2
    assert run(*FAKE, "--preset", "shared", "Hi")[0] == 2
    assert run("presets", "add", "creative", "--store")[0] == 2


def test_a_name_that_a_file_and_the_store_have_is_refused_and_if_it_is_there_told(run, tmp_path):
    run("presets", "add", "both", "--store", "-o", "temperature", "0")
    code, _, err = run("presets", "add", "both", "-o", "temperature", "1")
    assert (code, "the store has a preset 'both', which a file would hide" in err) == (2, True)
    folder = tmp_path / "config" / "presets"
    folder.mkdir(parents=True)
    (folder / "both.toml").write_text("[config]\ntemperature = 1\n")
    assert run("presets", "add", "both", "--store", "--force")[0] == 2
    rows = [one for one in json.loads(run("presets", "list", "--json")[1]) if one["name"] == "both"]
    assert [(one["source"], one["problem"] is None) for one in rows] == [
        (str(folder / "both.toml"), True),
        ("store", False),
    ]
    assert "temperature = 1" in run("presets", "show", "both")[1]  # the file counts
    assert "hidden by" in run("presets", "list")[1]


def test_a_store_that_is_no_database_hides_no_file_and_is_told(run, tmp_path):
    (tmp_path / "a.db").write_text("no database, but a text that is long enough" * 40)
    assert run("presets", "show", "creative")[0] == 0
    code, _, err = run("presets", "show", "elsewhere")
    assert (code, "is not a database" in err) == (2, True)
