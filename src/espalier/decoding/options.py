"""Decoding options as data: their declarations, and `Decoding`, the options of one request. It knows no model and no
step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from espalier.errors import InputError
from espalier.nearest import nearest_or_all
from espalier.option_types import DecodingValues
from espalier.sampling.fields import Choice, Number, Option, Types, Whole, Word, with_help
from espalier.wording import OptionText, Setting

OnBudget: TypeAlias = Literal["close", "truncate", "error"]
OnStop: TypeAlias = Literal["cut", "error"]
Target: TypeAlias = Literal["full", "truncated"]

USUAL_BEAMS = 4
USUAL_PARTICLES = 8
MAX_BRANCHES = 128
"""The most beams or particles: each holds a sequence of the KV cache."""
MAX_REWINDS = 2**31
FAITHFUL = ("best_of", "smc", "awrs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(Option):
    """When a beam search ends: true, false, or never."""

    types: ClassVar[Types] = Types('bool | Literal["never"]', 'bool | Literal["never"]', bool | Literal["never"])

    def check(self, given: Any) -> Any:
        if not isinstance(given, bool) and given != "never":
            raise self.fault(f"{given!r} must be true, false or never")
        return given

    def read(self, text: str) -> Any:
        return {"true": True, "false": False}.get(text, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources(Option):
    """The names of sources of drafts, each once; None for the usual ones."""

    types: ClassVar[Types] = Types("Sequence[str]", "tuple[str, ...]", list[str])

    def check(self, given: Any) -> tuple[str, ...] | None:
        if given is None:
            return None
        names = tuple(given) if isinstance(given, list | tuple) else ()
        if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
            raise self.fault(f"{given!r} must be a list of different names", hint=self.hint)
        return names

    def read(self, text: str) -> tuple[str, ...]:
        return tuple(name.strip() for name in text.split(","))


OPTIONS: Mapping[str, Option] = {
    option.name: replace(option, error=InputError)
    for option in (
        Word(
            name="strategy",
            default="mask",
            help="How the constraint is applied: mask (the default), draft, rejection, jump, beam, ..., a plug-in's.",
            metavar="NAME",
        ),
        Whole(
            name="num_beams",
            low=1,
            high=MAX_BRANCHES,
            help=f"beam: number of beams. Default: {USUAL_BEAMS}.",
            openai="num_beams",
            idle=(1,),
            strategies=("beam",),
            elsewhere=(("beam_width", "vLLM"),),
            metavar="N",
        ),
        Number(
            name="length_penalty",
            default=1.0,
            low=-math.inf,
            help="beam: the score of a text is the sum of ln p / length ** this; above 1, longer texts win.",
            openai="length_penalty",
            idle=(1, 0),
            strategies=("beam",),
            metavar="X",
        ),
        Stopping(
            name="early_stopping",
            default=False,
            help="beam: true ends the search with as many finished texts as beams, false (the default) when no beam is "
            "likely to do better, never when none can.",
            openai="early_stopping",
            idle=(False,),
            strategies=("beam",),
            metavar="WHAT",
        ),
        Whole(
            name="num_return_sequences",
            default=1,
            low=1,
            high=MAX_BRANCHES,
            help="How many texts the result of one run holds, best first.",
            strategies=("beam", *FAITHFUL),
            metavar="N",
        ),
        Whole(
            name="particles",
            low=1,
            high=MAX_BRANCHES,
            help=f"best_of, smc, awrs: number of particles. Default: {USUAL_PARTICLES}.",
            strategies=FAITHFUL,
            metavar="N",
        ),
        Number(
            name="ess_threshold",
            default=0.5,
            high=1.0,
            help="smc, awrs: resample where the effective sample size is below this share of the particles.",
            strategies=("smc", "awrs"),
            metavar="X",
        ),
        Choice(
            name="target",
            default="full",
            known=get_args(Target),
            help="best_of, smc, awrs: full, the model's distribution given the constraint; or truncated, the same "
            "after truncations.",
            strategies=FAITHFUL,
            metavar="WHAT",
        ),
        Choice(
            name="on_budget",
            default="truncate",
            known=get_args(OnBudget),
            help="A constrained text that would not be complete at `max_tokens`: close leads it to its shortest end in "
            "time, truncate cuts it off, error refuses it.",
            metavar="WHAT",
        ),
        Choice(
            name="on_stop",
            default="cut",
            known=get_args(OnStop),
            help="A constrained text, or a call, that a stop text would cut before it is complete: cut ends it there, "
            "with a warning, error refuses it.",
            metavar="WHAT",
        ),
        Whole(
            name="max_rewinds",
            default=100,
            high=MAX_REWINDS,
            help="How often tokens may be taken back where a constraint refuses a text only later.",
            strategies=("mask", "draft"),
            metavar="N",
        ),
        Sources(
            name="drafts",
            help="draft: the sources that propose tokens, in order of preference. Default: forced, grammar, lookup, "
            "and model where there is a draft model.",
            hint='["forced", "lookup"]',
            strategies=("draft",),
            flag="draft",
            metavar="NAME,NAME",
        ),
    )
}
"""Every option of Decoding by name."""


@with_help(OPTIONS.values())
@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding(DecodingValues):
    """The decoding options of one request. An option of other strategies than the one that runs must stay at its
    default.

    Raises InputError naming the field.
    """

    def __post_init__(self) -> None:
        for option in OPTIONS.values():
            object.__setattr__(self, option.name, option.check(getattr(self, option.name)))
        for option in OPTIONS.values():
            is_read = not option.strategies or self.strategy in option.strategies
            if not is_read and getattr(self, option.name) != option.default:
                raise InputError(
                    f"{option.name} means nothing to the strategy {self.strategy}",
                    hint=OptionText(Setting("strategy", option.strategies[0])),
                    field=option.name,
                )

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
        values = {name: getattr(self, name) for name in OPTIONS}
        changed = {name: value for name, value in values.items() if value != OPTIONS[name].default}
        return {"strategy": self.strategy} | changed | ({"drafts": list(self.drafts)} if self.drafts else {})

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Decoding:
        """Raises InputError for an unknown field."""
        unknown = [name for name in data if name not in OPTIONS]
        if unknown:
            raise InputError(
                f"decoding has no field {unknown[0]!r}", hint=nearest_or_all(unknown[0], OPTIONS), field=unknown[0]
            )
        return Decoding(**data)


BRANCHES = ("num_beams", "particles")
"""The options that say how many sequences a run has."""


def branches_option(strategy: str) -> str:
    """The option that says how many sequences a run of the strategy has."""
    return next((name for name in BRANCHES if strategy in OPTIONS[name].strategies), BRANCHES[-1])


Sequences: TypeAlias = Callable[[Decoding], int]


def single(options: Decoding) -> int:  # the type of `Strategy.sequences`
    """One sequence, for strategies that extend a single text."""
    return 1
