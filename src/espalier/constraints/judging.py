"""Judges texts in worker processes that can be ended, so that no verdict takes a server's time from others.

Judges are foreign code: some schemas and patterns make them run for longer than a lifetime. Most verdicts take a
millisecond: every one is first tried in a process for quick verdicts, and whoever takes longer there goes on in the
queue of slow ones. What was quick before has a process of its own, so that it waits for no other's first try. A verdict
that takes longer than its limit is `valid=None` and says so. It knows no kind.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from espalier.confined.pool import ConfinedError, Processes
from espalier.constraints import slow_patterns
from espalier.constraints.spec import JsonSchema, Regex, Spec
from espalier.constraints.verdict import Verdict, judge
from espalier.errors import Unavailable
from espalier.lexicon.files import WordFiles
from espalier.owners import owned_cache, working_for
from espalier.time_limit import OutOfTime

Judge: TypeAlias = Callable[[Spec, str, WordFiles, str], Verdict]
"""Judges a text for an owner (the last argument): a key, a user."""

IN_PLACE = frozenset({"choice", "json_object"})
"""Kinds whose verdict takes a time that is linear in the text, in code of Python's own."""
QUICK_SECONDS = 0.1
VERDICT_SECONDS = 5.0
NICER = 5
"""Slow verdicts let everybody else go first."""
SURE_SECONDS = 0.02
"""A spec of which a verdict took less is taken for quick."""
REMEMBERED_SECONDS = 60.0
MOST_REMEMBERED = 1024
KEPT_SPECS = 32


class ConfinedJudge:
    """Judges in worker processes. `judge` blocks and may be called from any thread; it notices at
    `time_limit.check` of the calling thread that nobody waits any more, which ends the process.

    seconds: of CPU time, for one verdict. sure, quick, slow: how many processes for what was quick before, for first
    tries, for what takes long. clock: seconds, to forget what was slow.
    charge: told how many CPU seconds the verdicts of an owner took.
    """

    def __init__(
        self,
        *,
        seconds: float = VERDICT_SECONDS,
        sure: int = 1,
        quick: int = 1,
        slow: int = 1,
        clock: Callable[[], float] = time.monotonic,
        charge: Callable[[str, float], None] = lambda owner, seconds: None,
    ) -> None:
        self._seconds, self._clock, self._charge = seconds, clock, charge
        self._sure = Processes(count=sure, warm=(warm,))
        self._quick = Processes(count=quick, warm=(warm,))
        self._slow = Processes(count=slow, nicer=NICER, warm=(warm,))
        self._lock = threading.Lock()
        self._slow_until: dict[tuple[str, str], float] = {}  # by owner and spec
        self._were_quick: OrderedDict[tuple[str, str], None] = OrderedDict()  # the one used last at the end

    def start(self) -> None:
        """Start the processes, which then are warm for the first verdict. Raises ConfinedError."""
        for processes in (self._sure, self._quick, self._slow):
            processes.start()

    def judge(self, spec: Spec, text: str, words: WordFiles, owner: str) -> Verdict:
        """The verdict of `verdict.judge`, or `valid=None` with the reason. Raises Cancelled where nobody waits any
        more, Unavailable once closed."""
        if spec.kind in IN_PLACE or getattr(spec, "python", None) is not None:
            return judge(spec, text, words)
        key = spec.key()
        task = {"spec": key, "text": text, "words": [str(folder) for folder in words.folders], "owner": owner}
        what = "judging the text"
        try:
            if self._seconds > QUICK_SECONDS and not self._is_slow(owner, key):
                tried = self._sure if self._was_quick(owner, key) else self._quick
                took: list[float] = []
                try:
                    verdict = self._call(
                        tried,
                        task,
                        QUICK_SECONDS,
                        what,
                        owner,
                        still=lambda: not self._is_slow(owner, key),
                        used=took.append,
                    )
                    self._note(owner, key, is_quick=sum(took) < SURE_SECONDS)
                    return verdict
                except OutOfTime:
                    self._note(owner, key, is_quick=False)
                    self._remember(owner, key)
            return self._call(self._slow, task, self._seconds, what, owner)
        except OutOfTime as error:
            return Verdict(valid=None, judge="none", errors=(f"could not judge: {error.message}",))
        except Unavailable:
            raise
        except ConfinedError as error:
            return Verdict(valid=None, judge="none", errors=(f"could not judge: {error.message}"[:200],))

    def close(self) -> None:
        """End the processes, and with them every verdict under way. Idempotent."""
        for processes in (self._sure, self._quick, self._slow):
            processes.close()

    def _call(
        self,
        processes: Processes,
        task: Mapping[str, Any],
        seconds: float,
        what: str,
        owner: str,
        still: Callable[[], bool] = lambda: True,
        used: Callable[[float], None] = lambda seconds: None,
    ) -> Verdict:
        def charge(spent: float) -> None:
            used(spent)
            self._charge(owner, spent)

        answer = processes.call(
            judged,
            task,
            seconds=seconds,
            what=what,
            owner=owner,
            ends=processes is self._slow,
            still=still,
            used=charge,
        )
        return Verdict(
            valid=answer["valid"], judge=answer["judge"], errors=tuple(answer["errors"]), breaks=answer.get("breaks")
        )

    def _is_slow(self, owner: str, key: str) -> bool:
        with self._lock:
            return self._slow_until.get((owner, key), 0.0) > self._clock()

    def _was_quick(self, owner: str, key: str) -> bool:
        with self._lock:
            return (owner, key) in self._were_quick

    def _note(self, owner: str, key: str, *, is_quick: bool) -> None:
        with self._lock:
            self._were_quick.pop((owner, key), None)
            if is_quick:
                self._were_quick[owner, key] = None
                if len(self._were_quick) > MOST_REMEMBERED:
                    self._were_quick.popitem(last=False)

    def _remember(self, owner: str, key: str) -> None:
        now = self._clock()
        with self._lock:
            if len(self._slow_until) >= MOST_REMEMBERED:
                self._slow_until = {pair: until for pair, until in self._slow_until.items() if until > now}
            while len(self._slow_until) >= MOST_REMEMBERED:
                del self._slow_until[next(iter(self._slow_until))]
            self._slow_until[owner, key] = now + REMEMBERED_SECONDS


def in_this_process(spec: Spec, text: str, words: WordFiles, owner: str) -> Verdict:
    """A Judge without limits, for callers who judge their own texts."""
    return judge(spec, text, words)


def judged(task: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker process does. task: spec (its key), text, words (folders), owner. What is kept is kept for the
    owner alone, so that the time of a verdict tells no owner what another one's texts were judged by."""
    _turn_to(task["owner"])
    with slow_patterns.in_place(), working_for(task["owner"]):
        return judge(_spec(task["spec"]), task["text"], _words(tuple(task["words"]))).to_json()


def warm() -> None:
    """What a process does once: importing judges, reading the metaschemas."""
    words = WordFiles.standard()
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}}, "required": ["a"]}
    for spec in (JsonSchema(schema), Regex("a")):
        judge(spec, '{"a": "b"}', words)


def _turn_to(owner: str) -> None:
    """`re` keeps the patterns that it has compiled: it forgets those of the owner before."""
    if _LATEST[0] != owner:
        re.purge()
        _LATEST[0] = owner


_LATEST = [""]


@owned_cache(KEPT_SPECS)
def _spec(key: str) -> Spec:
    return Spec.from_json(json.loads(key))


@lru_cache(maxsize=4)
def _words(folders: tuple[str, ...]) -> WordFiles:
    return WordFiles([Path(folder) for folder in folders])
