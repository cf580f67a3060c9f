"""What every edge sees of an engine, whether its model runs in this process or elsewhere.

An edge (CLI, server, API) never meets a model, a cache or a tokenizer: it meets these protocols and the values of
`base.py`. Engines are opened through the registry in `open.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from espalier.engines.base import Capabilities, Event, Load, Progress, Request

if TYPE_CHECKING:
    from espalier.chat.prompt.template import ChatTemplate
    from espalier.constraints.compiler import Compiler
    from espalier.tokens.vocab import Vocab


class Prompts(Protocol):
    """How an engine turns requests into text and token ids. Every method raises CapabilityError where the engine cannot
    tell, as one that passes requests on to another server. From any thread."""

    @property
    def template(self) -> ChatTemplate | None:
        """The model's chat template, None where there is none or it is not known here."""
        ...

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of a text; special tokens that it spells become their ids. add_special: with the BOS that the
        tokenizer adds by default."""
        ...

    def prompt_text(self, request: Request) -> str:
        """The text that the model is given: rendered messages, or the prompt. Raises InputError and its kin."""
        ...

    def prompt_ids(self, request: Request) -> list[int]:
        """The token ids that the model is given. Raises InputError and its kin."""
        ...


class Engine(Prompts, Protocol):
    """A model that can generate. Several runs may be open at once, also from several threads."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def vocab(self) -> Vocab | None:
        """The model's vocabulary, None where it is not known here."""
        ...

    @property
    def compiler(self) -> Compiler | None:
        """Compiles constraints for `vocab`; None where they are not compiled in this process."""
        ...

    def run(self, requests: Sequence[Request]) -> Iterator[Event]:
        """Generate for all requests together; events of one request come in order. Closing the iterator stops all
        requests and frees their memory. Raises before the first event for a request that is wrong, CapabilityError for
        one that the engine cannot do (`checks.check_capabilities`)."""
        ...

    def close(self) -> None:
        """Free the model. Idempotent."""
        ...


class Running(Protocol):
    """One request that a serving engine has taken. One reader reads its events, in a thread or on an event loop."""

    @property
    def progress(self) -> Progress:
        """As it is now. From any thread."""
        ...

    def __iter__(self) -> Iterator[Event]:
        """The events up to Finished, waiting for each. Raises what went wrong, Cancelled and DeadlineExceeded too."""
        ...

    def events(self) -> AsyncIterator[Event]:
        """The same, on the running event loop."""
        ...

    def cancel(self) -> None:
        """Stop within one step and free its memory. From any thread; again, or after the end, it does nothing."""
        ...


class ServingEngine(Protocol):
    """An engine that many callers share: requests join and leave between steps. Every method from any thread."""

    @property
    def engine(self) -> Engine: ...

    def submit(self, request: Request, *, owner: str = "", deadline: float | None = None) -> Running:
        """Check, render, encode and compile here, in the caller's thread, and queue what is left.

        owner: whose it is; owners take turns. deadline: seconds from now. Raises InputError and its kin for what is
        asked wrongly, Overloaded where the queue is full, Unavailable where the engine is closing.
        """
        ...

    def load(self) -> Load: ...

    def close(self, *, drain: float = 0.0) -> None:
        """Take nothing more, wait up to `drain` seconds for what runs, cancel the rest, free all memory. Idempotent."""
        ...
