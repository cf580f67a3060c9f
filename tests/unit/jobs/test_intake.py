"""Lines and items of an input at the exact limits of their number, in pieces of every size."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from espalier.jobs import intake
from espalier.jobs.intake import LineReader, ListReader, Refused, parse
from espalier.jobs.values import InputFault

ROUTE = "/v1/completions"


def lines(count: int) -> bytes:
    rows = [{"custom_id": f"c{n}", "method": "POST", "url": ROUTE, "body": {}} for n in range(count)]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def codes(content: bytes, most: int) -> list[str]:
    read = LineReader(ROUTE, most=most).read(io.BytesIO(content))
    return [row.code if isinstance(row, InputFault) else "line" for row in read]


def test_a_batch_has_at_most_so_many_lines_and_blank_ones_do_not_count() -> None:
    assert codes(lines(3), 3) == ["line"] * 3
    assert codes(lines(4), 3) == [*["line"] * 3, "too_many_lines"]
    assert codes(b"\n" + lines(3) + b"  \n", 3) == ["line"] * 3
    assert codes(b"", 3) == ["empty_file"]


def test_a_mark_of_the_byte_order_stands_before_the_first_line_alone() -> None:
    mark = b"\xef\xbb\xbf"
    assert codes(mark + lines(2), 3) == ["line"] * 2
    assert codes(lines(1) + mark + lines(2), 3) == ["line", "invalid_json_line", "line"]


def test_a_line_may_have_so_many_bytes_beside_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = lines(1).splitlines()
    monkeypatch.setattr(intake, "LINE_BYTES", len(first))
    monkeypatch.setattr(intake, "PIECE", 7)
    assert codes(first + b"\n", 3) == ["line"]
    assert codes(first + b" \n" + first, 3) == ["line_too_long", "line"]
    assert codes(first + b" " * 3 + b"\n" + first, 3) == ["line_too_long", "line"]
    assert codes(first + b" " * 40, 3) == ["line_too_long"]


@pytest.mark.parametrize("custom_id", [None, 5, "", ["c"]])
def test_an_id_of_a_line_is_a_text(custom_id: Any) -> None:
    row = {"custom_id": custom_id, "method": "POST", "url": ROUTE, "body": {}}
    assert codes(json.dumps(row).encode(), 3) == ["missing_custom_id"]


def items(content: bytes, most: int = 10) -> list[Any]:
    return [json.loads(item) for item in ListReader(io.BytesIO(content), most=most)]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_the_items_of_a_list_are_read_however_it_is_cut(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "PIECE", piece)
    values = [1, -2.5, "é\u20ac", {"a": [1, {}]}, [], None, True, 10]
    for indent in (None, 2):
        assert items(json.dumps(values, indent=indent, ensure_ascii=False).encode()) == values
    for raw in (b"[1.5e+20,1e-7 ,12,0.25]", b"[1E+2]", b"[-0.5e-3 , 7]", b"[[1e+2],12.5]"):
        assert items(raw) == json.loads(raw)
    assert items("\ufeff [] ".encode()) == []
    assert items(b" [ 1 ] ") == [1]


def test_a_list_has_at_most_so_many_items() -> None:
    assert items(b"[1, 2, 3]", most=3) == [1, 2, 3]
    with pytest.raises(Refused):
        items(b"[1, 2, 3, 4]", most=3)


@pytest.mark.parametrize("text", ["[1", "[1 2]", "[1,]", "[1] 2", "{}", "", "[1]]"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        items(text.encode())


def test_half_of_a_character_is_no_json_and_two_halves_are() -> None:
    for half in ("\\ud800", "\\udfff", "a\\ud83d b"):
        with pytest.raises(Refused):
            parse(f'{{"a": "{half}"}}'.encode())
    assert parse(b'["\\ud83d\\ude00", "\\u00e9"]') == ["\U0001f600", "\u00e9"]
    assert parse('["\u20ac"]'.encode()) == ["\u20ac"]


@pytest.mark.parametrize("wrong", [b"\xff", b"\xc3(", b"\xed\xa0\x80"])
def test_a_wrong_byte_is_told_before_the_rest_of_the_file_is_read(
    wrong: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "PIECE", 16)
    file = io.BytesIO(b'["abc' + wrong + b'defg"' + b", 1" * 1000 + b"]")
    with pytest.raises(Refused, match="UTF-8"):
        list(ListReader(file, most=9999))
    assert file.tell() <= 16
    for size in range(8):  # wherever the piece is cut
        with pytest.raises(Refused, match="UTF-8"):
            items(b'["' + b"a" * size + wrong + b'bcdefg", 1, 2, 3]')
    with pytest.raises(Refused):
        items(b'["abc' + b"\xe2\x82")
