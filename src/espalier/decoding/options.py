"""Decoding options as data: the strategy and the options of each strategy. It knows no model and no step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from espalier.errors import InputError
from espalier.nearest import nearest_or_all

OnBudget: TypeAlias = Literal["close", "truncate", "error"]
Target: TypeAlias = Literal["full", "truncated"]

USUAL_BEAMS = 4
USUAL_PARTICLES = 8
MAX_BRANCHES = 128
"""The most beams or particles: each holds a sequence of the KV cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The decoding options of one request.

    strategy: a name of `STRATEGIES`. Options of other strategies must stay at their defaults.

    beam: num_beams, None for 4. length_penalty: the score of a hypothesis is `sum of ln p / length ** length_penalty`.
    early_stopping: True ends the search with as many finished hypotheses as beams, False when no beam is likely to do
    better, "never" when none can. num_return_sequences: how many hypotheses the result holds, best first.

    best_of, smc, awrs: particles, None for 8. ess_threshold: `smc` and `awrs` resample where the effective sample size
    falls below this share of the particles. target: "full" (the default) is the model's distribution after penalties,
    bias and temperature, given the constraint; "truncated" is the same after top_k, top_p and min_p.

    draft: drafts, the names of the sources that propose tokens, in order of preference; None for the usual ones.

    on_budget: what happens to a constrained text that would not be complete at `max_tokens`: `close` leads it to its
    shortest end in time, `truncate` cuts it off, `error` raises BudgetExceeded. max_rewinds: how often tokens may be
    taken back where a constraint refuses a text only later.

    Raises InputError naming the field.
    """

    strategy: str = "mask"
    num_beams: int | None = None
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    num_return_sequences: int = 1
    particles: int | None = None
    ess_threshold: float = 0.5
    target: Target = "full"
    on_budget: OnBudget = "truncate"
    max_rewinds: int = 100
    drafts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, str):
            raise InputError(f"strategy is a name, not {self.strategy!r}", field="strategy")
        self._check_drafts()
        for name, least in (("num_beams", 1), ("particles", 1), ("num_return_sequences", 1), ("max_rewinds", 0)):
            value = getattr(self, name)
            if value is None and name in ("num_beams", "particles"):
                continue
            most = MAX_BRANCHES if name != "max_rewinds" else 2**31
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise InputError(f"{name}: {value!r} must be a whole number from {least} to {most}", field=name)
        for name in ("length_penalty", "ess_threshold"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"{name}: {value!r} must be a finite number", field=name)
        if not 0 <= self.ess_threshold <= 1:
            raise InputError(f"ess_threshold: {self.ess_threshold:g} must be from 0 to 1", field="ess_threshold")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise InputError(
                f"early_stopping: {self.early_stopping!r} must be true, false or never", field="early_stopping"
            )
        for name, known in (("on_budget", get_args(OnBudget)), ("target", get_args(Target))):
            if getattr(self, name) not in known:
                raise InputError(f"unknown {name} {getattr(self, name)!r}", hint=", ".join(known), field=name)
        for name, strategies in OWNERS.items():
            if getattr(self, name) != DEFAULTS[name] and self.strategy not in strategies:
                raise InputError(
                    f"{name} means nothing to the strategy {self.strategy}",
                    hint=f'strategy="{strategies[0]}"',
                    field=name,
                )

    def _check_drafts(self) -> None:
        if self.drafts is None:
            return
        drafts = self.drafts
        names = tuple(drafts) if isinstance(drafts, list | tuple) else ()
        if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
            raise InputError(
                f"drafts: {drafts!r} must be a list of different names", hint='["forced", "lookup"]', field="drafts"
            )
        object.__setattr__(self, "drafts", names)

    @property
    def beams(self) -> int:
        """The number of beams."""
        return USUAL_BEAMS if self.num_beams is None else self.num_beams

    @property
    def count(self) -> int:
        """The number of particles."""
        return USUAL_PARTICLES if self.particles is None else self.particles

    def to_json(self) -> dict[str, Any]:
        """The strategy, and the fields that differ from their defaults."""
        changed = {
            option.name: getattr(self, option.name)
            for option in fields(self)
            if getattr(self, option.name) != option.default
        }
        return {"strategy": self.strategy} | changed | ({"drafts": list(self.drafts)} if self.drafts else {})

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Decoding:
        """Raises InputError for an unknown field."""
        unknown = [name for name in data if name not in FIELDS]
        if unknown:
            raise InputError(
                f"decoding has no field {unknown[0]!r}",
                hint=nearest_or_all(unknown[0], FIELDS),
                field=unknown[0],
            )
        return Decoding(**data)


FAITHFUL = ("best_of", "smc", "awrs")
OWNERS: Mapping[str, tuple[str, ...]] = {
    "num_beams": ("beam",),
    "length_penalty": ("beam",),
    "early_stopping": ("beam",),
    "num_return_sequences": ("beam", *FAITHFUL),
    "particles": FAITHFUL,
    "ess_threshold": ("smc", "awrs"),
    "target": FAITHFUL,
    "max_rewinds": ("mask", "draft"),
    "drafts": ("draft",),
}
"""The strategies that read a field. With any other strategy the field is refused, not ignored."""
FIELDS = tuple(option.name for option in fields(Decoding))
DEFAULTS = {option.name: option.default for option in fields(Decoding)}

Sequences: TypeAlias = Callable[[Decoding], int]


def single(options: Decoding) -> int:  # the type of `Strategy.sequences`
    """One sequence, for strategies that extend a single text."""
    return 1
