"""What every edge sees of an engine, whether its model runs in this process or elsewhere.

An edge (CLI, server, API) never handles a model, a cache or a tokenizer: only these protocols and the values of
`base.py`. `espalier.engine_table` opens engines by name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from espalier.engines.base import Capabilities, Event, Load, Progress, Request

if TYPE_CHECKING:
    from espalier.chat.prompt.template import ChatTemplate
    from espalier.constraints.compiler import Compiler
    from espalier.tokens.vocab import Vocab


class Prompts(Protocol):
    """How an engine turns requests into text and token ids. Methods raise CapabilityError where the engine does not
    know, such as a client of another server. From any thread."""

    @property
    def template(self) -> ChatTemplate | None:
        """The model's chat template, None if there is none or it is not known here."""
        ...

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of a text; special tokens spelled in it become their ids. add_special: with the BOS that the
        tokenizer adds by default."""
        ...

    def prompt_text(self, request: Request) -> str:
        """The text that the model is given: rendered messages, or the prompt. Raises InputError and its subclasses."""
        ...

    def prompt_ids(self, request: Request) -> list[int]:
        """The token ids that the model is given. Raises InputError and its subclasses."""
        ...


class Engine(Prompts, Protocol):
    """A model that can generate. Several runs may be open at once, from several threads too."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def vocab(self) -> Vocab | None:
        """The model's vocabulary, None if it is not known here."""
        ...

    @property
    def compiler(self) -> Compiler | None:
        """Compiles constraints for `vocab`, None if constraints are not compiled in this process."""
        ...

    def run(self, requests: Sequence[Request]) -> Iterator[Event]:
        """Generate for all requests together; the events of one request come in order. Closing the iterator stops all
        requests and frees their memory. Raises before the first event if a request is wrong, CapabilityError if the
        engine cannot do it (`capabilities.check_capabilities`)."""
        ...

    def close(self) -> None:
        """Free the model. Idempotent."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """Something that is waited for, such as the events of a run, and that another thread can end."""

    def interrupt(self) -> None:
        """End it at once, from any thread: whoever waits for it gets Cancelled."""
        ...


@runtime_checkable
class DraftedEngine(Engine, Protocol):
    """An engine for which a smaller model can draft."""

    def draft_with(self, smaller: Engine) -> None:
        """Draft with this engine's model from now on, and close it with this engine. Raises CapabilityError for an
        engine that gives no logits here, InputError for another vocabulary, naming the first token that differs."""
        ...


@runtime_checkable
class Forwarding(Protocol):
    """An engine over a server that may do more than generate, such as embed and rank texts."""

    def forward(self, path: str, body: Mapping[str, Any]) -> Any:
        """The server's own reply to a body of this route, such as `/v1/embeddings`. Raises NotHere where the server or
        its model cannot do it, InputError for a body that it refuses, UpstreamError and its kin."""
        ...


class Running(Protocol):
    """A request that a serving engine has accepted. One reader reads its events, in a thread or on an event loop."""

    @property
    def progress(self) -> Progress:
        """The current state. From any thread."""
        ...

    def __iter__(self) -> Iterator[Event]:
        """The events up to Finished, waiting for each. Raises the request's error, Cancelled and DeadlineExceeded
        included."""
        ...

    def events(self) -> AsyncIterator[Event]:
        """The same events, on the running event loop."""
        ...

    def bursts(self) -> AsyncGenerator[list[Event]]:
        """As `events`, with all events at once that have come since the last ones were read."""
        ...

    def cancel(self) -> None:
        """Stop within one step and free the request's memory. From any thread; after the end it does nothing."""
        ...


class ServingEngine(Protocol):
    """An engine shared by many callers: requests join and leave between steps. Every method may be called from any
    thread."""

    @property
    def engine(self) -> Engine: ...

    def submit(self, request: Request, *, owner: str = "", deadline: float | None = None) -> Running:
        """Check, render, encode and compile in the caller's thread, then queue the request.

        owner: the caller that requests are shared out by; owners take turns. deadline: seconds from now. Raises
        InputError and its subclasses for a wrong request, Overloaded if the queue is full, Unavailable if the engine is
        closing.
        """
        ...

    def load(self) -> Load: ...

    def close(self, *, drain: float = 0.0) -> None:
        """Accept nothing more, wait up to `drain` seconds for running requests, cancel the rest, free all memory.
        Idempotent."""
        ...
