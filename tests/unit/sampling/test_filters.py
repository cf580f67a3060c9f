import numpy as np

from espalier.sampling.chain import Chain
from espalier.sampling.config import SamplingConfig
from espalier.sampling.filters import FilterChain, FilterContext, Priority

CONTEXT = FilterContext(step=0, prompt=(), generated=())


class Adding:
    """Adds to every logit and multiplies by two, so that the order shows; counts tokens."""

    def __init__(self, name, priority, amount, seen=()):
        self.name, self.priority, self.amount, self.seen = name, priority, amount, list(seen)

    def apply(self, logits, context):
        return logits * np.float32(2) + np.float32(self.amount)

    def on_token(self, token):
        self.seen.append(token)

    def rollback(self, count):
        del self.seen[len(self.seen) - count :]

    def fork(self):
        return Adding(self.name, self.priority, self.amount, self.seen)


def test_filters_run_high_to_low_and_in_order_among_equals():
    chain = FilterChain(
        [
            Adding("low", Priority.LOW, 1),
            Adding("high a", Priority.HIGH, 2),
            Adding("normal", Priority.NORMAL, 3),
            Adding("high b", Priority.HIGH, 4),
        ]
    )
    assert chain.names == ("high a", "high b", "normal", "low")
    # ((((0*2+2)*2+4)*2+3)*2+1)
    assert chain.apply(np.zeros(1, dtype=np.float32), CONTEXT)[0] == 39


def test_a_fork_of_the_chain_is_independent_and_rollback_undoes():
    one = Adding("a", Priority.HIGH, 0)
    chain = Chain(SamplingConfig(), [one])
    chain.on_token(5)
    chain.on_token(6)
    other = chain.fork()
    other.on_token(7)
    chain.rollback(1)
    assert one.seen == [5]
    assert other.filters.members[0].seen == [5, 6, 7]


def test_the_order_of_the_transforms_is_data():
    row = np.array([2.0, 1.0, 0.0, -1.0], dtype=np.float32)
    hot_first = SamplingConfig(temperature=0.25, top_p=0.9, top_k=0, min_p=0, sampler_order=("temperature", "top_p"))
    hot_last = SamplingConfig(temperature=0.25, top_p=0.9, top_k=0, min_p=0, sampler_order=("top_p", "temperature"))
    count = lambda config: int((Chain(config).shape(row) > -np.inf).sum())  # noqa: E731  # used twice, here
    assert count(hot_first) == 1
    assert count(hot_last) == 3
