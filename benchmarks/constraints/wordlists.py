"""Word lists on Tekken's 131,072 ids: ours against llguidance, and lm-format-enforcer's design for scale.

The same language on both sides, checked bit by bit along a text: words of a list, capitals anywhere, separators in
runs of up to three. Texts of 1,750 tokens, of words drawn by Zipf's law. CPU time, medians of rounds that take turns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.numpy import fill_next_token_bitmask

from benchmarks.schema.llguidance_peer import _View
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Regex
from espalier.constraints.words.compile import separator_characters
from espalier.constraints.words.spec import Wordlist
from espalier.distribution import pip_line
from espalier.tokens import mask as masks
from espalier.tokens.trie import load_trie
from espalier.tokens.vocab import Vocab
from tests.tokenizers import tekken_vocab

ROUNDS = 3
TOKENS = 1_750
SIZES = (3_000, 10_000, 50_000)
LIMITS = LLParserLimits(initial_lexer_fuel=10_000_000, step_lexer_fuel=10_000_000, max_grammar_size=5_000_000,
                        step_max_items=2_000_000, max_lexer_states=2_500_000)  # fmt: skip


def main() -> None:
    vocab = tekken_vocab()
    trie = load_trie(vocab, Path(tempfile.gettempdir()))
    tokenizer = LLTokenizer(TokenizerWrapper(_View(vocab, trie)), n_vocab=vocab.width, eos_token=list(vocab.eos_ids))
    Compiler(vocab).compile(Regex("a|b")).matcher().mask()  # numba compiles or loads
    words = spanish()
    head = (
        "words",
        "build",
        "cold",
        "second",
        "states",
        "llg build",
        "llg cold",
        "llg second",
        "cold",
        "second",
        "built",
    )
    print(("{:>11}" * len(head)).format(*head))
    for size in SIZES:
        spec = Wordlist(words[:size], lang="es", capitals="anywhere", max_run=3)
        texts = [text_of(vocab, words[:size], seed) for seed in (1, 2)]
        rows = []
        for _ in range(ROUNDS):
            compiler = Compiler(vocab)
            compiler._trie = trie  # the trie is measured elsewhere
            ours, build = timed(lambda compiler=compiler, spec=spec: compiler.compile(spec))
            _, cold = timed(lambda ours=ours, texts=texts: walk_ours(ours, texts[0]))
            _, second = timed(lambda ours=ours, texts=texts: walk_ours(ours, texts[1]))
            theirs, llg_build = timed(lambda spec=spec: llguidance(tokenizer, spec))
            _, llg_cold = timed(lambda theirs=theirs, texts=texts: walk_theirs(theirs, texts[0], vocab.width))
            _, llg_second = timed(lambda theirs=theirs, texts=texts: walk_theirs(theirs, texts[1], vocab.width))
            rows.append([build, cold, second, llg_build, llg_cold, llg_second])
        a, b, c, d, e, f = map(statistics.median, zip(*rows, strict=True))
        states = len(ours.machine.dfa)
        ratios = (e / b, f / c, (d + e) / (a + b))
        print(f"{size:>11}{a:>11.1f}{b:>11.1f}{c:>11.1f}{states:>11}{d:>11.1f}{e:>11.1f}{f:>11.1f}"
              + ("{:>10.1f}x" * 3).format(*ratios), flush=True)  # fmt: skip
        for text in texts:
            check_equal(ours, theirs, text, vocab)
    print(
        "\nbuild, cold, second: ms of CPU; llguidance's over ours last: bars 15x, 40x, 4x. Masks equal along both texts"
    )
    for_scale(vocab, words)


def spanish() -> list[str]:
    """The most frequent words of Spanish, best first, letters only.

    Without º and ª in them: these share their first byte with ¿, and llguidance's lexer, which does not go back, then
    refuses "n¿" where "nº" is a word too, though its grammar allows it. The comparison needs one language.
    """
    if find_spec("wordfreq") is None:
        raise SystemExit(f"this benchmark needs wordfreq: {pip_line('wordlists')}")
    from wordfreq import top_n_list

    return [word for word in top_n_list("es", 120_000) if word.isalpha() and not {"º", "ª"} & {*word}][: max(SIZES)]


def text_of(vocab: Vocab, words: list[str], seed: int) -> list[int]:
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
    tokens = vocab.encoder(text)  # type: ignore[misc]  # tekken has one
    return tokens[:TOKENS]


def llguidance(tokenizer: LLTokenizer, spec: Wordlist) -> LLMatcher:
    """Lark with the words as literals, which is what its manual advises."""
    forms = dict.fromkeys(form for word in spec.words or () for form in (word, word[0].title() + word[1:]))
    separators = "".join(f"\\u{ord(c):04x}" for c in separator_characters(spec))
    grammar = (
        '%llguidance {"no_forcing": true}\nstart: RUN? WORD (RUN WORD)* RUN?\n'
        f"RUN: /[{separators}]{{1,{spec.max_run}}}/\nWORD: " + " | ".join(f'"{form}"' for form in forms) + "\n"
    )
    start = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    if start.is_error():
        raise SystemExit(start.get_error())
    return start


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = action()
    return result, (time.process_time() - start) * 1e3


def walk_ours(compiled: Any, tokens: list[int]) -> None:
    matcher = compiled.matcher()
    for token in tokens:
        if not masks.test(matcher.mask(), token):
            raise SystemExit(f"ours refuses {token}")
        matcher.advance(token)


def walk_theirs(start: LLMatcher, tokens: list[int], width: int) -> None:
    matcher = start.deep_copy()
    for token in tokens:
        out = np.zeros(masks.words(width), dtype=np.int32)
        fill_next_token_bitmask(matcher, out.reshape(1, -1), 0)
        if not masks.test(out, token) or not matcher.consume_token(token):
            raise SystemExit(f"llguidance refuses {token}")


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
