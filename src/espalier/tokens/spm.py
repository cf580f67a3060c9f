"""Read SentencePiece models: a `SentencePieceProcessor`, or a Hugging Face tokenizer that contains one.

Duck-typed: the library is not imported. Files and `Vocab` are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from espalier.errors import VocabError
from espalier.tokens.pieces import SPACE_MARK, byte_piece
from espalier.tokens.raw import RawVocab, find_eos, name_of, named_eos

_CONTINUATION = b"\x1a\x04\x18\x00\x20\x00"
"""A ModelProto whose normalizer_spec (field 3) has add_dummy_prefix (3) and remove_extra_whitespaces (4) off.

Appended to a serialised model it overrides just these two, since protocol buffers merge repeated messages. Without it,
a text would get a space in front, and lose other spaces.
"""


def read_processor(processor: Any, owner: Any) -> RawVocab:
    """Read a processor. owner: the object that names EOS, beside the model's own. Raises VocabError."""
    pieces = [str(processor.id_to_piece(i)) for i in range(processor.get_piece_size())]
    tokens = [_bytes_of(processor, i, piece) for i, piece in enumerate(pieces)]
    own_eos = [i for i in [int(processor.eos_id())] if i >= 0]
    eos_ids = find_eos(named_eos(owner) or own_eos, {piece: i for i, piece in enumerate(pieces)})
    special_texts = {i: piece for i, piece in enumerate(pieces) if not tokens[i] or i in eos_ids}
    # A marker that is a user-defined piece would be found in any text; split in two it is text.
    encode = _continuation_encoder(processor, [pieces[i] for i in eos_ids if tokens[i]])
    return RawVocab(
        tokens=[b"" if i in special_texts else token for i, token in enumerate(tokens)],
        special_texts=special_texts,
        eos_ids=eos_ids,
        encoder=lambda text: [int(i) for i in encode(text, int)],
        name=name_of(owner),
    )


def read_slow(tokenizer: Any, owner: Any) -> RawVocab:
    """Read a Hugging Face tokenizer that holds a processor as `sp_model`; the ids of the two may differ.

    Raises VocabError for an id that is neither a piece of the model nor an added token.
    """
    processor = tokenizer.sp_model
    added: Mapping[int, Any] = tokenizer.added_tokens_decoder
    tokens: list[bytes] = []
    spelling: dict[int, str] = {}
    specials = set(tokenizer.all_special_ids)
    for i in range(len(tokenizer)):
        piece = str(added[i] if i in added else tokenizer.convert_ids_to_tokens(i))
        spelling[i] = piece
        inner = int(processor.piece_to_id(piece))
        if processor.id_to_piece(inner) == piece:
            tokens.append(_bytes_of(processor, inner, piece))
            if not tokens[i]:
                specials.add(i)
        elif i in added:
            tokens.append(piece.replace(SPACE_MARK, " ").encode())
            if added[i].special:
                specials.add(i)
        else:
            raise VocabError(
                f"token {i} ({piece!r}) is not a piece of the tokenizer's SentencePiece model",
                hint="load the fast tokenizer, or pass the SentencePiece model itself",
            )
    id_of = {piece: i for i, piece in spelling.items()}
    eos_ids = find_eos(named_eos(owner), id_of)
    specials.update(eos_ids)
    special_texts = {i: spelling[i] for i in sorted(specials) if i in spelling}
    markers = [text for i, text in special_texts.items() if tokens[i]]
    encode, unknown = _continuation_encoder(processor, markers), tokenizer.unk_token_id
    return RawVocab(
        tokens=[b"" if i in special_texts else token for i, token in enumerate(tokens)],
        special_texts=special_texts,
        eos_ids=eos_ids,
        # Added tokens are not searched for: the pieces of the model spell the same text.
        encoder=lambda text: [id_of.get(piece, unknown) for piece in encode(text, str)],
        name=name_of(owner),
    )


def _bytes_of(processor: Any, i: int, piece: str) -> bytes:
    """The bytes that a piece adds to a text; b"" for control, unknown and unused pieces, which are never text."""
    if processor.is_control(i) or processor.is_unknown(i) or processor.is_unused(i):
        return b""
    byte = byte_piece(piece) if processor.is_byte(i) else None
    return piece.replace(SPACE_MARK, " ").encode() if byte is None else byte


def _continuation_encoder(processor: Any, markers: list[str]) -> Callable[[str, type], list[Any]]:
    """Text to ids or pieces with a private copy of the model that keeps leading and repeated spaces.

    markers: spellings that are split after their first character before the text is encoded.
    """
    private = type(processor)()
    private.LoadFromSerializedProto(processor.serialized_model_proto() + _CONTINUATION)
    boundary = re.compile("|".join(f"(?<={re.escape(m[0])})(?={re.escape(m[1:])})" for m in markers if m) or "(?!)")

    def encode(text: str, out_type: type) -> list[Any]:
        parts = [part for part in boundary.split(text) if part]
        return [item for part in parts for item in private.encode(part, out_type=out_type)]

    return encode
