"""Prompts that ask a model to fill the gap between two texts, between its own tokens for that. It knows no body.

The order is llama-server's: prefix, what is typed already, suffix, then the token after which the model writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from espalier.engines.protocols import Engine
from espalier.errors import NotHere, PromptTooLong
from espalier.server.settings import ServerSettings
from espalier.tokens.vocab import Vocab

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "prefix": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
        "[PREFIX]",
    ),
    "suffix": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
        "[SUFFIX]",
    ),
    "middle": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
        "[MIDDLE]",
    ),
}
"""How models spell the tokens of fill-in-the-middle."""


@dataclass(frozen=True, slots=True)
class FimTokens:
    prefix: int
    suffix: int
    middle: int


def fim_tokens(vocab: Vocab) -> FimTokens:
    """The model's tokens for filling a gap. Raises NotHere naming those that are missing, as llama-server does."""
    by_text = {text: token for token, text in vocab.special_texts.items()}
    tokens_by_part = {
        part: next((by_text[text] for text in known if text in by_text), None) for part, known in SPELLINGS.items()
    }
    missing = [f"{part} token is missing" for part, token in tokens_by_part.items() if token is None]
    if missing:
        raise NotHere(f"Infill is not supported by this model: {'. '.join(missing)}", field="model")
    return FimTokens(**{part: token for part, token in tokens_by_part.items() if token is not None})


def fim_prompt(
    engine: Engine,
    vocab: Vocab,
    settings: ServerSettings,
    *,
    prefix: Sequence[int],
    suffix: str,
    typed: Sequence[int] = (),
    field: str,
) -> list[int]:
    """The token ids of a prompt. prefix, typed: ids of the text before the gap. suffix: the text behind it. field: what
    the body calls the prefix. Raises NotHere for a model without the tokens, and PromptTooLong over MAX_INPUT_TOKENS:
    cut from the front, a prompt would lose the token with which it begins."""
    fim = fim_tokens(vocab)
    behind = plain_ids(engine, suffix)
    ids = [*_begin(engine), fim.prefix, *prefix, *typed, fim.suffix, *behind, fim.middle]
    limit = settings.max_input_tokens
    if limit is not None and len(ids) > limit:
        raise PromptTooLong(
            f"the prompt has {len(ids)} tokens; the limit is {limit}",
            hint="a prompt with a gap is not cut",
            field=field,
        )
    return ids


def plain_ids(engine: Engine, text: str) -> list[int]:
    """The tokens of a text without special ones: code may hold the spelling of one."""
    encode = None if engine.vocab is None else engine.vocab.encoder
    return list(engine.encode(text, add_special=False) if encode is None else encode(text))


def _begin(engine: Engine) -> list[int]:
    """What the tokenizer puts before a text; an end that it adds is no beginning."""
    vocab = engine.vocab
    return [token for token in engine.encode("", add_special=True) if vocab is None or token not in vocab.eos_ids]


def without_start(engine: Engine, ids: Sequence[int]) -> Sequence[int]:
    """The tokens without what begins a text, for tokens that go on from others."""
    start = _begin(engine)
    return ids[len(start) :] if start and [*ids[: len(start)]] == start else ids
