"""Soft constraints: logit biases instead of masks. Their specs are frozen values that round-trip to JSON.

`SOFT_KINDS` lists their kinds, one `SoftKind` value each, and is filled by `kinds.py`. They know no model.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, ClassVar

from espalier.constraints.compiler import Compiler
from espalier.constraints.function_kind import Code, function_of
from espalier.constraints.kind_table import Kinds
from espalier.constraints.spec import Spec
from espalier.constraints.words.spec import Wordlist
from espalier.errors import SpecError
from espalier.sampling.filters import LogitFilter

MAX_BIAS = 1e6
"""The largest bias: beyond it float32 logits would lose the model's own differences."""


class SoftSpec(ABC):
    """The spec of a soft constraint. Subclasses are frozen dataclasses with a `kind`.

    A soft constraint forbids nothing: the allowed set and the masses in a trace are those of the hard constraint.
    """

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """`{"kind": ..., field: value, ...}`, all JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]  # a dataclass
        return {"kind": self.kind} | {k: v.to_json() if isinstance(v, Spec) else v for k, v in values.items()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SoftSpec:
        """The inverse of `to_json`. Raises SpecError naming the field."""
        known = ", ".join(SOFT_KINDS)
        if not isinstance(data, Mapping) or "kind" not in data:
            raise SpecError("a soft constraint needs a `kind`", hint=f"one of: {known}", field="kind")
        kind = data["kind"]
        cls: type[SoftSpec] | None = SOFT_KINDS.spec_of(kind) if isinstance(kind, str) else None
        if cls is None:
            raise SpecError(f"unknown soft constraint {kind!r}", hint=f"one of: {known}", field="kind")
        names = [f.name for f in fields(cls)]  # type: ignore[arg-type]  # a dataclass
        for name in data:
            if name != "kind" and name not in names:
                raise SpecError(f"{cls.__name__} has no field {name!r}", hint=f"fields: {', '.join(names)}", field=name)
        try:
            return cls.from_fields({k: v for k, v in data.items() if k != "kind"})
        except TypeError as error:
            raise SpecError(f"{cls.__name__}: {error}") from error

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> SoftSpec:
        """The spec from values as `to_json` writes them; fields with defaults may be missing. Raises SpecError naming
        the field, TypeError for a missing field."""
        return cls(**values)

    def filter(self, compiler: Compiler) -> LogitFilter:
        """The filter of one sequence. Raises SpecError and its subclasses, VocabError, LimitExceeded."""
        logit_filter: LogitFilter = function_of(SOFT_KINDS.load(self.kind).filter)(self, compiler)
        return logit_filter


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftJson(SoftSpec):
    """JSON mode as logit biases: boosts the tokens that the JSON text needs next, and EOS after the document.

    structural_bias: added to tokens that start with the punctuation needed next, and to EOS after the document.
    empty_bias: added to the closer of an empty document. done_penalty: subtracted from all other tokens after the
    document. Each is from 0 to 1,000,000. Raises SpecError naming the field.
    """

    kind: ClassVar[str] = "soft_json"
    structural_bias: float = 5.0
    empty_bias: float = 2.5
    done_penalty: float = 3.0

    def __post_init__(self) -> None:
        for name in ("structural_bias", "empty_bias", "done_penalty"):
            object.__setattr__(self, name, _number(getattr(self, name), name, least=0.0, most=MAX_BIAS))


@dataclass(frozen=True, slots=True)
class SoftWordlist(SoftSpec):
    """A word list as logit biases, in three tiers: N, the size of the first tier, is `wordlist.top`.

    Tokens that stay within the first N words keep their logits. Tokens that need a word of rank N < r <= k*N lose
    `tier2_penalty`, all others `tier3_penalty`; k is `tier2_max_rank_multiplier`, and k*N is rounded up exactly.

    Needs k >= 1, 0 <= tier2_penalty <= tier3_penalty and tier3_penalty > 0. Raises SpecError naming the field.
    """

    kind: ClassVar[str] = "soft_wordlist"
    wordlist: Wordlist
    tier2_max_rank_multiplier: float = field(default=1.0, kw_only=True)
    tier2_penalty: float = field(default=0.0, kw_only=True)
    tier3_penalty: float = field(default=8.0, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.wordlist, Wordlist):
            raise SpecError(f"wordlist is a Wordlist, not {type(self.wordlist).__name__}", field="wordlist")
        if self.wordlist.top is None:
            raise SpecError(
                "a soft word list needs `top`: how many words have no penalty",
                hint='SoftWordlist(Wordlist(lang="es", top=3000))',
                field="top",
            )
        for name, least, most in (
            ("tier2_max_rank_multiplier", 1.0, math.inf),
            ("tier2_penalty", 0.0, MAX_BIAS),
            ("tier3_penalty", 0.0, MAX_BIAS),
        ):
            object.__setattr__(self, name, _number(getattr(self, name), name, least=least, most=most))
        if self.tier3_penalty == 0.0:
            raise SpecError("tier3_penalty: 0 would change nothing; it must be more", field="tier3_penalty")
        if self.tier2_penalty > self.tier3_penalty:
            raise SpecError(
                f"tier2_penalty: {self.tier2_penalty} is more than tier3_penalty, {self.tier3_penalty}",
                field="tier2_penalty",
            )

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> SoftWordlist:
        if "wordlist" not in values:
            raise SpecError("SoftWordlist needs a wordlist", field="wordlist")
        wordlist = values["wordlist"]
        if not isinstance(wordlist, Spec):
            wordlist = Spec.from_json(wordlist)
        return cls(**{**values, "wordlist": wordlist})

    @property
    def last_rank(self) -> int:
        """The last rank of the second tier, ceil(k*N), which may be beyond the list."""
        # Computed from the decimal as written, not from the float: 1.1 * 10 is 11.
        return math.ceil(Fraction(repr(self.tier2_max_rank_multiplier)) * (self.wordlist.top or 0))


def _number(value: Any, name: str, *, least: float, most: float) -> float:
    """A finite float within its range. Raises SpecError naming the field."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{name}: {value!r} is not a number", field=name)
    if not least <= value <= most or value in (math.inf, -math.inf):
        limit = f" and at most {most:g}" if math.isfinite(most) else ", and finite"
        raise SpecError(f"{name}: {value!r} must be at least {least:g}{limit}", field=name)
    try:
        return float(value)
    except OverflowError as error:
        raise SpecError(f"{name}: a number too large", field=name) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftKind:
    """One kind of soft constraint.

    spec: the class of its specs, whose `kind` is the kind's name.
    filter: `(spec, compiler) -> LogitFilter`, the filter of one sequence.
    """

    spec: type[SoftSpec]
    filter: Code


SOFT_KINDS: Kinds[SoftKind] = Kinds("soft_constraints")
