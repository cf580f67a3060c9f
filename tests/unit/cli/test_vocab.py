"""`espalier vocab`: a vocabulary in 80 columns, every character visible, and the same as JSON."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest
from rich.cells import cell_len

from espalier.cli.vocab import command, reading
from espalier.tokens.analyse import analyse_vocab
from espalier.tokens.vocab import Vocab
from espalier.wiring import demo_model
from tests.tokenizers import byte_level_tokenizer, sentencepiece_model, spm_byte_fallback_tokenizer, tekken_vocab


@pytest.fixture
def run(run, monkeypatch):
    monkeypatch.delenv("ESPALIER_MODEL", raising=False)
    return partial(run, "vocab")


def write(path: Path, config: dict[str, object]) -> Path:
    """A model's folder without weights."""
    path.mkdir()
    (path / "tokenizer.json").write_text(byte_level_tokenizer().to_str(), encoding="utf-8")
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def test_the_summary_of_a_model_says_sizes_ends_categories_and_specials(run):
    code, out, err = run(str(demo_model()))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[1].split() == ["tokens", "2,304"]
    assert lines[2].split() == ["logits", "2,304"]
    assert lines[3].startswith("ends a text     2 <|im_end|>")
    assert any(line.startswith("latin") for line in lines)
    assert lines[-1] == "       2  <|im_end|>"
    assert max(map(len, lines)) <= 80


def test_only_the_tokenizer_is_read(run):
    before = "espalier.engines.huggingface.model" in sys.modules
    assert run("--json", "-m", str(demo_model()))[0] == 0
    assert ("espalier.engines.huggingface.model" in sys.modules) == before


def test_without_a_name_it_is_the_demo_model_and_bytes_is_the_byte_vocabulary(run):
    assert json.loads(run("--json")[1])["name"] == "demo"
    for name in ("bytes", "fake"):
        found = json.loads(run(name, "--json")[1])
        assert (found["width"], found["eos_ids"], found["missing_bytes"]) == (257, [256], [])


def test_bare_files_of_each_kind_are_read(run, tmp_path):
    (tmp_path / "tokenizer.json").write_text(spm_byte_fallback_tokenizer().to_str(), encoding="utf-8")
    (tmp_path / "m.model").write_bytes(sentencepiece_model())
    for name in ("tokenizer.json", "m.model"):
        code, out, _ = run(name, "--json", "--glitches", "--search", "a")
        found = json.loads(out)
        assert (code, found["model_width"], found["name"]) == (0, None, name)
        assert found["search"][0]["encoding"] == found["search"][0]["exact"][1:]  # the first is the byte
    assert "not known" in run("m.model")[1]


@pytest.mark.parametrize(
    ("config", "width", "words"),
    [
        ({"vocab_size": 500}, 500, "500"),
        ({"text_config": {"vocab_size": 500}}, 500, "500"),
        ({"vocab_size": 400}, 422, "400: the model has none for the last 22 ids"),
        ({}, 422, "not known"),
        ([], 422, "not known"),
    ],
)
def test_the_logits_are_those_of_the_config(run, tmp_path, config, width, words):
    folder = write(tmp_path / "model", config)
    found = json.loads(run(str(folder), "--json")[1])
    assert found["width"] == width
    assert found["categories"].get("unused", 0) == width - 422
    assert words in run(str(folder))[1].splitlines()[2]


def test_a_name_on_a_hub_has_its_config_there(monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(reading, "read_vocab", lambda name: Vocab.bytes())
    config = transformers.PreTrainedConfig(vocab_size=300)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda name, **_: config)
    vocab, logits = reading.read("someone/something")
    assert (vocab.width, logits) == (300, 300)


def test_a_search_shows_ids_the_split_and_a_table(run):
    code, out, err = run("--search", "the", "--search", "weatherman", "--limit", "2")
    assert (code, err) == (0, "")
    first, second = out.split("\n\n")
    assert first.splitlines()[:4] == [
        "Search the",
        "  exactly       1144",
        "  with a space  284",
        "  split into    1144 the",
    ]
    assert "     284  latin         20 74 68 65           ␠the" in first
    assert "more; --limit 0 shows all" in first
    assert "487 weather" in second
    assert "  contain it: 0 tokens" in second
    assert "more" not in run("--search", "the", "--limit", "0")[1]


def test_json_has_all_rows_and_what_was_asked(run):
    arguments = ["--search", "THE", "-i", "--category", "digits", "--contains", "0xC3", "--glitches", "--limit", "1"]
    found = json.loads(run(*arguments, "--json")[1])
    assert len(found["search"][0]["containing"]) > 5
    assert [token["text"] for token in found["category"]] == list("0123456789")
    assert all(0xC3 in token["bytes"] for token in found["contains"])
    assert len(found["contains"]) > 5
    assert found["glitches"] == [one.to_json() for one in analyse_vocab(Vocab.from_tokenizer(demo_model())).glitches()]
    assert {"search", "category", "contains", "glitches"}.isdisjoint(json.loads(run("--json")[1]))


def test_glitches_are_shown_with_what_they_are_split_into():
    vocab = Vocab.from_tokens([b"a", b"b", b" ab", b""], eos_ids=[3])
    report = analyse_vocab(vocab, lambda text: [1, 0] if text == " ab" else ["ab".index(text)])
    assert command.glitch_table(report, report.glitches(), 9) == [
        "Not split into themselves: 1 token",
        "       2  its text is changed before it is split  ␠ab",
        "          1 b, 0 a",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" a\n", "␠a\\n"),
        ("\\n", "\\\\n"),
        ("␠", "\\u2420"),
        ("\t\r\x00\x1b", "\\t\\r\\x00\\x1b"),
        ("\u00a0\u200b\u202e", "\\u00a0\\u200b\\u202e"),
        ("\U000e0001", "\\U000e0001"),
        ("\udce2\udc80", "\\xe2\\x80"),
        ("\u0301", "◌\u0301"),
        (" \u0301", "␠◌\u0301"),
        ("e\u0301\u0302", "e\u0301\u0302"),
        ("שלום", "\u2068שלום\u2069"),
    ],
)
def test_every_character_is_visible_and_none_reaches_beyond_its_text(text, shown):
    assert command.visible(text) == shown


def test_what_is_cut_off_leaves_no_direction_behind():
    cut = command.clip(command.visible("שלום" * 20), 10)
    assert (cut.count("\u2068"), cut.count("\u2069"), cell_len(cut)) == (1, 1, 10)


@pytest.mark.slow
def test_every_line_of_a_large_vocabulary_fits_the_terminal():
    vocab = tekken_vocab()
    report = analyse_vocab(vocab)
    ids = range(0, vocab.width, 7)
    lines = [*command.summary(report, None, vocab.width), *command.token_table(report, "x" * 99, ids, vocab.width)]
    assert max(map(cell_len, lines)) <= 80
    assert all(line.isprintable() or {"\u2068", "\u2069"} & set(line) for line in lines)


def test_missing_bytes_are_shown_as_ranges(run, tmp_path):
    assert command.byte_ranges(b"\x00\x01\x02\x7f\xc2\xc3") == "0x00-0x02, 0x7F, 0xC2-0xC3"
    report = analyse_vocab(Vocab.from_tokens([b"a", b"c", b""], eos_ids=[2]))
    lines = command.summary(report, None, 9)
    assert "no token alone: 0x00-0x60, 0x62, 0x64-0xBF," in lines[4]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--search", ""], "the term is empty"),
        (["--contains", ""], "the term is empty"),
        (["--contains", "0xE2 0x8"], "'0x8' at offset 5 is no byte"),
        (["--contains", "\udcff"], "not valid Unicode"),
        (["--category", "lattin"], "did you mean 'latin'?"),
        (["--category", "xyz"], "latin, greek, cyrillic"),
        (["--limit", "-1"], "--limit"),
        (["-i"], "--ignore-case is for --search"),
        (["--model", "bytes"], "give one"),
        (["--glitches"], "not known how bytes splits"),
    ],
)
def test_what_was_asked_wrongly_is_said_and_exit_2(run, arguments, words):
    code, out, err = run("bytes", *arguments)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty"),
        ("./none", "there is no tokenizer ./none"),
        ("empty", "no tokenizer.json or tokenizer.model"),
        ("text.json", "neither"),
        ("tekken.json", "Tekkenizer.from_file"),
    ],
)
def test_what_is_no_tokenizer_is_said_and_exit_2(run, tmp_path, name, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.json").write_text("nothing", encoding="utf-8")
    (tmp_path / "tekken.json").write_text('{"config": {}, "vocab": []}', encoding="utf-8")
    code, out, err = run(name)
    assert (code, out) == (2, "")
    assert words in err


def test_a_file_that_cannot_be_read_is_not_taken_for_a_fault_of_the_output(run, monkeypatch):
    def refuse(name):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reading, "read_vocab", refuse)
    assert run("some.json") == (2, "", "error: cannot read some.json: Permission denied\n")


def test_a_kept_vocabulary_is_read_where_its_model_is_not(run, monkeypatch, tmp_path):
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path / 'kept.db'}")
    folder = write(tmp_path / "model", {"vocab_size": 500})
    code, whole, _ = run(str(folder), "--category", "digits", "--keep")
    assert code == 0
    (folder / "tokenizer.json").unlink()
    [row] = json.loads(run("--kept", "--json")[1])
    assert row["width"] == 500
    name = f"kept:{row['fingerprint'][:8]}"
    assert run(name, "--category", "digits")[:2] == (0, whole)
    assert max(map(len, run("--kept")[1].splitlines())) <= 80
    assert run("--forget", name)[0] == 0
    code, _, err = run(name)
    assert code == 2
    assert "no vocabulary is kept" in err


def test_kept_and_forget_take_no_model(run):
    code, _, err = run("--kept", "-m", "bytes")
    assert code == 2
    assert "take no MODEL" in err
