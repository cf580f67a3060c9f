"""Validates bodies as the word-list server did, for the same 422 errors. Numbers may be strings, as there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from espalier.errors import InputError


class WordlistServerMessage(BaseModel):
    """content: lists of parts are taken too, which the word-list server refused."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: Any


class WordlistServerPrompt(BaseModel):
    model: str
    messages: list[WordlistServerMessage]


class WordlistParameters(BaseModel):
    """The parameters of a request, and of all requests of a job."""

    max_tokens: int | None = None
    vocab_lang: str | None = None
    vocab_n_words: int | None = None
    num_beams: int | None = None
    length_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    vocab_constraint_mode: str | None = None
    vocab_soft_tier2_max_rank_multiplier: float | None = None
    vocab_soft_tier2_penalty: float | None = None
    vocab_soft_tier3_penalty: float | None = None


BEAM_FIELDS = ("num_beams", "length_penalty")
"""Fields of beam search, of which only the word-list server's clients send both."""


class WordlistServerBody(WordlistParameters, WordlistServerPrompt):
    model_config = ConfigDict(extra="ignore")

    custom_id: str | None = None


class InvalidWordlistBody(InputError):
    """The request body is not valid (status 422 under WORDLIST_SERVER_COMPAT)."""

    code = "seed_invalid"  # which logs and results of batches have had from the beginning

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        """found: the errors, in FastAPI's form."""
        self.found = errors
        first = errors[0]
        super().__init__(str(first["msg"]), field=".".join(map(str, first["loc"][1:])) or None)


def read_wordlist_body(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of WordlistServerBody that the body gives. Raises InvalidWordlistBody."""
    try:
        body = WordlistServerBody.model_validate(data)
    except ValidationError as error:
        listed = error.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidWordlistBody(
            [{"type": error["type"], "loc": ["body", *error["loc"]], "msg": error["msg"]} for error in listed]
        ) from None
    return body.model_dump(exclude_unset=True)
