"""Read the token bytes of other libraries' tokenizers, objects or files.

Duck-typed: no library is imported unless a path has to be loaded. The result is plain data; `Vocab` and the storage of
each kind of tokenizer (`fast.py`, `spm.py`, `tekken.py`) are not known here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from espalier.errors import VocabError
from espalier.files.json_shape import check_shape
from espalier.files.limits import MODEL_JSON, PIECES, TOKENIZER
from espalier.files.reading import open_file, read_bytes, read_text
from espalier.optional import optional_imports
from espalier.tokens.fast import read_fast
from espalier.tokens.raw import RawVocab, ids_in
from espalier.tokens.spm import read_processor, read_slow
from espalier.tokens.tekken import read_tekken
from espalier.tokens.tokenizer_json import MAX_IDS, check_tokenizer, foreign_faults

__all__ = ["RawVocab", "read_tokenizer"]

_HINT = (
    "pass a Hugging Face fast or SentencePiece tokenizer, a tokenizers.Tokenizer, a SentencePieceProcessor, "
    "a Tekkenizer, or the path of a tokenizer.json or a SentencePiece .model"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of tokenizer: where the readable object is, which methods identify it, and which function reads it."""

    inside: str  # dotted attributes from the given object, "" for itself
    has: tuple[str, ...]
    read: Callable[[Any, Any], RawVocab]

    def find(self, tokenizer: Any) -> Any:
        """The object to read, or None for another kind of tokenizer."""
        for attribute in filter(None, self.inside.split(".")):
            tokenizer = getattr(tokenizer, attribute, None)
        return tokenizer if all(hasattr(tokenizer, name) for name in self.has) else None


_FAST = ("to_str", "from_str", "encode")
_SPM = ("id_to_piece", "is_byte", "is_control", "serialized_model_proto")
_TEKKEN = ("id_to_byte_piece", "special_ids", "n_words")
_MISTRAL = "instruct_tokenizer.tokenizer"  # of a MistralTokenizer; transformers holds one as `tokenizer`

_TABLE = (
    _Kind(inside="backend_tokenizer", has=_FAST, read=read_fast),
    _Kind(inside="_tokenizer", has=_FAST, read=read_fast),
    _Kind(inside="", has=_FAST, read=read_fast),
    _Kind(inside="", has=("sp_model", "convert_ids_to_tokens", "added_tokens_decoder"), read=read_slow),
    _Kind(inside="", has=_SPM, read=read_processor),
    _Kind(inside="", has=_TEKKEN, read=read_tekken),
    _Kind(inside="_model", has=_SPM, read=read_processor),  # mistral-common's SentencePieceTokenizer
    *(
        _Kind(inside=f"{outer}{_MISTRAL}{inner}", has=has, read=read)
        for outer in ("", "tokenizer.")
        for inner, has, read in (("", _TEKKEN, read_tekken), ("._model", _SPM, read_processor))
    ),
)
"""Kinds in the order in which they are tried. Any other tokenizer, such as a slow WordPiece one, is refused."""


def read_tokenizer(tokenizer: Any) -> RawVocab:
    """Read any supported tokenizer. Raises VocabError if its bytes cannot be determined, or for a damaged file;
    TooLarge for a file above its limits."""
    if isinstance(tokenizer, str | os.PathLike):
        return _read_path(Path(tokenizer))
    for kind in _TABLE:
        source = kind.find(tokenizer)
        if source is not None:
            return kind.read(source, tokenizer)
    raise VocabError(f"{type(tokenizer).__name__} is not a tokenizer that can be read", hint=_HINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    """Replaces the tokenizer object that a folder's files would make: its name, and the EOS that the files name."""

    name_or_path: str
    eos_token_id: list[int]


def _read_path(path: Path) -> RawVocab:
    if path.is_dir():
        there = [file for name in ("tokenizer.json", "tokenizer.model") if (file := path / name).is_file()]
        if not there:
            raise VocabError(f"there is no tokenizer.json or tokenizer.model in {path}", hint=_HINT)
        return _read_file(there[0], path)
    if not _is_file(path):
        raise VocabError(f"there is no tokenizer file {path}", hint=f"a name on a hub has to be loaded first: {_HINT}")
    return _read_file(path, None)


def _read_file(path: Path, folder: Path | None) -> RawVocab:
    """Read a tokenizer file; if it was found through its folder, also the EOS settings of the files beside it."""
    with open_file(path, TOKENIZER) as file:
        is_json = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
    load, id_of, read = (_load_fast, _fast_id, read_fast) if is_json else (_load_processor, _piece_id, read_processor)
    loaded = load(path)
    eos_ids = [] if folder is None else _eos_beside(folder, partial(id_of, loaded))
    with foreign_faults(str(path)):
        return read(loaded, _Folder(name_or_path=(folder or path).name, eos_token_id=eos_ids))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, a NUL in it
        return False


def _fast_id(tokenizer: Any, text: str) -> int | None:
    token: int | None = tokenizer.token_to_id(text)
    return token


def _piece_id(processor: Any, text: str) -> int | None:
    token = int(processor.piece_to_id(text))  # for unknown text, the id of the unknown token
    return token if processor.id_to_piece(token) == text else None


def _eos_beside(folder: Path, id_of: Callable[[str], int | None]) -> list[int]:
    """EOS ids from a model folder's files: the tokenizer's own, then those of the generation config."""
    named = _json_beside(folder / "tokenizer_config.json").get("eos_token")
    text = named.get("content") if isinstance(named, dict) else named
    own = [] if not isinstance(text, str) else ids_in(id_of(text))
    path = folder / "generation_config.json"
    stated = _json_beside(path).get("eos_token_id")
    several = stated if isinstance(stated, list) else [] if stated is None else [stated]
    if not all(type(eos) is int and 0 <= eos < MAX_IDS for eos in several):
        raise VocabError(f"{path} has an eos_token_id that is no id", hint="an id, or a list of ids", field="tokenizer")
    return list(dict.fromkeys(own + several))


def _json_beside(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    text = read_text(path, MODEL_JSON)
    check_shape(text, MODEL_JSON, str(path))
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VocabError(f"{path} is not JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def _load_fast(path: Path) -> Any:
    with optional_imports("transformers"):
        library = import_module("tokenizers")
    text = read_text(path, TOKENIZER)
    check_shape(text, TOKENIZER, str(path))
    hint = "load a tekken.json with mistral_common's Tekkenizer.from_file and pass that"
    try:
        spec = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VocabError(f"{path} is not a tokenizer.json: {error}", hint=hint, field="tokenizer") from error
    try:
        check_tokenizer(spec)
    except VocabError as error:
        raise VocabError(f"{path} is not a tokenizer.json: {error.message}", hint=hint, field=error.field) from error
    with foreign_faults(str(path)):
        return library.Tokenizer.from_str(text)


def _load_processor(path: Path) -> Any:
    with optional_imports("transformers"):
        library = import_module("sentencepiece")
    data = read_bytes(path, PIECES)
    try:
        loaded = library.SentencePieceProcessor(model_proto=data)
    except (RuntimeError, OSError, ValueError) as error:
        raise VocabError(
            f"{path} is neither a tokenizer.json nor a SentencePiece model: {error}", hint=_HINT
        ) from error
    if not loaded.get_piece_size():
        raise VocabError(f"{path} is neither a tokenizer.json nor a SentencePiece model: it is empty", hint=_HINT)
    if loaded.get_piece_size() > MAX_IDS:
        raise VocabError(
            f"{path} has {loaded.get_piece_size():,} pieces", hint=f"at most {MAX_IDS:,}", field="tokenizer"
        )
    return loaded
