"""Reads bodies of `/v1/embeddings` and `/embedding`: the token ids of each text, and how its states become a vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from espalier.engines.embedding import L2, HiddenReader, HowToPool, Pooling, reader_of
from espalier.engines.protocols import Engine
from espalier.errors import PromptTooLong
from espalier.server.asking.assemble import model_name
from espalier.server.asking.token_ids import check_ids, known_vocab
from espalier.server.bodies.embeddings import EmbeddingsBody
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.state import Process
from espalier.time_limit import check
from espalier.tokens.vocab import Vocab


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingsRequest:
    """texts: token ids of each. how: how their states become vectors. base64: as little-endian float32 bytes.
    warnings: for the client. notes: what a reader of the vectors must know of them."""

    reader: HiddenReader
    texts: tuple[tuple[int, ...], ...]
    how: HowToPool
    model: str
    base64: bool
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(map(len, self.texts))


def ask_embeddings(
    body: EmbeddingsBody, process: Process, *, tokenwise: bool, is_cut: bool = False
) -> EmbeddingsRequest:
    """tokenwise: whether a vector a token is given where nothing says how to pool. is_cut: whether a text that is too
    long loses its end. Raises BadRequest and its kin naming
    the field, PromptTooLong, NotHere for an engine without embeddings."""
    given = [name for name in ("input", "content") if getattr(body, name) is not None]
    if len(given) != 1:
        raise BadRequest(
            '"input" or "content" must be provided' if not given else "input and content are the same",
            hint="one of the two",
            field="input",
        )
    field, engine = given[0], process.engine.engine
    model, other = model_name(body.model, process)
    reader = reader_of(engine, process.engine.name)
    notes: list[str] = []
    pooling = _pooling(reader, process, notes, tokenwise=tokenwise)
    length = _length(body.dimensions, reader, notes)
    if pooling is None and length is not None:
        raise UnsupportedParameter("without a pooling every token has its vector, whole", field="dimensions")
    several = _several(getattr(body, field), field)
    most = process.settings.max_embedding_inputs
    if len(several) > most:
        raise BadRequest(f"{field} has {len(several)} texts; the limit is {most}", field=field)
    vocab = known_vocab(engine, field)
    longest = process.engine.capabilities.max_context
    limit = None if is_cut else longest
    texts = tuple(_ids(value, engine, vocab, where, limit) for where, value in several)
    cut = sum(len(text) > longest for text in texts) if longest else 0
    if cut:
        other = (*other, f"{cut} of the texts were longer than the context and lost their end")
        texts = tuple(text[:longest] for text in texts)
    norm = L2 if body.embd_normalize is None else body.embd_normalize
    how = HowToPool(pooling=pooling, norm=norm, length=length)
    return EmbeddingsRequest(
        reader=reader,
        texts=texts,
        how=how,
        model=model,
        base64=body.encoding_format == "base64",
        warnings=(*body.told.lines(), *other),
        notes=tuple(notes),
    )


def _pooling(reader: HiddenReader, process: Process, notes: list[str], *, tokenwise: bool) -> Pooling | None:
    """The setting's, else the model's own; for one vector of a model that names none the mean, which is noted."""
    pooling = process.settings.embedding_pooling or reader.pooling
    if pooling is None and not tokenwise:
        notes.append("the model names no pooling: each vector is the mean of its tokens (EMBEDDING_POOLING)")
        return "mean"
    return pooling


def _length(asked: int | None, reader: HiddenReader, notes: list[str]) -> int | None:
    """How many values are kept; None is all. It is noted where the model is not trained for it."""
    if asked is None or asked == reader.size:
        return None
    if asked > reader.size:
        raise UnsupportedParameter(f"the vectors of this model have {reader.size} values", field="dimensions")
    if asked not in reader.prefixes:
        known = ", ".join(map(str, reader.prefixes[:8]))
        hint = f"it is trained for {known}" if known else "it is not trained for shorter ones"
        notes.append(f"each vector is the first {asked} of {reader.size} values of the model; {hint}")
    return asked


def _several(given: Any, field: str) -> list[tuple[str, Any]]:
    """Each text with the path of its field: a text, or a list of ids and texts."""
    if isinstance(given, str):
        return [(field, given)]
    if not given:
        raise BadRequest(f'"{field}" must not be empty', field=field)
    if any(isinstance(token, int) for token in given):
        return [(field, given)]
    return [(f"{field}[{place}]", value) for place, value in enumerate(given)]


def _ids(given: Any, engine: Engine, vocab: Vocab, where: str, longest: int | None) -> tuple[int, ...]:
    """Token ids; a text at the start gets what the tokenizer adds to a text, others nothing."""
    check()
    if isinstance(given, str):
        checked = tuple(engine.encode(given, add_special=True)) if given else ()
    elif all(isinstance(token, int) for token in given):
        checked = check_ids(given, vocab, where)
    else:
        ids: list[int] = []
        for place, value in enumerate(given):
            if isinstance(value, str):
                ids += engine.encode(value, add_special=place == 0)
            elif isinstance(value, list):
                raise BadRequest(f"{where}[{place}]: a list among token ids", field=f"{where}[{place}]")
            else:
                ids += check_ids([value], vocab, f"{where}[{place}]")
        checked = tuple(ids)
    if not checked:
        raise BadRequest("Input content cannot be empty", field=where)
    if longest is not None and len(checked) > longest:
        error = PromptTooLong.over(longest, tokens=len(checked))
        error.field = where
        raise error
    return checked
