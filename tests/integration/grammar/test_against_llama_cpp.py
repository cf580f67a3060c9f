"""Our masks against llama.cpp's own grammar engine, over the byte vocabulary, on random and on its sample grammars.

ASCII bytes and EOS are compared. Left out are llama.cpp's own ways: it never allows a token that begins with NUL, and
of a started character it knows only a part: it takes the bytes f5-ff, which are not UTF-8, as beginnings, and refuses
some beginnings that a negated class could finish.
"""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import espalier
from espalier.errors import EspalierError
from espalier.grammar.analysis import productive
from espalier.grammar.ast import Repeat, RuleRef, postorder
from espalier.grammar.check import check
from espalier.grammar.parser import parse
from espalier.grammar.printer import print_grammar
from espalier.grammar.rewrite import portable
from espalier.grammar.sample import SentenceSampler
from espalier.tokens import mask as masks
from tests.examples import examples
from tests.llama_grammar import LlamaGrammar, LlamaVocab, llama_bytes
from tests.unit.grammar.trees import small_grammars

SAMPLES = Path(__file__).parents[4] / "shared" / "data" / "gbnf"
VOCAB = espalier.Vocab.bytes()
COMPARED = [*range(1, 128), 256]


@pytest.fixture(scope="module")
def llama() -> LlamaVocab:
    return llama_bytes()


def compare(llama, text, sentence, *, root="root"):
    """Walk one sentence in both and compare the masks at every step."""
    ours = espalier.compile(espalier.Gbnf(text, root=root)).matcher()
    theirs = LlamaGrammar(llama, text, root)
    try:
        for place, byte in enumerate([*sentence, None]):
            mine, his = masks.unpack(ours.mask(), VOCAB.width), theirs.mask()
            assert np.array_equal(mine[COMPARED], his[COMPARED]), (
                f"after {sentence[:place]!r}: only ours {np.flatnonzero(mine & ~his)}, "
                f"only llama.cpp's {np.flatnonzero(his & ~mine)}\n{text}"
            )
            if byte is None:
                return
            ours.advance(byte)
            theirs.accept(byte)
    finally:
        theirs.close()


def is_tame(grammar):
    """llama.cpp keeps every way to read the text so far, equal ones too: repetitions inside repetitions, and rules that
    lead back to themselves from there, grow without bound in it. Those are ours to test elsewhere."""
    return not any(
        isinstance(inner, Repeat | RuleRef)
        for rule in grammar.rules.values()
        for node in postorder(rule.body)
        if isinstance(node, Repeat)
        for inner in postorder(node.item)
    )


@pytest.mark.slow
@given(small_grammars, st.randoms(use_true_random=False))
@settings(max_examples=examples(150), derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_grammars_have_the_same_masks(llama, grammar, random):
    assume(grammar.root in productive(grammar))
    # llama.cpp gives rules without a finite sentence a life of their own: it would walk into them and be trapped.
    assume(not any(f.code in ("dead-rule", "undefined-rule") for f in check(grammar)))
    try:
        text = print_grammar(portable(grammar))
    except EspalierError:
        assume(False)
    assume(is_tame(grammar))
    for _ in range(3):
        sentence = SentenceSampler(grammar).draw(random, max_size=6)
        compare(llama, text, sentence.encode())


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="llama.cpp's sample grammars are not here")
@pytest.mark.parametrize("name", ["arithmetic", "c", "chess", "english", "json", "json_arr", "list"])
def test_its_sample_grammars_have_the_same_masks(llama, name):
    text = (SAMPLES / f"{name}.gbnf").read_text()
    sampler, random = SentenceSampler(parse(text)), Random(3)
    for _ in range(3):
        sentence = sampler.draw(random, max_size=80)
        if sentence.isascii():
            compare(llama, text, sentence.encode())
