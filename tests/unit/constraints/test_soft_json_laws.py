"""Laws of soft JSON mode, over random documents, texts and tokens of several vocabularies."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.constraints.soft.spec import SoftJson
from espalier.grammar.json_position import JsonPosition
from tests.examples import examples
from tests.soft_laws import biases, check_forks_and_rollbacks, compiler_of, over_each_vocabulary, tokenisation

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
STYLES = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.none() | st.sampled_from([0, 2, "\t"]),
        "separators": st.sampled_from([None, (",", ":"), (" , ", " : "), (",\r\n", ":\t")]),
    }
)


@st.composite
def documents(draw):
    value, style = draw(JSON), draw(STYLES)
    text = json.dumps(value, **style)
    return (draw(st.sampled_from(["", " ", "\n\t"])) + text).encode("utf-8", "surrogatepass")


def is_json(data):
    def refuse(name):
        raise ValueError(name)

    try:
        json.loads(data.decode("utf-8", "surrogatepass"), parse_constant=refuse)
    except ValueError:
        return False
    return True


@over_each_vocabulary
@given(documents(), st.data())
@settings(max_examples=examples(40))
def test_done_exactly_at_the_end_of_any_document_in_any_tokens(name, document, data):
    compiler = compiler_of(name)
    vocab, random = compiler.vocab, data.draw(st.randoms(use_true_random=False))
    one = SoftJson().filter(compiler)
    said = b""
    for token in tokenisation(compiler, document, random.choice):
        one.on_token(token)
        said += vocab.bytes_of(token)
        assert one.tracker.is_complete == is_json(said)
    assert one.tracker.is_complete
    place = JsonPosition().fits(document)
    assert place is not None
    assert place.feed(b"\n").state == "Done"
    up = biases(one, vocab.width)[list(vocab.eos_ids)]
    assert np.all(up == 5)


@given(documents(), st.data())
def test_the_strict_half_accepts_what_json_does_and_nothing_else(document, data):
    spoiled = bytearray(document)
    if data.draw(st.booleans()):
        spoiled[data.draw(st.integers(0, len(spoiled) - 1))] = data.draw(st.sampled_from(b'{}[]",:0e.-+tn\\ \x01u'))
    if data.draw(st.booleans()):
        del spoiled[data.draw(st.integers(0, len(spoiled) - 1))]
    try:
        bytes(spoiled).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return
    place = JsonPosition().fits(bytes(spoiled))
    assert (place is not None and place.is_complete) == is_json(bytes(spoiled))


@given(st.text(alphabet='{}[]",:0e.-tfnrualse\\ x', max_size=40))
def test_the_tracker_follows_anything(text):
    data = text.encode()
    strict, tolerant = JsonPosition().fits(data), JsonPosition().feed(data)
    assert (strict is not None and strict.is_complete) == is_json(data)
    assert len(tolerant.containers(100)) == tolerant.depth
    if strict is not None:
        assert (strict.state, strict.detail, strict.containers(99)) == (
            tolerant.state,
            tolerant.detail,
            tolerant.containers(99),
        )


@over_each_vocabulary
@given(st.text(alphabet='{}[]",:1te\\ x', max_size=30), st.data())
@settings(max_examples=examples(40))
def test_forks_and_rollbacks_restore_the_biases(name, text, data):
    compiler = compiler_of(name)
    random = data.draw(st.randoms(use_true_random=False))
    ids = [*tokenisation(compiler, text.encode(), random.choice), compiler.vocab.eos_ids[0]]
    check_forks_and_rollbacks(SoftJson(), compiler, ids, data.draw(st.integers(0, len(ids))))


@over_each_vocabulary
@given(documents(), st.data())
@settings(max_examples=examples(25))
def test_the_cached_biases_are_those_of_the_definition(name, document, data):
    """Slow and plain: each token by itself, with no candidates and no cache."""
    compiler = compiler_of(name)
    vocab, random = compiler.vocab, data.draw(st.randoms(use_true_random=False))
    ids = tokenisation(compiler, document, random.choice)
    one = SoftJson().filter(compiler)
    for token in ids[: data.draw(st.integers(0, len(ids)))]:
        one.on_token(token)
    place = one.tracker
    if place.is_complete:
        return
    rules = {
        "Start": dict.fromkeys(b"{[", 5.0),
        "ObjectStart": {ord('"'): 5.0} | ({ord("}"): 2.5} if place.depth == 1 else {}),
        "ArrayStart": dict.fromkeys(b'"{[-0123456789tfn', 5.0) | ({ord("]"): 2.5} if place.depth == 1 else {}),
        "AfterKey": {ord(":"): 5.0},
        "AfterValue": {ord(","): 5.0, place.closer: 5.0},
        "AfterComma": dict.fromkeys(b'"' if place.is_in_object else b'"{[-0123456789tfn', 5.0),
    }
    wanted = rules.get(place.state, {})
    expected = np.zeros(vocab.width, dtype=np.float32)
    for token, spelled in enumerate(vocab.tokens):
        bare = spelled.lstrip(b" \t\n\r")
        if bare and bare[0] in wanted and place.fits(spelled) is not None:
            expected[token] = wanted[bare[0]]
    assert np.array_equal(biases(one, vocab.width), expected)
