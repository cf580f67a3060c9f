"""Reads bodies of llama-server's `/infill`: prefix and suffix between the model's tokens for filling a gap."""

from __future__ import annotations

from typing import Any

from espalier.engines.protocols import Engine
from espalier.server.asking.fim import fim_prompt, plain_ids
from espalier.server.asking.llama import ParsedLlamaRequest, ask_llama
from espalier.server.asking.token_ids import check_ids, known_vocab
from espalier.server.bodies.llama import InfillBody
from espalier.server.process.state import Process
from espalier.tokens.vocab import Vocab


def ask_infill(body: InfillBody, process: Process) -> ParsedLlamaRequest:
    """Raises NotHere for a model without FIM tokens, PromptTooLong, and what `ask_llama` raises."""
    engine = process.engine.engine
    vocab = known_vocab(engine, "model")
    ids = fim_prompt(
        engine,
        vocab,
        process.settings,
        prefix=plain_ids(engine, body.input_prefix),
        suffix=body.input_suffix,
        typed=_encode_prompt(body.prompt, engine, vocab),
        field="input_prefix",
    )
    return ask_llama(body.model_copy(update={"prompt": ids}), process)


def _encode_prompt(prompt: Any, engine: Engine, vocab: Vocab) -> list[int]:
    if isinstance(prompt, str):
        return plain_ids(engine, prompt) if prompt else []
    ids: list[int] = []
    for place, part in enumerate(prompt):
        ids += plain_ids(engine, part) if isinstance(part, str) else check_ids([part], vocab, f"prompt[{place}]")
    return ids
