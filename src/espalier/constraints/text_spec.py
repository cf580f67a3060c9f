"""Regexes and choices through llguidance's regex engine, as one lexeme: matched whole, from first byte to last."""

from __future__ import annotations

import re

from espalier.constraints.base import Compiled
from espalier.constraints.compile import Compiler
from espalier.constraints.schema_matcher import LlgBackend, LlgCompiled, LlgRefusal
from espalier.constraints.spec import Choice, Regex
from espalier.errors import RegexError, UnsupportedError

REFUSED = {
    "look-around": "look-around is not regular in the engine's sense",
    "lookarounds": "look-around (and \\b) is not supported",
    "backreferences": "back-references are not regular",
}


def compile_regex(spec: Regex, compiler: Compiler) -> Compiled:
    """Raises RegexError with an offset, or UnsupportedError for look-around and back-references."""
    try:
        return LlgCompiled(spec, compiler.part(LlgBackend), _lark(spec.pattern))
    except LlgRefusal as refusal:
        raise _our_error(str(refusal), spec.pattern) from refusal


def compile_choice(spec: Choice, compiler: Compiler) -> Compiled:
    pattern = "|".join("".join(map(_literal, option)) for option in spec.options)
    try:
        return LlgCompiled(spec, compiler.part(LlgBackend), _lark(f"({pattern})"))
    except LlgRefusal as refusal:
        raise UnsupportedError(f"too many or too long choices: {str(refusal)[:200]}") from refusal


def _literal(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):x}}}"


def _lark(pattern: str) -> str:
    # A slash ends a Lark regex and a raw newline its line; both have an escape that means the same.
    body = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", pattern).replace("\n", r"\n").replace("\r", r"\r")
    return f'%llguidance {{"no_forcing": true}}\nstart: /{body}/'


def _our_error(message: str, pattern: str) -> RegexError | UnsupportedError:
    reason = message
    if "error: " in message:
        reason = message.split("error: ", 1)[1].split("\n", 1)[0]
    for sign, words in REFUSED.items():
        if sign in message:
            return UnsupportedError(f"the pattern cannot be enforced: {words}", hint=f"pattern: {pattern[:80]}")
    lines = message.splitlines()
    offset = None
    for i, line in enumerate(lines[1:], start=1):
        # regex-syntax prints the pattern indented by four and a caret line below it; single-line patterns only.
        if line.startswith("    ") and set(line.strip()) == {"^"} and "\n" not in pattern:
            shown = lines[i - 1][4:]
            offset = line.index("^") - 4 - (shown[: line.index("^") - 4].count("\\/"))
            break
    return RegexError(reason.strip()[:300], offset=offset, pattern=pattern)
