"""Opens the store of a server: a migrated database, with methods for traces, generation logs and retention.

It knows neither HTTP nor engines. It takes and returns plain JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from espalier.store import generations, migrate, presets, responses, test_runs, traces, vocab_cache
from espalier.store.db import Database, open_database
from espalier.store.generations import Wanted
from espalier.store.ids import Ids
from espalier.store.retention import Limits, Retention
from espalier.store.tables import GENERATION_LOGS

PRUNED = {
    "generations": (GENERATION_LOGS, generations.PREFIX),
    "test_runs": (test_runs.TEST_RUNS, test_runs.PREFIX),
}


class Store:
    """Traces and generations of all processes on one database. Every method blocks and may be called from any thread.

    All methods raise OutputError if the database cannot be written or is damaged, Unavailable if it is unreachable or
    closed. database: for other things that workers share, such as counters.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self.database = database
        self._clock = clock
        self._ids = Ids(clock)

    def save_trace(
        self, trace: Mapping[str, Any], *, request_id: str, caller: str, index: int, route: str | None = None
    ) -> str:
        """Store `Trace.to_json()` and return its id, `trc_…`. index: which output of the request. Raises InputError if
        it is no trace."""
        return traces.save(
            self.database, self._ids, trace, request_id=request_id, caller=caller, index=index, route=route
        )

    def save_generation(self, row: Mapping[str, Any]) -> str:
        """Store one row with the fields of `generations.FIELDS` and return its id, `gen_…`. Raises InputError for any
        other field."""
        return generations.save(self.database, self._ids, row)

    def traces(self, *, caller: str | None, limit: int, after: str | None) -> Sequence[Mapping[str, Any]]:
        """Columns of the traces of a caller (None: of every caller), newest first, older than the id `after`.

        Raises InputError for a limit below 1 and an `after` that is no id.
        """
        return traces.page(self.database, caller=caller, limit=limit, after=after)

    def trace(self, trace_id: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """The whole trace as it was given, or None: there is none of that id that this caller may see."""
        return traces.load(self.database, trace_id, caller=caller)

    def delete_trace(self, trace_id: str, *, caller: str | None) -> bool:
        """Whether there was one that this caller could delete."""
        return traces.remove(self.database, trace_id, caller=caller)

    def generations(self, wanted: Wanted, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """The columns of generation logs, newest first, without request and content. Raises InputError for a limit
        below 1, an `after` that is no id, and a search without words."""
        return generations.page(self.database, wanted, limit=limit)

    def generation(self, generation_id: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """One generation log with its request and content, or None: there is none of that id that this caller may
        see."""
        return generations.load(self.database, generation_id, caller=caller)

    def generation_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        """The newest ids of generation logs that begin so."""
        return generations.ids(self.database, beginning, limit=limit)

    def count_generations(self) -> tuple[int, int]:
        """How many generation logs there are, and how many of them have content."""
        return generations.count(self.database)

    def save_response(self, response_id: str, body: Mapping[str, Any], *, caller: str) -> None:
        """Store a reply of `/v1/responses`, under its id, with its items. Raises InputError."""
        responses.save(self.database, response_id, body, created=self._clock(), caller=caller)

    def response(self, response_id: str, *, caller: str) -> Mapping[str, Any] | None:
        """What was stored of a response, None if this caller has none with the id."""
        return responses.load(self.database, response_id, caller=caller)

    def delete_response(self, response_id: str, *, caller: str) -> bool:
        """Whether there was one that this caller could delete."""
        return responses.remove(self.database, response_id, caller=caller)

    def save_test_run(
        self, report: Mapping[str, Any], *, preset: str | None = None, strategy: str | None = None
    ) -> str:
        """Store `Report.to_json()` of the harness and return its id, `run_…`. Raises InputError if it is none."""
        return test_runs.save(self.database, self._ids, report, preset=preset, strategy=strategy)

    def test_run(self, run: str) -> tuple[str, Mapping[str, Any]]:
        """The id and the report of a run; `last` is the newest one. Raises InputError if there is none."""
        return test_runs.load(self.database, run)

    def test_runs(self, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """The sums of the newest runs, newest first."""
        return test_runs.newest(self.database, limit=limit)

    def preset_names(self) -> list[str]:
        return presets.names(self.database)

    def preset(self, name: str) -> Mapping[str, Any] | None:
        """The JSON of a preset, None if there is none of that name."""
        return presets.load(self.database, name)

    def save_preset(self, preset: Mapping[str, Any], *, replace: bool = False) -> None:
        """Store `Preset.to_json()`. Raises InputError if there is one of that name, unless it may be replaced."""
        presets.save(self.database, preset, replace=replace, clock=self._clock)

    def remove_preset(self, name: str) -> bool:
        """Whether there was one."""
        return presets.remove(self.database, name)

    def save_vocab(self, fingerprint: str, body: Mapping[str, Any], *, tokens: int) -> None:
        """Store a vocabulary as JSON, with `name` and `width`. Raises InputError for what is no fingerprint."""
        vocab_cache.save(self.database, fingerprint, body, tokens=tokens, clock=self._clock)

    def vocab(self, beginning: str) -> tuple[str, Mapping[str, Any]]:
        """The fingerprint and the JSON of the vocabulary whose fingerprint begins so. Raises InputError if there is
        none or more than one."""
        return vocab_cache.load(self.database, beginning, clock=self._clock)

    def vocabs(self) -> Sequence[Mapping[str, Any]]:
        """The columns of all vocabularies, the last used first."""
        return vocab_cache.everything(self.database)

    def remove_vocab(self, beginning: str) -> str:
        """Delete the vocabulary whose fingerprint begins so, and return its fingerprint. Raises InputError as
        `vocab`."""
        return vocab_cache.remove(self.database, beginning)

    def retention(self, limits: Limits) -> Retention:
        """Deletes traces and generation logs over the limits; run it regularly (`retention.keep`)."""
        return Retention(self.database, limits, clock=self._clock)

    def pruning(self, what: str, limits: Limits) -> Retention:
        """Deletes the rows of one table over the limits. what: `generations` or `test_runs`."""
        return Retention(self.database, limits, clock=self._clock, kept=[PRUNED[what]])

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self.database.close()


def open_store(
    url: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.time,
) -> Store:
    """Open and migrate the database at a URL, or the SQLite file in the user's data folder.

    Raises InputError for an unusable URL or file and for a database of a newer version, OutputError for a place that
    cannot be written, Unavailable if the database server does not answer, MissingDependency without the driver.
    """
    database = open_database(url, environ=environ)
    try:
        migrate.upgrade(database)
    except BaseException:
        database.close()
        raise
    database.hide_name()
    return Store(database, clock=clock)
