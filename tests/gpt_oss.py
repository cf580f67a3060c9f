"""What tests of gpt-oss share: its special tokens over bytes, a model that writes a text, turns of random messages, and
`openai-harmony`, OpenAI's own parser, as an independent reader.

That parser wants the vocabulary of gpt-oss in a file, which is written from the one in `bpe-openai`; no network.
"""

from __future__ import annotations

import base64
import os
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import espalier
from espalier import Vocab
from espalier.chat.prompt.template import ChatTemplate
from espalier.engines.fake import FakeStepModel
from espalier.engines.local.engine import LocalEngine
from tests.chat_templates import GPT_OSS

RETURN, CALL = 256, 257
TEXTS = {RETURN: "<|return|>", CALL: "<|call|>"} | dict(
    enumerate(["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"], 258)
)
VOCAB = Vocab.from_tokens(
    [*(bytes([b]) for b in range(256)), *[b""] * len(TEXTS)], eos_ids=[RETURN, CALL], special_ids=TEXTS
)
NEXT = "<|end|><|start|>assistant"
THOUGHT = f"<|channel|>analysis<|message|>hm < 3{NEXT}"
PREAMBLE = f"<|channel|>commentary<|message|>First the weather.{NEXT}"
FINAL = "<|channel|>final<|message|>"
TYPES = ("", " json", " <|constrain|>json", "<|constrain|>json")


def encode(text: str) -> list[int]:
    """The tokens of a text, special ones where they are spelled."""
    tokens: list[int] = []
    while text:
        special = next((token for token, spelling in TEXTS.items() if text.startswith(spelling)), None)
        size = 1 if special is None else len(TEXTS[special])
        tokens += text[0].encode() if special is None else [special]
        text = text[size:]
    return tokens


def spell(tokens: list[int]) -> str:
    return b"".join(TEXTS[token].encode() if token in TEXTS else bytes([token]) for token in tokens).decode()


def call(name: str, arguments: str, kind: str = " <|constrain|>json", *, in_role: bool = False) -> str:
    """A message that calls a function."""
    recipient = f" to=functions.{name}"
    header = f"{recipient}<|channel|>commentary" if in_role else f"<|channel|>commentary{recipient}"
    return f"{header}{kind}<|message|>{arguments}<|call|>"


def model(wish: str, *, template: str = GPT_OSS) -> espalier.LoadedEngine:
    """A gpt-oss that writes this text where it is let."""
    target = encode(wish)
    border = len(TEXTS) + 256

    def logits_of(tokens: tuple[int, ...]) -> Any:
        written = tokens[len(tokens) - tokens[::-1].index(border) :]
        place = 0
        for token in written:
            place = next((at + 1 for at in range(place, len(target)) if target[at] == token), place)
        row = np.zeros(border + 1, dtype=np.float32)
        row[[ord(mark) for mark in '"}]']] += 1.0  # what closes things is likely
        row[RETURN] += 2.0
        if place < len(target):
            row[target[place]] += 20.0
        return row

    vocab = Vocab.from_tokens([*VOCAB.tokens, b""], eos_ids=[RETURN, CALL], special_ids={**TEXTS, border: "<|border|>"})
    return espalier.LoadedEngine(
        LocalEngine(
            name="gpt-oss",
            model=FakeStepModel(logits_of, width=vocab.width, max_positions=16_384),
            vocab=vocab,
            encode=lambda text, *, add_special: [*encode(text), border],
            template=ChatTemplate(template),
        )
    )


class ReadTurn(NamedTuple):
    """reasoning, content: the texts of such messages. calls: name and arguments of each."""

    reasoning: tuple[str, ...]
    content: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]


@cache
def harmony() -> Any:
    """OpenAI's encoding of gpt-oss."""
    openai_harmony = pytest.importorskip("openai_harmony")
    ranks = pytest.importorskip("bpe_openai").get_encoding("o200k_base")
    with tempfile.TemporaryDirectory() as folder:
        lines = (base64.b64encode(ranks.decode_single_token_bytes(rank)) + b" %d\n" % rank for rank in range(199_998))
        Path(folder, "o200k_base.tiktoken").write_bytes(b"".join(lines))
        before = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = folder
        try:
            return openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
        finally:
            del os.environ["TIKTOKEN_ENCODINGS_BASE"]
            if before is not None:
                os.environ["TIKTOKEN_ENCODINGS_BASE"] = before


def read_by_openai(text: str) -> ReadTurn:
    """The turn as OpenAI's parser reads it. Raises what that raises for a text that is none."""
    from openai_harmony import Role  # `harmony` skips where it is missing

    encoding = harmony()
    messages = encoding.parse_messages_from_completion_tokens(
        encoding.encode(text, allowed_special="all"), Role.ASSISTANT, strict=True
    )
    parts: dict[str, list[Any]] = {"reasoning": [], "content": [], "calls": []}
    for message in messages:
        body = "".join(part.text for part in message.content)
        # Behind the channel of an answer that parser takes the type for the recipient.
        if message.recipient is not None and not message.recipient.startswith("<|constrain|>"):
            assert message.recipient.startswith("functions."), message
            parts["calls"].append((message.recipient.removeprefix("functions."), body))
        else:
            parts["reasoning" if message.channel == "analysis" else "content"].append(body)
    return ReadTurn(*(tuple(part) for part in parts.values()))


WORDS = ("a", " b", "é", "日", "<", "<|", "<|en", "{", '"', "\n", "json", " to=functions.read", "assistant", "final")


def random_turn(rng: random.Random) -> str:
    """Messages of reasoning and to the user, and then an answer or a call."""
    text = ""
    for _ in range(rng.randint(0, 3)):
        body = "".join(rng.choices(WORDS, k=rng.randint(1, 5))).strip() or "x"
        text += f"<|channel|>{rng.choice(['analysis', 'commentary'])}<|message|>{body}{NEXT}"
    if rng.random() < 0.5:
        kind = rng.choice(TYPES)
        return text + call("read", '{"path": "a\\"é"}', kind, in_role=rng.random() < 0.5).removesuffix("<|call|>")
    body = "".join(rng.choices(WORDS, k=rng.randint(1, 8))).strip() or "x"
    return f"{text}{FINAL}{body}"
