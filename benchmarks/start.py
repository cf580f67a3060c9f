"""Start-up: `import espalier` and `espalier --help` in fresh processes; medians of five, after one to warm the disk."""

import statistics
import subprocess
import sys
import time

from benchmarks.figures import note

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import espalier": ["-c", "import espalier"],
    "import espalier, use JsonSchema": ["-c", "import espalier; espalier.JsonSchema"],
    "espalier --help": ["-m", "espalier", "--help"],
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(6):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    idle = statistics.median(seconds["python -c pass"][1:])
    for name, values in seconds.items():
        note("Start", name, "s", {name: statistics.median(values[1:]), "python -c pass": idle})
        print(f"{name:<34}{statistics.median(values[1:]):7.3f} s")


if __name__ == "__main__":
    main()
