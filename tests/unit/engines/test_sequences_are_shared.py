"""Runs of many sequences: what they leave to others, and who goes next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from espalier.decoding.plan import Outcome
from espalier.engines.scheduling.room import run_sequences, run_tokens, with_spare
from espalier.engines.scheduling.service_counters import ServiceCounters
from tests.serving_laws import StrictModel, World, ticket


def test_many_particles_of_one_owner_leave_a_sequence_to_others():
    """Four requests of 64 particles made another owner's single token wait until they ended, one after the other."""
    here = World(StrictModel(slots=18, room=3600, max_positions=200), prefix_tokens=0, lanes=18)
    most = run_sequences(here.model)
    assert most == 16
    wide = [
        here.submit(replace(ticket("greedy", (1,), 40, owner="a"), sequences=most, size=run_tokens(here.model)))
        for _ in range(4)
    ]
    here.round()
    quick = here.submit(ticket("greedy", (2,), 1, owner="b"))
    for _ in range(3):
        here.round()
    assert isinstance(here.end_of(quick), Outcome)
    assert not any(one.is_over for one in wide)
    here.run()
    assert all(isinstance(here.end_of(one), Outcome) for one in wide)
    here.close()


def test_who_has_had_less_of_the_model_goes_first_although_nobody_runs_between_two_requests():
    here = World(StrictModel(slots=8, room=1600, max_positions=200), prefix_tokens=0, lanes=8)
    wide = [here.submit(replace(ticket("greedy", (1,), 9, owner="a"), sequences=8, size=1600)) for _ in range(3)]
    here.round()
    other = here.submit(replace(ticket("greedy", (2,), 2, owner="b"), sequences=8, size=1600))
    here.run()
    assert list(here.said) == [wide[0], other, *wide[1:]]
    here.close()


def test_an_owner_who_stayed_away_has_saved_nothing_up():
    served = ServiceCounters()
    served.arrive("busy")
    served.charge("busy", 100)
    served.arrive("late")
    assert served.counts == {"busy": 100, "late": 100}
    served.charge("late", 10)
    served.leave("late")
    served.arrive("late")
    assert served.counts["late"] == 110  # leaving pays no debt
    served.leave("late")
    served.leave("busy")
    assert served.counts == {}  # nobody is left to compare with, and nothing is kept


@pytest.mark.parametrize("asked", [*range(1, 20), 64, 228])
def test_a_run_may_have_as_many_sequences_as_were_asked_for(asked):
    assert run_sequences(StrictModel(slots=with_spare(asked))) == asked
