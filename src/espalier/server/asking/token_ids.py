"""Checks token ids of bodies, and turns them into text. It knows no route and no model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from espalier.engines.protocols import Engine
from espalier.errors import CapabilityError
from espalier.server.http.errors import BadRequest
from espalier.tokens.vocab import Vocab


def check_ids(ids: Sequence[object], vocab: Vocab, field: str) -> tuple[int, ...]:
    """The ids. Raises BadRequest, naming the position, for one that is no token of the vocabulary."""
    checked: list[int] = []
    for place, token in enumerate(ids):
        is_id = isinstance(token, int) and not isinstance(token, bool) and 0 <= token < vocab.width
        if not is_id or not isinstance(token, int) or not vocab.real_ids[token]:
            raise BadRequest(f"{field}[{place}]: there is no such token", field=f"{field}[{place}]")
        checked.append(token)
    return tuple(checked)


def bytes_of(token: int, vocab: Vocab) -> bytes:
    """The bytes of a token; of a special token, its text."""
    special = vocab.special_texts.get(token)
    return vocab.bytes_of(token) if special is None else special.encode()


def text_of(ids: Iterable[int], vocab: Vocab) -> str:
    """The text of the tokens, special tokens included; incomplete UTF-8 becomes U+FFFD."""
    return b"".join(bytes_of(token, vocab) for token in ids).decode("utf-8", "replace")


def known_vocab(engine: Engine, field: str | None = None) -> Vocab:
    """The engine's vocabulary. Raises CapabilityError, naming the field, if the engine does not know it."""
    if engine.vocab is None:
        raise CapabilityError(f"{engine.name} runs elsewhere, so its tokens are not known here", field=field)
    return engine.vocab
