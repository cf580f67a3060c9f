"""Soft constraints move a real model: the demo model, over fixed seeds."""

import json
import re
from pathlib import Path

import pytest

from espalier.api import make_request
from espalier.constraints.soft.spec import SoftJson, SoftWordlist
from espalier.constraints.words.spec import Wordlist
from espalier.engines.base import FinishEvent

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

SEEDS = range(12)
DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"
WORDS = re.findall(
    r"\w+",
    "the a i you is are can how help hello today it to and of in we my me do not have what your name that this for "
    "with be was on so good fine thank sea water blue",
)


@pytest.fixture(scope="module")
def demo(demo_engine):
    return demo_engine


def run(demo, prompt, **options):
    """A result for each seed, in one batch."""
    neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "trace": "steps"}
    requests = [make_request(prompt, seed=seed, **neutral, **options) for seed in SEEDS]
    return [event.result for event in demo.engine.run(requests) if isinstance(event, FinishEvent)]


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def is_untouched(results):
    """Finite biases: every token is still allowed."""
    steps = [step for result in results for step in result.trace.steps]
    return {step.removed_mass for step in steps} == {0.0} and len({step.allowed_count for step in steps}) == 1


def test_soft_json_raises_the_share_of_json(demo):
    options = {"temperature": 1.5, "max_tokens": 80}
    free = run(demo, "Generate user info", **options)
    soft = run(demo, "Generate user info", soft=SoftJson(), **options)
    shares = [sum(is_json(result.text) for result in results) for results in (free, soft)]
    assert shares[1] >= shares[0] + 3, shares
    assert is_untouched(soft)


def test_a_soft_word_list_lowers_the_share_of_other_words(demo):
    def share(results):
        said = [word for r in results for word in re.split(r"[\s.,!?…]+", r.text.lower()) if word]
        return sum(word not in WORDS for word in said) / len(said)

    options = {"temperature": 1.0, "max_tokens": 40}
    free = run(demo, "Tell me about the sea", **options)
    soft = run(demo, "Tell me about the sea", soft=SoftWordlist(Wordlist(WORDS, top=len(WORDS))), **options)
    assert share(soft) < 0.7 * share(free), (share(soft), share(free))
    assert is_untouched(soft)
