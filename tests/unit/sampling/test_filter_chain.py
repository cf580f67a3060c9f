"""The chain of filters, LogitBias and TokenBan, for people who hold their own logits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.errors import BadLogits, DeadEnd, InputError, SamplingError, TokenRefused, UnknownName, VocabError
from espalier.sampling.filters import FilterChain, FilterContext, LogitBias, Priority, TokenBan, distinct
from espalier.tokens.vocab import Vocab

CONTEXT = FilterContext(step=0, prompt=(), generated=())
V = 8


class Follower:
    """Adds the number of tokens it has seen, and what it is told to; refuses some tokens."""

    def __init__(self, name, *, priority=Priority.NORMAL, refuses=(), seen=(), result=None):
        self.name, self.priority, self.refuses, self.seen, self.result = name, priority, refuses, list(seen), result

    def apply(self, logits, context):
        return logits + np.float32(len(self.seen)) if self.result is None else self.result(logits)

    def on_token(self, token):
        if token in self.refuses:
            raise TokenRefused
        self.seen.append(token)

    def rollback(self, count):
        if count > len(self.seen):
            raise ValueError
        del self.seen[len(self.seen) - count :]

    def fork(self):
        return Follower(self.name, priority=self.priority, refuses=self.refuses, seen=self.seen, result=self.result)


def row(*values):
    return np.array(values or [0.0] * V, dtype=np.float32)


def test_add_and_insert_keep_priorities_and_places_among_equals():
    chain = FilterChain()
    for name in ("a", "b"):
        chain.add(Follower(name))
    chain.add(Follower("high", priority=Priority.HIGH))
    chain.add(Follower("low", priority=Priority.LOW))
    chain.insert(1, Follower("between"))
    chain.insert(0, Follower("lower", priority=Priority.LOW))
    chain.insert(99, Follower("last"))
    assert chain.names == ("high", "a", "between", "b", "last", "lower", "low")
    assert [one.name for one in chain] == list(chain.names)
    assert len(chain) == 7


def test_names_are_unique_and_unknown_names_are_told():
    chain = FilterChain([Follower("a")])
    with pytest.raises(InputError, match="'a' already"):
        chain.add(Follower("a", priority=Priority.LOW))
    with pytest.raises(InputError, match="'x' already"):
        FilterChain([Follower("x"), Follower("x")])
    for call in (chain.get, chain.remove, chain.enable, chain.disable, chain.is_enabled):
        with pytest.raises(UnknownName, match=r"'b'.*there are: a"):
            call("b")
    assert chain.remove("a").name == "a"
    assert len(chain) == 0
    chain.add(Follower("a"))
    assert chain.get("a").name == "a"


def test_filters_of_one_name_can_be_told_apart():
    chain = FilterChain(distinct([Follower("a"), Follower("b"), Follower("a", priority=Priority.HIGH), Follower("a")]))
    assert chain.names == ("a 2", "a", "b", "a 3")
    other = chain.fork()
    chain.on_token(1)
    chain.on_token(1)
    chain.rollback(1)
    assert chain.names == other.names
    assert chain.get("a 2").inner.seen == [1]
    assert other.get("a 2").inner.seen == []
    assert chain.apply(row(), CONTEXT)[0] == 4


def test_a_disabled_filter_changes_nothing_and_follows():
    chain = FilterChain([Follower("a"), TokenBan([1, 2])])
    chain.disable("a")
    assert not chain.is_enabled("a")
    chain.on_token(5)
    result = chain.apply_with_result(row(), CONTEXT)
    assert result.active_filters == ("token_ban",)
    assert result.banned_count == 2
    assert result.logits[0] == 0
    chain.enable("a")
    assert chain.apply(row(), CONTEXT)[0] == 1
    chain.disable("a")
    chain.remove("a")
    chain.add(Follower("a"))
    assert chain.is_enabled("a")


def test_a_disabled_filter_that_the_text_has_left_comes_back_by_rollback_alone():
    chain = FilterChain([Follower("strict", refuses={3})])
    chain.on_token(1)
    with pytest.raises(TokenRefused):
        chain.on_token(3)
    chain.disable("strict")
    for token in (3, 1, 3):
        chain.on_token(token)
    with pytest.raises(InputError, match="'strict' cannot be enabled"):
        chain.enable("strict")
    other = chain.fork()
    chain.rollback(2)
    with pytest.raises(InputError, match="roll back 1 tokens"):
        chain.enable("strict")
    chain.rollback(2)
    chain.enable("strict")
    assert chain.get("strict").seen == []
    with pytest.raises(InputError):
        other.enable("strict")


def test_a_refused_token_moves_no_filter():
    first, last = Follower("first"), Follower("last", refuses={3})
    chain = FilterChain([first, last])
    with pytest.raises(TokenRefused):
        chain.on_token(3)
    assert first.seen == last.seen == []


def test_banned_counts_only_what_was_finite():
    logits = row(0, 1, -np.inf, 3, 4, 5, 6, 7)
    result = FilterChain([TokenBan([1, 2]), LogitBias({4: -np.inf, 5: 2.0})]).apply_with_result(logits, CONTEXT)
    assert result.banned_count == 2
    assert result.active_filters == ("logit_bias", "token_ban")
    assert list(result.logits) == [0, -np.inf, -np.inf, 3, -np.inf, 7, 6, 7]
    with pytest.raises(AttributeError):
        result.banned_count = 0


def in_place(logits):
    logits[0] = 9
    return logits


def test_apply_never_changes_its_argument():
    logits = row()
    FilterChain([Follower("rude", result=in_place)]).apply(logits, CONTEXT)
    assert not logits.any()


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (lambda x: x - np.float32(np.inf), DeadEnd, "'bad' left no token"),
        (lambda x: x * np.float32(np.nan), BadLogits, "'bad' gave NaN"),
        (lambda x: np.where(np.arange(V) == 3, np.float32(np.nan), x), BadLogits, "'bad' gave NaN"),
        (lambda x: x + np.float32(np.inf), BadLogits, "'bad' gave infinity"),
        (lambda x: x[:3], BadLogits, "'bad' must be of shape"),
    ],
)
def test_a_filter_that_leaves_nothing_to_draw_from_is_named(result, error, words):
    chain = FilterChain([Follower("good"), Follower("bad", result=result), Follower("after")])
    with pytest.raises(error, match=words):
        chain.apply(row(), CONTEXT)


def test_logits_that_are_bad_before_the_first_filter_blame_no_filter():
    chain = FilterChain([Follower("good")])
    with pytest.raises(DeadEnd, match="before the first filter"):
        chain.apply(np.full(V, -np.inf, dtype=np.float32), CONTEXT)
    with pytest.raises(BadLogits, match="the logits hold NaN"):
        chain.apply(np.full(V, np.nan, dtype=np.float32), CONTEXT)
    with pytest.raises(BadLogits, match="shape"):
        chain.apply(np.zeros((2, V), dtype=np.float32), CONTEXT)


def test_the_last_token_is_the_ban_s_to_answer_for():
    with pytest.raises(DeadEnd, match="'second'"):
        FilterChain([TokenBan(range(4)), TokenBan(range(4, V), name="second")]).apply(row(), CONTEXT)


def test_logit_bias_is_high_and_checks_what_it_is_given():
    assert LogitBias({1: 1.0}).priority is Priority.HIGH
    assert TokenBan.single(3).ids == (3,)
    assert list(LogitBias({}).apply(row(), CONTEXT)) == [0] * V
    for biases in ({-1: 1.0}, {True: 1.0}, {"a": 1.0}, {1: np.nan}, {1: np.inf}, {1: 1e39}, {1: True}, {1: "x"}):
        with pytest.raises(SamplingError) as caught:
            LogitBias(biases)
        assert caught.value.field == "logit_bias"
    with pytest.raises(SamplingError) as caught:
        TokenBan(["a"])
    assert caught.value.field == "token_ban"
    for one, field in ((LogitBias({V: 1.0}), "logit_bias"), (TokenBan([V]), "token_ban")):
        with pytest.raises(SamplingError, match=f"token {V} is outside") as caught:
            one.apply(row(), CONTEXT)
        assert caught.value.field == field


def test_logit_bias_by_text():
    def encode(text):
        return [ord(c) - ord("a") for c in text]

    assert LogitBias.of(encode, {"aba": 1.0, "bc": -2.0}).biases == {0: 1.0, 1: -1.0, 2: -2.0}
    assert LogitBias.of(encode, {"ab": -np.inf, "b": 5.0}).biases == {0: -np.inf, 1: -np.inf}
    with pytest.raises(SamplingError, match="no token"):
        LogitBias.of(encode, {"": 1.0})
    with pytest.raises(VocabError):
        LogitBias.of(Vocab.bytes(), {"a": 1.0})
    vocab = Vocab.from_tokens([b"a", b"b", b""], eos_ids=[2], encoder=encode)
    assert LogitBias.of(vocab, {"b": 1.0}, name="mine").biases == {1: 1.0}


@given(st.lists(st.one_of(st.integers(0, 5), st.just("rollback"), st.just("fork"), st.just("switch")), max_size=30))
def test_a_chain_is_always_as_if_its_tokens_had_come_one_by_one(steps):
    """Against a plain model: what an enabled filter has seen are the tokens there are."""
    chain, tokens, forks = FilterChain([Follower("a"), Follower("b", refuses={5})]), [], []
    for step in steps:
        if step == "rollback":
            count = len(tokens) // 2
            chain.rollback(count)
            tokens = tokens[: len(tokens) - count]
        elif step == "fork":
            forks.append((chain.clone(), list(tokens)))
        elif step == "switch":
            if chain.is_enabled("b"):
                chain.disable("b")
            elif 5 not in tokens:
                chain.enable("b")
            else:
                with pytest.raises(InputError):
                    chain.enable("b")
        elif step == 5 and chain.is_enabled("b"):
            with pytest.raises(TokenRefused):
                chain.on_token(5)
        else:
            chain.on_token(step)
            tokens.append(step)
        assert chain.get("a").seen == tokens
        followed = tokens[: tokens.index(5)] if 5 in tokens else tokens
        assert chain.get("b").seen == followed
    for fork, then in forks:
        assert fork.get("a").seen == then


@pytest.mark.parametrize(
    "call",
    [
        lambda: TokenBan(5),
        lambda: TokenBan(None),
        lambda: TokenBan("ab"),
        lambda: TokenBan([2**70]),
        lambda: LogitBias([(1, 2)]),
        lambda: LogitBias(None),
        lambda: LogitBias.of(ord, [("a", 1.0)]),
        lambda: LogitBias.of(lambda text: [0], {1: 1.0}),
        lambda: LogitBias({1: 1.0}).apply(np.zeros((2, V), dtype=np.float32), CONTEXT),
        lambda: TokenBan([1]).apply(np.zeros(V, dtype=np.int64), CONTEXT),
        lambda: FilterChain([TokenBan([1])]).apply(np.zeros(V, dtype=np.int64), CONTEXT),
        lambda: FilterChain([TokenBan([1])]).apply(["x"] * V, CONTEXT),
        lambda: FilterChain([TokenBan([1])]).apply(None, CONTEXT),
        lambda: FilterChain().apply({}, CONTEXT),
        lambda: FilterChain().rollback(-1),
    ],
)
def test_a_wrong_kind_of_value_was_a_type_error(call):
    with pytest.raises((InputError, BadLogits)):
        call()


def test_a_list_of_logits_was_an_attribute_error():
    for chain in (FilterChain(), FilterChain([TokenBan([1])])):
        out = chain.apply([0.0] * 257, CONTEXT)
        assert (out.shape, out.dtype) == ((257,), np.float32)
    assert chain.apply_with_result([0.0] * 257, CONTEXT).banned_count == 1
    assert TokenBan([1]).apply([0.0, 0.0], CONTEXT)[1] == -np.inf


@pytest.mark.parametrize("result", [lambda x: None, list, lambda x: x.astype(int)])
def test_a_filter_that_gives_no_logits_is_named(result):
    with pytest.raises(BadLogits, match="the filter 'bad'"):
        FilterChain([Follower("bad", result=result)]).apply(row(), CONTEXT)


@pytest.mark.parametrize("short", [0, 1, 2])
def test_rolling_back_beyond_the_start_left_some_filters_moved(short):
    filters = [Follower(str(place), seen=[1] if place == short else [1, 2]) for place in range(3)]
    chain = FilterChain([*filters, TokenBan([1]), Follower("off", seen=[1, 2], refuses={9})])
    chain.disable("off")
    chain.rollback(0)
    with pytest.raises(ValueError):  # the filter's own
        chain.rollback(2)
    assert [len(one.seen) for one in filters] == [1 if place == short else 2 for place in range(3)]
    assert chain.get("off").seen == [1, 2]
    chain.rollback(1)
    assert [len(one.seen) for one in filters] == [0 if place == short else 1 for place in range(3)]
