"""The body of `/v1/feedback`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from espalier.server.bodies.base import Body


class FeedbackBody(Body):
    """request_id: the `x-request-id` of the reply. name: which score; a second one of a name replaces the first.
    score, text: at least one of them. flag: whether the answer is bad; without it, it is if there is no score, or one
    below 0.5."""

    request_id: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "user"
    score: float | None = Field(default=None, ge=-1e9, le=1e9)
    text: Annotated[str, StringConstraints(max_length=1_000)] | None = None
    flag: bool | None = None
