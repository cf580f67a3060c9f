"""The vectors of one run while it goes on: a tree of tokens, so that sequences with one beginning share its vectors.

A causal model computes the same for the same tokens, so what a text's vectors are does not depend on the branch that
read it: beams and particles that were freed need no bookkeeping, and the vectors of a text are those on its path. What
is taken back is removed, unless another sequence has read it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.activations.capture.options import Activations
from espalier.activations.store.record import SITES
from espalier.errors import GenerationError


class CaptureNode:
    """The state after reading one more token. holders: sequences that end, or ended, here."""

    __slots__ = ("children", "depth", "holders", "parent", "token", "vectors")

    def __init__(self, parent: CaptureNode | None, token: int, depth: int) -> None:
        self.parent, self.token, self.depth = parent, token, depth
        self.children: dict[int, CaptureNode] = {}
        self.holders = 0
        self.vectors: NDArray[Any] | None = None  # (sites * layers, hidden)


class CaptureTree:
    """What the sequences of one run have read. For one thread at a time.

    options: what is asked for. layers: the numbers of the layers. prompt: tokens of the prompt.
    """

    def __init__(self, options: Activations, layers: Sequence[int], prompt: int) -> None:
        self.options, self.layers, self.prompt = options, tuple(layers), prompt
        self.selection = (options.sites, self.layers, options.dtype)
        """Equal for runs whose vectors can be copied together."""
        self._wants = options.wanted(prompt)
        self._root = CaptureNode(None, -1, 0)

    def start(self) -> CaptureNode:
        """The place of a new, empty sequence."""
        self._root.holders += 1
        return self._root

    def wanted(self, start: int, count: int) -> list[int]:
        """Which of the next `count` tokens need vectors, counted from the first of them. start: its position."""
        wants = self._wants
        return [i for i in range(count) if wants(start + i)]

    def grow(
        self, place: CaptureNode, tokens: Sequence[int], wanted: Sequence[int], vectors: NDArray[Any] | None
    ) -> CaptureNode:
        """A sequence has read more tokens. vectors: `(sites * layers, len(wanted), hidden)`, sites first. Returns its
        new place."""
        wanted_positions = iter(wanted)
        following, column = next(wanted_positions, -1), 0
        place.holders -= 1
        for i, token in enumerate(tokens):
            child = place.children.get(token)
            if child is None:
                child = place.children[token] = CaptureNode(place, token, place.depth + 1)
            if i == following:
                if vectors is not None and child.vectors is None:
                    child.vectors = vectors[:, column]
                following, column = next(wanted_positions, -1), column + 1
            place = child
        place.holders += 1
        return place

    def fork(self, place: CaptureNode) -> CaptureNode:
        """The place of a copy of a sequence."""
        place.holders += 1
        return place

    def cut(self, place: CaptureNode, length: int) -> CaptureNode:
        """A sequence goes back to `length` tokens. What no other sequence has read is gone."""
        place.holders -= 1
        while place.depth > length and place.parent is not None:
            parent = place.parent
            if not place.holders and not place.children:
                del parent.children[place.token]
            place = parent
        place.holders += 1
        return place

    def vectors(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], dict[tuple[str, int], NDArray[Any]]]:
        """The positions that have vectors, and by (site, layer) the vectors `(positions, hidden)`: float16, float32, or
        uint16 for bfloat16. tokens: ids of prompt and response.

        Raises GenerationError if the prompt was not read, or float16 cannot hold a value."""
        path = [*self._path(tokens)]
        if len(path) < self.prompt:
            raise GenerationError("the prompt's hidden states were not captured")
        kept = [node for node in path if self._wants(node.depth - 1)]
        if self.options.positions == "last":
            kept = kept[-1:]
        if not kept:
            return (), {}
        if any(node.vectors is None for node in kept):
            raise GenerationError("a hidden state was not captured")
        together = np.stack([node.vectors for node in kept if node.vectors is not None], axis=1)
        if self.options.dtype == "float16" and not np.isfinite(together).all():
            raise GenerationError(
                "a hidden state is beyond float16, which ends at 65,504",
                hint="capture it as bfloat16 or float32",
                field="activations",
            )
        names = [(site, layer) for site in SITES if site in self.options.sites for layer in self.layers]
        return tuple(node.depth - 1 for node in kept), dict(zip(names, together, strict=True))

    @property
    def size(self) -> int:
        """How many tokens the tree holds."""
        todo, count = [self._root], -1
        while todo:
            node = todo.pop()
            count += 1
            todo += node.children.values()
        return count

    def _path(self, tokens: Sequence[int]) -> Iterator[CaptureNode]:
        place = self._root
        for token in tokens:
            child = place.children.get(token)
            if child is None:
                return
            yield child
            place = child
