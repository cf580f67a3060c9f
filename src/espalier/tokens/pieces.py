"""Convert a tokenizer's pieces into the bytes that they add to the text, as its decoder does.

A decoder is the `decoder` entry of a `tokenizer.json`. Steps that apply only at the start of a text (stripping a dummy
space) are left out, since generated text continues other text. Ids, special tokens and files are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from espalier.errors import VocabError

SPACE_MARK = "▁"
"""SentencePiece's character for a space."""

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_HINT = "the bytes of its tokens cannot be known; use a model with a byte-level or SentencePiece tokenizer"

Step: TypeAlias = Callable[[str], str | bytes]
"""One decoder step applied to one piece; a result of type bytes is final."""


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: printable Latin-1 stands for itself, the other bytes are U+0100 and following."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


BYTE_LEVEL: Mapping[str, int] = MappingProxyType(_byte_level_alphabet())


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceDecoder:
    """A decoder for single pieces. byte_level: pieces are in GPT-2's alphabet; added tokens are not."""

    steps: tuple[Step, ...]
    byte_level: bool

    def __call__(self, piece: str) -> bytes:
        """The bytes that a piece adds to the text."""
        value: str | bytes = piece
        for step in self.steps:
            if isinstance(value, bytes):
                break
            value = step(value)
        return value if isinstance(value, bytes) else value.encode()


def piece_decoder(spec: Mapping[str, Any] | None) -> PieceDecoder:
    """The decoder of a `tokenizer.json`. Raises VocabError if a piece's bytes depend on its neighbours."""
    if spec is None:
        raise VocabError("the tokenizer has no decoder", hint="set tokenizer.decoder, for example decoders.ByteLevel()")
    steps: list[Step] = []
    kinds = []
    for entry in _flat(spec):
        kind = str(entry.get("type"))
        if kind not in _FIXED and kind not in _MADE:
            raise VocabError(f"tokenizers with a {kind} decoder are not supported", hint=_HINT)
        step = _FIXED[kind] if kind in _FIXED else _MADE[kind](entry, "Fuse" in kinds)
        kinds.append(kind)
        if step is not None:
            steps.append(step)
    return PieceDecoder(steps=tuple(steps), byte_level="ByteLevel" in kinds)


def byte_piece(piece: str) -> bytes | None:
    """The byte of a byte-fallback piece such as `<0x0A>`, or None."""
    match = _BYTE_PIECE.fullmatch(piece)
    return None if match is None else bytes.fromhex(match[1])


def _flat(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if spec.get("type") != "Sequence":
        yield spec
        return
    for entry in spec["decoders"]:
        yield from _flat(entry)


def _byte_level(piece: str) -> bytes:
    # A piece with a character outside the alphabet is kept unchanged, as in the tokenizers library.
    if all(c in BYTE_LEVEL for c in piece):
        return bytes(BYTE_LEVEL[c] for c in piece)
    return piece.encode()


def _byte_fallback(piece: str) -> str | bytes:
    byte = byte_piece(piece)
    return piece if byte is None else byte


def _metaspace(entry: Mapping[str, Any], _fused: bool) -> Step:
    mark = str(entry.get("replacement", SPACE_MARK))
    return lambda piece: piece.replace(mark, " ")


def _replace(entry: Mapping[str, Any], fused: bool) -> Step:
    pattern, content = entry["pattern"].get("String"), str(entry["content"])
    if pattern is None:
        raise VocabError("the tokenizer's decoder replaces by a regular expression", hint=_HINT)
    if fused and len(pattern) > 1:
        raise VocabError(f"the tokenizer's decoder replaces {pattern!r} across tokens", hint=_HINT)
    return lambda piece: piece.replace(pattern, content)


def _strip(entry: Mapping[str, Any], fused: bool) -> Step | None:
    mark, start, stop = str(entry["content"]), int(entry["start"]), int(entry["stop"])
    if fused:
        if stop:
            raise VocabError("the tokenizer's decoder strips the end of the text", hint=_HINT)
        return None  # applies only to the start of a whole text: the dummy space

    def strip(piece: str) -> str:
        head = min(start, len(piece) - len(piece.lstrip(mark)))
        piece = piece[head:]
        tail = min(stop, len(piece) - len(piece.rstrip(mark)))
        return piece[: len(piece) - tail]

    return strip


_FIXED: Mapping[str, Step | None] = {"ByteLevel": _byte_level, "ByteFallback": _byte_fallback, "Fuse": None}
_MADE: Mapping[str, Callable[[Mapping[str, Any], bool], Step | None]] = {
    "Metaspace": _metaspace,
    "Replace": _replace,
    "Strip": _strip,
}
"""Decoder steps whose effect on a single piece is known. The maker takes the step's entry, and whether pieces are
joined by then.

Left out on purpose: WordPiece, BPEDecoder and CTC, which place spaces by the neighbours or the end of the text.
"""
