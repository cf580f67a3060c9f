import numpy as np
import pytest

from espalier.errors import BadLogits, DeadEnd
from espalier.sampling.draw import RandomStream, draw


def test_the_stream_is_a_function_of_seed_stream_and_count():
    one, two = RandomStream(7, 3), RandomStream(7, 3)
    first = [one.next() for _ in range(600)]
    assert first == [two.next() for _ in range(600)]
    assert [RandomStream(8, 3).next(), RandomStream(7, 4).next()] != [first[0], first[0]]
    assert all(0.0 <= u < 1.0 for u in first)


def test_rollback_and_fork_repeat_the_same_numbers():
    stream = RandomStream(1)
    first = [stream.next() for _ in range(300)]
    stream.rollback(300)
    copy = stream.fork()
    assert [copy.next() for _ in range(300)] == first
    assert stream.next() == first[0]
    with pytest.raises(ValueError, match="undo"):
        stream.rollback(2)


def test_draws_follow_the_distribution_by_chi_squared():
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125, 1e-30], dtype=np.float32))
    logits[4] = -np.inf
    stream = RandomStream(123)
    counts = np.bincount([draw(logits, stream).token for _ in range(20_000)], minlength=5)
    expected = np.array([0.5, 0.25, 0.125, 0.125]) * 20_000
    assert counts[4] == 0
    assert float(((counts[:4] - expected) ** 2 / expected).sum()) < 16.27  # p = 0.001, 3 degrees of freedom


def test_a_row_with_nothing_allowed_is_a_dead_end():
    with pytest.raises(DeadEnd):
        draw(np.full(3, -np.inf, dtype=np.float32), RandomStream(0))


def test_a_weight_that_underflows_is_never_drawn():
    logits = np.array([0.0, -2000.0], dtype=np.float32)
    stream = RandomStream(5)
    assert {draw(logits, stream).token for _ in range(200)} == {0}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_not_drawn_from(bad):
    row = np.array([0.0, bad, 1.0], dtype=np.float32)
    stream = RandomStream(1)
    with pytest.raises(BadLogits):
        draw(row, stream)
    assert stream.count == 0
