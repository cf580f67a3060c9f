"""A sequence that is made when it is looked at is its tuple in every way."""

from __future__ import annotations

import copy
import pickle

import pytest

from espalier.trace.lazy import LazySequence


def counted(values):
    calls = []

    def make():
        calls.append(1)
        return values

    return LazySequence(make, len(values)), calls


def test_it_is_made_once_at_the_first_look_and_its_length_is_known_before():
    one, calls = counted((1, 2, 3))
    assert len(one) == 3
    assert bool(one)
    assert not calls
    assert (one[0], one[-1], one[1:]) == (1, 3, (2, 3))
    assert [*one] == [1, 2, 3]
    assert len(calls) == 1


@pytest.mark.parametrize("values", [(), (1,), ("a", "b")])
def test_it_equals_and_hashes_as_its_tuple(values):
    one, two = counted(values)[0], counted(values)[0]
    assert one == values
    assert values == one
    assert one == two
    assert one != (*values, 0)
    assert one != [*values]
    assert hash(one) == hash(values)
    assert repr(one) == repr(values)
    assert bool(one) == bool(values)


def test_a_copy_and_a_pickle_are_plain_tuples():
    one, _ = counted((1, 2))
    assert type(copy.deepcopy(one)) is tuple
    assert pickle.loads(pickle.dumps(one)) == (1, 2)


def test_what_fails_to_be_made_fails_each_time():
    def make():
        raise ValueError("no")

    one = LazySequence(make, 3)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            list(one)
