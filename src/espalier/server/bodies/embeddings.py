"""Types of the bodies of `/v1/embeddings` and llama-server's `/embedding`, and of the replies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from espalier.server.bodies.base import Body
from espalier.server.bodies.replies import Reply

Input = str | list[str | int | list[int | str]]


class EmbeddingsBody(Body):
    """input: a text, token ids, or a list of these; llama-server calls it `content` too. dimensions: so many
    values of each vector. embd_normalize: llama-server's: -1 none, 0 by the largest value, 2 Euclidean, the default."""

    input: Input | None = None
    content: Input | None = None
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, ge=1)
    embd_normalize: int | None = Field(default=None, ge=-1, le=64)


Texts = str | list[str]


class PoolingBody(EmbeddingsBody):
    """vLLM's: as of `/v1/embeddings`. task: `embed`, a vector for each text; `token_embed`, one for each token."""

    task: Literal["embed", "token_embed"] | None = None


class ScoreBody(Body):
    """vLLM's: text_1, one or as many as text_2; newer names of both are `queries` and `documents`."""

    text_1: Texts | None = None
    text_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None
    model: str | None = None


class Embedding(Reply):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    encoding_format: Literal["base64"] | None = None


class EmbeddingUsage(Reply):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Reply):
    """espalier: `warnings`, where the vectors are not what the model is trained for."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
    espalier: dict[str, list[str]] | None = None


class TokenVectors(Reply):
    """The vectors of one text: one, or one for each token where nothing says how to pool them."""

    index: int
    embedding: list[list[float]]
