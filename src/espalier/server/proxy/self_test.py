"""The self-test of x-ray mode: one request of our own, followed as those of clients are.

It shows whether the server takes a seed, tells what is asked for, and samples as the replay does. It knows no client.
"""

from __future__ import annotations

import json

from espalier.errors import UpstreamError
from espalier.upstream.llama_server.client import LlamaServer
from espalier.upstream.xray.follow import following
from espalier.upstream.xray.known import Known
from espalier.upstream.xray.wire.reply import Told, stripped
from espalier.upstream.xray.wire.request import read_request, rewritten

SEED, TOKENS, LISTED = 20_261_123, 8, 100
CANARY = {
    "prompt": "a", "n_predict": TOKENS, "seed": SEED, "temperature": 1.5, "grammar": "root ::= [a-z]+ | [0-9]+",
    "cache_prompt": False,
}  # fmt: skip
"""Hot, and under a grammar that refuses much: a server that samples otherwise draws other tokens soon."""


def self_test(server: LlamaServer, known: Known) -> None:
    """Raises UpstreamError saying what the server does otherwise, so that its replies cannot be traced."""
    request = read_request("/completion", json.dumps(CANARY).encode())
    count = min(LISTED, known.vocab.width)
    content, _ = rewritten(request, count, lambda: SEED)
    said = server.complete(json.loads(content))
    output = Told()
    stripped(json.dumps(said).encode(), request, {0: output})
    fault = _fault(output)
    if not fault:
        with following(output, known, None, count=count) as followed:
            lost = next((step.reason for step in followed.steps if step.verdict.outcome == "unknown"), "")
        fault = followed.reason or lost
        if fault:
            fault = f"its sampler is not the one that is replayed here: {fault}"
    if fault:
        raise UpstreamError(
            f"{server.link.url} cannot be traced: {fault}", hint="--mode off passes on without traces; docs/proxy.md"
        )


def _fault(output: Told) -> str:
    """What the reply lacks, "" for nothing."""
    if output.settings is None:
        return "it does not tell the settings that it used (generation_settings)"
    if output.settings.get("seed") != SEED:
        return "it does not take the seed that it is given"
    if output.settings.get("grammar") != CANARY["grammar"]:
        return "it does not take the grammar that it is given"
    if not output.tokens:
        return "it does not tell the ids of its tokens (return_tokens)"
    if not output.listed:
        return "it tells no probabilities (n_probs)"
    return ""
