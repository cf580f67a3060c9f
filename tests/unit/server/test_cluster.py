"""The server on Ray, as far as it needs no cluster: plans, refusals, the error at the edge, sessions, deploy/."""

from __future__ import annotations

import asyncio
import importlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from espalier.errors import InputError
from espalier.server.answering import stream_errors
from espalier.server.cluster import edge
from espalier.server.cluster.edge import REPLICA, ClusterEdge, NameMiddleware
from espalier.server.cluster.plan import (
    APPLICATION,
    IMPORT_PATH,
    MARGIN_SECONDS,
    PROXIES,
    ClusterPlan,
    ReplicaRange,
    check_machines,
    check_settings,
    deployment_options,
    read_plan,
    read_replicas,
)
from espalier.server.cluster.sessions import ranked
from espalier.server.routes import messages, responses, wordlist_jobs
from espalier.server.settings import FIELDS, settings_of
from tests.examples import examples

ROOT = Path(__file__).resolve().parents[3]
GPUS = "nvidia.com/gpu"


@pytest.mark.parametrize(("text", "least", "most"), [("1", 1, 1), ("4", 4, 4), ("1-8", 1, 8), (" 2-2 ", 2, 2)])
def test_replicas_are_a_number_or_a_range(text: str, least: int, most: int) -> None:
    assert read_replicas(text) == ReplicaRange(least=least, most=most)


@pytest.mark.parametrize("text", ["", "0", "-1", "3-2", "0-4", "2-", "two", "1-2-3", "1.5", "999999"])
def test_other_texts_are_no_replicas(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_replicas(text)
    assert caught.value.field == "replicas"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cpus": 0}, "cpus"),
        ({"gpus": -1}, "gpus"),
        ({"gpus": 1.5}, "gpus"),
        ({"ongoing": 0}, "ongoing"),
        ({"cpus": "many"}, "cpus"),
        ({"replica": 2}, "replica"),
        ({"ongoing": float("nan")}, "ongoing"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_plan(given)
    assert caught.value.field == field


def test_a_range_scales_by_ongoing_requests_and_a_number_is_fixed() -> None:
    config = settings_of({"DRAIN_SECONDS": "7", "QUEUE_SIZE": "50"})
    scaled = deployment_options(read_plan({"replicas": "1-8", "ongoing": 3, "gpus": 0.5}), config)
    assert scaled["autoscaling_config"]["target_ongoing_requests"] == 3
    assert (scaled["autoscaling_config"]["min_replicas"], scaled["autoscaling_config"]["max_replicas"]) == (1, 8)
    assert scaled["graceful_shutdown_timeout_s"] == 7 + MARGIN_SECONDS
    assert scaled["max_ongoing_requests"] == 50
    assert scaled["ray_actor_options"] == {"num_cpus": 1.0, "num_gpus": 0.5}
    assert "num_replicas" not in scaled
    assert deployment_options(read_plan({"replicas": 3}), config)["num_replicas"] == 3


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"WORKERS": "2"}, "workers"),
        ({"UDS": "x.sock"}, "uds"),
        ({"PORT": "0"}, "port"),
        ({"ACTIVATIONS_STORE": "x"}, "ACTIVATIONS_STORE"),
        ({"REJECTION_LOG": "x"}, "REJECTION_LOG"),
    ],
)
def test_settings_of_one_machine_are_refused_on_a_cluster(values: dict[str, str], field: str) -> None:
    with pytest.raises(InputError) as caught:
        check_settings(settings_of(values), ClusterPlan(replicas=ReplicaRange(least=1, most=2)))
    assert caught.value.field == field


def test_one_replica_may_have_a_rejection_log() -> None:
    check_settings(settings_of({"REJECTION_LOG": "x"}), ClusterPlan())


@pytest.mark.parametrize("url", [None, "sqlite:////var/lib/e.db"])
def test_sqlite_is_refused_on_several_machines_and_the_hint_names_postgresql(url: str | None) -> None:
    config = settings_of({} if url is None else {"DATABASE_URL": url})
    check_machines(config, 1)
    with pytest.raises(InputError, match="2 machines") as caught:
        check_machines(config, 2)
    assert "postgresql://" in str(caught.value.hint)


def test_uploads_need_a_shared_folder_on_several_machines() -> None:
    values = {"DATABASE_URL": "postgresql://u@h/d"}
    with pytest.raises(InputError) as caught:
        check_machines(settings_of(values), 2)
    assert caught.value.field == "BATCH_JOB_TEMP_DIR"
    check_machines(settings_of({**values, "BATCH_JOBS": "false"}), 2)
    check_machines(settings_of({**values, "BATCH_JOB_TEMP_DIR": "/shared"}), 2)


@given(st.sets(st.text("abcdef", min_size=1, max_size=6), min_size=2, max_size=12), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_replica_that_leaves_moves_its_own_sessions_alone(names: set[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(names)))
    for number in range(20):
        before, after = ranked(f"s{number}", names), ranked(f"s{number}", names - {gone})
        assert sorted(before) == sorted(names)
        assert after == [one for one in before if one != gone]


def test_sessions_spread_over_replicas() -> None:
    firsts = [ranked(f"session {one}", ["a", "b", "c", "d"])[0] for one in range(2000)]
    assert all(400 < firsts.count(one) < 600 for one in "abcd")


def test_the_edge_names_the_routes_as_the_application_does() -> None:
    named = (stream_errors.MESSAGES, stream_errors.RESPONSES, edge.JOBS)
    assert named == (messages.ROUTE, responses.ROUTE, wordlist_jobs.PREFIX)


def passed(path: str, sent: Sequence[Message], *, fails: bool = False) -> tuple[list[Message], bool]:
    """What a client of the edge gets where the proxy behind it sends this; whether the edge raised."""

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        for one in sent:
            await send(one)
        if fails:
            raise RuntimeError("the actor died")

    got: list[Message] = []

    async def send(message: Message) -> None:
        got.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "path": path, "root_path": "", "method": "POST", "headers": []}
    try:
        asyncio.run(ClusterEdge(proxy)(scope, receive, send))
    except RuntimeError:
        return got, True
    return got, False


def begun(kind: str, *, by_replica: bool = True, status: int = 200) -> Message:
    headers = [(b"content-type", kind.encode()), (b"x-request-id", b"r"), (b"x-request-id", b"r")]
    headers += [(REPLICA.encode(), b"one")] if by_replica else []
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


STREAM, JSON = "text/event-stream; charset=utf-8", "application/json"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1/chat/completions", lambda one: one["error"]["code"] == "replica_lost"),
        ("/completion", lambda one: one["error"]["code"] == "replica_lost"),
        ("/v1/messages", lambda one: one["type"] == "error" and one["error"]["code"] == "replica_lost"),
        ("/v1/responses", lambda one: one["type"] == "error" and one["code"] == "replica_lost"),
    ],
)
def test_a_stream_whose_replica_is_gone_ends_with_an_error_of_its_route(path: str, found: Any) -> None:
    got, raised = passed(path, [begun(STREAM), body(b'data: {"choi', more=True)])
    assert not raised
    assert got[-1]["more_body"] is False
    lines = b"".join(one.get("body", b"") for one in got).decode().split("\n\n")
    last = [one for one in lines if one][-1]
    assert found(json.loads(last.split("data: ", 1)[1]))
    assert ("event: error" in last) == (path in ("/v1/messages", "/v1/responses"))


@pytest.mark.parametrize("sent", [b"", b'{"done":false}\n', b'{"done"'])
def test_a_stream_of_lines_whose_replica_is_gone_ends_with_a_line_and_without_an_empty_one(sent: bytes) -> None:
    got, raised = passed("/api/chat", [begun("application/x-ndjson"), *([body(sent, more=True)] if sent else [])])
    assert not raised
    lines = b"".join(one.get("body", b"") for one in got).split(b"\n")
    assert all(lines[:-1])
    assert not lines[-1]
    error = json.loads(lines[-2])
    assert error["code"] == "replica_lost"
    assert isinstance(error["error"], str)


def test_a_reply_that_has_not_begun_is_503_and_can_be_sent_again() -> None:
    for sent in ([], [begun("text/plain", by_replica=False, status=503), body(b"no", more=False)]):
        got, _ = passed("/v1/chat/completions", sent)
        assert got[0]["status"] == 503
        assert (b"retry-after", b"1") in got[0]["headers"]
        assert json.loads(got[1]["body"])["error"]["type"] == "unavailable_error"


def test_half_of_a_plain_reply_stays_half() -> None:
    got, _ = passed("/v1/chat/completions", [begun(JSON), body(b'{"a', more=True)])
    assert got[-1]["more_body"] is True
    assert passed("/v1/chat/completions", [begun(JSON), body(b'{"a', more=True)], fails=True)[1]


@given(
    st.sampled_from(["/v1/chat/completions", "/v1/messages", "/metrics", "/v1/batch/jobs", "/api/chat"]),
    st.sampled_from([STREAM, JSON]),
    st.booleans(),
    st.lists(st.binary(max_size=5), max_size=4),
    st.integers(0, 6),
    st.booleans(),
)
@settings(max_examples=examples(300), deadline=None)
def test_however_it_is_cut_a_client_sees_a_whole_reply_an_error_or_a_cut(
    path: str, kind: str, by_replica: bool, pieces: list[bytes], cut: int, fails: bool
) -> None:
    whole = [begun(kind, by_replica=by_replica), *(body(one, more=True) for one in pieces), body(b"", more=False)]
    sent = whole[:cut]
    got, _ = passed(path, sent, fails=fails)
    is_whole = cut >= len(whole)
    if sent and by_replica:
        data = b"".join(one.get("body", b"") for one in got)
        assert data.startswith(b"".join(one.get("body", b"") for one in sent))
        assert [name for name, _ in got[0]["headers"]].count(b"x-request-id") == 1
        if is_whole:
            assert [one.get("body") for one in got] == [one.get("body") for one in sent]
        elif kind == STREAM:
            assert b"replica_lost" in data
            assert got[-1]["more_body"] is False
        else:
            assert all(one.get("more_body", True) for one in got)
    else:
        assert got[0]["status"] == 503
        assert got[-1].get("more_body", False) is False


def test_a_replica_signs_its_replies_and_ray_keeps_its_own_routes() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(begun(JSON, by_replica=False))

    got: list[Message] = []

    async def send(message: Message) -> None:
        got.append(message)

    asyncio.run(NameMiddleware(app, "r1")({"type": "http", "headers": []}, None, send))  # type: ignore[arg-type]
    assert (REPLICA.encode(), b"r1") in got[0]["headers"]
    own = [begun("text/plain", by_replica=False), body(b"success", more=False)]
    assert passed("/-/healthz", own)[0][1]["body"] == b"success"


def test_kuberay_deploys_what_the_command_deploys() -> None:
    text = (ROOT / "deploy" / "rayservice.yaml").read_text()
    service = yaml.safe_load(text)
    serve = yaml.safe_load(service["spec"]["serveConfigV2"])
    (one,) = serve["applications"]
    assert (one["name"], one["import_path"], one["route_prefix"]) == (APPLICATION, IMPORT_PATH, "/")
    args = dict(one["args"])
    values = args.pop("settings")
    plan, config = read_plan(args), settings_of(values)
    assert set(values) <= {name for entry in FIELDS.values() for name in entry.variables}
    check_settings(settings_of({**values, "PORT": str(serve["http_options"]["port"])}), plan)
    check_machines(settings_of({**values, "DATABASE_URL": "postgresql://u@h/d"}), 2)
    cluster = service["spec"]["rayClusterConfig"]
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["maxReplicas"] == plan.replicas.most
    pods = [cluster["headGroupSpec"]["template"]["spec"], workers["template"]["spec"]]
    for pod in pods:
        (container,) = pod["containers"]
        env = {each["name"]: each["value"] for each in container["env"]}
        assert PROXIES.items() <= env.items()
        assert env["RAY_USAGE_STATS_ENABLED"] == "0"
        assert serve["http_options"]["port"] in [each["containerPort"] for each in container["ports"]]
        names = {each["name"] for each in pod["volumes"]}
        assert {each["name"] for each in container["volumeMounts"]} <= names
        mounted = {each["mountPath"] for each in container["volumeMounts"]}
        assert {values["BATCH_JOB_TEMP_DIR"], env["ESPALIER_CACHE_DIR"]} <= mounted
    room = pods[1]["containers"][0]["resources"]["requests"]
    assert float(room["cpu"]) >= plan.cpus
    assert float(room[GPUS]) >= plan.gpus
    assert pods[1]["terminationGracePeriodSeconds"] >= config.drain_seconds + MARGIN_SECONDS


def test_the_image_of_kuberay_and_the_pin_name_one_ray() -> None:
    pins = dict(one.split("==") for one in (ROOT / "constraints.txt").read_text().splitlines() if "==" in one)
    service = yaml.safe_load((ROOT / "deploy" / "rayservice.yaml").read_text())
    assert service["spec"]["rayClusterConfig"]["rayVersion"] == pins["ray"]


class TestWithRay:
    """What needs Ray installed, and no cluster."""

    @pytest.fixture(autouse=True)
    def ray(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own imports
            pytest.importorskip("ray.serve", reason="the extra [ray] is not installed")
            importlib.import_module("ray.serve.schema")

    def test_the_names_in_our_settings_of_ray_can_be_imported(self) -> None:
        options = deployment_options(ClusterPlan(), settings_of({}))
        names = [options["request_router_config"]["request_router_class"], *PROXIES.values(), IMPORT_PATH]
        for name in names:
            if ":" in name:
                module, _, attribute = name.partition(":")
                assert callable(getattr(importlib.import_module(module), attribute))

    def test_ray_takes_the_file_of_kuberay_and_our_options(self) -> None:
        from ray import serve
        from ray.serve.schema import ServeDeploySchema

        from espalier.server.cluster.application import application

        service = yaml.safe_load((ROOT / "deploy" / "rayservice.yaml").read_text())
        config = ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))
        made = application(config.applications[0].args)
        assert isinstance(made, serve.Application)

    def test_ray_still_has_what_is_not_public(self) -> None:
        from ray.serve._private import constants, http_util
        from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter
        from ray.serve.context import _get_global_client

        assert hasattr(PowerOfTwoChoicesRequestRouter, "choose_replicas")
        assert callable(_get_global_client)
        assert callable(http_util.configure_http_middlewares)
        for name in PROXIES:
            assert name in Path(constants.__file__).read_text(), f"Ray does not read {name} any more"

    def test_a_failure_of_a_replica_is_told_by_its_own_words(self) -> None:
        from espalier.server.cluster.joining import addresses, failure

        said = "Deploying app failed:\n  File x\nespalier.errors.UnknownModel: there is no model at /nowhere\nmore"
        assert "there is no model at /nowhere" in str(failure(RuntimeError(said)))
        nodes = [{"NodeManagerAddress": one, "Alive": alive} for one, alive in (("a", True), ("a", True), ("b", False))]
        assert addresses(nodes) == {"a"}
