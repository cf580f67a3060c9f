"""`python -m benchmarks`: every benchmark, one table each; `python -m benchmarks NAME ...` runs some of them."""

import sys
from importlib import import_module

BENCHMARKS = {
    "start": "benchmarks.start",
    "engines": "benchmarks.engines.loop",
    "step model": "benchmarks.engines.step_model",
    "llamacpp": "benchmarks.llamacpp.speed",
    "server": "benchmarks.server.report",
    "worker processes": "benchmarks.server.pools",
    "batch": "benchmarks.batch.report",
    "proxy": "benchmarks.proxy.report",
    "costs": "benchmarks.costs",
    "vocabulary": "benchmarks.constraints.vocabulary",
    "llama.cpp": "benchmarks.constraints.llama_cpp",
    "schemas": "benchmarks.schema.report",
    "cold": "benchmarks.cold",
    "growth": "benchmarks.growth",
    "published": "benchmarks.published",
    "memory": "benchmarks.memory",
    "exactness": "benchmarks.exactness",
    "exactness of grammars": "benchmarks.exactness_texts",
    "tax": "benchmarks.tax",
    "word lists": "benchmarks.constraints.wordlists",
    "unique items": "benchmarks.constraints.unique",
    "compositions": "benchmarks.constraints.compositions",
    "safety": "benchmarks.safety",
    "safety rates": "benchmarks.safety_rates",
    "sampling": "benchmarks.sampling.steps",
    "rows": "benchmarks.sampling.rows",
    "trace": "benchmarks.sampling.traces",
    "jump": "benchmarks.jump",
    "drafts": "benchmarks.drafts.speed",
    "budget": "benchmarks.budget",
    "faithful": "benchmarks.faithful",
    "beams": "benchmarks.beams",
    "activations": "benchmarks.activations.report",
    "vllm": "benchmarks.vllm.report",
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    wanted = names or list(BENCHMARKS)
    for count, name in enumerate(wanted, 1):
        # No spinner: its thread would take time from what is measured.
        print(f"\n== {name} ({count} of {len(wanted)}) ==", flush=True)
        import_module(BENCHMARKS[name]).main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
