"""The strategy `cold`: as `mask`, but it always takes the most probable token that the constraint allows."""

from __future__ import annotations

from dataclasses import replace

from espalier.decoding.masking import mask_plan
from espalier.decoding.plan import Job, Plan, Strategy
from espalier.sampling.chain import Chain


def cold_plan(job: Job) -> Plan:
    chain = Chain(replace(job.chain.config, temperature=0.0), job.chain.filters, fitted=job.chain.fitted)
    return mask_plan(replace(job, chain=chain))


COLD = Strategy(make_plan=cold_plan)
