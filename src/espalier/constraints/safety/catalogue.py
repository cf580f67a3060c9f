"""The categories, presets and patterns that ship with Espalier, as data. It does not know how they are matched.

A pattern is three regular expressions in the dialect of `grammar/regex/parse.py`: the context before it, the pattern
itself, and the context after it. None has look-around. Case and width are ignored, so patterns are in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping

from espalier.constraints.safety.patterns.code import CODE
from espalier.constraints.safety.patterns.dangerous import DANGEROUS
from espalier.constraints.safety.patterns.keys import ASSIGNMENTS, KEYS
from espalier.constraints.safety.patterns.pattern import SafetyPattern
from espalier.constraints.safety.patterns.pii import PII

CATEGORIES: Mapping[str, str] = {
    "profanity": "vulgar language",
    "violence": "violent language",
    "pii": "numbers that name a person or an account",
    "code_injection": "shell and query injection",
    "credentials": "keys, tokens and passwords with a value",
    "hate": "hateful language",
    "sexual": "sexual language",
    "self_harm": "language of self-harm",
    "dangerous": "instructions for weapons and drugs, commands that destroy data",
}

CategoryCodeInjection = "code_injection"
CategoryCredentials = "credentials"
CategoryPII = "pii"
CategoryProfanity = "profanity"
CategoryViolence = "violence"
CategoryDangerous = "dangerous"
"""PedroCLI's names of its categories."""

PRESETS: Mapping[str, tuple[str, ...]] = {
    "minimal": ("code_injection",),
    "standard": ("code_injection", "credentials"),
    "strict": ("code_injection", "credentials", "pii", "violence", "dangerous"),
    "maximum": tuple(CATEGORIES),
    "code_safety": ("code_injection",),
}

PRESET_TEXTS: Mapping[str, tuple[str, ...]] = {"code_safety": ("rm -rf", "sudo", "; rm", "| rm")}
"""Texts that a preset also forbids, anywhere: those of PedroCLI's test case `code_safety`, as they stand there."""

NEEDS_LIST = ("profanity", "violence", "hate", "sexual", "self_harm")
"""Categories without built-in patterns: nothing is caught unless the user gives a list."""

PATTERNS: tuple[SafetyPattern, ...] = (*CODE, *ASSIGNMENTS, *KEYS, *PII, *DANGEROUS)
"""If several match at once, the first in this order is named."""

BY_NAME: Mapping[str, SafetyPattern] = {pattern.name: pattern for pattern in PATTERNS}
