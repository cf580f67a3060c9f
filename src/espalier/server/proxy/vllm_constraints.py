"""What is known here of the constraint that a request asks a vLLM for: the constraint itself, and where the vocabulary
of the model can be read, a matcher that follows it. It makes no requests.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from espalier.constraints.spec import Spec
from espalier.errors import EspalierError
from espalier.integrations.asked import KEY, read_asked
from espalier.integrations.stock import EXTRA, OUTPUTS, with_ours
from espalier.tokens.vocab import Vocab
from espalier.upstream.vllm.record import FollowedConstraint
from espalier.upstream.vllm.request import VllmRequest
from espalier.wiring import App, build_app

log = logging.getLogger(__name__)
OLD = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
"""Fields of older vLLMs, and what they are called in `structured_outputs`."""
NO_VOCAB = "the vocabulary of the model is not known here (--tokenizer)"
TOKENIZER = ("tokenizer.json", "tokenizer.model")


class VllmConstraints:
    """tokenizer: a tokenizer file, or a folder with one; "" for that of the server's model, if this machine has its
    folder."""

    def __init__(self, tokenizer: str = "", app: App | None = None) -> None:
        self._tokenizer, self._app = tokenizer, app
        self._lock = threading.Lock()
        self._vocab: Vocab | None = None
        self._read: str | None = None

    def vocab(self, root: str) -> Vocab | None:
        """The vocabulary of a model, None where it cannot be read. root: the model, as the server names it."""
        name = self._tokenizer or root
        with self._lock:
            if name != self._read:
                self._read, self._vocab = name, self._read_vocab(name)
            return self._vocab

    def _read_vocab(self, name: str) -> Vocab | None:
        path = Path(name).expanduser()
        files = [path] if path.is_file() else [path / own for own in TOKENIZER if (path / own).is_file()]
        if not name or not files:
            if self._tokenizer:
                log.warning("there is no tokenizer %s: what constraints allow is not followed", name)
            return None
        try:
            return Vocab.from_tokenizer(files[0])
        except EspalierError as error:
            log.warning("the tokenizer %s cannot be read: %s", name, error)
            return None

    def followed(self, request: VllmRequest, root: str) -> FollowedConstraint:
        """The constraint of a request."""
        vocab = self.vocab(root)
        try:
            spec = self._spec(request)
        except EspalierError as error:
            return FollowedConstraint(vocab=vocab, why=str(error))
        if spec is None:
            return FollowedConstraint(vocab=vocab, why="vLLM makes it itself")
        if vocab is None:
            return FollowedConstraint(spec=spec.to_json(), why=NO_VOCAB)
        try:
            matcher = self._shared_app().compiler(vocab).compile(spec).matcher()
        except EspalierError as error:
            return FollowedConstraint(spec=spec.to_json(), vocab=vocab, why=str(error))
        return FollowedConstraint(spec=spec.to_json(), matcher=matcher, vocab=vocab)

    def _spec(self, request: VllmRequest) -> Spec | None:
        """As our processor inside vLLM reads it. Raises what `read_asked` raises."""
        extra = request.body.get(EXTRA)
        if not request.is_ours:
            ours = with_ours(_renamed(request.body))
            extra = None if ours is None else ours[EXTRA]
        if not isinstance(extra, Mapping) or KEY not in extra:
            return None
        constraint = read_asked(extra, self._shared_app())
        return None if constraint is None else constraint.spec

    def _shared_app(self) -> App:
        with self._lock:
            if self._app is None:
                self._app = build_app()
            return self._app


def _renamed(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with constraints of older vLLMs under their newer names, and without options for whitespace."""
    old = {new: body[name] for name, new in OLD.items() if body.get(name) is not None}
    outputs = body.get(OUTPUTS)
    kept = {name: value for name, value in body.items() if name not in OLD}
    if isinstance(outputs, Mapping):
        old |= {name: value for name, value in outputs.items() if name in (*OLD.values(), "json_object")}
    elif outputs is not None:
        return kept
    return kept | {OUTPUTS: old} if old else kept
