"""Reads a plain vocabulary file: one token on each line, a JSON array of tokens, or a JSON object from token to id.

Such a file holds texts only, so what it leaves open has to be said or is refused: how its texts stand for bytes, and
which tokens end a text. `Vocab` is not known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from espalier.errors import VocabError
from espalier.files.json_shape import check_shape
from espalier.files.limits import VOCABULARY
from espalier.files.reading import read_bytes
from espalier.tokens.pieces import BYTE_LEVEL, SPACE_MARK, byte_piece
from espalier.tokens.raw import CHAT_ENDS, LAST_RESORT, TEXT_ENDS, RawVocab, find_eos

Storage: TypeAlias = Literal["text", "byte_level", "sentencepiece"]
MAX_TOKENS = 4_000_000
SPECIAL = re.compile(
    r"<[|｜].*[|｜]>|\[\|.*\|\]|<(?:s|/s|unk|pad|bos|eos|mask|cls|sep)>|\[(?:PAD|UNK|CLS|SEP|MASK|BOS|EOS)\]"
)
"""Spellings of special tokens: a text of this form is no part of the byte language."""


def read_vocab_file(path: Path, storage: Storage = "text") -> RawVocab:
    """storage: what the texts are: `text` as it is, `byte_level` in GPT-2's alphabet (`Ġthe`), `sentencepiece` with `▁`
    for a space and `<0x0A>` for a byte. Tokens spelled as special ones (`<|...|>`, `<s>`, `[PAD]`) are special. Raises
    VocabError for a file that cannot be read, TooLarge, and for texts that show another storage than the one named."""
    if storage not in get_args(Storage):
        raise VocabError(f"unknown storage {storage!r}", hint=f"one of: {', '.join(get_args(Storage))}")
    texts = _texts(path)
    special = {i: text for i, text in texts.items() if SPECIAL.fullmatch(text) or text in _ENDS}
    plain = {i: text for i, text in texts.items() if i not in special}
    if storage == "text":
        _check_plain(plain, path)
    decode = _DECODE[storage]
    tokens = [b""] * (max(texts, default=-1) + 1)
    for i, text in plain.items():
        try:
            tokens[i] = decode(text)
        except (KeyError, UnicodeEncodeError):
            raise VocabError(f"{path}: token {i} is not {storage}: {text[:60]!r}", hint="another storage=") from None
    eos_ids = find_eos([], {text: i for i, text in special.items()})
    return RawVocab(tokens=tokens, special_texts=special, eos_ids=eos_ids, encoder=None, name=path.name)


_ENDS = frozenset({*CHAT_ENDS, *TEXT_ENDS, LAST_RESORT})


def _texts(path: Path) -> dict[int, str]:
    """Token by id. Raises VocabError."""
    data = read_bytes(path, VOCABULARY)
    try:  # not `read_text`: a token may hold a line end of another kind
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise VocabError(f"the vocabulary {path} is not UTF-8 at byte {error.start}") from error
    texts = _from_json(text, path) if path.suffix == ".json" else _from_lines(text)
    if not texts:
        raise VocabError(f"the vocabulary {path} has no tokens")
    if max(texts) >= MAX_TOKENS:
        raise VocabError(f"the vocabulary {path} has more than {MAX_TOKENS} tokens")
    return texts


def _from_lines(text: str) -> dict[int, str]:
    """A line that is empty is an id without a token."""
    lines = text.removesuffix("\n").split("\n")
    return {i: line.removesuffix("\r") for i, line in enumerate(lines) if line.removesuffix("\r")}


def _from_json(text: str, path: Path) -> dict[int, str]:
    check_shape(text, VOCABULARY, str(path))
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VocabError(f"the vocabulary {path} is not JSON: {str(error)[:200]}") from error
    if isinstance(data, list) and all(isinstance(token, str) for token in data):
        return {i: token for i, token in enumerate(data) if token}
    if isinstance(data, dict) and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in data.values()):
        texts = {i: token for token, i in data.items() if token}
        if len(texts) < sum(1 for token in data if token):
            raise VocabError(f"the vocabulary {path} gives one id to two tokens")
        return texts
    raise VocabError(f"the vocabulary {path} is neither an array of tokens nor an object from token to id")


def _check_plain(texts: Mapping[int, str], path: Path) -> None:
    """Raises VocabError for texts that are clearly stored in another way: taken as they are, no token would have a
    space."""
    if any(" " in text for text in texts.values()):
        return
    for mark, storage in (("Ġ", "byte_level"), (SPACE_MARK, "sentencepiece")):
        if any(text.startswith(mark) for text in texts.values()):
            raise VocabError(f"{path} writes spaces as {mark}", hint=f'say storage="{storage}"')


def _byte_level(text: str) -> bytes:
    return bytes(BYTE_LEVEL[character] for character in text)


def _sentencepiece(text: str) -> bytes:
    byte = byte_piece(text)
    return text.replace(SPACE_MARK, " ").encode() if byte is None else byte


_DECODE: Mapping[str, Callable[[str], bytes]] = {
    "text": str.encode,
    "byte_level": _byte_level,
    "sentencepiece": _sentencepiece,
}
