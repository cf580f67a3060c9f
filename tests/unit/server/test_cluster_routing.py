"""Requests whose prompts begin alike go to the replica that has answered one of them: digests, what a proxy knows, the
edge that reads the body, the router."""

from __future__ import annotations

import asyncio
import json
import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from espalier.server.cluster import prefixes
from espalier.server.cluster.edge import SESSION, ClusterEdge
from espalier.server.cluster.prefixes import LENGTHS, SLACK, Prefixes, marks, read_marks
from espalier.server.cluster.sessions import ranked
from tests.examples import examples


def chat(*texts: str, **more: Any) -> bytes:
    return json.dumps({**more, "messages": [{"role": "user", "content": one} for one in texts]}).encode()


def digests(body: bytes) -> list[str]:
    return list(read_marks(marks(body) or "") or [])


@given(st.text("ab", max_size=900), st.text("ab", max_size=900), st.text("ab", max_size=900))
@settings(max_examples=examples(200), deadline=None)
def test_two_prompts_share_the_digests_of_the_beginnings_that_they_share(same: str, one: str, two: str) -> None:
    first, second = chat(same + one, seed=1), chat(same + two, temperature=0.5)
    left, right = (body[body.index(b'"messages"') :] for body in (first, second))
    alike = [a == b for a, b in zip(digests(first), digests(second), strict=False)]
    for length, equal in zip(LENGTHS, alike, strict=False):
        assert equal == (left[:length] == right[:length])
    assert len(digests(first)) == sum(length <= len(left) for length in LENGTHS)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"seed": 1}' + b" " * 999, b"\xff" * 999, chat("short")])
def test_what_has_no_long_prompt_has_no_digests(body: bytes) -> None:
    assert marks(body) is None


def test_digests_fit_into_a_head_however_long_the_prompt_is() -> None:
    assert len(marks(chat("x" * 1_000_000)) or "") < 500


def test_the_replica_of_the_longest_beginning_is_found_among_those_that_live() -> None:
    known = Prefixes()
    known.keep(["a", "b"], "one")
    known.keep(["a"], "two")
    assert known.holders(["a", "b", "c"], {"one", "two"}) == ["one"]
    assert known.holders(["a", "b", "c"], {"two"}) == ["two"]
    assert known.holders(["a"], {"one", "two"}) == ["one", "two"]
    assert known.holders(["c"], {"one", "two"}) == []


def test_a_proxy_remembers_a_bounded_number_of_beginnings_and_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MOST", 10)
    monkeypatch.setattr(prefixes, "HOLDERS", 2)
    known = Prefixes()
    for number in range(40):
        known.keep(["always", f"p{number}"], f"r{number}")
    assert known.holders(["p39"], {"r39"}) == ["r39"]
    assert known.holders(["p30"], {"r30"}) == []
    everyone = {f"r{number}" for number in range(40)}
    assert known.holders(["always"], everyone) == ["r38", "r39"]


def through_the_edge(pieces: list[Message], **more: Any) -> tuple[Scope, list[Message]]:
    """What the proxy gets: the head, and the messages of the body."""
    waiting, seen = list(pieces), list[Message]()
    heads: list[Scope] = []

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        heads.append(scope)
        for _ in pieces:
            seen.append(await receive())

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        pass

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "path": "/v1/chat/completions", "method": "POST", "headers": headers, **more}
    asyncio.run(ClusterEdge(proxy)(scope, receive, send))
    return heads[0], seen


def cut(body: bytes, places: list[int]) -> list[Message]:
    ends = sorted({min(one, len(body)) for one in places} | {len(body)})
    pieces = [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return [{"type": "http.request", "body": one, "more_body": at < len(pieces) - 1} for at, one in enumerate(pieces)]


@given(st.integers(0, 4000), st.lists(st.integers(0, 4000), max_size=4))
@settings(max_examples=examples(100), deadline=None)
def test_the_body_passes_the_edge_as_it_came_and_its_digests_are_in_the_head(size: int, places: list[int]) -> None:
    body = chat("x" * size)
    sent = cut(body, places)
    head, seen = through_the_edge(sent)
    assert seen == sent
    found = dict(head["headers"]).get(SESSION.encode())
    assert (found.decode() if found else None) == marks(body)


def test_the_edge_reads_no_more_of_a_long_body_than_digests_need() -> None:
    sent = cut(chat("x" * 1_000_000), [100_000, 200_000, 300_000])
    head, seen = through_the_edge(sent)
    assert seen == sent
    assert dict(head["headers"])[SESSION.encode()].decode() == marks(chat("x" * 1_000_000))


@pytest.mark.parametrize(
    "more",
    [
        {"headers": [(b"content-type", b"application/json"), (b"x-session-id", b"ann")]},
        {"headers": [(b"content-type", b"multipart/form-data; boundary=x")]},
        {"headers": []},
        {"method": "GET"},
    ],
)
def test_other_requests_pass_unread(more: dict[str, Any]) -> None:
    sent = cut(chat("x" * 999), [])
    head, seen = through_the_edge(sent, **more)
    assert head["headers"] == more.get("headers", head["headers"])
    assert seen == sent


def test_a_client_that_leaves_while_its_body_is_read_is_gone_for_the_proxy_too() -> None:
    gone: Message = {"type": "http.disconnect"}
    _, seen = through_the_edge([{"type": "http.request", "body": b"{", "more_body": True}, gone])
    assert seen[-1] == gone


class Id(NamedTuple):
    unique_id: str


class TestRouter:
    """With Ray installed, and no cluster."""

    @pytest.fixture
    def router(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own imports
            pytest.importorskip("ray.serve", reason="the extra [ray] is not installed")
            from ray.serve._private.request_router.common import ReplicaQueueLengthCache

            from espalier.server.cluster.routing import EspalierRouter

        made = EspalierRouter.__new__(EspalierRouter)
        made.initialize_state()
        made._replicas = {name: replica(name) for name in "abc"}
        made._replica_queue_len_cache = ReplicaQueueLengthCache()
        made.apply_locality_routing = lambda pending_request: ["b", "c"]  # type: ignore[method-assign]
        return made

    def choose(self, router: Any, session: str) -> list[list[str]]:
        found = asyncio.run(router.choose_replicas(list(router._replicas.values()), pending(session)))
        return [[one.replica_id.unique_id for one in several] for several in found]

    def busy(self, router: Any, **counts: int) -> None:
        for name, count in counts.items():
            router._replica_queue_len_cache.update(router._replicas[name].replica_id, count)

    def test_requests_of_a_session_are_ranked(self, router: Any) -> None:
        assert self.choose(router, "ann") == [[one] for one in ranked("ann", "abc")]

    def test_others_go_to_the_less_busy_of_two_by_rays_own_choice(self, router: Any) -> None:
        assert sorted(self.choose(router, "")[0]) == ["b", "c"]
        (two,) = self.choose(router, marks(chat("x" * 999)) or "")
        assert sorted(two) == ["b", "c"]

    def test_a_beginning_goes_where_it_was_answered_until_that_one_has_much_more_to_do(self, router: Any) -> None:
        router.on_request_routed(pending(marks(chat("x" * 999)) or ""), Id("a"), None)
        alike = marks(chat("x" * 700 + "y" * 200)) or ""
        first, second = self.choose(router, alike)
        assert (first, sorted(second)) == (["a"], ["b", "c"])
        self.busy(router, a=SLACK - 1)
        assert self.choose(router, alike)[0] == ["a"]
        self.busy(router, a=SLACK)
        assert len(self.choose(router, alike)) == 1
        self.busy(router, b=1, c=1)
        assert self.choose(router, alike)[0] == ["a"]
        del router._replicas["a"]
        assert len(self.choose(router, alike)) == 1

    def test_what_is_chosen_for_a_request_is_given_to_no_other(self, router: Any) -> None:
        """Ray's default router is FIFO: it hands the replica of one session to a request that has waited longer."""
        from ray.serve._private.request_router.request_router import FIFOMixin, RequestRouter

        assert not isinstance(router, FIFOMixin)
        assert type(router)._fulfill_next_pending_request is RequestRouter._fulfill_next_pending_request


def replica(name: str) -> Any:
    return SimpleNamespace(replica_id=Id(name))


def pending(session: str) -> Any:
    return SimpleNamespace(metadata=SimpleNamespace(session_id=session, multiplexed_model_id=""))
