"""The laws of a StepModel, for every implementation: `check_step_model(make_model)`.

The oracle is a fresh prefill: whatever a sequence has gone through, its logits are those of its tokens. The module
knows nothing about any framework.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, TypeAlias

import numpy as np
import pytest

from espalier.decoding.ports import Extend, Rows, SequenceId, StepModel
from espalier.errors import CapabilityError, LimitExceeded

Oracle: TypeAlias = Callable[[Sequence[int]], Rows]
"""Tokens -> logits after each of them, `(len(tokens), V)` float32, computed without any cache that was used before."""

WANTED: tuple[Literal["last", "all", "none"], ...] = ("last", "all", "none")


def check_step_model(
    make_model: Callable[[], StepModel],
    *,
    oracle: Oracle | None = None,
    tokens_below: int | None = None,
    programs: int = 4,
    actions: int = 40,
    tolerance: float = 1e-4,
    batch_tolerance: float = 1e-5,
) -> None:
    """Check all laws. oracle: by default one prefill in a new model. tokens_below: ids to use, by default `width`."""
    limit = tokens_below or make_model().width
    oracle = oracle or fresh_prefill(make_model)
    check_shapes(make_model(), limit)
    check_one_by_one(make_model(), oracle, limit, tolerance)
    check_batch_independence(make_model(), limit, batch_tolerance)
    check_fork_is_independent(make_model(), oracle, limit, tolerance)
    check_truncate(make_model(), oracle, limit, tolerance)
    check_reuse(make_model(), oracle, limit, tolerance)
    check_limit(make_model(), oracle, limit, tolerance)
    check_capacity(make_model(), oracle, limit, tolerance)
    for seed in range(programs):
        check_program(make_model(), oracle, Random(seed), limit, actions=actions, tolerance=tolerance)


def fresh_prefill(make_model: Callable[[], StepModel]) -> Oracle:
    """The oracle of a model by itself: one pass over all tokens in a model that has seen nothing."""

    def oracle(tokens: Sequence[int]) -> Rows:
        model = make_model()
        return model.extend([Extend(sequence=model.new(), tokens=tuple(tokens), logits="all")])[0]

    return oracle


def check_shapes(model: StepModel, limit: int) -> None:
    """`last`, `all` and `none` give (1, V), (n, V) and (0, V) float32, in the order of the work, in one call."""
    tokens = words(Random(0), limit, 5)
    work = [Extend(sequence=model.new(), tokens=tokens, logits=wanted) for wanted in (*WANTED, "last")]
    shapes = [(1, model.width), (5, model.width), (0, model.width), (1, model.width)]
    answers = model.extend(work)
    assert [a.shape for a in answers] == shapes
    assert all(a.dtype == np.float32 for a in answers)
    assert [model.length(item.sequence) for item in work] == [5] * 4
    for item in work:
        alone = model.extend([Extend(sequence=item.sequence, tokens=tokens[:1], logits=item.logits)])[0]
        assert alone.shape == ((0 if item.logits == "none" else 1), model.width)


def check_one_by_one(model: StepModel, oracle: Oracle, limit: int, tolerance: float) -> None:
    """Token by token, and in pieces of any size, gives the logits of one prefill."""
    tokens = words(Random(1), limit, 12)
    wanted = oracle(tokens)
    for pieces in ([1] * 12, [12], [5, 1, 6], [1, 11], [11, 1]):
        sequence, said, start = model.new(), [], 0
        for size in pieces:
            part = tokens[start : start + size]
            said.append(model.extend([Extend(sequence=sequence, tokens=part, logits="all")])[0].copy())
            start += size
        close(np.concatenate(said), wanted, tolerance, f"pieces {pieces}")
        model.free(sequence)


def check_batch_independence(model: StepModel, limit: int, tolerance: float) -> None:
    """What else is in the batch does not change a row: lengths, order and long neighbours included."""
    random = Random(2)
    prompts = [words(random, limit, n) for n in (1, 9, 4, 30)]
    steps = [words(random, limit, n) for n in (1, 1, 3, 1)]
    alone = []
    for prompt, step in zip(prompts, steps, strict=True):
        sequence = model.new()
        first = model.extend([Extend(sequence=sequence, tokens=prompt, logits="all")])[0].copy()
        alone.append((first, model.extend([Extend(sequence=sequence, tokens=step, logits="all")])[0].copy()))
        model.free(sequence)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        sequences = {i: model.new() for i in range(4)}
        for which, parts in enumerate((prompts, steps)):
            work = [Extend(sequence=sequences[i], tokens=parts[i], logits="all") for i in order]
            for i, rows in zip(order, model.extend(work), strict=True):
                close(rows, alone[i][which], tolerance, f"row {i} in a batch")
        for sequence in sequences.values():
            model.free(sequence)


def check_fork_is_independent(model: StepModel, oracle: Oracle, limit: int, tolerance: float) -> None:
    """A fork goes its own way, and outlives what it was forked from."""
    random = Random(3)
    common, left, right, more = (words(random, limit, n) for n in (7, 3, 4, 2))
    first = model.new()
    model.extend([Extend(sequence=first, tokens=common, logits="none")])
    second = model.fork(first)
    assert second != first
    assert model.length(second) == 7
    close(last(model, first, left), oracle(common + left)[-1], tolerance, "the original")
    assert model.length(second) == 7
    close(last(model, second, right), oracle(common + right)[-1], tolerance, "the fork")
    model.free(first)
    close(last(model, second, more), oracle(common + right + more)[-1], tolerance, "the fork alone")


def check_truncate(model: StepModel, oracle: Oracle, limit: int, tolerance: float) -> None:
    """A cut sequence is the shorter one; where that cannot be, it is refused and nothing changes."""
    random = Random(4)
    tokens, other = words(random, limit, 9), words(random, limit, 4)
    sequence = model.new()
    model.extend([Extend(sequence=sequence, tokens=tokens, logits="none")])
    for wrong in (-1, 10):
        with pytest.raises(ValueError):
            model.truncate(sequence, wrong)
    if not model.can_truncate:
        with pytest.raises(CapabilityError):
            model.truncate(sequence, 5)
        assert model.length(sequence) == 9
        close(last(model, sequence, other), oracle(tokens + other)[-1], tolerance, "after a refusal")
        return
    for length in (9, 5, 0):
        model.truncate(sequence, length)
        assert model.length(sequence) == length
        close(last(model, sequence, other), oracle(tokens[:length] + other)[-1], tolerance, f"cut to {length}")
        model.truncate(sequence, length)


def check_reuse(model: StepModel, oracle: Oracle, limit: int, tolerance: float) -> None:
    """Memory that is given back is used again, and nothing of it shows."""
    random = Random(5)
    held: list[SequenceId] = []
    with pytest.raises(LimitExceeded):
        held.extend(model.new() for _ in range(10_000))
    model.extend([Extend(sequence=held[-1], tokens=words(random, limit, 40), logits="none")])
    with pytest.raises(LimitExceeded):
        model.fork(held[-1])
    model.free(held[-1])
    again = model.new()
    assert model.length(again) == 0
    tokens = words(random, limit, 6)
    close(last(model, again, tokens), oracle(tokens)[-1], tolerance, "in used memory")
    for sequence in [*held[:-1], again]:
        model.free(sequence)


def check_limit(model: StepModel, oracle: Oracle, limit: int, tolerance: float) -> None:
    """Outgrowing `max_positions` raises and changes no sequence, not even the others of the call."""
    if model.max_positions > 4096:  # too long to fill in a test
        return
    random = Random(6)
    full, small = words(random, limit, model.max_positions - 1), words(random, limit, 3)
    one, two = model.new(), model.new()
    model.extend([Extend(sequence=one, tokens=full, logits="none"), Extend(sequence=two, tokens=small)])
    with pytest.raises(LimitExceeded):
        model.extend([Extend(sequence=two, tokens=small), Extend(sequence=one, tokens=small)])
    assert (model.length(one), model.length(two)) == (model.max_positions - 1, 3)
    close(last(model, two, small), oracle(small + small)[-1], tolerance, "the neighbour of a full row")
    close(last(model, one, small[:1]), oracle(full + small[:1])[-1], tolerance, "the last position")
    with pytest.raises(LimitExceeded):
        last(model, one, small[:1])


def check_capacity(model: StepModel, oracle: Oracle, limit: int, tolerance: float) -> None:
    """As many tokens as `capacity` says fit, whoever holds them; what forks have in common counts once; one more raises
    and changes no sequence."""
    if model.capacity > 4096:  # too long to fill in a test
        return
    random = Random(7)
    common = words(random, limit, min(model.max_positions - 2, model.capacity // 2))
    first = model.new()
    model.extend([Extend(sequence=first, tokens=common, logits="none")])
    forks = [model.fork(first) for _ in range(min(4, model.max_sequences - 1))]
    small = words(random, limit, 1)
    model.extend([Extend(sequence=s, tokens=small, logits="none") for s in forks])
    held, left = [first, *forks], model.capacity - len(common) - len(forks)
    while left and len(held) < model.max_sequences:
        held.append(model.new())
        count = min(left, model.max_positions)
        model.extend([Extend(sequence=held[-1], tokens=words(random, limit, count), logits="none")])
        left -= count
    if not left:
        lengths = [model.length(s) for s in held]
        with pytest.raises(LimitExceeded):
            model.extend([Extend(sequence=s, tokens=small) for s in forks])
        assert [model.length(s) for s in held] == lengths
    for sequence in held[len(forks) + 1 :]:
        model.free(sequence)
    if forks:
        close(last(model, forks[0], small), oracle(common + small + small)[-1], tolerance, "after there was no room")
    close(last(model, first, small), oracle(common + small)[-1], tolerance, "what was forked")
    for sequence in held[: len(forks) + 1]:
        model.free(sequence)


def check_program(
    model: StepModel, oracle: Oracle, random: Random, limit: int, *, actions: int, tolerance: float
) -> None:
    """A random course of new, extend (several rows, mixed lengths), fork, truncate and free, checked throughout."""
    held: dict[SequenceId, tuple[int, ...]] = {}
    kinds = ["extend"] * 5 + ["new", "fork", "free"] + ["truncate"] * (2 if model.can_truncate else 0)
    for number in range(actions):
        kind = random.choice(kinds) if held else "new"
        if kind == "new" and len(held) < 6:
            held[model.new()] = ()
        elif kind == "fork" and len(held) < 6:
            source = random.choice(list(held))
            held[model.fork(source)] = held[source]
        elif kind == "free":
            gone = random.choice(list(held))
            model.free(gone)
            del held[gone]
        elif kind == "truncate":
            cut = random.choice(list(held))
            length = random.randint(0, len(held[cut]))
            model.truncate(cut, length)
            held[cut] = held[cut][:length]
        elif kind == "extend":
            _extend(model, oracle, random, limit, held, tolerance, f"action {number}")
        assert {s: model.length(s) for s in held} == {s: len(t) for s, t in held.items()}
    for sequence in held:
        model.free(sequence)


def _extend(
    model: StepModel,
    oracle: Oracle,
    random: Random,
    limit: int,
    held: dict[SequenceId, tuple[int, ...]],
    tolerance: float,
    what: str,
) -> None:
    sizes = random.choice([(1,), (1, 2, 3), (1, 1, 1, 17), (5,)])
    work = []
    for sequence in random.sample(list(held), random.randint(1, len(held))):
        tokens = words(random, limit, random.choice(sizes))
        if len(held[sequence]) + len(tokens) <= model.max_positions:
            work.append(Extend(sequence=sequence, tokens=tokens, logits=random.choice(WANTED)))
    if not work:
        return
    answers = model.extend(work)
    for item, rows in zip(work, answers, strict=True):
        held[item.sequence] += item.tokens
        count = {"last": 1, "all": len(item.tokens), "none": 0}[item.logits]
        wanted = oracle(held[item.sequence])
        close(rows, wanted[len(wanted) - count :], tolerance, f"{what}, {item}")


def words(random: Random, limit: int, count: int) -> tuple[int, ...]:
    """Random token ids."""
    return tuple(random.randrange(limit) for _ in range(count))


def last(model: StepModel, sequence: SequenceId, tokens: tuple[int, ...]) -> Rows:
    """Append, and the logits after the last token, (V,) float32."""
    row: Rows = model.extend([Extend(sequence=sequence, tokens=tokens)])[0][0].copy()
    return row


def close(got: Rows, wanted: Rows, tolerance: float, what: str) -> None:
    """Equal shapes, and no logit further off than the tolerance."""
    assert got.shape == wanted.shape, what
    if got.size:
        assert np.abs(got - wanted).max() <= tolerance, f"{what}: off by {np.abs(got - wanted).max():.2e}"
