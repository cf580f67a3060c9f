"""Asks a vLLM what its lists of log probabilities mean, and what the model wanted at each token of a text.

vLLM applies the mask of its own structured outputs before it takes the logarithms that a reply lists, and logits
processors, ours among them, after. So a reply under vLLM's own mask lists what was allowed, and what the model wanted
is told by the log probabilities of the finished text as a prompt, which nothing masks. It knows no client.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from espalier.errors import InputError, UpstreamError
from espalier.upstream.link import ServerLink
from espalier.upstream.vllm.reply import ListedStep, ListedToken, listed_steps

COMPLETIONS = "/v1/completions"
LISTED = 20
"""What vLLM lists of a token at most, unless it is told otherwise (`--max-logprobs`)."""
_MOST = re.compile(r"max allowed: (\d+)")
PUSH = 100.0
CERTAIN = -1e-3
"""A logarithm above is of a probability of 1."""
CHOICE = "qzxj"
"""No model begins with it by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmFacts:
    """What is known of a vLLM. most: how many log probabilities of a token it lists. is_raw: whether they are the
    model's own, but for the mask of structured outputs (`--logprobs-mode raw_logprobs`). masks_first: whether what it
    lists under a structured output is what its mask has left; not so where our processor holds these. root: the name or
    folder of the model that it has loaded."""

    version: str
    model: str
    most: int
    is_raw: bool
    masks_first: bool
    root: str = ""


class VllmServer:
    """A vLLM behind a proxy. From any thread."""

    def __init__(self, link: ServerLink) -> None:
        self.link = link

    def version(self) -> str:
        """Raises UpstreamError for a server that is no vLLM."""
        said = self.link.get("/version")
        version = said.get("version") if isinstance(said, Mapping) else None
        if not isinstance(version, str):
            raise UpstreamError(f"{self.link.url} is no vLLM: it tells no version")
        return version

    def learn(self) -> VllmFacts:
        """By three small requests. Raises UpstreamError for a server whose replies cannot be traced, and what a link
        raises."""
        version = self.version()
        listed = self.link.get("/v1/models")
        data = listed.get("data") if isinstance(listed, Mapping) else None
        models = [entry for entry in data if isinstance(entry, Mapping)] if isinstance(data, list) else []
        if not models:
            raise UpstreamError(f"{self.link.url} lists no models")
        model, root = str(models[0].get("id") or ""), str(models[0].get("root") or "")
        most = self._most(model)
        if not most:
            raise UpstreamError(f"{self.link.url} lists no log probabilities", hint="its --max-logprobs is 0")
        pushed = self._first(model, {"logit_bias": {"0": PUSH}}, most)
        masked = self._first(model, {"structured_outputs": {"choice": [CHOICE]}}, most)
        return VllmFacts(
            version=version,
            model=model,
            most=most,
            is_raw=pushed.token.logprob < CERTAIN and _mass(pushed.top) <= 1.0 - CERTAIN,
            masks_first=shows_mask(masked) or masked.token.logprob >= CERTAIN,
            root=root,
        )

    def _most(self, model: str) -> int:
        try:
            self._complete(model, {"logprobs": LISTED})
        except InputError as error:
            said = _MOST.search(error.message)
            if said is None:
                raise
            return int(said[1])
        return LISTED

    def _first(self, model: str, more: Mapping[str, Any], most: int) -> ListedStep:
        """The first token of an answer."""
        choice = self._complete(model, {"logprobs": most, "return_token_ids": True, **more})
        steps = listed_steps(choice.get("logprobs"))
        if not steps or not isinstance(choice.get("token_ids"), list):
            raise UpstreamError(
                f"{self.link.url} does not tell the ids of its tokens (return_token_ids)", hint="vLLM 0.10.2 or newer"
            )
        return steps[0]

    def scores(self, model: str, prompt: Sequence[int], ids: Sequence[int], *, count: int) -> list[ListedStep]:
        """What the model wanted at each of the tokens `ids` after a prompt, by its own probabilities: a text that is
        there already, so that nothing is generated but one token, which is dropped. Raises UpstreamError."""
        choice = self._complete(model, {"prompt": [*prompt, *ids], "prompt_logprobs": count})
        told = choice.get("prompt_logprobs")
        if not isinstance(told, list) or len(told) != len(prompt) + len(ids):
            raise UpstreamError(f"{self.link.url} does not score a text (prompt_logprobs)")
        return [_score(entry, token) for entry, token in zip(told[len(prompt) :], ids, strict=True)]

    def _complete(self, model: str, more: Mapping[str, Any]) -> Mapping[str, Any]:
        """The only choice of a completion of one token."""
        body = {"model": model, "prompt": "a", "max_tokens": 1, "temperature": 0, **more}
        said = self.link.post(COMPLETIONS, body)
        choices = said.get("choices") if isinstance(said, Mapping) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
            raise UpstreamError(f"{self.link.url} answered without choices")
        return choices[0]


def shows_mask(step: ListedStep) -> bool:
    """Whether a list has tokens of probability 0: those that a mask has removed."""
    return any(not candidate.is_allowed for candidate in step.top)


def _mass(candidates: Sequence[ListedToken]) -> float:
    return math.fsum(math.exp(min(candidate.logprob, PUSH)) for candidate in candidates)


def _score(entry: Any, token: int) -> ListedStep:
    """One position of `prompt_logprobs`: candidates by their ids. Raises UpstreamError."""
    try:
        listed = sorted(
            (
                ListedToken(str(value.get("decoded_token") or ""), float(value["logprob"]), int(number))
                for number, value in entry.items()
            ),
            key=lambda candidate: -candidate.logprob,
        )
        own = next(candidate for candidate in listed if candidate.id == token)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, StopIteration) as error:
        raise UpstreamError(f"the log probabilities of a text cannot be read: {error!r}") from error
    return ListedStep(own, tuple(listed))
