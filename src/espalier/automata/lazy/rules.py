"""What expressions that are explored on demand need to know of the rules that they name. It knows no items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from espalier.grammar.ast import Node

Start: TypeAlias = Any
"""What a call leads to: a position, opaque here, or a `Later`."""


class Later:
    """The first position of a rule that is made when a walk first reaches it. make: makes it; least: what the rule
    costs at least."""

    __slots__ = ("_make", "_place", "least")

    def __init__(self, make: Callable[[], Any], least: int) -> None:
        self._make, self.least = make, least
        self._place: Any = None

    def place(self) -> Any:
        """The position. Raises what `make` raises, each time."""
        if self._place is None:
            self._place = self._make()
        return self._place


class NoRules:
    """For expressions that name no rule."""

    def start_of(self, name: str) -> Start:
        raise AssertionError(f"an expression without rules refers to the rule {name}")

    def cost_of(self, name: str) -> int:
        raise AssertionError(f"an expression without rules refers to the rule {name}")

    def shared(self, node: Node) -> None:
        return None

    def release(self) -> None:
        """It holds nothing."""


class OwnedRule(NoRules):
    """For expressions that name one rule alone, by any name. start: its first position, whose table nobody else
    reads."""

    def __init__(self, start: Start) -> None:
        self._start = start

    def start_of(self, name: str) -> Start:
        return self._start

    def cost_of(self, name: str) -> int:
        least: int = self._start.least
        return least

    def release(self) -> None:
        self._start.explored.release()


class RuleTable(Protocol):
    """The rules that expressions name."""

    def start_of(self, name: str) -> Start:
        """The first position of a rule."""
        ...

    def cost_of(self, name: str) -> int:
        """The least number of bytes of a rule."""
        ...

    def shared(self, node: Node) -> Start | None:
        """The first position of an expression that all schemas share; None for one that is read in place."""
        ...

    def release(self) -> None:
        """Drop all it holds, what refers back to it too. It is asked nothing more. Idempotent."""
        ...
