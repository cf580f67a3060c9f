"""Read `tokenizer.json` tokenizers: a `tokenizers.Tokenizer`, or the one inside a Hugging Face fast tokenizer.

Duck-typed through the JSON form: the library is not imported and the caller's tokenizer is not changed. Files and
`Vocab` are not known here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from espalier.errors import VocabError
from espalier.tokens.far_tokenizer import FarTokenizer
from espalier.tokens.pieces import SPACE_MARK, PieceDecoder, piece_decoder
from espalier.tokens.raw import RawVocab, find_eos, name_of, named_eos
from espalier.tokens.tokenizer_json import check_tokenizer, foreign_faults
from espalier.tokens.trial import try_expressions


def read_fast(backend: Any, owner: Any) -> RawVocab:
    """Read a `tokenizers.Tokenizer`. owner: the object that names EOS and special tokens.

    Raises VocabError if the decoder does not reveal the tokens' bytes.
    """
    spec: dict[str, Any] = json.loads(backend.to_str())
    check_tokenizer(spec)
    try_expressions(spec)
    base = _base_ids(spec["model"])
    decode = piece_decoder(spec["decoder"])
    added: dict[str, dict[str, Any]] = {entry["content"]: entry for entry in spec["added_tokens"]}
    id_of = {text: int(entry["id"]) for text, entry in added.items()}
    spelling = {i: text for text, i in (base | id_of).items()}
    eos_ids = find_eos(named_eos(owner), id_of)
    specials = {entry["id"] for entry in added.values() if entry["special"]}
    specials.update(getattr(owner, "all_special_ids", ()), _unknown_ids(spec["model"], base), eos_ids)
    special_texts = {i: spelling[i] for i in sorted(specials) if i in spelling}

    tokens = [b""] * (max(spelling, default=-1) + 1)
    for text, i in base.items():
        tokens[i] = decode(text)
    for text, i in id_of.items():
        tokens[i] = _added_bytes(text, base, decode)
    for i in special_texts:
        tokens[i] = b""
    return RawVocab(
        tokens=tokens,
        special_texts=special_texts,
        eos_ids=eos_ids,
        encoder=_Encoder(type(backend), _as_continuation(spec, special_texts, base, tokens)),
        name=name_of(owner),
    )


class _Encoder:
    """Text to ids with a private tokenizer. It is built at the first call, since parsing its JSON takes time at 128k
    tokens.

    Two threads may both build it, which only costs time.
    """

    def __init__(self, factory: Any, spec_json: str) -> None:
        self._factory = factory
        self._spec_json = spec_json
        self._tokenizer: Any = None
        self._far = FarTokenizer(spec_json, spells_specials=False)

    def __call__(self, text: str) -> list[int]:
        if self._far.takes(text):
            return self._far.encode(text)
        if self._tokenizer is None:
            with foreign_faults("the tokenizer"):
                tokenizer = self._factory.from_str(self._spec_json)
            tokenizer.encode_special_tokens = True  # text that looks like a special token is split as text
            self._tokenizer = tokenizer
        with foreign_faults("the tokenizer"):
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _base_ids(model: Mapping[str, Any]) -> dict[str, int]:
    """Piece to id of the base model. Raises VocabError if pieces do not say where words begin or end."""
    if model.get("type") == "WordPiece" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise VocabError(
            "WordPiece-like tokenizers are not supported: their pieces do not say where spaces go",
            hint="use a model with a byte-level or SentencePiece tokenizer",
        )
    vocab = model["vocab"]
    if model.get("type") == "Unigram":
        return {piece: i for i, (piece, _score) in enumerate(vocab)}
    return dict(vocab)


def _unknown_ids(model: Mapping[str, Any], base: Mapping[str, int]) -> list[int]:
    """The unknown token, which is never text: named by its text, or by its id in a Unigram model."""
    text: str | None = model.get("unk_token")
    named = (None if text is None else base.get(text), model.get("unk_id"))
    return [i for i in named if i is not None]


def _added_bytes(text: str, base: Mapping[str, int], decode: PieceDecoder) -> bytes:
    # Added tokens are written as text: the library's byte-level decoder would read one such as "é" as a byte. An added
    # token that is also a piece of the base model is that piece.
    return text.encode() if decode.byte_level and text not in base else decode(text)


def _as_continuation(
    spec: dict[str, Any], special_texts: Mapping[int, str], base: Mapping[str, int], tokens: list[bytes]
) -> str:
    """The tokenizer's JSON, changed so that a text is split as in the middle of another one."""
    added = []
    for entry in spec["added_tokens"]:
        special = entry["id"] in special_texts
        # A piece of the base model whose spelling differs from its text ("Ġ" for a space) must not be found in text.
        # Other added tokens stay: the library numbers them by their order.
        misread = not special and tokens[entry["id"]] != entry["content"].encode()
        if not (misread and entry["content"] in base):
            # lstrip and rstrip would swallow spaces beside the token.
            added.append(entry | {"special": special, "lstrip": False, "rstrip": False})
    changed = spec | {
        "added_tokens": added,
        "truncation": None,
        "padding": None,
        "normalizer": _without_prefix(spec["normalizer"], "normalizers"),
        "pre_tokenizer": _without_prefix(spec["pre_tokenizer"], "pretokenizers"),
    }
    return json.dumps(changed, ensure_ascii=False)


def _without_prefix(step: dict[str, Any] | None, children: str) -> dict[str, Any] | None:
    """A normaliser or pre-tokenizer that adds no space in front of the text."""
    if step is None or (step["type"] == "Prepend" and step["prepend"] in (SPACE_MARK, " ")):
        return None
    if step["type"] == "Sequence":
        inner = [_without_prefix(child, children) for child in step[children]]
        return step | {children: [child for child in inner if child is not None]}
    off = {"add_prefix_space": False, "prepend_scheme": "never"}
    return step | {key: value for key, value in off.items() if key in step}
