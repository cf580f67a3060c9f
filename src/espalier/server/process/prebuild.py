"""Compiles word lists in the background when the server starts (PREBUILD_…); `/ready` answers 503 until they are done.

A list that fails to compile is logged and shown by `/ready`. A wrong setting stops the start. It knows no request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from espalier.constraints.compiler import Compiler
from espalier.constraints.soft.spec import SoftWordlist
from espalier.constraints.words.spec import Wordlist
from espalier.errors import EspalierError, InputError, SpecError, UnknownName
from espalier.json_record import JsonRecord
from espalier.server.settings import ServerSettings
from espalier.wording import without_folders

log = logging.getLogger(__name__)
MAX_LISTS = 64
"""The lists stay in memory as long as the server runs."""


@dataclass(slots=True)
class Prebuild(JsonRecord):
    """Progress. failed: the error of each list that failed, by `lang/count`."""

    done: int = 0
    total: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.done >= self.total


def wanted_lists(settings: ServerSettings) -> tuple[Wordlist, ...]:
    """The lists that the settings ask for; none if PREBUILD_PREFIX is off. Raises InputError naming the variable."""
    if not settings.prebuild_prefix:
        return ()
    lists: list[Wordlist] = []
    for lang in dict.fromkeys(settings.prebuild_langs):
        for count in settings.prebuild_word_counts:
            try:
                lists.append(Wordlist(lang=lang, top=count))
            except SpecError as error:
                raise InputError(
                    f"PREBUILD_LANGS={lang}: {error.message}", hint=error.hint, field="PREBUILD_LANGS"
                ) from None
    if len(lists) > MAX_LISTS:
        raise InputError(
            f"PREBUILD_LANGS and PREBUILD_WORD_COUNTS make {len(lists)} word lists; {MAX_LISTS} are kept",
            field="PREBUILD_LANGS",
        )
    return tuple(lists)


def checked_lists(lists: tuple[Wordlist, ...], compiler: Compiler) -> tuple[Wordlist, ...]:
    """The lists, each with as many words as there are: a shorter one is used whole, which the log says. Raises
    InputError, naming the variable, for a language without a list."""
    checked: list[Wordlist] = []
    for spec in lists:
        lang, name = spec.lang or "", "PREBUILD_LANGS"
        try:
            count = len(compiler.words.words(lang))
        except (SpecError, UnknownName) as error:
            raise InputError(f"{name}: {error.message}", hint=error.hint, field=name) from None
        if (spec.top or 0) > count:
            log.warning("PREBUILD_WORD_COUNTS: the list %s has %d words, and all of them are used", lang, count)
            spec = replace(spec, top=count)
        checked.append(spec)
    return tuple(dict.fromkeys(checked))


@asynccontextmanager
async def prebuilding(
    settings: ServerSettings, compiler: Compiler, lists: tuple[Wordlist, ...]
) -> AsyncIterator[Prebuild]:
    """While open, compile the lists one after the other in a thread. Closing starts no further list."""
    state = Prebuild(total=len(lists))
    task = asyncio.create_task(_all(settings, compiler, lists, state))
    try:
        yield state
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _all(settings: ServerSettings, compiler: Compiler, lists: tuple[Wordlist, ...], state: Prebuild) -> None:
    for spec in lists:
        name, began = f"{spec.lang}/{spec.top}", time.monotonic()
        try:
            await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(_compile, settings, compiler, spec)))
        except EspalierError as error:
            state.failed[name] = without_folders(str(error))
            log.error("word list %s could not be compiled: %s", name, error)
        except Exception as error:
            state.failed[name] = f"{type(error).__name__}"
            log.exception("word list %s could not be compiled", name)
        state.done += 1
        if name not in state.failed:
            seconds = time.monotonic() - began
            log.info("word list %s compiled in %.1f s (%d of %d)", name, seconds, state.done, state.total)


def _compile(settings: ServerSettings, compiler: Compiler, spec: Wordlist) -> None:
    """Compile the list; in soft mode also the list of the second tier, and the bias tables of both."""
    compiler.compile(spec, keep=True)
    if settings.vocab_constraint_mode != "soft":
        return
    soft = SoftWordlist(
        spec,
        tier2_max_rank_multiplier=settings.vocab_soft_tier2_max_rank_multiplier,
        tier2_penalty=settings.vocab_soft_tier2_penalty,
        tier3_penalty=settings.vocab_soft_tier3_penalty,
    )
    size = len(compiler.words.words(spec.lang or ""))
    compiler.compile(Wordlist(lang=spec.lang, top=min(soft.last_rank, size)), keep=True)
    soft.filter(compiler)
