"""Checks a `tokenizer.json` before a library or we make something of it: ids, pieces, merges, and what its normalizer
and pre-tokenizer may do to a text.

Ids decide how long our tables are, and a chain of replacements may double a text at every step; both are bounded here,
before anything is allocated. Expressions of the file are tried in a process of its own (`trial.py`). Encoding and
`Vocab` are not known here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from espalier.errors import EspalierError, VocabError
from espalier.files.reading import shortened

MAX_IDS = 1 << 20
"""The largest vocabularies in use have 900,000 ids."""
MAX_PIECE = 1 << 16
"""The longest piece, in characters."""
MAX_GROWTH = 128
"""How many times as long a normalizer may make a text. SentencePiece's own (18) twice is not refused."""
MAX_STEPS = 64
"""The most steps of a normalizer, a pre-tokenizer or a decoder."""
CHILDREN = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
HINT = "the file is damaged, or not a tokenizer.json"


def check_tokenizer(spec: Any) -> None:
    """spec: the parsed file. Raises VocabError naming the field."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("model"), Mapping):
        raise _wrong("it has no model")
    pieces = _check_vocabulary(spec["model"])
    added = spec.get("added_tokens")
    for place, entry in enumerate(_list(added, "added_tokens")):
        where = f"added_tokens[{place}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), str):
            raise _wrong(f"{where} has no content")
        _check_piece(entry["content"])
        _check_id(entry.get("id"), where)
    if pieces + len(added or ()) > MAX_IDS:
        raise _wrong(f"it has more than {MAX_IDS:,} tokens")
    _check_merges(spec["model"])
    for name in CHILDREN:
        growth = 1.0
        for count, step in enumerate(steps_of(spec.get(name), name), 1):
            growth *= _growth(step)
            if count > MAX_STEPS:
                raise VocabError(f"the tokenizer's {name} has more than {MAX_STEPS} steps", field=name)
            if growth > MAX_GROWTH:
                raise VocabError(
                    f"the tokenizer's {name} may make a text {growth:,.0f} times as long; the limit is {MAX_GROWTH}",
                    hint="a chain of replacements that grow does not end",
                    field=name,
                )


@contextmanager
def foreign_faults(source: str) -> Iterator[None]:
    """Maps whatever a library, or code that reads its values, raises about a file to VocabError naming the file."""
    try:
        yield
    except EspalierError:
        raise
    except Exception as error:  # the libraries raise bare Exception, and values of any type from damaged files
        raise _foreign(source, error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of a library in Rust; it derives from BaseException
            raise
        raise _foreign(source, error) from error


def _foreign(source: str, error: BaseException) -> VocabError:
    reason = shortened((str(error).strip() or type(error).__name__).splitlines()[0], 200)
    return VocabError(f"{shortened(source)} is no tokenizer that can be read: {reason}", hint=HINT, field="tokenizer")


def steps_of(entry: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder, in order. Raises VocabError."""
    left = [] if entry is None else [entry]
    while left:
        step = left.pop()
        if not isinstance(step, Mapping):
            raise _wrong(f"its {name} has a step that is no object")
        if step.get("type") == "Sequence":
            left += reversed(_list(step.get(CHILDREN[name]), name))
        else:
            yield step


def expressions(spec: Mapping[str, Any]) -> list[str]:
    """The regular expressions that its normalizer and pre-tokenizer run over texts."""
    patterns = []
    for name in ("normalizer", "pre_tokenizer"):
        for step in steps_of(spec.get(name), name):
            pattern = step.get("pattern")
            if isinstance(pattern, Mapping) and isinstance(pattern.get("Regex"), str):
                patterns.append(pattern["Regex"])
    return patterns


def _check_vocabulary(model: Mapping[str, Any]) -> int:
    """The number of pieces."""
    vocab = model.get("vocab")
    if isinstance(vocab, Mapping):
        for piece, number in vocab.items():
            if type(number) is not int or not 0 <= number < MAX_IDS:
                _check_id(number, f"model.vocab[{shortened(piece, 40)!r}]")
            _check_piece(piece)
    elif isinstance(vocab, list):
        for place, entry in enumerate(vocab):
            if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
                raise _wrong(f"model.vocab[{place}] is no piece with its score")
            _check_piece(entry[0])
            if type(entry[1]) not in (int, float):
                raise _wrong(f"the score of model.vocab[{place}] is no number")
        unknown = model.get("unk_id")
        if unknown is not None and (type(unknown) is not int or not 0 <= unknown < len(vocab)):
            raise _wrong(f"model.unk_id is {shortened(str(unknown), 40)}, and there are {len(vocab):,} pieces")
    else:
        raise _wrong("its model has no vocabulary")
    if not vocab:
        raise _wrong("its vocabulary is empty")
    if len(vocab) > MAX_IDS:
        raise _wrong(f"it has more than {MAX_IDS:,} tokens")
    return len(vocab)


def _check_piece(piece: str) -> None:
    if len(piece) > MAX_PIECE:
        raise _wrong(f"the piece {shortened(piece, 40)!r} has more than {MAX_PIECE:,} characters")


def _check_merges(model: Mapping[str, Any]) -> None:
    for place, merge in enumerate(_list(model.get("merges"), "model.merges")):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise _wrong(f"model.merges[{place}] is no pair of pieces")


def _check_id(number: Any, where: str) -> None:
    if type(number) is not int:
        raise _wrong(f"the id of {where} is no whole number")
    if not 0 <= number < MAX_IDS:
        shown = shortened(f"{number:,}" if abs(number) < 1 << 64 else "a very large number", 40)
        raise _wrong(f"the id of {where} is {shown}, and ids are below {MAX_IDS:,}")


def _growth(step: Mapping[str, Any]) -> float:
    """At most how many times as long a text is after this step, in characters; what a step adds once is left out."""
    kind = step.get("type")
    if kind == "ByteLevel":
        return 2.0  # each byte beyond ASCII becomes a character of two bytes
    if kind == "Precompiled":
        return _longest_replacement(step.get("precompiled_charsmap"))
    if kind != "Replace":
        return 1.0
    pattern, content = step.get("pattern"), step.get("content")
    if not isinstance(pattern, Mapping) or not isinstance(content, str):
        return 1.0  # the library says what is wrong with it
    literal = pattern.get("String")
    if isinstance(literal, str) and literal:
        return max(1.0, len(content) / len(literal))
    return 1.0 + len(content)  # an expression may match the empty text


def _longest_replacement(charsmap: Any) -> float:
    """The longest text that SentencePiece's table puts in the place of a character: after its trie, whose length comes
    first, the texts stand one after another with a NUL behind each."""
    try:
        table = base64.b64decode(charsmap or "", validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise _wrong("its normalizer has a table that is no base64") from error
    size = int.from_bytes(table[:4], "little")
    if len(table) < 4 or size > len(table) - 4:
        raise _wrong("its normalizer has a table that is cut")
    texts = table[4 + size :].split(b"\0")
    return float(max(len(text.decode("utf-8", "replace")) for text in [b" ", *texts]))


def _list(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(f"its {where} are no list")
    return value


def _wrong(what: str) -> VocabError:
    return VocabError(f"the tokenizer cannot be read: {what}", hint=HINT, field="tokenizer")
