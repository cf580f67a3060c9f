"""Processes that tests start by the dozen, most of them to be killed: forked from one that has imported what they need.

Python has one such process for all of its `forkserver` contexts, so the list of imports is one for all tests.
"""

from __future__ import annotations

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "pytest",
        "tests.batch_worker",
        "tests.server_app",
        "espalier.engines.fake",
        "espalier.server.batching.executor",
        "tests.unit.activations.test_store",
        "tests.integration.server.test_costs_survive_kill",
    ]
)
