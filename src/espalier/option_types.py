"""The types of options for type checkers, editors and `help`: the fields of `SamplingConfig` and `Decoding`, and the
arguments of `generate`. It checks no value.

`python scripts/option_tables.py` writes this file from the declarations of the options; do not change it by hand.
Arguments that take our own objects are in `api/options.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypedDict


class Unset:
    """A default that depends on whether mirostat is on, or on which samplers there are."""


UNSET: Final[Any] = Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingValues:
    """The fields of `SamplingConfig`."""

    #: 0 takes the most probable token (ties: the lowest id); larger values draw more evenly.
    temperature: float = 0.7
    #: Keeps this many of the most probable tokens; 0 is off.
    top_k: int = UNSET
    #: Keeps the most probable tokens until their mass reaches this; 1 is off.
    top_p: float = UNSET
    #: Keeps the tokens that are at least this share as probable as the best one; 0 is off.
    min_p: float = UNSET
    #: Divides the logits of tokens in the last `repetition_window` tokens, prompt included; 1 is off.
    repetition_penalty: float = 1.1
    #: The most tokens of the answer.
    max_tokens: int = 2048
    #: The same seed, the same answer; without one it is drawn, and the result states it.
    seed: int | None = None
    #: Texts that end the answer and are not part of it.
    stop: tuple[str, ...] = ()
    #: How many of the last tokens the three penalties look at; 0 switches them off, -1 is all.
    repetition_window: int = 64
    #: Subtracted from a logit for each time its token was generated within the window; 0 is off.
    frequency_penalty: float = 0.0
    #: Subtracted once from the logit of a token that was generated within the window; 0 is off.
    presence_penalty: float = 0.0
    #: How strongly a token is penalised that would extend a repetition; 0 is off.
    dry_multiplier: float = 0.0
    #: By what that penalty grows with each token of the repetition.
    dry_base: float = 1.75
    #: The length from which a repetition is penalised.
    dry_allowed_length: int = 2
    #: How many of the last tokens are searched for repetitions; 0 is off, -1 is all.
    dry_window: int = -1
    #: Texts over which a repetition does not extend.
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    #: Keeps the logits within this many standard deviations of the largest; 0 is off.
    top_n_sigma: float = UNSET
    #: Keeps the tokens of the most typical surprise until their mass exceeds this; 0 and 1 are off.
    typical_p: float = UNSET
    #: How often the tokens that reach `xtc_threshold` are removed, but for the least probable; 0 is off.
    xtc_probability: float = UNSET
    #: The probability from which xtc removes a token; above 0.5 nothing is removed.
    xtc_threshold: float = 0.1
    #: The temperature varies by up to this with the entropy; 0 is off.
    dynatemp_range: float = 0.0
    #: How the entropy moves the temperature within `dynatemp_range`.
    dynatemp_exponent: float = 1.0
    #: 1 or 2 replaces all truncations and the dynamic temperature, as in llama.cpp; 0 is off.
    mirostat: int = 0
    #: The surprise that mirostat aims at, in bits; 5 with mirostat on.
    mirostat_tau: float = UNSET
    #: Mirostat's learning rate; 0.1 with mirostat on.
    mirostat_eta: float = UNSET
    #: How many tokens a truncation by probability always keeps.
    min_keep: int = 0
    #: What to add to a logit, by token id or by text (each of its tokens); -inf bans.
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    #: Texts that must not occur.
    bad_words: tuple[str, ...] = ()
    #: The only tokens that are drawn.
    allowed_ids: tuple[int, ...] | None = None
    #: How many outputs for a prompt.
    n: int = 1
    #: No end of the text is drawn before so many tokens; a constraint that leaves nothing else wins.
    min_tokens: int = 0
    #: Tokens that end the answer.
    stop_ids: tuple[int, ...] = ()
    #: The model does not end the text; with a constraint this is an error.
    ignore_eos: bool = False
    #: Options of plug-ins' samplers, such as {"top_a": 0.2}; they are read as attributes.
    extra: tuple[tuple[str, Any], ...] = ()
    #: The samplers that run, in this order; one that is not named does not run.
    sampler_order: tuple[str, ...] = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingValues:
    """The fields of `Decoding`."""

    #: How the constraint is applied: mask (the default), draft, rejection, jump, beam, ..., a plug-in's.
    strategy: str = "mask"
    #: beam: number of beams. Default: 4.
    num_beams: int | None = None
    #: beam: the score of a text is the sum of ln p / length ** this; above 1, longer texts win.
    length_penalty: float = 1.0
    #: beam: true ends the search with as many finished texts as beams, false (the default) when no beam is likely to do
    #: better, never when none can.
    early_stopping: bool | Literal["never"] = False
    #: How many texts the result of one run holds, best first.
    num_return_sequences: int = 1
    #: best_of, smc, awrs: number of particles. Default: 8.
    particles: int | None = None
    #: smc, awrs: resample where the effective sample size is below this share of the particles.
    ess_threshold: float = 0.5
    #: best_of, smc, awrs: full, the model's distribution given the constraint; or truncated, the same after
    #: truncations.
    target: Literal["full", "truncated"] = "full"
    #: A constrained text that would not be complete at `max_tokens`: close leads it to its shortest end in time,
    #: truncate cuts it off, error refuses it.
    on_budget: Literal["close", "truncate", "error"] = "truncate"
    #: A constrained text, or a call, that a stop text would cut before it is complete: cut ends it there, with a
    #: warning, error refuses it.
    on_stop: Literal["cut", "error"] = "cut"
    #: How often tokens may be taken back where a constraint refuses a text only later.
    max_rewinds: int = 100
    #: draft: the sources that propose tokens, in order of preference. Default: forced, grammar, lookup, and model where
    #: there is a draft model.
    drafts: tuple[str, ...] | None = None


class SamplingOptions(TypedDict, total=False):
    """The options of the sampling, as arguments."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    max_tokens: int
    seed: int | None
    stop: str | Sequence[str]
    repetition_window: int
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_window: int
    dry_breakers: str | Sequence[str]
    top_n_sigma: float
    typical_p: float
    xtc_probability: float
    xtc_threshold: float
    dynatemp_range: float
    dynatemp_exponent: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    min_keep: int
    logit_bias: Mapping[int, float] | Mapping[str, float] | Sequence[tuple[int | str, float]]
    bad_words: str | Sequence[str]
    allowed_ids: Sequence[int] | None
    n: int
    min_tokens: int
    stop_ids: Sequence[int]
    ignore_eos: bool
    sampler_order: Sequence[str]


class DecodingOptions(TypedDict, total=False):
    """The options of strategies, as arguments."""

    strategy: str | None
    num_beams: int | None
    length_penalty: float
    early_stopping: bool | Literal["never"]
    num_return_sequences: int
    particles: int | None
    ess_threshold: float
    target: Literal["full", "truncated"]
    on_budget: Literal["close", "truncate", "error"]
    on_stop: Literal["cut", "error"]
    max_rewinds: int
    drafts: Sequence[str] | None


class RequestOptions(TypedDict, total=False):
    """The options of the request, as arguments."""

    schema_order: str | Sequence[str] | None
    closed: bool | None
    max_reasoning: int | None
    hold_reasoning: bool
    max_calls: int | None
    tool_format: str | None
    schema_in_prompt: bool
    sampler: Literal["espalier", "native"]


class CommonSetters:
    """A setter for each of the options that every edge shows first."""

    def sampling(self, **fields: Any) -> Self:
        raise NotImplementedError

    def temperature(self, value: float) -> Self:
        """0 takes the most probable token (ties: the lowest id); larger values draw more evenly."""
        return self.sampling(temperature=value)

    def top_k(self, value: int) -> Self:
        """Keeps this many of the most probable tokens; 0 is off."""
        return self.sampling(top_k=value)

    def top_p(self, value: float) -> Self:
        """Keeps the most probable tokens until their mass reaches this; 1 is off."""
        return self.sampling(top_p=value)

    def min_p(self, value: float) -> Self:
        """Keeps the tokens that are at least this share as probable as the best one; 0 is off."""
        return self.sampling(min_p=value)

    def repetition_penalty(self, value: float) -> Self:
        """Divides the logits of tokens in the last `repetition_window` tokens, prompt included; 1 is off."""
        return self.sampling(repetition_penalty=value)

    def max_tokens(self, value: int) -> Self:
        """The most tokens of the answer."""
        return self.sampling(max_tokens=value)

    def seed(self, value: int | None) -> Self:
        """The same seed, the same answer; without one it is drawn, and the result states it."""
        return self.sampling(seed=value)

    def stop(self, value: str | Sequence[str]) -> Self:
        """Texts that end the answer and are not part of it."""
        return self.sampling(stop=value)


IN_ESPALIER = frozenset(
    {
        "activations",
        "closed",
        "drafts",
        "ess_threshold",
        "hold_reasoning",
        "max_calls",
        "max_reasoning",
        "max_rewinds",
        "num_return_sequences",
        "on_budget",
        "on_stop",
        "particles",
        "preset",
        "reasoning",
        "sampler",
        "schema_in_prompt",
        "schema_order",
        "strategy",
        "target",
        "tool_format",
    }
)
"""Options that stand in the `espalier` of a request body; all others stand in the body itself."""
WITHOUT_FLAG = frozenset(
    {
        "allowed_ids",
        "bad_words",
        "dry_allowed_length",
        "dry_base",
        "dry_breakers",
        "dry_multiplier",
        "dry_window",
        "dynatemp_exponent",
        "dynatemp_range",
        "extra",
        "frequency_penalty",
        "ignore_eos",
        "logit_bias",
        "min_keep",
        "min_tokens",
        "mirostat",
        "mirostat_eta",
        "mirostat_tau",
        "n",
        "presence_penalty",
        "repetition_window",
        "sampler_order",
        "stop_ids",
        "top_n_sigma",
        "typical_p",
        "xtc_probability",
        "xtc_threshold",
    }
)
"""Options that have no flag of their own: `-o NAME VALUE` sets them."""
