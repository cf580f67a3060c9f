"""Forward hooks that keep the hidden states of sequences that are watched.

A hook only keeps a reference to what the layer returned: nothing is copied or waited for while the model runs. After
the pass the wanted rows of all layers go to the CPU in one copy, which is queued before that of the logits: who waits
for the logits has waited for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.hooks import RemovableHandle

from espalier.activations.capture.tree import CaptureNode, CaptureTree
from espalier.activations.store.record import SITES

Name: TypeAlias = tuple[str, int]
_PARTS = {
    "attention": ("self_attn", "attn", "attention", "self_attention"),
    "mlp": ("mlp", "feed_forward", "ffn", "block_sparse_moe"),
}
# NumPy has no bfloat16; int8 is made from exact values when they are stored.
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "int8": torch.float32}


class VectorCopy(NamedTuple):
    """One copy on its way: the vectors of several lines `(sites * layers, N, hidden)`, and whose they are."""

    values: torch.Tensor
    lines: list[tuple[int, list[int]]]  # place in the batch, wanted tokens of it; N in all


class Taps:
    """The hidden states of watched sequences of one model. layers: their number, 0 where they were not found; sites:
    those that can be captured."""

    def __init__(self, model: Any, count: int) -> None:
        modules = _find_modules(model, count)
        self._modules = {name: module for name, module in modules if module is not None}
        self.layers = count if all(("residual", n) in self._modules for n in range(count)) else 0
        self.sites = tuple(s for s in SITES if self.layers and all((s, n) in self._modules for n in range(count)))
        self._places: dict[int, tuple[CaptureTree, CaptureNode]] = {}
        self._handles: dict[Name, RemovableHandle] = {}
        self._kept: dict[Name, torch.Tensor] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no sequence is watched."""
        return not self._places

    def watch(self, row: int, tree: CaptureTree) -> None:
        """A new sequence is watched from now on."""
        self._places[row] = tree, tree.start()
        for name in ((site, layer) for site in tree.options.sites for layer in tree.layers):
            if name not in self._handles:
                self._handles[name] = self._modules[name].register_forward_hook(self._hook(name))

    def forget(self, row: int) -> None:
        """A sequence is watched no longer; its text may be the one that is asked for, so the tree keeps it."""
        if self._places.pop(row, None) is not None and not self._places:
            for handle in self._handles.values():
                handle.remove()
            self._handles.clear()
            self._kept.clear()

    def fork(self, source: int, target: int) -> None:
        position = self._places.get(source)
        if position is not None:
            self._places[target] = position[0], position[0].fork(position[1])

    def cut(self, row: int, length: int) -> None:
        position = self._places.get(row)
        if position is not None:
            self._places[row] = position[0], position[0].cut(position[1], length)

    def copy(self, rows: Sequence[int], counts: Sequence[int], order: Sequence[int]) -> list[VectorCopy]:
        """Queue the copies of a pass that has just run. counts: its new tokens by row. order: the rows by line."""
        width = max(counts)
        groups: dict[Any, list[tuple[int, int, list[int]]]] = {}
        for line, n in enumerate(order):
            if rows[n] in self._places:
                tree, node = self._places[rows[n]]
                wanted = tree.wanted(node.depth, counts[n])
                if wanted:
                    groups.setdefault(tree.selection, []).append((line, n, wanted))
        copies = []
        for (sites, layers, dtype), members in groups.items():
            states = [self._kept[site, layer] for site in sites for layer in layers]  # (B, T, hidden) each
            if width == 1:
                lines = [line for line, _, _ in members]
                whole = len(lines) == len(order)
                picked = [state[:, 0] if whole else state[lines, 0] for state in states]  # (N, hidden)
            else:  # new tokens are right-aligned
                spots = [(line, width - counts[n] + i) for line, n, wanted in members for i in wanted]
                where = tuple(torch.tensor(axis, device=states[0].device) for axis in zip(*spots, strict=True))
                picked = [state[where] for state in states]  # (N, hidden)
            together = torch.stack([part.to(picked[0].device) for part in picked])  # layers may be on several devices
            together = together.to(_DTYPES[dtype])
            copies.append(VectorCopy(_to_cpu(together), [(n, wanted) for _, n, wanted in members]))
        self._kept.clear()
        return copies

    def take(self, rows: Sequence[int], tokens: Sequence[Sequence[int]], copied: Sequence[VectorCopy]) -> None:
        """The copies have arrived: give each sequence its own."""
        vectors: dict[int, tuple[list[int], NDArray[Any]]] = {}
        for copy in copied:
            values, start = _array(copy.values), 0
            for n, wanted in copy.lines:
                vectors[n] = wanted, values[:, start : start + len(wanted)]
                start += len(wanted)
        for n, row in enumerate(rows):
            if row in self._places:
                tree, node = self._places[row]
                wanted, own = vectors.get(n, ([], None))
                self._places[row] = tree, tree.grow(node, tokens[n], wanted, own)

    def _hook(self, name: Name) -> Callable[..., None]:
        states = self._kept

        def keep(module: Any, inputs: Any, returned: Any) -> None:
            states[name] = returned[0] if isinstance(returned, tuple) else returned

        return keep


def _to_cpu(values: torch.Tensor) -> torch.Tensor:
    if values.device.type != "cuda":
        return values.cpu()
    # Only a copy to pinned memory does not wait for the device.
    target = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return target.copy_(values, non_blocking=True)


def _array(values: torch.Tensor) -> NDArray[Any]:
    if values.dtype == torch.bfloat16:
        return values.view(torch.int16).numpy().view(np.uint16)
    return values.numpy()


def _find_modules(model: Any, count: int) -> list[tuple[Name, Any]]:
    """The modules of a decoder with `count` layers, by site and layer; None where one is not known."""
    lists = [
        stack
        for stack in model.modules()
        if isinstance(stack, torch.nn.ModuleList) and len(stack) == count and _part(stack[0], "attention") is not None
    ]
    if not count or len(lists) != 1:
        return []
    modules: list[tuple[Name, Any]] = []
    for number, layer in enumerate(lists[0]):
        modules.append((("residual", number), layer))
        modules += [((site, number), _part(layer, site)) for site in _PARTS]
    return modules


def _part(layer: Any, site: str) -> Any:
    children = dict(layer.named_children())
    return next((children[name] for name in _PARTS[site] if name in children), None)
