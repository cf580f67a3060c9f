"""Reads the vocabulary of a llama-server with one completion: the probabilities of all tokens, with their bytes.

The request and the reading are apart, for callers that send requests in a way of their own. It knows no GGUF file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from espalier.errors import UpstreamError, VocabError
from espalier.tokens.vocab import Vocab
from espalier.upstream.llama_server.client import LlamaServer

ALL = 2**30  # more candidates than any model has: llama-server gives as many as there are
AT_ONCE = 4  # requests for the names of special tokens


def request() -> dict[str, Any]:
    """The body for `/completion`. The grammar forces a token of whole characters, since llama-server gives no
    probabilities of others; `ignore_eos` makes it list the ids that end a text."""
    return {
        "prompt": "a",
        "n_predict": 1,
        "n_probs": ALL,
        "grammar": 'root ::= "a"',
        "ignore_eos": True,
        "temperature": 0,
        "cache_prompt": False,
    }


def read(
    reply: Mapping[str, Any], *, names: Callable[[Iterable[int]], Mapping[int, str]], eos: str, name: str
) -> Vocab:
    """The vocabulary. names: the spelling of tokens without bytes, by id. eos: the spelling of the token that ends a
    text by default. Raises UpstreamError where the reply does not list every token, VocabError."""
    spelled = _tokens(reply)
    special = dict(names([token for token, text in enumerate(spelled) if not text]))
    ends = [token for token in _ends(reply) if token < len(spelled)]
    if not ends:
        raise UpstreamError("the server names no token that ends a text")
    special |= {token: special.get(token) or spelled[token].decode("utf-8", "replace") for token in ends}
    ends.sort(key=lambda token: (special[token] != eos, token))
    tokens = tuple(b"" if token in special else text for token, text in enumerate(spelled))
    try:
        return Vocab(
            tokens=tokens,
            eos_ids=tuple(ends),
            special_texts={i: t for i, t in special.items() if t},
            width=len(tokens),
            name=name,
        )
    except VocabError as error:
        raise UpstreamError(f"the server's vocabulary cannot be used: {error.message}") from error


def fetch(server: LlamaServer) -> Vocab:
    """The vocabulary of a server. Raises what `LlamaServer.complete` raises, and UpstreamError."""
    props = server.props()

    def names(tokens: Iterable[int]) -> dict[int, str]:
        asked = list(tokens)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(asked, pool.map(lambda token: server.detokenize([token]), asked), strict=True))

    return read(server.complete(request()), names=names, eos=props.eos, name=props.model)


def _tokens(reply: Mapping[str, Any]) -> list[bytes]:
    steps = reply.get("completion_probabilities")
    if not isinstance(steps, list) or not steps or not isinstance(steps[0], Mapping):
        raise UpstreamError("the server gives no probabilities", hint="it may be older than December 2024")
    spelled_by_id: dict[int, bytes] = {}
    for top_logprob in steps[0].get("top_logprobs") or ():
        token, spelled = (
            (top_logprob.get("id"), top_logprob.get("bytes")) if isinstance(top_logprob, Mapping) else (None, None)
        )
        if type(token) is not int or not isinstance(spelled, list):
            raise UpstreamError("the server names its tokens in a way that is not llama-server's")
        try:
            spelled_by_id[token] = bytes(spelled)
        except (ValueError, TypeError) as error:
            raise UpstreamError(f"the server's token {token} has no bytes: {spelled!r:.60}") from error
    if sorted(spelled_by_id) != list(range(len(spelled_by_id))) or not spelled_by_id:
        raise UpstreamError("the server does not list all of its tokens")
    return [spelled_by_id[token] for token in range(len(spelled_by_id))]


def _ends(reply: Mapping[str, Any]) -> list[int]:
    settings = reply.get("generation_settings")
    biases = settings.get("logit_bias") if isinstance(settings, Mapping) else None
    tokens = []
    for bias in biases or ():
        token = bias.get("token") if isinstance(bias, Mapping) else None
        if type(token) is int and token >= 0:
            tokens.append(token)
    return sorted(tokens)
