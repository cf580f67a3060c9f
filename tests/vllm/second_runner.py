"""Runs requests through what vLLM's second model runner samples with, in vLLM's environment, as `interpreted.py` sets
it up: `python -m tests.vllm.interpreted JOB ANSWERS`.

Its own are the buffers of all slots (`RequestState`), the loader and the calls of processors, the kernels that prepare
a step's inputs, the whole `Sampler` (bias, penalties, bad words, temperature, min_p, Gumbel's sampling) and the
kernel that writes the tokens back. Triton interprets the kernels, since this build has no compiler for a CPU. Ours is
the schedule (chunks of prompts, requests that are preempted, slots that are used again), and the logits are those of
transformers: the model's part of that runner wants a GPU.

JOB and ANSWERS are as those of `offline.py`, with one round.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.worker.gpu import input_batch as inputs
from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.states import RequestState

from tests.vllm.offline import PROCESSOR, params_of

SLOTS, LENGTH, CHUNK = 16, 512, 4
CPU = torch.device("cpu")


@dataclass(slots=True)
class Sequence:
    """One request. done: how many of its tokens the model has read."""

    name: str
    request: dict[str, Any]
    prompt: list[int]
    output: list[int] = field(default_factory=list)
    done: int = 0
    finish: str = ""

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output


class Runner:
    def __init__(self, model: str, seed: int) -> None:
        self.config = EngineArgs(
            model, enforce_eager=True, dtype="float32", max_model_len=LENGTH, block_size=32
        ).create_engine_config()
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.ends = {2, self.tokenizer.eos_token_id}
        width = self.config.model_config.get_vocab_size()
        self.states = RequestState(SLOTS, LENGTH, 4 * LENGTH, 0, width, CPU)
        self.buffers = inputs.InputBuffers(SLOTS, 4 * LENGTH, CPU)
        custom = build_custom_logits_processors(self.config, self.states, False, (PROCESSOR,))
        self.sampler = Sampler(self.config, SLOTS, width, CPU, self.states, custom_logits_processors=custom)
        self.rng, self.seen = random.Random(seed), Counter[str]()
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    def run(self, requests: list[dict[str, Any]]) -> list[Sequence]:
        every = [
            Sequence(f"r{number}", one, self.tokenizer(one["prompt"]).input_ids) for number, one in enumerate(requests)
        ]
        self.waiting = list(every)
        while self.waiting or self.running:
            self._arrive()
            self._step()
            self._leave()
        return every

    def _arrive(self) -> None:
        while self.waiting and self.states.free_indices:
            one = self.waiting.pop(0)
            self.states.add_request(one.name, len(one.prompt), one.tokens, 0, one.request["params"]["max_tokens"])
            self.sampler.add_request(self.states.req_id_to_index[one.name], params_of(one.request))
            self.running.append(one)
        self.states.apply_staged_writes()
        self.sampler.apply_staged_writes()

    def _leave(self) -> None:
        for one in list(self.running):
            is_preempted = not one.finish and bool(one.output) and self.rng.random() < 0.02
            if one.finish or is_preempted:
                self.running.remove(one)
                self.states.remove_request(one.name)
            if is_preempted:
                self.seen["preempted"] += 1
                one.done = 0
                self.waiting.append(one)

    def _step(self) -> None:
        self.rng.shuffle(self.running)
        parts = [min(CHUNK, len(one.tokens) - one.done) for one in self.running]
        batch = self._batch(parts)
        for one, part in zip(self.running, parts, strict=True):
            one.done += part
            self.seen["parts"] += one.done < len(one.tokens)
        sampled = self.sampler(self._logits(), batch)
        slots = batch.idx_mapping
        inputs.post_update(
            slots,
            self.states.num_computed_tokens.gpu,
            self.states.last_sampled_tokens,
            self.sampler.penalties_state.output_bin_counts,
            sampled.sampled_token_ids,
            sampled.num_sampled,
            sampled.num_rejected,
            batch.query_start_loc,
            self.states.all_token_ids.gpu,
            self.states.total_len.gpu,
        )
        self.seen["steps"] += 1
        rows = zip(self.running, sampled.num_sampled.tolist(), sampled.sampled_token_ids[:, 0].tolist(), strict=True)
        for one, count, token in rows:
            assert count == (one.done == len(one.tokens))
            if count and token in self.ends:
                one.finish = "stop"
            elif count:
                one.output.append(token)
                one.finish = "length" if len(one.output) == one.request["params"]["max_tokens"] else ""

    def _batch(self, parts: list[int]) -> inputs.InputBatch:
        """The inputs of a step, by vLLM's kernels, as its `prepare_inputs` asks for them."""
        count, states, buffers = len(parts), self.states, self.buffers
        batch = inputs.InputBatch.make_dummy(count, sum(parts), buffers)
        indices = np.array([states.req_id_to_index[one.name] for one in self.running])
        slots = torch.from_numpy(indices)
        starts = np.concatenate([[0], np.cumsum(parts)]).astype(np.int32)
        where = torch.from_numpy(starts)
        inputs.prepare_prefill_inputs(
            buffers.input_ids,
            states.next_prefill_tokens,
            slots,
            where,
            states.all_token_ids.gpu,
            states.prefill_len.gpu,
            states.num_computed_tokens.gpu,
        )
        inputs.prepare_pos_seq_lens(slots, where, states.num_computed_tokens.gpu, buffers.positions, buffers.seq_lens)
        batch.idx_mapping = batch.expanded_idx_mapping = slots
        batch.idx_mapping_np, batch.query_start_loc, batch.query_start_loc_np = indices, where, starts
        batch.logits_indices = inputs.combine_sampled_and_draft_tokens(
            buffers.input_ids,
            slots,
            states.last_sampled_tokens,
            where,
            batch.seq_lens,
            states.prefill_len.gpu,
            states.draft_tokens,
            batch.cu_num_logits,
            count,
        )
        batch.seq_lens_cpu_upper_bound = torch.tensor(
            [one.done + part for one, part in zip(self.running, parts, strict=True)], dtype=torch.int32
        )
        return batch

    def _logits(self) -> torch.Tensor:
        """`(B, V)`: after what the model has read of each."""
        read = [one.tokens[: one.done] for one in self.running]
        padded = torch.zeros(len(read), max(map(len, read)), dtype=torch.int64)
        for row, tokens in zip(padded, read, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        last = torch.tensor([len(tokens) - 1 for tokens in read])
        with torch.inference_mode():
            hidden = self.model.model(input_ids=padded).last_hidden_state
            logits: torch.Tensor = self.model.lm_head(hidden[torch.arange(len(read)), last])
        return logits


def main(job: Path, answers: Path) -> None:
    asked = json.loads(job.read_text("utf-8"))
    runner = Runner(asked["model"], seed=5)
    (requests,) = asked["rounds"]
    found = [
        [{"text": runner.tokenizer.decode(one.output, skip_special_tokens=True), "finish": one.finish}]
        for one in runner.run(requests)
    ]
    answers.write_text(json.dumps({"rounds": [{"answers": found}], "counters": runner.seen}), "utf-8")
