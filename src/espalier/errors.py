"""The exception classes: every error that Espalier raises for a user is one of these.

EspalierError
├── InputError                 what was asked for is wrong (HTTP 400, exit 2)
│   ├── SpecError              a malformed constraint
│   │   ├── SchemaError        JSON Schema, with a JSON pointer
│   │   ├── RegexError         regular expression, with an offset
│   │   └── GrammarError       GBNF, with line, column and an excerpt
│   ├── SamplingError          a sampling field outside its range
│   ├── PromptTooLong          the prompt does not fit the model's context
│   ├── TemplateError          the chat template refused the messages
│   ├── VocabError             a vocabulary that lacks a needed token
│   ├── TooLarge               a file or text that is larger, deeper or longer than is read
│   ├── UnknownModel           no model at this path or of this name (HTTP 404)
│   └── UnknownName            a name that is not registered
├── UnsupportedError           well formed, but not enforceable here: refused, never ignored
│   ├── NotAvailable           this matcher or engine cannot answer this question
│   └── CapabilityError        the chosen engine cannot do what the request asks
├── GenerationError            a failure during generation (HTTP 500, exit 1)
│   ├── TokenRefused           a matcher was advanced with a forbidden token
│   ├── DeadEnd                no token is allowed and the text is not complete
│   │   └── Stranded           because the request's own members leave none in common (400)
│   ├── BudgetExceeded         the token limit was reached before the text was complete (HTTP 400)
│   ├── LimitExceeded          a limit on states, steps or size was reached
│   ├── BadLogits              the model returned NaN, or no finite logit
│   ├── Cancelled              the client disconnected or cancelled (HTTP 499)
│   └── DeadlineExceeded       the request's time limit was exceeded (HTTP 504)
├── Unauthorized               no API key, or an invalid one (HTTP 401)
├── Forbidden                  the key is valid but lacks the permission (HTTP 403)
├── TooManyRequests            a rate or concurrency limit of the key; see `retry_after` (HTTP 429)
├── Unavailable                the engine is closing, or not ready yet (HTTP 503)
│   ├── Overloaded             the queue is full (HTTP 503, retry later)
│   ├── UpstreamBusy           the server that does the work takes nothing now; see `retry_after` (HTTP 503)
│   └── ReplicaLost            the process that had the request is gone: ask again (HTTP 503)
├── MissingDependency          an optional extra is not installed; the message has the pip line
├── NotHere                    this model or engine cannot do it at all; the message says why (HTTP 501)
├── BrokenPlugin               a plug-in that was asked for cannot be used; the message names it
└── OutputError                a result could not be written (exit 1)
    └── DiskFull               because nothing more fits on the disk (HTTP 507)

The docstring of a class is its default message. `hint` says what to do about it.
The only HTTP detail here is the status that a server should answer with.
"""

from __future__ import annotations

import math
from functools import cache
from typing import ClassVar

from espalier.distribution import package_line, pip_line


@cache
def _snake_case(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


class EspalierError(Exception):
    """Espalier could not do what was asked."""

    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    #: The most characters of a message: it quotes what was sent, which may be long.
    longest: ClassVar[int] = 2000

    def __init__(self, message: str | None = None, *, hint: str | None = None, field: str | None = None) -> None:
        message = message or (type(self).__doc__ or "").splitlines()[0]
        self.message = message if len(message) <= self.longest else f"{message[: self.longest]}…"
        self.hint = hint
        self.field = field
        super().__init__(self.message)

    @property
    def code(self) -> str:
        """A stable snake_case name of the class, for machines."""
        return _snake_case(type(self).__name__)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(EspalierError):
    """The input is not valid."""

    http_status = 400
    exit_code = 2


class SpecError(InputError):
    """The constraint is not well formed."""


class SchemaError(SpecError):
    """The JSON Schema is not valid."""

    def __init__(self, message: str | None = None, *, pointer: str | None = None, hint: str | None = None) -> None:
        self.pointer = pointer  # "" is the whole schema, None not known
        where = "" if pointer is None else f" at {pointer}" if pointer else " at the top"
        super().__init__(f"{message or 'invalid JSON Schema'}{where}", hint=hint, field="schema")


class RegexError(SpecError):
    """The regular expression is not valid."""

    def __init__(
        self, message: str | None = None, *, offset: int | None = None, pattern: str = "", hint: str | None = None
    ) -> None:
        self.offset = offset
        self.pattern = pattern
        where = "" if offset is None else f" at offset {offset}: {excerpt(pattern, offset)}"
        super().__init__(f"{message or 'invalid regular expression'}{where}", hint=hint, field="regex")


class GrammarError(SpecError):
    """The grammar is not valid."""

    def __init__(
        self,
        message: str | None = None,
        *,
        line: int | None = None,
        column: int | None = None,
        excerpt: str = "",
        hint: str | None = None,
    ) -> None:
        self.line = line
        self.column = column
        self.excerpt = excerpt
        where = "" if line is None else f" at line {line}, column {column}"
        shown = f": {excerpt}" if excerpt else ""
        super().__init__(f"{message or 'invalid grammar'}{where}{shown}", hint=hint, field="grammar")


class SamplingError(InputError):
    """A sampling field is out of its range."""


class PromptTooLong(InputError):
    """The prompt does not fit the model's context."""

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
        field: str | None = None,
        tokens: int | None = None,
        context: int | None = None,
    ) -> None:
        """tokens: of the prompt, None if they were not counted. context: the tokens that fit."""
        self.tokens, self.context = tokens, context
        super().__init__(message, hint=hint, field=field)

    @classmethod
    def over(cls, context: int, *, tokens: int | None = None, characters: int | None = None) -> PromptTooLong:
        """The error with the phrases that clients look for, OpenAI's and llama-server's."""
        size = f"{characters} characters" if tokens is None else f"{tokens} tokens"
        return cls(
            f"this model's maximum context length is {context} tokens: the prompt has {size}, which exceeds the "
            "available context size",
            hint=f"shorten it to at most {context - 1} tokens",
            field="prompt",
            tokens=tokens,
            context=context,
        )


class TemplateError(InputError):
    """The chat template refused the messages."""


class VocabError(InputError):
    """The vocabulary cannot be used for this."""


class TooLarge(InputError):
    """The input is larger than what is read."""


class UnknownModel(InputError):
    """There is no model at that path or name."""

    http_status = 404


class UnknownName(InputError):
    """There is nothing registered under that name."""


class NothingMatched(EspalierError):
    """Two inputs that should be joined share nothing."""

    http_status = 400


class UnsupportedError(EspalierError):
    """This cannot be enforced here, so it is refused."""

    http_status = 400
    exit_code = 2


class NotAvailable(UnsupportedError):
    """This question cannot be answered here."""


class CapabilityError(UnsupportedError):
    """The chosen engine cannot do this."""


class GenerationError(EspalierError):
    """Generation failed."""


class TokenRefused(GenerationError):
    """The constraint forbids this token."""


class DeadEnd(GenerationError):
    """No token is allowed here and the text is not complete."""


class Stranded(DeadEnd):
    """What the request asks for together allows no token here, and the text is not complete."""

    http_status = 400
    exit_code = 2


class BudgetExceeded(GenerationError):
    """The text was not complete when its tokens were used up."""

    http_status = 400


class CutByStop(GenerationError):
    """A stop text cut the text before it satisfied its constraint."""

    http_status = 400


class LimitExceeded(GenerationError):
    """A limit on size, states or steps was reached."""


class BadLogits(GenerationError):
    """The model gave logits that are not numbers."""


class Cancelled(GenerationError):
    """The generation was cancelled."""

    http_status = 499


class DeadlineExceeded(GenerationError):
    """The generation took longer than it was given."""

    http_status = 504


class Unauthorized(EspalierError):
    """The API key is missing or not valid."""

    http_status = 401

    @property
    def code(self) -> str:
        """The code that OpenAI's clients look for."""
        return "invalid_api_key"


class Forbidden(EspalierError):
    """This key may not do this."""

    http_status = 403


class TooManyRequests(EspalierError):
    """This key has asked for more than it may."""

    http_status = 429

    def __init__(self, message: str | None = None, *, retry_after: float, hint: str | None = None) -> None:
        self.retry_after = max(1, math.ceil(retry_after))
        """Whole seconds, at least one: what the header `Retry-After` says."""
        super().__init__(message, hint=hint)

    @property
    def code(self) -> str:
        """The code that OpenAI's clients look for."""
        return "rate_limit_exceeded"


class Unavailable(EspalierError):
    """The engine is not ready, or closing."""

    http_status = 503


class Overloaded(Unavailable):
    """Too many requests are waiting already."""


class ReplicaLost(Unavailable):
    """The replica that had this request is gone."""


class UpstreamBusy(Unavailable):
    """The server that does the work takes no requests now."""

    def __init__(
        self, message: str | None = None, *, retry_after: float | None = None, hint: str | None = None
    ) -> None:
        self.retry_after = 1.0 if retry_after is None else retry_after
        """Seconds, as its header `Retry-After` says; 1 if it says nothing."""
        super().__init__(message, hint=hint)


class UpstreamError(EspalierError):
    """The server or program that does the work failed, or answered what it must not."""

    http_status = 502


class UpstreamTimeout(UpstreamError):
    """The server or program that does the work does not answer."""

    http_status = 504


class MissingDependency(EspalierError):
    """An optional part is not installed."""

    http_status = 501

    def __init__(self, package: str, *, extra: str | None = None) -> None:
        """extra: the extra of ours that installs it; None if the user installs the package as such."""
        self.package = package
        self.extra = extra
        what = f"{package} is not installed" + ("" if extra is None else f": it comes with the extra `{extra}`")
        super().__init__(what, hint=package_line(package) if extra is None else pip_line(extra))


class NotHere(EspalierError):
    """This model cannot do this."""

    http_status = 501
    exit_code = 2


class BrokenPlugin(EspalierError):
    """A plug-in cannot be used."""

    http_status = 501

    def __init__(self, plugin: str, kind: str, name: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{plugin}: {kind} {name!r} cannot be used: {reason}", hint="espalier plugins lists all of them"
        )


class OutputError(EspalierError):
    """The output could not be written."""


class DiskFull(OutputError):
    """There is no space left on the disk."""

    http_status = 507


def excerpt(text: str, offset: int, *, radius: int = 24) -> str:
    """The text around an offset on one line, with `^` in front of that position."""
    start, end = max(0, offset - radius), min(len(text), offset + radius)
    shown = f"{text[start:offset]}^{text[offset:end]}".replace("\n", "\\n")
    return f"{'…' if start else ''}{shown}{'…' if end < len(text) else ''}"
