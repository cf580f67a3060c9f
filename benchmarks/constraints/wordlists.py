"""Word lists on Tekken's 131,072 ids: ours against llguidance, and lm-format-enforcer's design for scale.

The same language on both sides, checked bit by bit along a text: words of a list, capitals anywhere, separators in
runs of up to three. Texts of 1,750 tokens, of words drawn by Zipf's law. CPU time, medians of rounds that take turns.
"""

from __future__ import annotations

from importlib.util import find_spec
from random import Random
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits
from llguidance.numpy import fill_next_token_bitmask

from benchmarks.figures import OURS, note
from benchmarks.harness import Table, medians, timed
from benchmarks.tekken import Tekken, all_of, tekken, walk, walk_llguidance
from espalier.constraints.compiler import Compiler
from espalier.constraints.words.compile import separator_characters
from espalier.constraints.words.spec import Wordlist
from espalier.distribution import pip_line
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab

ROUNDS = 3
TOKENS = 1_750
SIZES = (3_000, 10_000, 50_000)
LIMITS = LLParserLimits(
    initial_lexer_fuel=10_000_000,
    step_lexer_fuel=10_000_000,
    max_grammar_size=5_000_000,
    step_max_items=2_000_000,
    max_lexer_states=2_500_000,
)


def main() -> None:
    made = tekken()
    words = spanish()
    table = Table(
        {
            "words": ">11",
            "build": ">11.1f",
            "cold": ">11.1f",
            "second": ">11.1f",
            "states": ">11",
            "llg build": ">11.1f",
            "llg cold": ">11.1f",
            "llg second": ">11.1f",
            " cold": ">10.1f",
            " second": ">11.1f",
            " built": ">11.1f",
        }
    )
    for size in SIZES:
        spec = Wordlist(words[:size], lang="es", capitals="anywhere", max_run=3)
        texts = [text_of(made, words[:size], seed) for seed in (1, 2)]
        rows = []
        for _ in range(ROUNDS):
            ours, build = timed(lambda spec=spec: made.compiler().compile(spec))
            theirs, llg_build = timed(lambda spec=spec: llguidance(made, spec))
            walks = [timed(lambda ours=ours, text=text: all_of(walk(ours, text), text, "ours"))[1] for text in texts]
            llg = [timed(lambda theirs=theirs, text=text: by_llguidance(made, theirs, text))[1] for text in texts]
            rows.append([build, *walks, llg_build, *llg])
        build, cold, second, llg_build, llg_cold, llg_second = medians(rows)
        ratios = (llg_cold / cold, llg_second / second, (llg_build + llg_cold) / (build + cold))
        table.row(size, build, cold, second, len(ours.machine.dfa), llg_build, llg_cold, llg_second, *ratios)
        for measure, mine, other in (
            ("first text", build + cold, llg_build + llg_cold),
            ("next text", second, llg_second),
        ):
            note("Word lists", f"{size:,} words: {measure}", "ms", {OURS: mine, "llguidance": other})
        for text in texts:
            check_equal(ours, theirs, text, made.vocab)
    print(
        "\nbuild, cold, second: ms of CPU; llguidance's over ours last: bars 15x, 40x, 4x. Masks equal along both texts"
    )
    for_scale(made.vocab, words)


def by_llguidance(made: Tekken, start: LLMatcher, text: list[int]) -> None:
    all_of(walk_llguidance(start, text, made.vocab.width), text, "llguidance")


def spanish() -> list[str]:
    """The most frequent words of Spanish, best first, letters only.

    Without º and ª in them: these share their first byte with ¿, and llguidance's lexer, which does not go back, then
    refuses "n¿" where "nº" is a word too, though its grammar allows it. The comparison needs one language.
    """
    if find_spec("wordfreq") is None:
        raise SystemExit(f"this benchmark needs wordfreq: {pip_line('wordlists')}")
    from wordfreq import top_n_list

    return [word for word in top_n_list("es", 120_000) if word.isalpha() and not {"º", "ª"} & {*word}][: max(SIZES)]


def text_of(made: Tekken, words: list[str], seed: int) -> list[int]:
    """1,750 tokens of sentences; frequent words come more often, as in real texts."""
    random = Random(seed)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    drawn = random.choices(words, weights, k=TOKENS)
    text, start = "", True
    for word in drawn:
        text += word[0].title() + word[1:] if start else word
        mark = random.choices((" ", ", ", ". ", "! "), (16, 2, 2, 1))[0]
        start = mark[0] in ".!"
        text += mark
    return made.encode(text)[:TOKENS]


def llguidance(made: Tekken, spec: Wordlist) -> LLMatcher:
    return made.llguidance_start(lark_of(spec), LIMITS)


def lark_of(spec: Wordlist) -> str:
    """The words as literals, which is what llguidance's manual advises."""
    forms = dict.fromkeys(form for word in spec.words or () for form in (word, word[0].title() + word[1:]))
    separators = "".join(f"\\u{ord(c):04x}" for c in separator_characters(spec))
    return (
        "start: RUN? WORD (RUN WORD)* RUN?\n"
        f"RUN: /[{separators}]{{1,{spec.max_run}}}/\nWORD: " + " | ".join(f'"{form}"' for form in forms) + "\n"
    )


def check_equal(compiled: Any, start: LLMatcher, tokens: list[int], vocab: Vocab) -> None:
    ours, theirs = compiled.matcher(), start.deep_copy()
    for step, token in enumerate(tokens):
        out = masks.empty(vocab.width)
        fill_next_token_bitmask(theirs, out.reshape(1, -1), 0)
        masks.set_bits_inplace(out, vocab.eos_ids, bool(theirs.is_accepting()))
        if not np.array_equal(out, ours.mask()):
            raise SystemExit(f"masks differ at step {step}")
        ours.advance(token)
        theirs.consume_token(token)


def for_scale(vocab: Vocab, words: list[str]) -> None:
    """The design of a trie made a regex, on lm-format-enforcer: from the words to the first mask."""
    if find_spec("lmformatenforcer") is None:
        print("lm-format-enforcer is not installed: pip install lm-format-enforcer")
        return
    from lmformatenforcer import RegexParser, TokenEnforcer, TokenEnforcerTokenizerData

    texts = [vocab.text_of(i) for i in range(vocab.width)]
    regular = [(i, texts[i], texts[i][:1].isspace()) for i in range(vocab.width) if vocab.bytes_of(i)]
    data = TokenEnforcerTokenizerData(
        regular, lambda ids: "".join(texts[i] for i in ids), vocab.eos_ids[0], False, vocab.width
    )
    for size in (100, 300):
        pattern = f"([ ,.!?]{{1,3}})?({tree_regex(words[:size])}[ ,.!?]{{1,3}})*"

        def first(pattern: str = pattern) -> None:
            TokenEnforcer(data, RegexParser(pattern)).get_allowed_tokens([])

        _, theirs = timed(first)
        spec = Wordlist(words[:size], max_run=3, capitals="never")
        compiler = Compiler(vocab)
        compiler.trie  # noqa: B018  # built before the clock runs
        _, ours = timed(lambda compiler=compiler, spec=spec: compiler.compile(spec).matcher().mask())
        note("Word lists", f"{size} words: first mask", "ms", {OURS: ours, "lm-format-enforcer": theirs})
        print(f"{size} words, to the first mask: lm-format-enforcer {theirs:,.0f} ms, ours {ours:.1f} ms", flush=True)


def tree_regex(words: list[str]) -> str:
    """The words as nested alternations, sorted: the regex of their trie."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}

    def spelled(node: dict[str, Any]) -> str:
        options = [letter + spelled(child) for letter, child in sorted(node.items()) if letter]
        if not options:
            return ""
        body = options[0] if len(options) == 1 else f"({'|'.join(options)})"
        return f"({body})?" if "" in node else body

    return spelled(tree)


if __name__ == "__main__":
    main()
