"""Retries: what is not taken again, by place, until nothing is left."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from espalier.automata.reasons.blame import Blame
from espalier.decoding.rewinding.retries import Retries

WHY = Blame(member="ban", reason="banned")


def after(tokens):
    found = Retries()
    for token in tokens:
        found.taken(token)
    return found


def test_what_went_back_is_not_taken_again_at_its_first_place():
    tree = after([1, 2, 3])
    assert tree.recall([2, 3, 4], WHY) == 1
    assert dict(tree.forbidden) == {2: WHY}
    tree.taken(7)
    assert not tree.forbidden
    assert tree.recall([7, 4], WHY) == 1
    assert set(tree.forbidden) == {2, 7}


def test_it_is_forgotten_where_the_text_before_is_another():
    tree = after([1, 2])
    tree.recall([2, 3], WHY)
    tree.dead_end(1, WHY)
    assert set(tree.forbidden) == {1}
    tree.taken(5)
    assert not tree.forbidden


def test_what_was_put_off_is_taken_up_one_token_further_each_time():
    tree = after([1, 2])
    assert tree.recall([1, 2, 3], WHY) == 0
    assert set(tree.forbidden) == {1}
    assert tree.resume()
    assert not tree.forbidden
    tree.taken(1)
    assert set(tree.forbidden) == {2}  # it led there before
    assert tree.resume()
    tree.taken(2)
    assert set(tree.forbidden) == {3}
    assert not tree.resume()  # refused for good
    assert tree.recall([1, 2, 9], WHY) == 2
    assert set(tree.forbidden) == {3, 9}
    tree.dead_end(2, WHY)
    assert set(tree.forbidden) == {2}
    tree.dead_end(1, WHY)
    assert set(tree.forbidden) == {1}
    assert not tree.resume()


@given(
    st.sets(st.lists(st.sampled_from("ab"), min_size=2, max_size=5).map("".join), max_size=12), st.integers(0, 2**31)
)
def test_every_text_is_reached_or_every_way_tried(banned, order):
    """Texts of five letters in which no banned one occurs, as a ban walks: putting off misses none."""
    tree, text, taken_back = Retries(), "", 0
    wanted = {
        word for word in map("".join, itertools.product("ab", repeat=5)) if not any(one in word for one in banned)
    }
    while len(text) < 5:
        left = [c for c in ("ab" if order >> len(text) & 1 else "ba") if c not in tree.forbidden]
        if not left:
            if tree.resume():
                continue
            if not text:
                break
            tree.dead_end(text[-1], WHY)
            text = text[:-1]
            continue
        tried = text + left[0]
        ends = [one for one in banned if tried.endswith(one)]
        if ends:
            taken_back += 1
            assert taken_back < 200, "it goes round in circles"
            text = text[: tree.recall(max(ends, key=len), WHY)]
        else:
            tree.taken(left[0])
            text = tried
    assert text in wanted if wanted else not text
