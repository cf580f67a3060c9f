"""Runs every parser under atheris for its share of the time, and prints inputs, new code reached, and findings.

Inputs that reached new code lie in `out/fuzz/corpus/NAME/`, from where the next run goes on; findings in
`out/fuzz/findings/`. Each parser has a process of its own (`guided.py`), which is started again where an input ends it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.parsers.run import named_parsers
from tests.fuzz.parsers.table import PARSERS
from tests.fuzz.parsers.target import CORPUS

OUT = Path("out/fuzz")
HANGING = 120
"""Seconds by the clock after which an input counts as one that never ends, and its process is ended."""
STARTING = 900.0
"""Seconds that a process may take beyond its share: imports under instrumentation on a machine that does much else, the
corpus read once, its end."""
DONE = re.compile(r"^Done (\d+) runs in (\d+) second", re.MULTILINE)
SHOWN = re.compile(r"^#(\d+)\s.*?\bcov: (\d+)", re.MULTILINE)


@dataclass(slots=True, kw_only=True)
class ParserRun:
    """What one parser did in a run."""

    inputs: int = 0
    #: by the clock, without its start
    seconds: float = 0.0
    #: whether its time was up, rather than its process ended by an input
    is_over: bool = False
    #: edges of code reached by the corpus, and at the end
    edges: tuple[int, int] = (0, 0)
    findings: list[str] = field(default_factory=list)


def fuzz_by_coverage(seconds: float, seed: int) -> int:
    """Runs each parser for its share of the seconds. Returns 1 if there is a finding, 2 without atheris."""
    if find_spec("atheris") is None:
        print("atheris is not installed: python -m pip install atheris, or leave --coverage out")
        return 2
    names = named_parsers()
    totals_file = OUT / "inputs.json"
    totals: dict[str, int] = json.loads(totals_file.read_text()) if totals_file.exists() else {}
    print(f"{'parser':18}{'inputs':>10}{'in all':>12}{'a second':>10}{'edges':>8}{'new':>6}  findings")
    findings = []
    for number, name in enumerate(names):
        run = fuzz_parser(name, seconds / len(names), seed + number)
        totals[name] = totals.get(name, 0) + run.inputs
        totals_file.write_text(json.dumps(totals, indent=1, sort_keys=True))
        rate = run.inputs / max(run.seconds, 1)
        start, end = run.edges
        counts = f"{run.inputs:>10,}{totals[name]:>12,}{rate:>10,.0f}{end:>8,}{end - start:>6,}"
        print(f"{name:18}{counts}  {len(run.findings) or 'none'}", flush=True)
        findings += run.findings
    for line in findings:
        print(line)
    print(f"{len(findings)} wrong")
    return 1 if findings else 0


def fuzz_parser(name: str, seconds: float, seed: int) -> ParserRun:
    """Runs one parser until its time is up, again after each input that ends its process."""
    corpus, findings = OUT / "corpus" / name, OUT / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.glob(f"{name}-*"))
    run = ParserRun()
    left = seconds
    while left >= 1 and not run.is_over:
        start = time.monotonic()
        _run_process(name, int(left), seed, run)
        left -= time.monotonic() - start
        seed += 1_000
    for path in sorted(set(findings.glob(f"{name}-*")) - before):
        if path.suffix == ".fault":
            fault = json.loads(path.read_text())["fault"]
            run.findings.append(f"{name}: {fault}: {path.with_suffix('')}")
        elif not path.with_suffix(".fault").exists():  # libFuzzer's own: a crash, or no end
            run.findings.append(f"{name}: ends its process ({path.name.split('-')[-2]}): {path}")
    return run


def _run_process(name: str, seconds: int, seed: int, run: ParserRun) -> None:
    options = {
        "max_total_time": seconds,
        "max_len": PARSERS[name].longest,
        "timeout": HANGING,
        "report_slow_units": HANGING,  # by the clock; `law.py` counts CPU time
        "rss_limit_mb": 0,  # the law holds for one input; caches of the process are not its growth
        "seed": seed,
        "print_final_stats": 1,
        "verbosity": 1,
    }
    command = [sys.executable, "-m", "tests.fuzz.parsers.guided", name, str(OUT / "findings")]
    command += [f"-{option}={value}" for option, value in options.items()]
    command += [str(OUT / "corpus" / name), str(CORPUS / name)]
    log = OUT / f"{name}.log"
    start = time.monotonic()
    with log.open("w") as file:
        try:
            subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=seconds + STARTING, check=False)
        except subprocess.TimeoutExpired:
            file.write(f"ended {STARTING:g} s after its time\n")
    text = log.read_text("utf-8", "replace")
    steps = [(int(count), int(edges)) for count, edges in SHOWN.findall(text)]
    if not steps:
        run.is_over = True
        run.findings.append(f"{name}: did not start; {log} says why")
        return
    run.edges = (run.edges[0] or steps[0][1], max(run.edges[1], steps[-1][1]))
    run.is_over = (done := DONE.search(text)) is not None
    run.inputs += steps[-1][0] if done is None else int(done[1])
    run.seconds += time.monotonic() - start if done is None else int(done[2])
