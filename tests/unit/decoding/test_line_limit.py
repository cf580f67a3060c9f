"""A text ends at the first new line after so much time."""

from __future__ import annotations

from espalier.decoding.line_limit import LineLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_time_begins_with_the_first_token_and_only_a_new_line_ends_it():
    clock = Clock()
    limit = LineLimit(2.0, clock)
    clock.now = 100.0
    assert not limit.is_over(b"a\n")
    clock.now = 102.0
    assert not limit.is_over(b"\n")
    clock.now = 102.1
    assert not limit.is_over(b"b")
    assert limit.is_over(b"c\nd")
