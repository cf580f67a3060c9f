"""Reads bodies of llama-server's `/infill`: prefix and suffix between the model's tokens for filling a gap.

The order is llama-server's: prefix, what is typed already, suffix, then the token after which the model writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from espalier.engines.protocols import Engine
from espalier.errors import NotHere
from espalier.server.asking.llama import LlamaAsked, ask_llama
from espalier.server.asking.token_ids import check_ids, known_vocab
from espalier.server.bodies.llama import InfillBody
from espalier.server.process.state import Process
from espalier.tokens.vocab import Vocab

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "prefix": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
        "<|prefix|>", "[PREFIX]",
    ),
    "suffix": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
        "<|suffix|>", "[SUFFIX]",
    ),
    "middle": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
        "<|middle|>", "[MIDDLE]",
    ),
}  # fmt: skip
"""How models spell the tokens of fill-in-the-middle."""


@dataclass(frozen=True, slots=True)
class FimTokens:
    prefix: int
    suffix: int
    middle: int


def fim_tokens(vocab: Vocab) -> FimTokens:
    """The model's tokens for filling a gap. Raises NotHere naming those that are missing, as llama-server does."""
    by_text = {text: token for token, text in vocab.special_texts.items()}
    found = {part: next((by_text[one] for one in known if one in by_text), None) for part, known in SPELLINGS.items()}
    missing = [f"{part} token is missing" for part, token in found.items() if token is None]
    if missing:
        raise NotHere(f"Infill is not supported by this model: {'. '.join(missing)}", field="model")
    return FimTokens(**{part: token for part, token in found.items() if token is not None})


def ask_infill(body: InfillBody, process: Process) -> LlamaAsked:
    """Raises NotHere for a model without FIM tokens, and what `ask_llama` raises."""
    engine = process.engine.engine
    vocab = known_vocab(engine, "model")
    fim = fim_tokens(vocab)
    plain = _adder(engine)
    ids = [
        *_begin(engine), fim.prefix, *plain(body.input_prefix), *_typed(body.prompt, engine, vocab),
        fim.suffix, *plain(body.input_suffix), fim.middle,
    ]  # fmt: skip
    return ask_llama(body.model_copy(update={"prompt": ids}), process)


def _adder(engine: Engine) -> Any:
    """Encodes without special tokens: code may hold the spelling of one."""
    vocab = engine.vocab
    encode = None if vocab is None else vocab.encoder
    return encode or (lambda text: engine.encode(text, add_special=False))


def _begin(engine: Engine) -> list[int]:
    """What the tokenizer puts before a text; an end that it adds is no beginning."""
    vocab = engine.vocab
    return [one for one in engine.encode("", add_special=True) if vocab is None or one not in vocab.eos_ids]


def _typed(prompt: Any, engine: Engine, vocab: Vocab) -> list[int]:
    if isinstance(prompt, str):
        return list(_adder(engine)(prompt)) if prompt else []
    found: list[int] = []
    for place, one in enumerate(prompt):
        found += _adder(engine)(one) if isinstance(one, str) else check_ids([one], vocab, f"prompt[{place}]")
    return found
