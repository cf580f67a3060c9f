"""Masks of states that read text: most of their tokens come from a slice that is made once for a vocabulary."""

from __future__ import annotations

import random

import pytest

from espalier.automata.masks.layout import lay_out
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema, Regex, Spec
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.examples import examples

ALPHABET = ["a", "b", "f", "Z", "0", "7", "-", "/", " ", ".", "é", "日", "😀", "\n", '"', "\\", "\\n", "\\u00e9", '",']
PIECES = [b"\xc3", b"\xa9", b"\xe6\x97", b"\xa5", b"\xf0\x9f", b"\x98\x80", b"\xed\xa0\x80", b"a\xe6", b"\xff"]


def vocabulary() -> Vocab:
    """Every byte, pieces of characters, and words of up to forty bytes of which most are plain text."""
    rng = random.Random(7)
    words = {bytes([byte]) for byte in range(256)} | {*PIECES}
    for _ in range(900):
        signs = ALPHABET if rng.random() < 0.2 else ALPHABET[:13]
        words.add("".join(rng.choices(signs, k=rng.choice((1, 2, 3, 5, 9, 13, 20, 30)))).encode()[:40])
    return Vocab.from_tokens([*sorted(words), b""], eos_ids=[len(words)])


VOCAB = vocabulary()


def string(**keywords: object) -> JsonSchema:
    return JsonSchema({"type": "string", **keywords})


SPECS: dict[str, tuple[Spec, str]] = {
    "any text": (string(), '"ab é日\\n7"'),
    "a pattern anywhere": (string(pattern="[a-f0-9]{4}"), '"Z7ab0fé"'),
    "two patterns anywhere": (string(pattern="(a-b)+|(Z/)+7?"), '"a-bZ/7日"'),
    "a pattern from its start": (string(pattern="^[A-Za-z][a-z0-9-]*$"), '"Zab-0"'),
    "words": (string(pattern=r"^\w+( \w+)*$"), '"ab Z 07"'),
    "no capital letters": (string(pattern="^[^A-Z]*$"), '"ab 0é"'),
    "not one sign": (string(pattern="^[^f]*$"), '"ab 0é日"'),
    "counted": (string(minLength=3, maxLength=5), '"aé日"'),
    "at most 13": (string(maxLength=13), '"a日😀b"'),
    "at most 20": (string(maxLength=20), '"a日😀b"'),
    "at least 30": (string(minLength=30), '"' + "aé0" * 10 + '"'),
    "counted characters of a class": (string(pattern="^[ab0é]{2,25}-/[ab/-]*$"), '"abé0-/a"'),
    "counted, then what it counts": (string(pattern="^[a-f]{2,18}[-a-f]*$"), '"ab-f"'),
    "counted from none, then more": (string(pattern="^.{0,5}[a-z]*$"), '"7é"'),
    "counted twice": (string(pattern="^([a-z]{1,15}/){2,4}$"), '"ab/f/"'),
    "escapes alone": (string(pattern='^[\\n"]+$'), '"\\n\\n"'),
    "regex of any text": (Regex(".*"), "ab é日"),
    "regex of counted text": (Regex(".{1,40}"), "ab é日😀 " * 3),
    "regex of counted letters": (Regex("[a-z]{1,30}"), "abfab"),
    "regex of a literal": (Regex(r'"([^"\\]|\\.)*"'), '"ab\\"é"'),
    "regex with an end": (Regex("[^\\n]*\\n[a-z]*"), "a日\nfab"),
}


@pytest.mark.parametrize("name", SPECS)
def test_each_mask_of_text_allows_what_is_read_byte_by_byte(name: str) -> None:
    spec, text = SPECS[name]
    machine = Compiler(VOCAB).compile(spec).machine  # type: ignore[attr-defined]
    state = machine.start
    data = text.encode()
    for at in range(len(data) + 1):
        expected = [token for token in range(VOCAB.width) if reads(machine, state, VOCAB.bytes_of(token))]
        assert masks.allowed_ids(machine.mask(state), VOCAB.width).tolist() == expected, data[:at]
        if at < len(data):
            state = machine.step(state, data[at])
            assert state is not None, data[: at + 1]
    assert machine.accepts(state)


def reads(machine, state, data: bytes) -> bool:
    for byte in data:
        state = machine.step(state, byte)
        if state is None:
            return False
    return bool(data)


def test_all_constraints_of_a_vocabulary_share_a_few_slices() -> None:
    compiler = Compiler(VOCAB)
    for pattern in ("[a-f0-9]{4}", "a+b", "7-[a-z]{3}Z", "(/[a-z]+)+"):
        compiled = compiler.compile(string(pattern=pattern))
        machine = compiled.machine  # type: ignore[attr-defined]
        machine.mask(machine.step(machine.start, ord('"')))
    layout = lay_out(compiled.trie)  # type: ignore[attr-defined]
    assert len(layout.slices) == 1
    assert layout.slices.size < 1_000_000


@pytest.mark.parametrize("seed", range(examples(20)))
def test_patterns_of_random_parts_allow_what_is_read_byte_by_byte(seed: int) -> None:
    rng = random.Random(seed)
    parts = ["[a-z]", "[^a]", ".", "[ -~]", "[a-f0-9]", "é", "-", "[^é]", "\\w", "(ab|/)"]
    counts = ["", "*", "+", "?", "{2,15}", "{3}", "{0,30}", "{14,}"]
    pattern = "".join(rng.choice(parts) + rng.choice(counts) for _ in range(rng.randint(1, 3)))
    anchored = rng.choice((pattern, f"^{pattern}", f"^({pattern})$"))
    machine = Compiler(VOCAB).compile(string(pattern=anchored)).machine  # type: ignore[attr-defined]
    state, done = machine.start, b""
    for _ in range(6):
        expected = [token for token in range(VOCAB.width) if reads(machine, state, VOCAB.bytes_of(token))]
        assert masks.allowed_ids(machine.mask(state), VOCAB.width).tolist() == expected, (anchored, done)
        if not expected:
            break
        token = rng.choice(expected)
        state, done = machine.advance(state, token), done + VOCAB.bytes_of(token)
