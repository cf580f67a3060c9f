"""`SamplingConfig`: how a token is chosen from logits, as data, with the names that llama.cpp and PedroCLI use.

Frozen, validated, round-trips to JSON. The samplers in `samplers/` declare their own fields; the fields that belong to
no single sampler are declared here. This module does not know how the transforms work, and other servers' names are
read in `config_names.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from espalier.errors import SamplingError
from espalier.nearest import nearest_or_all
from espalier.option_types import UNSET, SamplingValues
from espalier.sampling.fields import Biases, Flag, Names, Option, Seed, Texts, TokenIds, Whole, shown, with_help
from espalier.sampling.samplers.mirostat import MIROSTAT_FIELDS, WITH_MIROSTAT
from espalier.sampling.samplers.plugged import PLUGGED, ExtraField, sampler_named, samplers_in
from espalier.sampling.samplers.registry import SAMPLERS
from espalier.sampling.samplers.sampler import Sampler

MAX_N = 128
"""The largest number of outputs for one prompt, as in OpenAI's API."""

DEFAULT_ORDER = tuple(SAMPLERS)
"""llama.cpp's order: penalise and truncate the model's own distribution, then apply the temperature."""

NEUTRAL: dict[str, float] = {
    one.name: one.off
    for sampler in SAMPLERS.values()
    if sampler.truncates
    for one in sampler.fields
    if one.off is not None
}
"""Field of a truncation -> the value that switches it off. These are the defaults while mirostat is on."""
MIROSTAT = tuple(WITH_MIROSTAT)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderField(Names):
    """Names of samplers; those of plug-ins are looked up where a name is not one of ours."""

    def check(self, given: Any) -> tuple[str, ...]:
        is_ours = isinstance(given, Sequence) and all(name in self.known for name in given)
        return (self if is_ours else replace(self, known=(*self.known, *PLUGGED.plugin_names()))).checked(given)

    def checked(self, given: Any) -> tuple[str, ...]:
        return Names.check(self, given)


FIELDS: dict[str, Option] = {
    one.name: one
    for one in (
        *(one for sampler in SAMPLERS.values() for one in sampler.fields),
        *MIROSTAT_FIELDS,
        Whole(
            name="min_keep",
            default=0,
            help="How many tokens a truncation by probability always keeps.",
            llama="min_keep",
        ),
        Biases(
            name="logit_bias",
            default=(),
            help="What to add to a logit, by token id or by text (each of its tokens); -inf bans.",
            llama="logit_bias",
            openai="logit_bias",
        ),
        Texts(
            name="bad_words",
            default=(),
            help="Texts that must not occur.",
            openai="bad_words",
            elsewhere=(("bad_words_ids", "transformers"),),
        ),
        TokenIds(
            name="allowed_ids",
            default=None,
            help="The only tokens that are drawn.",
            openai="allowed_token_ids",
            elsewhere=(("allowed_token_ids", "vLLM"),),
        ),
        Seed(
            name="seed",
            default=None,
            help="The same seed, the same answer; without one it is drawn, and the result states it.",
            hint="-1 or nothing draws one",
            llama="seed",
            openai="seed",
            elsewhere=(("random_seed", "others"),),
            common=7,
        ),
        Whole(
            name="n",
            default=1,
            low=1,
            high=MAX_N,
            help="How many outputs for a prompt.",
            llama="n_cmpl",
            openai="n",
            elsewhere=(("num_samples", "Outlines"), ("num_return", "others")),
        ),
        Whole(
            name="min_tokens",
            default=0,
            help="No end of the text is drawn before so many tokens; a constraint that leaves nothing else wins.",
            openai="min_tokens",
            elsewhere=(("min_new_tokens", "transformers"),),
        ),
        Whole(
            name="max_tokens",
            default=2048,
            low=1,
            help="The most tokens of the answer.",
            llama="n_predict",
            openai="max_tokens",
            elsewhere=(
                ("max_new_tokens", "transformers"),
                ("max_length", "transformers"),
                ("max_completion_tokens", "OpenAI"),
            ),
            common=6,
        ),
        Texts(
            name="stop",
            default=(),
            help="Texts that end the answer and are not part of it.",
            llama="stop",
            openai="stop",
            elsewhere=(("stop_strings", "transformers"), ("stop_sequences", "Anthropic"), ("stop_at", "Outlines")),
            metavar="TEXT",
            common=8,
        ),
        TokenIds(
            name="stop_ids",
            default=(),
            help="Tokens that end the answer.",
            openai="stop_token_ids",
            elsewhere=(("stop_token_ids", "vLLM"), ("eos_token_id", "transformers")),
        ),
        Flag(
            name="ignore_eos",
            default=False,
            help="The model does not end the text; with a constraint this is an error.",
            llama="ignore_eos",
            openai="ignore_eos",
        ),
        ExtraField(
            name="extra",
            default=(),
            help='Options of plug-ins\' samplers, such as {"top_a": 0.2}; they are read as attributes.',
        ),
        OrderField(
            name="sampler_order",
            default=DEFAULT_ORDER,
            known=DEFAULT_ORDER,
            help="The samplers that run, in this order; one that is not named does not run.",
            llama="samplers",
        ),
    )
}
"""Every option of SamplingConfig by name."""
COMMON = tuple(sorted((option for option in FIELDS.values() if option.common), key=lambda option: option.common))
"""The few that every edge shows first, in their order."""


def declared_default(name: str) -> Any:
    """The default of a field; UNSET if it depends on mirostat, or on which samplers there are."""
    depends = name in NEUTRAL or name in WITH_MIROSTAT or name == "sampler_order"
    return UNSET if depends else FIELDS[name].default


@with_help(FIELDS.values())
@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig(SamplingValues):
    """One request's sampling. A field at its neutral value switches its sampler off.

    While mirostat is on, what is set of the truncations and the dynamic temperature has no effect, is off in the
    config, and is named in `replaced`. A sampler that is set and that `sampler_order` does not name is in `idle`; a
    sampler of a plug-in that it does not name is put before the temperature.

    Raises SamplingError naming the field.
    """

    #: Fields that were set and have no effect, because mirostat takes their place.
    replaced: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)

    if not TYPE_CHECKING:  # for a type checker this would make every misspelt field an Any

        def __getattr__(self, name: str) -> Any:
            """The value of a plug-in's field."""
            if not name.startswith("_") and name not in FIELDS:
                for one, value in self.extra:
                    if one == name:
                        return value
            raise AttributeError(f"SamplingConfig has no field {name!r}")

    def __post_init__(self) -> None:
        mirostat = FIELDS["mirostat"].check(self.mirostat)
        for name, one in FIELDS.items():
            given = getattr(self, name)
            if given is UNSET:
                given = {**NEUTRAL, **WITH_MIROSTAT}.get(name, one.default) if mirostat else one.default
            # Most fields are at their defaults, which need no check.
            object.__setattr__(self, name, given if given is one.default else one.check(given))
        if self.extra:
            object.__setattr__(self, "sampler_order", self._order_with_plugins())
        if mirostat:
            self._switch_off_replaced()
        self._check_together()

    def _switch_off_replaced(self) -> None:
        """Switch off what mirostat takes the place of, and keep the names of what was set."""
        off = {**NEUTRAL, "dynatemp_range": 0.0}
        replaced = [name for name, value in off.items() if getattr(self, name) != value]
        for name in replaced:
            object.__setattr__(self, name, off[name])
        plugged = {one.name: one for one in self.plugged if one.truncates}
        if plugged:
            names = {one.name for sampler in plugged.values() for one in sampler.fields}
            object.__setattr__(self, "extra", tuple(pair for pair in self.extra if pair[0] not in names))
            order = tuple(name for name in self.sampler_order if name not in plugged)
            object.__setattr__(self, "sampler_order", order)
            replaced += [sampler.switch.name for sampler in plugged.values()]
        object.__setattr__(self, "replaced", tuple(replaced))

    def _order_with_plugins(self) -> tuple[str, ...]:
        """The order with the samplers of `extra` that it lacks, before the temperature."""
        order = list(self.sampler_order)
        place = order.index("temperature") if "temperature" in order else len(order)
        order[place:place] = [one.name for one in samplers_in(self.extra) if one.name not in order]
        return tuple(order)

    def _sampler(self, name: str) -> Sampler | None:
        """A sampler that may run: one of ours, or of a plug-in whose fields are given."""
        if name in SAMPLERS:
            return SAMPLERS[name]
        return sampler_named(name) if any(one == name or one.startswith(f"{name}_") for one, _ in self.extra) else None

    def _check_together(self) -> None:
        if self.min_tokens > self.max_tokens:
            raise SamplingError(
                f"min_tokens: {self.min_tokens} is more than max_tokens {self.max_tokens}", field="min_tokens"
            )
        if self.mirostat and (self.mirostat_eta <= 0 or self.mirostat_tau <= 0):
            raise SamplingError("mirostat_tau and mirostat_eta must be above 0", field="mirostat_tau")

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken and nothing is drawn."""
        return self.temperature == 0.0 and not self.dynatemp_range

    @property
    def active(self) -> tuple[str, ...]:
        """The samplers that run, in order: those named in `sampler_order` that are not at their neutral value."""
        samplers = ((name, self._sampler(name)) for name in self.sampler_order)
        return tuple(name for name, one in samplers if one is not None and one.is_on(self))

    @property
    def plugged(self) -> tuple[Sampler, ...]:
        """The samplers of plug-ins that run."""
        return tuple(sampler_named(name) for name in self.active if name not in SAMPLERS) if self.extra else ()

    @property
    def idle(self) -> tuple[str, ...]:
        """Samplers that are set and do not run, because `sampler_order` leaves them out. Greedy needs no order."""
        left_out = [name for name in DEFAULT_ORDER if name not in self.sampler_order and SAMPLERS[name].is_on(self)]
        return tuple(name for name in left_out if name != "temperature" or not self.is_greedy)

    @property
    def has_penalties(self) -> bool:
        """Whether any of the three penalties changes anything."""
        return SAMPLERS["penalties"].is_on(self)

    def changed(self, **given: Any) -> SamplingConfig:
        """The config with other values of some fields. Fields at their defaults stay there, also where mirostat, which
        moves defaults, is switched on or off. `extra` adds to what there is. Raises SamplingError."""
        usual = SamplingConfig(mirostat=self.mirostat)
        own = {name: getattr(self, name) for name in FIELDS if getattr(self, name) != getattr(usual, name)}
        if "extra" in given:
            given["extra"] = {**dict(self.extra), **dict(given["extra"] or ())}
        return SamplingConfig.from_json({"mirostat": self.mirostat, **own, **given})

    def without(self, names: Sequence[str]) -> SamplingConfig:
        """The config with these fields off, and named in `replaced`."""
        off: dict[str, Any] = {name: FIELDS[name].off for name in names}
        config = replace(self, **off)
        object.__setattr__(config, "replaced", (*self.replaced, *names))
        return config

    @property
    def notes(self) -> tuple[str, ...]:
        """What was set and has no effect, as one sentence."""
        if not self.replaced:
            return ()
        have = "has" if len(self.replaced) == 1 else "have"
        return (f"mirostat takes the place of {', '.join(self.replaced)}, which {have} no effect",)

    def to_json(self) -> dict[str, Any]:
        """All fields in our names; -inf, which JSON does not have, is written as null in `logit_bias`."""
        found: dict[str, Any] = {}
        for name in FIELDS:
            value = getattr(self, name)
            found[name] = list(value) if isinstance(value, tuple) else value
        found["extra"] = dict(self.extra)
        found["logit_bias"] = [[key, value if math.isfinite(value) else None] for key, value in self.logit_bias]
        return found

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SamplingConfig:
        """The inverse of `to_json`; unknown names raise SamplingError."""
        if not isinstance(data, Mapping):
            raise SamplingError(f"{shown(data)} is not a mapping from names to values")
        for name in data:
            if name not in FIELDS:
                raise SamplingError(
                    f"there is no sampling field {shown(name)}",
                    hint=nearest_or_all(str(name), sorted(FIELDS)),
                    field=str(name),
                )
        return SamplingConfig(**data)
