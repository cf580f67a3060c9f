"""Runs every parser for its share of the time, and prints inputs, new code reached, costs and findings.

Inputs that reached new code lie in `out/fuzz/corpus/NAME/`, from where the next run goes on; findings in
`out/fuzz/findings/`. Each parser has a process of its own (`guided.py`), which is started again where an input ends it.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec

from tests.fuzz.parsers.run import named_parsers
from tests.fuzz.parsers.table import PARSERS
from tests.fuzz.parsers.target import CORPUS, GROWN, OUT

TOTALS = OUT / "totals.json"
HANGING = 120
"""Seconds by the clock after which an input counts as one that never ends, and its process is ended."""
STARTING = 900.0
"""Seconds that a process may take beyond its share: imports under instrumentation on a machine that does much else, the
corpus read once, its end."""
PROCESS_INPUTS = 100_000
"""The most that one process reads: what instrumented code keeps of each input is gone with it."""
DONE = re.compile(r"^Done (\d+) runs in (\d+) second", re.MULTILINE)
READ = re.compile(r"^stat::number_of_executed_units: (\d+)", re.MULTILINE)
"""What a process has read that a signal (SIGUSR1) or an input ended."""
SHOWN = re.compile(r"^#(\d+)\s.*?\bcov: (\d+)", re.MULTILINE)


@dataclass(slots=True, kw_only=True)
class ParserRun:
    """What one parser did in a run."""

    inputs: int = 0
    #: by the clock, without its start
    seconds: float = 0.0
    #: whether its time was up
    is_over: bool = False
    #: CPU seconds of the slowest input, and bytes by which reading made the process grow
    slowest: float = 0.0
    grown: int = 0
    #: edges of code reached by the corpus, and at the end
    edges: tuple[int, int] = (0, 0)
    findings: list[str] = field(default_factory=list)


def fuzz_parsers(seconds: float, seed: int, inputs: int = 0, *, is_guided: bool) -> int:
    """Runs each parser for its share of the seconds, or until it has read so many inputs in all its runs; time that one
    leaves goes to those that follow. is_guided: by coverage, rather than changes of what earlier runs have found.
    Returns 1 if there is a finding, 2 without atheris."""
    if is_guided and find_spec("atheris") is None:
        print("atheris is not installed: python -m pip install atheris, or leave --coverage out")
        return 2
    names = named_parsers()
    head = f"{'parser':18}{'inputs':>10}{'in all':>12}{'a second':>10}{'edges':>8}{'new':>6}{'slowest':>9}{'grown':>9}"
    print(f"{head}  findings")
    findings = []
    left = seconds
    for number, name in enumerate(names):
        most = max(0, inputs - int(_totals_of(name)["inputs"]))
        if inputs and not most:
            continue
        run = fuzz_parser(name, left / (len(names) - number), seed + number, most, is_guided=is_guided)
        left -= min(run.seconds, left / (len(names) - number))
        total = _count(name, run, is_guided=is_guided)
        rate = run.inputs / max(run.seconds, 1)
        known, reached = run.edges
        counts = f"{run.inputs:>10,}{total['inputs']:>12,}{rate:>10,.0f}{reached:>8,}{reached - known:>6,}"
        costs = f"{run.slowest:>7.2f} s{run.grown >> 20:>5} MiB"
        print(f"{name:18}{counts}{costs}  {len(run.findings) or 'none'}", flush=True)
        findings += run.findings
    for line in findings:
        print(line)
    print(f"{len(findings)} wrong")
    return 1 if findings else 0


def _all_totals() -> dict[str, dict[str, float]]:
    """What all runs have read, by parser."""
    return json.loads(TOTALS.read_text()) if TOTALS.exists() else {}


def _totals_of(name: str) -> dict[str, float]:
    return _all_totals().get(name, {"inputs": 0, "slowest": 0.0, "grown": 0})


def _count(name: str, run: ParserRun, *, is_guided: bool) -> dict[str, float]:
    """Adds a run to the totals of its parser. Read again first: another process may count another parser meanwhile."""
    total = _totals_of(name)
    total["inputs"] += run.inputs
    total["unguided"] = total.get("unguided", 0) + (0 if is_guided else run.inputs)
    total |= {"slowest": max(total["slowest"], run.slowest), "grown": max(total["grown"], run.grown)}
    TOTALS.write_text(json.dumps(_all_totals() | {name: total}, indent=1, sort_keys=True))
    return total


def fuzz_parser(name: str, seconds: float, seed: int, inputs: int = 0, *, is_guided: bool) -> ParserRun:
    """Runs one parser until its time or its number of inputs is up, in one process after another."""
    corpus, findings = GROWN / name, OUT / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.glob(f"{name}-*"))
    run = ParserRun()
    while seconds - run.seconds >= 1 and not run.is_over and (not inputs or run.inputs < inputs):
        most = min(PROCESS_INPUTS, inputs - run.inputs) if inputs else PROCESS_INPUTS
        _run_process(name, int(seconds - run.seconds), seed, run, most, is_guided=is_guided)
        seed += 1_000
    for path in sorted(set(findings.glob(f"{name}-*")) - before):
        if path.suffix == ".fault":
            fault = json.loads(path.read_text())["fault"]
            run.findings.append(f"{name}: {fault}: {path.with_suffix('')}")
        elif not path.with_suffix(".fault").exists():  # libFuzzer's own: a crash, or no end
            run.findings.append(f"{name}: ends its process ({path.name.split('-')[-2]}): {path}")
    return run


def _run_process(name: str, seconds: int, seed: int, run: ParserRun, inputs: int, *, is_guided: bool) -> None:
    """inputs: the most that are read."""
    options = {
        "max_total_time": seconds,
        "runs": inputs,
        "max_len": PARSERS[name].longest,
        "timeout": HANGING,
        "report_slow_units": HANGING,  # by the clock; `law.py` counts CPU time
        "rss_limit_mb": 0,  # the law holds for one input; caches of the process are not its growth
        "seed": seed,
        "print_final_stats": 1,
        "verbosity": 1,
    }
    command = [sys.executable, "-m", "tests.fuzz.parsers.guided", name, str(OUT / "findings")]
    if is_guided:
        command += [*(f"-{option}={value}" for option, value in options.items()), str(GROWN / name), str(CORPUS / name)]
    else:
        command += ["--unguided", str(inputs), str(seconds), str(seed)]
    log, costs = OUT / f"{name}.log", OUT / "findings" / f"{name}.costs"
    costs.unlink(missing_ok=True)
    start = time.monotonic()
    with log.open("w") as file:
        try:
            subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=seconds + STARTING, check=False)
        except subprocess.TimeoutExpired:
            file.write(f"ended {STARTING:g} s after its time\n")
    text = log.read_text("utf-8", "replace")
    steps = [(int(count), int(edges)) for count, edges in SHOWN.findall(text)]
    done, told = DONE.search(text), READ.search(text)
    if not steps and not done:
        run.is_over = True
        run.findings.append(f"{name}: did not start, or was ended; {log} says why")
        return
    if steps:
        run.edges = (run.edges[0] or steps[0][1], max(run.edges[1], steps[-1][1]))
    counted = told or done
    read = int(counted[1]) if counted else steps[-1][0]
    run.is_over = done is not None and read < inputs
    run.inputs += read
    run.seconds += time.monotonic() - start if done is None else int(done[2])
    if costs.exists():  # its process may have ended while it wrote
        with contextlib.suppress(ValueError):
            cost = json.loads(costs.read_text())
            run.slowest, run.grown = max(run.slowest, cost["slowest"]), max(run.grown, cost["grown"])
