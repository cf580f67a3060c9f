"""A model without weights that wants to write a given text, over the byte vocabulary. For tests and for trying things
out.

Logits are a pure function of the tokens so far, so forks, truncations and batches can be checked exactly. After a
refused token the model goes on with its text from the point reached, as real models do.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from espalier.chat.prompt.template import ChatTemplate
from espalier.constraints.compiler import NOWHERE, Folders
from espalier.decoding.ports import Extend, Rows, SequenceId
from espalier.engines.embedding import Pooling, Vectors
from espalier.engines.local.engine import LocalEngine
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.errors import LimitExceeded
from espalier.tokens.mask import Logits
from espalier.tokens.vocab import Vocab

TAKES = ()
DEFAULT_WISH = 'Sure! Here is the JSON: {"name": "Ada Lovelace", "email": "ada@example.org", "age": 36}'
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"

LogitsOf = Callable[[tuple[int, ...]], Logits]
"""All tokens of a sequence, prompt included -> `(V,) float32`."""


class FakeStepModel:
    """A StepModel over any function from tokens to logits. It holds at most `slots` sequences."""

    def __init__(self, logits_of: LogitsOf, *, width: int, max_positions: int = 4096, slots: int = 256) -> None:
        self._logits_of = logits_of
        self._width = width
        self._max_positions = max_positions
        self._slots = slots
        self._sequences: dict[SequenceId, list[int]] = {}
        self._ids = itertools.count()

    @property
    def width(self) -> int:
        return self._width

    @property
    def max_positions(self) -> int:
        return self._max_positions

    @property
    def max_sequences(self) -> int:
        return self._slots

    @property
    def capacity(self) -> int:
        return self._slots * self._max_positions

    @property
    def can_truncate(self) -> bool:
        return True

    @property
    def live(self) -> int:
        """How many sequences hold memory: 0 once every run has ended."""
        return len(self._sequences)

    def new(self) -> SequenceId:
        return self._add([])

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        for item in work:
            if len(self._sequences[item.sequence]) + len(item.tokens) > self._max_positions:
                raise LimitExceeded(f"a sequence would outgrow {self._max_positions} positions")
        return [self._extend(item) for item in work]

    def length(self, sequence: SequenceId) -> int:
        return len(self._sequences[sequence])

    def fork(self, sequence: SequenceId) -> SequenceId:
        return self._add(self._sequences[sequence])

    def truncate(self, sequence: SequenceId, length: int) -> None:
        tokens = self._sequences[sequence]
        if not 0 <= length <= len(tokens):
            raise ValueError(f"cannot truncate {len(tokens)} tokens to {length}")
        del tokens[length:]

    def free(self, sequence: SequenceId) -> None:
        del self._sequences[sequence]

    def _add(self, tokens: list[int]) -> SequenceId:
        if len(self._sequences) >= self._slots:
            raise LimitExceeded(f"all {self._slots} sequences are in use")
        sequence = SequenceId(next(self._ids))
        self._sequences[sequence] = list(tokens)
        return sequence

    def _extend(self, item: Extend) -> Rows:
        tokens = self._sequences[item.sequence]
        start = len(tokens) + 1
        tokens.extend(item.tokens)
        ends = {"none": range(0), "last": range(len(tokens), len(tokens) + 1), "all": range(start, len(tokens) + 1)}
        rows = [self._logits_of(tuple(tokens[:end])) for end in ends[item.logits]]
        return np.stack(rows) if rows else np.empty((0, self._width), dtype=np.float32)


class FakeHidden:
    """Hidden states without a model: each a pure function of the tokens up to it. They may be cut to half."""

    size = 8
    pooling: Pooling | None = "mean"
    prefixes = (4,)

    def read(self, tokens: Sequence[int]) -> Vectors:
        return np.stack([noise(tuple(tokens[: end + 1]), self.size) for end in range(len(tokens))])


def wishing(vocab: Vocab, wish: str, prompt_length: int) -> LogitsOf:
    """A model that writes `wish`, then EOS. After other bytes it goes on where `wish` next has the last one."""
    target = wish.encode()

    def logits_of(tokens: tuple[int, ...]) -> Logits:
        written = vocab.decode(tokens[prompt_length:])
        position = 0
        for byte in written:
            at = target.find(byte, position)
            position = at + 1 if at >= 0 else position
        row = noise(tokens, vocab.width)
        wanted = vocab.eos_ids[0] if position >= len(target) else target[position]
        row[wanted] += np.float32(8.0)
        row[vocab.eos_ids[0]] += np.float32(2.0)
        return row

    return logits_of


def noise(tokens: tuple[int, ...], width: int, scale: float = 1.0) -> Logits:
    """Deterministic logits of a sequence, `(V,) float32`: standard normal times `scale`."""
    digest = hashlib.sha256(np.asarray(tokens, dtype=np.int64).tobytes()).digest()
    generator = np.random.Generator(np.random.Philox(int.from_bytes(digest[:8], "little")))
    return (generator.standard_normal(width) * scale).astype(np.float32)


def open_engine(
    model: str = "fake", *, options: EngineOptions = DEFAULT, folders: Folders = NOWHERE, wish: str = DEFAULT_WISH
) -> LocalEngine:
    """`espalier.load("fake")`: bytes in, bytes out. Raises InputError for any option except `tool_format`."""
    options.check_only("fake", TAKES)
    vocab = replace(Vocab.bytes(), encoder=lambda text: list(text.encode()))
    # An EOS at the end of every prompt marks where the answer begins.
    border = vocab.eos_ids[0]

    def logits_of(tokens: tuple[int, ...]) -> Logits:
        return wishing(vocab, wish, tokens.index(border) + 1 if border in tokens else 0)(tokens)

    def encode(text: str, *, add_special: bool) -> list[int]:
        return [*text.encode(), border]

    step_model = FakeStepModel(logits_of, width=vocab.width)
    template = ChatTemplate(TEMPLATE)
    return LocalEngine(
        name=model,
        model=step_model,
        vocab=vocab,
        encode=encode,
        template=template,
        hidden=FakeHidden(),
        folders=folders,
        tool_format=options.tool_format,
    )
