"""A list of candidates that is kept as flat lists is the tuple of its candidates in every way."""

from __future__ import annotations

import copy
import pickle

import pytest

from espalier.tokens.vocab import Vocab
from espalier.trace.candidates import CandidateList, CandidateRows, spelling_of
from espalier.trace.steps import Candidate

VOCAB = Vocab.from_tokens([b"a", b"\xc3", b"", b'"'], eos_ids=[2], special_ids={2: "<end>"}, name="few")
ROWS = {
    "none": CandidateRows([], [], [], None),
    "one": CandidateRows([1], [1.0], [0.5], None),
    "some": CandidateRows([3, 0, 2], [0.75, 0.25, 0.0], [1.5, -2.0, None], [False, True, True]),
}


def kept(rows):
    calls = []

    def find():
        calls.append(1)
        return rows

    return CandidateList(spelling_of(VOCAB), find), calls


def made(rows):
    flags = rows.allowed or [True] * len(rows.ids)
    return tuple(
        Candidate(
            id=token, text=VOCAB.text_of(token), bytes=VOCAB.bytes_of(token), prob=prob, logit=logit, allowed=flag
        )
        for token, prob, logit, flag in zip(rows.ids, rows.probs, rows.logits, flags, strict=True)
    )


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_it_is_found_once_at_the_first_look_and_equals_its_tuple(rows):
    candidates, calls = kept(rows)
    assert not calls
    expected = made(rows)
    assert candidates == expected
    assert expected == candidates
    assert candidates == kept(rows)[0]
    assert candidates != (*expected, 0)
    assert candidates != [*expected]
    assert hash(candidates) == hash(expected)
    assert repr(candidates) == repr(expected)
    assert (len(candidates), bool(candidates), [*candidates], candidates[1:]) == (
        len(expected),
        bool(expected),
        [*expected],
        expected[1:],
    )
    assert len(calls) == 1


def test_one_item_is_read_without_the_others():
    candidates, _ = kept(ROWS["some"])
    assert (candidates[0], candidates[-1]) == (made(ROWS["some"])[0], made(ROWS["some"])[-1])
    assert candidates._made is None
    with pytest.raises(IndexError):
        candidates[3]
    with pytest.raises(IndexError):
        candidates[-4]


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_it_writes_itself_as_its_candidates_do(rows):
    candidates, _ = kept(rows)
    written = candidates.to_json()
    assert written == [candidate.to_json() for candidate in made(rows)]
    assert [[*row] for row in written] == [[*candidate.to_json()] for candidate in made(rows)]
    for row in written:
        row["bytes"].append(0)  # what a reader does with it changes nothing
    assert candidates.to_json() == [candidate.to_json() for candidate in made(rows)]


def test_a_copy_and_a_pickle_are_plain_tuples():
    candidates, _ = kept(ROWS["some"])
    assert type(copy.deepcopy(candidates)) is tuple
    assert pickle.loads(pickle.dumps(candidates)) == made(ROWS["some"])


def test_what_fails_to_be_found_fails_each_time():
    def find():
        raise ValueError("no")

    candidates = CandidateList(spelling_of(VOCAB), find)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            list(candidates)
