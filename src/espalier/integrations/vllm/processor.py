"""`ConstraintProcessor`: our constraints inside vLLM, each request under its own.

    llm = LLM(model, logits_processors=["espalier.integrations.vllm:ConstraintProcessor"])
    llm.generate(prompts, SamplingParams(extra_args={"espalier": {"json_schema": schema, "safety": "minimal"}}))

It is of the classes of both of vLLM's model runners, as far as the installed vLLM has them, since one name is given to
either: how vLLM makes it says which one runs (`runner_v1.py`, `runner_v2.py`). A request that returns after a
preemption brings its tokens along. Constraints are checked when a request arrives (`validate_params`). What goes wrong
later with one request cannot be told to its client by a logits processor: its row may only end, the log has the error,
and so has the reporter.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any, ClassVar

import torch

from espalier.constraints.compiler import Compiler
from espalier.errors import EspalierError, MissingDependency, VocabError
from espalier.integrations.asked import read_asked
from espalier.integrations.compiling import engine_compiler
from espalier.integrations.vllm.checks import check_config, check_params
from espalier.integrations.vllm.masking import RowMasker
from espalier.integrations.vllm.report import Reporter
from espalier.integrations.vllm.reporter import reporter_of
from espalier.integrations.vllm.runner_v1 import RowsV1, tells_tokens
from espalier.integrations.vllm.runner_v2 import RowsV2
from espalier.tokens.vocab import Vocab
from espalier.wiring import App, build_app

try:
    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality
except ModuleNotFoundError as error:
    if error.name != "vllm":
        raise  # it is there, and older than this adapter can serve
    raise MissingDependency("vllm") from error

try:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as LogitsProcessorV2
except ModuleNotFoundError:  # a vLLM with one model runner

    class LogitsProcessorV2:  # type: ignore[no-redef]
        """Stands where there is no second runner."""


@cache
def _app() -> App:
    return build_app()


@cache
def _over_bytes() -> Compiler:
    """Of requests that are checked where the engine's vocabulary is not known. One for the process: to make a
    vocabulary takes longer than to find a constraint that was compiled before."""
    return engine_compiler(_app(), Vocab.bytes())


class ConstraintProcessor(LogitsProcessor, LogitsProcessorV2):
    """See the module. `reporter` gets the StepReports of requests with `report: true`; set it on the class, or name it
    as `MODULE:FUNCTION` in vLLM's `additional_config={"espalier": {"reporter": ...}}`; `"store": URL` keeps their sums
    in our database."""

    reporter: ClassVar[Reporter | None] = None

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raises ValueError, as vLLM wants it, for what cannot be enforced: a constraint that is malformed or cannot be
        compiled, and params that cannot stand beside one. It is compiled over bytes here, since the vocabulary is the
        engine's."""
        try:
            constraint = read_asked(getattr(sampling_params, "extra_args", None), _app())
            if constraint is None:
                return
            check_params(sampling_params, report=constraint.report)
            with suppress(VocabError):  # a token that the grammar names: the engine's vocabulary decides
                _over_bytes().compile(constraint.spec).matcher().mask()
        except EspalierError as error:
            raise ValueError(f"espalier: {error}") from error

    def __init__(self, vllm_config: Any, where: Any, is_pin_memory: bool | None = None) -> None:
        """where: the device, with is_pin_memory, from the first runner; the buffers of its slots from the second.
        Raises CapabilityError for an engine that does not pass us its rows, VocabError."""
        is_first = isinstance(where, torch.device)
        check_config(vllm_config, tells_tokens=not is_first or tells_tokens(vllm_config), sees_drafts=not is_first)
        device: torch.device = where if is_first else where.device
        pin = device.type == "cuda" and (not is_first or bool(is_pin_memory))
        masker = RowMasker(
            _app(),
            engine_compiler(_app(), self.vocab_of(vllm_config)),
            report=reporter_of(vllm_config, type(self).reporter),
            pin=pin,
        )
        self._first = RowsV1(masker, swap=MoveDirectionality.SWAP) if is_first else None
        self._second = None if is_first else RowsV2(masker, where)

    @classmethod
    def vocab_of(cls, vllm_config: Any) -> Vocab:
        """The model's vocabulary, with the ids that vLLM ends a text at. Raises VocabError."""
        from transformers import AutoTokenizer  # noqa: PLC0415  # vLLM has it

        model = vllm_config.model_config
        tokenizer = AutoTokenizer.from_pretrained(
            model.tokenizer, revision=model.tokenizer_revision, trust_remote_code=model.trust_remote_code
        )
        ends = (model.try_get_generation_config() or {}).get("eos_token_id", [])
        listed = [ends] if isinstance(ends, int) else list(ends)
        own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        return Vocab.from_tokenizer(tokenizer, eos_ids=[*dict.fromkeys([*own, *listed])], width=model.get_vocab_size())

    def is_argmax_invariant(self) -> bool:
        """False: a constraint changes what is most probable, so greedy requests come here too."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Of the first runner: rows join, leave and change places."""
        if self._first is not None:
            self._first.update(batch_update)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Of the second runner: a request takes a slot."""
        return self._second is not None and self._second.add(req_idx, sampling_params)

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """`(B, V)` float, changed in place: what a row's constraint forbids becomes -inf. ctx: the layout of the step,
        from the second runner."""
        if self._second is not None:
            return self._second.apply(logits, ctx)
        return logits if self._first is None else self._first.apply(logits)
