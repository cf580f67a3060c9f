"""Files are read within limits, and what is no file does not hang."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from espalier.cli.main import main_code
from espalier.errors import InputError, TooLarge
from espalier.files import reading
from espalier.files.json_shape import check_shape
from espalier.files.limits import SCHEMA, TEXT, WORDS, FileLimits
from espalier.files.reading import open_file, read_bytes, read_text

SMALL = FileLimits(noun="note", bytes=10, depth=3, values=5)


def test_a_file_of_the_limit_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a" * 10)
    assert read_bytes(path, SMALL) == b"a" * 10
    path.write_bytes(b"a" * 11)
    with pytest.raises(TooLarge, match=r"the note .*/x is larger than 10 bytes \(11 bytes\)") as caught:
        read_bytes(path, SMALL)
    assert caught.value.field == "note"


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole, which takes no room
    with pytest.raises(TooLarge):
        read_bytes(path, TEXT)


@pytest.mark.parametrize(
    ("content", "text"), [(b"\xef\xbb\xbfab", "ab"), (b"a\r\nb\rc\n", "a\nb\nc\n"), (b"\0", "\0"), (b"", "")]
)
def test_marks_and_line_ends(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    assert read_text(path, SMALL) == text


def test_what_is_not_utf8_is_named_with_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"ab\xff")
    with pytest.raises(InputError, match="is not UTF-8 at byte 2"):
        read_text(path, SMALL)


@pytest.mark.parametrize("name", ["missing", "a\0b", "x" * 5000])
def test_a_name_that_names_nothing_is_one_short_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot read the note") as caught:
        read_bytes(f"{tmp_path}/{name}", SMALL)
    assert len(str(caught.value)) < 600


def test_devices_and_folders_are_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/zero")
    for path, why in ((link, "it is a device"), (tmp_path, "Is a directory")):
        with pytest.raises(InputError, match=why):
            read_bytes(path, TEXT)
    assert read_bytes(os.devnull, TEXT) == b""


def test_a_pipe_without_a_writer_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_SECONDS", 0.05)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(InputError, match="nothing came from this pipe"):
        read_bytes(path, TEXT)


def test_a_pipe_with_a_writer_is_read_and_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"0123456789"))
    writer.start()
    with open_file(path, SMALL) as file:
        assert [file.read(), file.seek(0), file.read()] == [b"0123456789", 0, b"0123456789"]
    writer.join()
    writer = threading.Thread(target=lambda: path.write_bytes(b"01234567890"))
    writer.start()
    with pytest.raises(TooLarge):
        read_bytes(path, SMALL)
    writer.join()


FILE_COMMANDS = [
    ["trace", "show", "{}"],
    ["trace", "html", "{}", "-"],
    ["trace", "diagnose", "{}"],
    ["trace", "export", "{}"],
    ["trace", "replay", "{}"],
    ["trace", "diff", "{}", "{}"],
    ["trace", "merge", "{}", "{}"],
    ["trace", "merge", "--estimate", "{}", "-"],
    ["vocab", "{}"],
    ["check", "{}"],
    ["check", "a", "--instances", "{}"],
    ["check", "a", "--tokenizer", "{}"],
    ["grammar", "check", "{}"],
    ["grammar", "convert", "{}"],
    ["wordlist", "check", "{}", "--lang", "es"],
    ["wordlist", "check", "{}", "--words", "{}"],
    ["safety", "check", "x", "--list", "profanity={}"],
    ["presets", "add", "{}.toml"],
    ["presets", "add", "{}.json"],
    ["generate", "x", "-m", "fake", "--schema", "{}"],
    ["generate", "x", "-m", "fake", "--grammar", "{}"],
    ["generate", "x", "-m", "fake", "--constraint", "{}"],
    ["generate", "x", "-m", "fake", "--tools", "{}"],
    ["generate", "x", "-m", "{}.gguf"],
    ["config", "show", "--env-file", "{}"],
]


@pytest.mark.parametrize("arguments", FILE_COMMANDS, ids=lambda one: " ".join(one[:3]))
def test_no_command_hangs_on_a_device_or_a_pipe(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reading, "FIRST_SECONDS", 0.02)
    monkeypatch.chdir(tmp_path)
    for place, make in (("pipe", os.mkfifo), ("zero", lambda path: os.symlink("/dev/zero", path))):
        for suffix in ("", ".toml", ".json", ".gguf"):
            make(str(tmp_path / f"{place}{suffix}"))
        assert stat.S_ISREG((tmp_path / place).stat().st_mode) is False
        code = main_code([one.replace("{}", str(tmp_path / place)) for one in arguments])
        shown = capsys.readouterr()
        assert code in (1, 2), shown
        assert "error: " in shown.err
        assert len(shown.err) < 2000


def test_json_is_looked_at_before_it_is_parsed() -> None:
    check_shape('{"a": [1, {"b": "[[[[[[[[,,,,,,,,,,"}]}' + " " * 64, SMALL, "x")
    with pytest.raises(TooLarge, match="the note x is nested too deeply: more than 3 levels"):
        check_shape("[[[[1]]]]" + " " * 64, SMALL, "x")
    with pytest.raises(TooLarge, match="x has 7 values, and the limit is 5"):
        check_shape("[1, 2, 3, 4, 5, 6]" + " " * 64, SMALL, "x")
    with pytest.raises(TooLarge, match="values"):
        check_shape("[],[]," * 3_000_000, SCHEMA, "bomb")
    with pytest.raises(TooLarge, match="nested too deeply"):
        check_shape("[" * 500_000 + "]" * 500_000, SCHEMA, "bomb")


def test_a_dotted_key_of_a_hundred_thousand_parts_is_refused() -> None:
    from espalier.sampling.presets.files import parse_preset

    with pytest.raises(TooLarge, match="mine has a key of more than 200 parts at line 2"):
        parse_preset("\na" + ".a" * 250_000 + " = 1", name="mine", source="mine")
    shown = 'description = "' + "." * 900 + '"'
    assert parse_preset(shown, name="mine", source="mine").description == "." * 900


def test_a_word_list_has_a_limit_on_its_words(tmp_path: Path) -> None:
    from espalier.lexicon.files import read_words

    path = tmp_path / "es.txt"
    path.write_text("de\n" + "x" * 1001 + "\n", encoding="utf-8")
    with pytest.raises(TooLarge, match=r"line 2 of .* has more than 1000 characters"):
        read_words(path)
    assert WORDS.error is not InputError
