"""Filters of a user's own in a request: applied, kept apart between runs, refused where they cannot be."""

from __future__ import annotations

import math

import pytest

import espalier
from espalier import Choice, FilterChain, LogitBias, TokenBan
from espalier.api import check_capabilities, make_request
from espalier.engines.base import Capabilities
from espalier.errors import CapabilityError, InputError


class Once:
    """Bans a token after it was said once."""

    name = "once"
    priority = espalier.Priority.NORMAL

    def __init__(self, token, said=()):
        self.token, self.said = token, list(said)

    def apply(self, logits, context):
        if self.token not in self.said:
            return logits
        out = logits.copy()
        out[self.token] = -math.inf
        return out

    def on_token(self, token):
        self.said.append(token)

    def rollback(self, count):
        del self.said[len(self.said) - count :]

    def fork(self):
        return Once(self.token, self.said)


@pytest.fixture
def eng():
    return espalier.load("fake")


def test_a_filter_is_applied_at_every_step_and_left_as_it_was(eng):
    once = Once(ord("e"))
    for _ in range(2):
        text = eng.generate("go", filters=once, temperature=0, max_tokens=40).text
        assert text.count("e") == 1
    assert once.said == []


def test_filters_stand_beside_a_constraint_and_in_a_chain(eng):
    chain = FilterChain([TokenBan([ord("n")]), LogitBias({ord("m"): 50.0})])
    result = eng.generate("go", filters=chain, constraint=Choice(["yes", "no", "maybe"]), temperature=0)
    assert result.text == "maybe"


def test_several_sequences_of_one_batch_do_not_share_a_filter(eng):
    results = eng.generate(["a", "b"], filters=[Once(ord("e"))], temperature=0, max_tokens=40)
    assert [result.text.count("e") for result in results] == [1, 1]


@pytest.mark.parametrize("filters", ["ban", [1], {"a": 1}, object()])
def test_what_is_no_filter_is_refused(filters):
    with pytest.raises(InputError) as error:
        make_request("go", filters=filters)
    assert error.value.field == "filters"


def test_an_engine_without_logits_refuses_filters():
    class Text:
        name = "text"
        capabilities = Capabilities()

    with pytest.raises(CapabilityError) as error:
        check_capabilities(Text(), make_request("go", filters=Once(1)))
    assert error.value.field == "filters"
