"""Runs tests against mutations in forked processes: tests are collected once, and each mutation costs only its tests.

A forked process puts the changed code into the functions that exist already, so that every reference to them has it,
and runs the tests that call one of them, until one fails. It knows neither which tests nor which modules belong
together.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import pytest

from scripts.mutants.mutations import Mutation, functions_of

LEAST_SECONDS = 20.0
SLOWER = 8
MOST_LONGER = 60.0
"""A mutation is killed when one of its tests takes that many times as long as without it, and at least so many seconds;
or so many seconds longer."""
MEMORY = 4 << 30
"""Bytes that a mutation may take beside what the process has."""
NOTE = "__note_call__"
"""The name of what a function calls to say that it was called."""
Codes: TypeAlias = dict[tuple[str, int], CodeType]
"""The code of every function of a module, by its qualified name and first line."""


class Fate(StrEnum):
    """What became of a mutation."""

    KILLED = "killed"
    SURVIVED = "survived"
    #: No test calls the function.
    NOT_REACHED = "not reached"
    #: Compiled, it is the same code.
    SAME = "same"


@dataclass(kw_only=True)
class TestCosts:
    """What the tests do without mutations."""

    __test__ = False

    #: Seconds of each test that passes, by its id.
    seconds: dict[str, float] = field(default_factory=dict)
    #: The tests that call a function, by file and name of the function.
    callers: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))


class MutantRunner:
    """A plug-in of pytest that runs the mutations in place of the tests.

    files: paths of the changed files, below root. report: called with each mutation and its fate, and the test that
    killed it.
    """

    def __init__(
        self, root: Path, mutations: Sequence[Mutation], report: Callable[[Mutation, Fate, str | None], None]
    ) -> None:
        self._root, self._mutations, self._report = root, mutations, report
        self._functions: dict[str, list[FunctionType]] = defaultdict(list)  # by path
        #: tests that fail without any change
        self.failing: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Called by pytest once all tests are collected."""
        self._find_functions()
        outcome = self._forked(session, session.items)
        self.failing = outcome["failed"]
        passed = {test: took for test, took in outcome["seconds"].items() if test not in self.failing}
        costs = TestCosts(seconds=passed)
        for file, function, test in outcome["calls"]:
            costs.callers[file, function].add(test)
        recent: list[str] = []  # tests that have killed, the latest first: they are likely to kill again
        for mutation in self._mutations:
            fate, killer = self._try(session, mutation, costs, recent)
            if killer in costs.seconds:
                recent = [killer, *(test for test in recent if test != killer)]
            self._report(mutation, fate, killer)
        return True

    def _try(
        self, session: pytest.Session, mutation: Mutation, costs: TestCosts, recent: list[str]
    ) -> tuple[Fate, str | None]:
        callers = costs.callers.get((mutation.file, mutation.function), set()) & costs.seconds.keys()
        if not callers:
            return Fate.NOT_REACHED, None
        path = self._root / mutation.file
        text = path.read_bytes()
        codes = _codes(compile(mutation.applied(text), str(path), "exec", dont_inherit=True))
        if codes == _codes(compile(text, str(path), "exec", dont_inherit=True)):
            return Fate.SAME, None
        order = {test: index for index, test in enumerate(recent)}
        tests = sorted(callers, key=lambda test: (order.get(test, len(order)), costs.seconds[test]))
        items = {item.nodeid: item for item in session.items}
        limits = {
            test: max(LEAST_SECONDS, min(SLOWER * costs.seconds[test], costs.seconds[test] + MOST_LONGER))
            for test in tests
        }
        outcome = self._forked(session, [items[test] for test in tests], limits=limits, change={str(path): codes})
        failed: list[str] = outcome["failed"]
        return (Fate.KILLED, failed[0]) if failed else (Fate.SURVIVED, None)

    def _find_functions(self) -> None:
        files = {str(self._root / mutation.file) for mutation in self._mutations}
        gc.unfreeze()  # frozen objects are not listed
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename in files:
                self._functions[thing.__code__.co_filename].append(thing)
        gc.collect()
        gc.freeze()

    def _forked(
        self,
        session: pytest.Session,
        items: Sequence[pytest.Item],
        *,
        limits: Mapping[str, float] | None = None,
        change: dict[str, Codes] | None = None,
    ) -> dict[str, Any]:
        """Run tests in a forked process. With a change, the code of some files, it ends at the first that fails; one
        that is killed or takes longer than its limit has failed. Without one, what each test calls is noted."""
        sys.stdout.flush()
        sys.stderr.flush()
        reader, writer = os.pipe()
        process = os.fork()
        if not process:
            os.close(reader)
            os.setsid()
            try:
                self._apply(change if change is not None else {path: _noting_codes(path) for path in self._functions})
                outcome = _run(session, items, limits, stop=change is not None)
            except BaseException as error:  # noqa: BLE001  # whatever ends the tests is a failure of theirs
                outcome = {"failed": [f"{type(error).__name__}: {error}"], "seconds": {}, "calls": []}
            with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "w") as pipe:  # nobody waits any more
                json.dump(outcome, pipe)
            os._exit(0)
        os.close(writer)
        text = _read(reader, None if limits is None else sum(limits.values()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return json.loads(text) if text else {"failed": ["ended or took too long"], "seconds": {}, "calls": []}

    def _apply(self, change: dict[str, Codes]) -> None:
        """Put other code into the functions of this process."""
        for path, codes in change.items():
            for function in self._functions[path]:
                code = codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
                if code is not None and code != function.__code__:
                    function.__code__ = code
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))


def _read(reader: int, seconds: float | None) -> str:
    """What a process writes until it closes the pipe; an empty text after so many seconds."""
    parts, end = [], None if seconds is None else time.monotonic() + seconds
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([pipe], [], [], left)[0]:
                return ""
            part = pipe.read(1 << 16)
            if not part:
                return b"".join(parts).decode()
            parts.append(part)


def _codes(module: CodeType) -> Codes:
    codes: Codes = {}
    left = [module]
    while left:
        code = left.pop()
        codes[code.co_qualname, code.co_firstlineno] = code
        left += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return codes


def _noting_codes(path: str) -> Codes:
    """The code of a file whose functions say that they were called; what is within a function says so for it."""
    tree = ast.parse(Path(path).read_bytes())
    for name, function in functions_of(tree):
        for inner in ast.walk(function):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                call = ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(path), ast.Constant(name)], [])
                inner.body.insert(0, ast.fix_missing_locations(ast.copy_location(ast.Expr(call), inner.body[0])))
    return _codes(compile(tree, path, "exec", dont_inherit=True))


def _run(
    session: pytest.Session, items: Sequence[pytest.Item], limits: Mapping[str, float] | None, *, stop: bool
) -> dict[str, Any]:
    """Run tests, in a process of their own, which ends where one takes longer than its limit. stop: at the first that
    fails."""
    config = session.config
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(silent, stream)
    config.pluginmanager.unregister(config.pluginmanager.get_plugin("terminalreporter"))
    watcher = _Watcher()
    config.pluginmanager.register(watcher)
    for item, following in zip(items, [*items[1:], None], strict=True):
        began = time.monotonic()
        watcher.test = item.nodeid
        if limits is not None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, limits[item.nodeid])
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        watcher.seconds[item.nodeid] = time.monotonic() - began
        if stop and watcher.failed:
            break
    return {
        "failed": watcher.failed,
        "seconds": {test: took for test, took in watcher.seconds.items() if test not in watcher.skipped},
        "calls": [
            [os.path.relpath(path, session.config.rootpath), function, test] for path, function, test in watcher.calls
        ],
    }


class _Watcher:
    """Notes which tests fail, and which functions they call."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.skipped: set[str] = set()
        self.seconds: dict[str, float] = {}
        self.calls: set[tuple[str, str, str]] = set()
        self.test = ""
        setattr(builtins, NOTE, lambda path, function: self.calls.add((path, function, self.test)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest."""
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)
        if report.skipped:
            self.skipped.add(report.nodeid)
