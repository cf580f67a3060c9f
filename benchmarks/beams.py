"""Beam search against `model.generate(num_beams=...)`: the same sequences and scores, checked, and the time they take.

Without a constraint, under a schema, after a long prompt; then word lists with ten beams, where theirs is the design of
a trie made a regex that tells the allowed tokens of each beam at each step (`prefix_allowed_tokens_fn`, on
lm-format-enforcer, whose answers are cached by prefix: every round asks what was not asked before). The bundled model
on one thread, CPU time, medians of rounds that take turns. What is built once for all searches is told apart.
"""

import statistics
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
import transformers

import espalier
from benchmarks.constraints.wordlists import spanish, tree_regex
from benchmarks.figures import OURS, note
from benchmarks.harness import medians, ratio, timed
from benchmarks.record import RECORD
from espalier.api import make_request
from espalier.constraints.spec import Spec
from espalier.constraints.words.compile import separator_characters
from espalier.constraints.words.spec import Wordlist
from espalier.integrations.transformers import ConstraintLogitsProcessor
from espalier.wiring import demo_model
from tests.prompts import PROMPTS

ROUNDS = 3
BEAMS, TOKENS = 4, 40
WORD_BEAMS = 10
SIZES = (100, 300)
LARGE = 3_000
TOLERANCE = 1e-4
LONG = "Once upon a time there was a cat that had read many books. " * 30 + "Tell me a story about it."
Found = list[tuple[tuple[int, ...], float]]


def main() -> None:
    torch.set_num_threads(1)
    path = str(demo_model())
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with espalier.load(path) as engine:
        bench = Bench(engine, model)
        schema = espalier.JsonSchema(RECORD)
        print(f"{BEAMS} beams, {TOKENS} tokens, {len(PROMPTS)} prompts: ms a prompt, theirs over ours")
        bench.compare("no constraint", PROMPTS, beams=BEAMS)
        bench.compare("a schema", PROMPTS, beams=BEAMS, constraint=schema)
        length = len(engine.engine.prompt_ids(make_request(LONG)))
        bench.compare(f"a prompt of {length} tokens", [LONG], beams=BEAMS)
        bench.alone("a schema, traced", PROMPTS, beams=BEAMS, constraint=schema, trace="steps")
        words(bench)


class Bench:
    """One model in both hands."""

    def __init__(self, engine: espalier.LoadedEngine, model: Any) -> None:
        self.engine, self.model = engine, model
        self.eos = list(engine.vocab.eos_ids)

    def ours(self, prompt: str, beams: int, constraint: Spec | None, trace: str = "off") -> Found:
        result = self.engine.generate(
            prompt,
            constraint=constraint,
            strategy="beam",
            num_beams=beams,
            max_tokens=TOKENS,
            repetition_penalty=1.0,
            trace=trace,
        )
        return [(result.token_ids, result.score)]

    def theirs(self, prompt: str, beams: int, **more: Any) -> Found:
        ids = torch.tensor([self.engine.engine.prompt_ids(make_request(prompt))])
        with torch.inference_mode():
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                num_beams=beams,
                max_new_tokens=TOKENS,
                eos_token_id=self.eos,
                pad_token_id=self.eos[0],
                return_dict_in_generate=True,
                output_scores=True,
                **more,
            )
        row = out.sequences[0, ids.shape[1] :].tolist()
        ends = [at for at, token in enumerate(row) if token in self.eos]
        return [(tuple(row[: ends[0] + 1] if ends else row), float(out.sequences_scores[0]))]

    def compare(self, title: str, prompts: list[str], *, beams: int, constraint: Spec | None = None) -> None:
        def given() -> dict[str, Any]:
            if constraint is None:
                return {}
            return {"logits_processor": [ConstraintLogitsProcessor(self.engine.engine.compiler.compile(constraint))]}

        both = (
            lambda: [self.ours(p, beams, constraint) for p in prompts],
            lambda: [self.theirs(p, beams, **given()) for p in prompts],
        )
        check(*(one() for one in both))
        spent = [[timed(one)[1] / len(prompts) for one in both] for _ in range(ROUNDS)]
        report(title, spent)

    def alone(self, title: str, prompts: list[str], *, beams: int, constraint: Spec, trace: str) -> None:
        self.ours(prompts[0], beams, constraint, trace)
        spent = [timed(lambda: [self.ours(p, beams, constraint, trace) for p in prompts])[1] for _ in range(ROUNDS)]
        print(f"{title:>34} {'':>9} {statistics.median(spent) / len(prompts):>9.1f}", flush=True)


def words(bench: Bench) -> None:
    print(f"\nword lists, {WORD_BEAMS} beams, {TOKENS} tokens: ms a prompt, theirs over ours")
    listed = spanish()
    compiler = bench.engine.engine.compiler
    for size in SIZES:
        if find_spec("lmformatenforcer") is None:
            print("lm-format-enforcer is not installed: pip install lm-format-enforcer")
            break
        spec = Wordlist(listed[:size], max_run=3, capitals="never")
        allowed, theirs_built = timed(lambda spec=spec, size=size: enforcer(bench, spec, listed[:size]))
        _, ours_built = timed(lambda spec=spec: compiler.compile(spec).matcher().mask())
        rounds = []
        for prompt in PROMPTS:
            ours, our_time = timed(lambda p=prompt, spec=spec: bench.ours(p, WORD_BEAMS, spec))
            theirs, their_time = timed(
                lambda p=prompt, f=allowed: bench.theirs(p, WORD_BEAMS, prefix_allowed_tokens_fn=f)
            )
            check([ours], [theirs])
            rounds.append([our_time, their_time])
        report(f"{size} words, the first prompt", rounds[:1])
        report("the others", rounds[1:])
        print(f"{'built':>34} {theirs_built:>9.1f} {ours_built:>9.1f}", flush=True)
    large = Wordlist(lang="es", top=LARGE)
    _, built = timed(lambda: compiler.compile(large).matcher().mask())
    spent = [timed(lambda p=prompt: bench.ours(p, WORD_BEAMS, large))[1] for prompt in PROMPTS]
    print(f"{f'{LARGE} words, the first prompt':>34} {'':>9} {spent[0]:>9.1f}")
    print(f"{'the others':>34} {'':>9} {statistics.median(spent[1:]):>9.1f}")
    print(f"{'built':>34} {'':>9} {built:>9.1f}")


def report(title: str, spent: list[list[float]]) -> None:
    """spent: ours and theirs, each round."""
    ours, theirs = medians(spent)
    times = ratio([their_time for _, their_time in spent], [our_time for our_time, _ in spent])
    note("Beam search beside transformers", title, "ms a prompt", {OURS: ours, "generate": theirs})
    print(f"{title:>34} {theirs:>9.1f} {ours:>9.1f} {times:>7.2f}x", flush=True)


def enforcer(bench: Bench, spec: Wordlist, listed: list[str]) -> Callable[[int, torch.Tensor], list[int]]:
    """The prefix function: separators or none, a word, more words with separators before them, separators or none."""
    from lmformatenforcer import RegexParser, TokenEnforcer, TokenEnforcerTokenizerData

    vocab = bench.engine.vocab
    texts = [vocab.text_of(i) for i in range(vocab.width)]
    regular = [(i, texts[i], texts[i][:1].isspace()) for i in range(vocab.width) if vocab.bytes_of(i)]
    data = TokenEnforcerTokenizerData(
        regular, lambda ids: "".join(texts[i] for i in ids), vocab.eos_ids[0], False, vocab.width
    )
    run = "[" + "".join(f"\\{c}" if c in "^-]\\" else c for c in separator_characters(spec)) + f"]{{1,{spec.max_run}}}"
    word = f"({tree_regex(listed)})"
    found = TokenEnforcer(data, RegexParser(f"({run})?{word}({run}{word})*({run})?"))

    def allowed(_: int, sequence: torch.Tensor) -> list[int]:
        tokens = found.get_allowed_tokens(sequence.tolist())
        return list(getattr(tokens, "allowed_tokens", tokens))

    return allowed


def check(ours: list[Found], theirs: list[Found]) -> None:
    for one, two in zip(ours, theirs, strict=True):
        for (tokens, score), (their_tokens, their_score) in zip(one, two, strict=True):
            if tokens != their_tokens or abs(score - their_score) > TOLERANCE:
                raise SystemExit(f"not the same: {tokens} ({score}), {their_tokens} ({their_score})")


if __name__ == "__main__":
    main()
