"""Which benchmarks the page shows, in its order, and what each question is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the page."""

    title: str
    #: What it measures, and how to read it.
    about: str
    #: `python -m` this, with `--figures FILE` added.
    module: str
    argv: Sequence[str] = ()
    #: The same in less time; None leaves the part out of a quick run.
    quick: Sequence[str] | None = None
    #: False where the figures do not depend on time: then once is enough.
    is_repeated: bool = True
    #: False where the columns are not engines: then there are no ratios.
    is_compared: bool = True


PARTS = (
    Part(
        title="How exact",
        about="The same schemas and instances for each engine, read byte by byte. *Entirely right*: it compiles, no "
        "invalid instance is accepted and each valid one is, in some spelling. *Wrongly accepted*: of the invalid "
        "instances of schemas that it compiles. *Wrongly refused*: of the valid ones. A schema that an engine refuses "
        "is no wrong answer, and is missing in *compiled*. llama.cpp is its own converter to GBNF, "
        "read exactly.",
        module="benchmarks.exactness",
        quick=("--every", "40", "--seconds", "2"),
        is_repeated=False,
    ),
    Part(
        title="How exact, grammars and patterns",
        about="The same for GBNF and regular expressions: cases of the syntax, and grammars and patterns drawn with a "
        "fixed seed, each with texts that an independent oracle has judged, an Earley recogniser and Python's `re`. "
        "llguidance reads GBNF through its own converter.",
        module="benchmarks.exactness_texts",
        quick=("--count", "40"),
        is_repeated=False,
    ),
    Part(
        title="How fast, cold and warm",
        about="One text for each of many constraints that were never met before: until the first mask is there; a mask "
        "and an advance, on average; the whole text; and a second text under the same constraint. CPU time of one "
        "core. Less is better.",
        module="benchmarks.cold",
        quick=("schemas", "--every", "6"),
    ),
    Part(
        title="How fast, other vocabularies",
        about="The same for schemas over fewer and more ids.",
        module="benchmarks.cold",
        argv=("schemas", "--width", "32000", "262144", "--every", "2"),
    ),
    Part(
        title="Beside published figures",
        about="[MaskBench](https://github.com/guidance-ai/jsonschemabench/tree/main/maskbench) publishes the time to "
        "compile a schema (TTFM) and the time of a mask with the token after it (TBM), over 11,306 schemas on an AMD "
        "EPYC 7V13, 2025-03-27; its limit is 900 s. "
        "[XGrammar's script](https://github.com/mlc-ai/xgrammar/tree/main/examples/benchmark) told the means of both, "
        "over 99 schemas, on an AMD Ryzen 9 7950X. Here are the same measures over schemas from the wild, on this "
        "machine, with the versions above: the shape can be compared, not the digits.",
        module="benchmarks.published",
        quick=("--every", "8"),
        is_compared=False,
    ),
    Part(
        title="What it costs the model",
        about="The same questions as free text, JSON, a schema and a tool call, on the demo model: what the form takes "
        "from the model, how many facts the answers say, and how many are valid. `espalier tax-card MODEL` prints it "
        "for any model.",
        module="benchmarks.tax",
        quick=("--seeds", "2"),
        is_compared=False,
        is_repeated=False,
    ),
    Part(
        title="Grammars of llama.cpp",
        about="A mask of llama.cpp's sample grammars over 131,072 ids, on average over a text.",
        module="benchmarks.constraints.llama_cpp",
    ),
    Part(
        title="How it grows",
        about="A new constraint over one thing that grows: the vocabulary, the members of a schema, the words of an "
        "enum, the depth of a text; and a step of one of the texts that are written at once under a known constraint. "
        "CPU time of one core. Less is better.",
        module="benchmarks.growth",
        quick=("depth", "batch"),
    ),
    Part(
        title="Memory",
        about="What an engine holds beside its imports, in a process of its own: its vocabulary with one schema, and a "
        "hundred schemas from the wild with a text of each, all kept. Less is better.",
        module="benchmarks.memory",
        is_repeated=False,
    ),
    Part(
        title="Compositions",
        about="All members of an `AllOf` at once, beside the slower of them alone: a step of a known composition, and "
        "the time from compiled members to the first mask beside that of compiling them. No other engine has them.",
        module="benchmarks.constraints.compositions",
    ),
    Part(
        title="Unique items",
        about="A mask of an array with `uniqueItems`, and of the same array without it. Other engines refuse the "
        "keyword or leave it out.",
        module="benchmarks.constraints.unique",
    ),
    Part(
        title="Word lists",
        about="Texts of 1,750 tokens, from words of a list.",
        module="benchmarks.constraints.wordlists",
    ),
    Part(
        title="Sampling",
        about="One step from a row of logits and a mask to a token, without the model.",
        module="benchmarks.sampling.steps",
    ),
    Part(
        title="Tokens per second",
        about="The whole of a generation, greedy, on the CPU. More is better.",
        module="benchmarks.engines.loop",
    ),
    Part(
        title="The server",
        about="Bursts of 1, 8 and 32 requests at once on the demo model, each server with its defaults: tokens a "
        "second, the time to the first text, memory after it, and what it costs to keep the trace of every answer.",
        module="benchmarks.server.report",
        argv=("--only", "demo", "traces", "--rounds", "3"),
        quick=("--only", "demo", "--rounds", "1", "--at-once", "8"),
    ),
    Part(
        title="Strategies",
        about="Tokens per second of all particles beside as many runs of `mask`. More is better.",
        module="benchmarks.faithful",
    ),
    Part(
        title="Jump-forward decoding",
        about="Characters a second of CPU time, beside `mask` and beside no constraint. More is better.",
        module="benchmarks.jump",
    ),
    Part(
        title="Beam search", about="The same sequences and scores as transformers', checked.", module="benchmarks.beams"
    ),
    Part(
        title="Tracing",
        about="A whole token at each level of a trace, beside no trace.",
        module="benchmarks.sampling.traces",
    ),
    Part(
        title="The proxy",
        about="Time per token of one client through the proxy, and of the server alone.",
        module="benchmarks.proxy.report",
    ),
    Part(
        title="Batches",
        about="CPU time of a batch beside the same requests straight to the engine.",
        module="benchmarks.batch.overhead",
    ),
    Part(
        title="Memory of batches",
        about="The peak of a process that reads, runs and sums up a batch without a model: it does not grow with it.",
        module="benchmarks.batch.memory",
        is_repeated=False,
    ),
    Part(
        title="Costs",
        about="How long the page of costs takes over the sums of a million answers, from the question to the JSON.",
        module="benchmarks.costs",
        is_compared=False,
    ),
    Part(
        title="Activations",
        about="Tokens per second with all layers captured and stored. More is better.",
        module="benchmarks.activations.capture",
    ),
    Part(
        title="Start",
        about="Fresh processes, by the clock. xgrammar's import brings torch's.",
        module="benchmarks.start",
        quick=(),
    ),
)


def selected(names: Sequence[str] = (), *, is_quick: bool) -> list[tuple[Part, Sequence[str]]]:
    """The parts with these titles, or all, each with its arguments; of a quick run only those that have a quick way."""
    wanted = [part for part in PARTS if not names or part.title in names]
    return [(part, argv) for part in wanted for argv in [part.quick if is_quick else part.argv] if argv is not None]
