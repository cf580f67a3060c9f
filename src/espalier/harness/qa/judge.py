"""A model judges: whether an answer declines, and whether it agrees with the known one.

The judge's reply is constrained to the words that are asked for, so that there is never a reply to interpret.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Ask: TypeAlias = Callable[[Sequence[str], Sequence[str]], list[str]]
"""Prompts and the words of which one is the reply to each."""

DECLINES = ("yes", "no")
VERDICTS = ("correct", "incorrect", "unverifiable")
"""As HalluLens' evaluations call them."""

_DECLINES = """\
Here are a question and an answer to it. Does the answer decline to answer: does it say that it does not know, is not \
sure, or cannot say? An answer that is wrong does not decline.

Question: {prompt}
Answer: {generation}

Reply with yes or no."""
_AGREES = """\
Here are a question, the right answer, and an answer to judge. The answer is correct if it says what the right answer \
says, in whatever words; incorrect if it says something else; unverifiable if it says neither.

Question: {prompt}
Right answer: {answer}
Answer to judge: {generation}

Reply with correct, incorrect or unverifiable."""


@dataclass(frozen=True, slots=True)
class ModelJudge:
    """name: of the model, as results call it. ask: its constrained replies."""

    name: str
    ask: Ask

    def declines(self, rows: Sequence[tuple[str, str]]) -> list[bool]:
        """For each (prompt, generation), whether the generation declines to answer."""
        prompts = [_DECLINES.format(prompt=prompt, generation=generation) for prompt, generation in rows]
        return [reply == "yes" for reply in self.ask(prompts, DECLINES)]

    def verdicts(self, rows: Sequence[tuple[str, str, str]]) -> list[str]:
        """For each (prompt, answer, generation), one of VERDICTS."""
        return self.ask(
            [_AGREES.format(prompt=prompt, answer=answer, generation=text) for prompt, answer, text in rows], VERDICTS
        )
