"""Admits callers: identifies them (auth.py) and holds rate and concurrency limits (limits.py). It knows no route.

A slot is held while `admit` is open. If the counters are shared by processes, a task renews the lease of held slots,
so that the slots of a killed process become free when their lease ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio

from espalier.errors import EspalierError, InputError, TooManyRequests, Unauthorized
from espalier.server.admit.auth import Keyring, bearer, read_keys
from espalier.server.admit.cpu_accounts import CpuAccounts
from espalier.server.admit.limits import LEASE_SECONDS, Counters, LocalCounters
from espalier.server.ports import Caller
from espalier.server.settings import COMPAT_SWITCH, ServerSettings

T = TypeVar("T")
BUSY_SECONDS = 1.0  # retry-after while all slots are taken; when one becomes free is unknown
CHEAP_TIMES = 10
"""How many requests of routes that cost nearly nothing a key may send for each other one."""
log = logging.getLogger(__name__)


class KeyGate:
    """The `Gate` of one process. now: Unix seconds, the clock that all workers share."""

    def __init__(
        self, settings: ServerSettings, keyring: Keyring, counters: Counters, *, now: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self.keyring = keyring
        self._counters = counters
        self._cheap = LocalCounters()
        self._cpu = CpuAccounts(self._cpu_limit)
        self._now = now
        self._held: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether no key is set, so that requests need none."""
        return len(self.keyring) == 0

    def identify(self, authorization: str | None, query_token: str | None) -> Caller:
        """The caller. If `?token=` is allowed, as always under WORDLIST_SERVER_COMPAT, it goes before the header, as in
        the word-list server. Raises Unauthorized."""
        if self.is_open:
            return self.keyring.identify(None)
        if query_token and (self._settings.allow_query_token or self._settings.wordlist_server_compat):
            return self.keyring.identify(query_token)
        secret = bearer(authorization)
        if secret is None and query_token:
            raise Unauthorized(
                "`?token=` is not allowed here",
                hint="send the header Authorization: Bearer <key>, or set ALLOW_QUERY_TOKEN=true (part of "
                f"{COMPAT_SWITCH}=true) on the server",
                field="token",
            )
        return self.keyring.identify(secret)

    def admit(self, caller: Caller, *, requests: int = 1, sequences: int = 0) -> AbstractAsyncContextManager[None]:
        """Held open while generations run. requests: how many outputs; each one counts against the rate. sequences: how
        many sequences of the model their beams and particles take, which count as running at once; at least one for
        each output. Raises TooManyRequests, and InputError for more outputs or sequences than the key's limit."""
        return self._admit(caller, requests, max(requests, sequences))

    def admit_cheap(self, caller: Caller) -> None:
        """Count a request of a route that costs nearly nothing, in this process alone and apart from other routes.
        Raises TooManyRequests."""
        rate = self._rate(caller)
        if rate is not None and (wait := self._cheap.take(caller.name, rate * CHEAP_TIMES, self._now())):
            raise TooManyRequests(f"this key may ask such routes {rate * CHEAP_TIMES} times a minute", retry_after=wait)

    def charge(self, name: str, seconds: float) -> None:
        """CPU seconds were spent for a caller of this name. Any thread may call it."""
        self._cpu.charge(name, seconds)

    def _rate(self, caller: Caller) -> int | None:
        key = self.keyring.named(caller.name)
        return (key.requests_per_minute if key else None) or self._settings.requests_per_minute

    def _cpu_limit(self, name: str) -> float | None:
        """None for callers without a key, who cannot be told apart."""
        key = self.keyring.named(name)
        return None if key is None else key.cpu_seconds_per_minute or self._settings.cpu_seconds_per_minute

    @asynccontextmanager
    async def _admit(self, caller: Caller, requests: int, sequences: int) -> AsyncIterator[None]:
        if wait := self._cpu.wait(caller.name):
            raise TooManyRequests(
                f"this key has used its {self._cpu_limit(caller.name):g} CPU seconds a minute", retry_after=wait
            )
        key, rate = self.keyring.named(caller.name), self._rate(caller)
        slots = (key.concurrent if key else None) or self._settings.concurrent_per_key
        if rate is not None and requests > rate:
            raise InputError(f"{requests} outputs are asked for; this key may have {rate} a minute", field="n")
        if slots is not None and sequences > slots:
            if sequences == requests:
                raise InputError(f"{requests} outputs are asked for; this key may have {slots} at once", field="n")
            raise InputError(
                f"{sequences} sequences are asked for; this key may have {slots} at once",
                hint="fewer beams, particles or outputs; each beam and each particle is a sequence",
                field="n",
            )
        holder = secrets.token_hex(16)
        is_held = slots is not None
        try:
            # Slots first: a request refused for lack of a slot must not use up the rate.
            if slots is not None:
                enter = partial(self._counters.enter, caller.name, slots, holder, self._now(), sequences)
                is_held = await self._count(enter)
                if not is_held:
                    raise TooManyRequests(
                        f"this key may have {slots} requests running at once", retry_after=BUSY_SECONDS
                    )
                self._hold(holder)
            if rate is not None:
                take = partial(self._counters.take, caller.name, rate, self._now(), requests)
                if wait := await self._count(take):
                    raise TooManyRequests(f"this key may ask {rate} times a minute", retry_after=wait)
            yield
        finally:
            if is_held:  # also if the caller was cancelled before the slot was known to be taken
                self._held.discard(holder)
                await self._count(partial(self._counters.leave, holder))

    async def _count(self, work: Callable[[], T]) -> T:
        """Run `work`, in a thread if it blocks. If the caller is cancelled meanwhile, `work` still finishes first, so
        that a slot is given back after it was taken and not before."""
        if not self._counters.is_shared:
            return work()
        done = asyncio.ensure_future(asyncio.to_thread(work))
        is_cancelled = False
        with anyio.CancelScope(shield=True):  # a cancelled scope would interrupt every further await
            while not done.done():
                try:
                    await asyncio.shield(done)
                except asyncio.CancelledError:
                    is_cancelled = True
        if is_cancelled:
            raise asyncio.CancelledError
        return done.result()

    def _hold(self, holder: str) -> None:
        self._held.add(holder)
        if self._counters.is_shared and (self._renewing is None or self._renewing.done()):
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        """Renew regularly until no slot is held."""
        while self._held:
            await asyncio.sleep(LEASE_SECONDS / 4)
            await self.renew()

    async def renew(self) -> None:
        """Renew the lease of held slots. A failing database is logged and ends no generation."""
        if not self._held:
            return
        try:
            await self._count(partial(self._counters.renew, sorted(self._held), self._now()))
        except EspalierError as error:
            log.warning("slots could not be renewed: %s", error)

    async def close(self) -> None:
        """Stop renewing, and close the counters. Slots that are still held become free when their lease ends."""
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
        await self._count(self._counters.close)


def make_gate(
    settings: ServerSettings, counters: Counters | None = None, *, now: Callable[[], float] = time.time
) -> KeyGate:
    """Reads the keys. counters: None counts within this process. Raises InputError for a wrong key file."""
    return KeyGate(settings, read_keys(settings, now=now), counters or LocalCounters(), now=now)
