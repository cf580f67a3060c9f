"""Auto mode: the log is read if it grows with the requests, and left alone if it was left over."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager

import pytest

from espalier.server.proxy.log.auto import AutoMode
from espalier.server.proxy.log.window import Window
from espalier.trace.foreign.follow import LogFollower
from espalier.upstream.xray.wire.request import UntracedRequest
from tests.proxies import behind, files_of, proxied, proxy_settings
from tests.unit.server.proxy.test_log_mode import Patched, ask, streamed

EVENT = '{"task_id":1,"slot_id":0,"step":0,"rejected":{"id":1},"resampled":{"id":2}},'


class Served:
    """A tracer that notes who served. asks: what happens when x-ray asks the server."""

    def __init__(self, name, served, *, window=None, asks=lambda: None):
        self.learning = self
        self._name, self._served, self._window, self._asks = name, served, window, asks

    async def serve(self, exchange):
        self._served.append(self._name)

    async def known(self):
        self._asks()

    async def poll(self, exchange=None):
        return self._window.poll()


class Generation:
    def __init__(self):
        self.scope = {"method": "POST", "path": "/v1/chat/completions"}


@asynccontextmanager
async def auto(path, served, asks):
    window = Window(LogFollower(path))
    window.poll()
    try:
        yield AutoMode(window, Served("log", served, window=window), Served("xray", served, asks=asks))
    finally:
        window.close()


def append(path):
    with path.open("a") as file:
        file.write(EVENT)


def refuse():
    raise UntracedRequest("the server's tokens are not known")


def test_a_log_that_grows_with_the_self_test_is_read_from_the_first_request_on(tmp_path):
    path, served = tmp_path / "log.json", []
    path.write_text('{"events":[')

    async def run():
        async with auto(path, served, lambda: append(path)) as mode:
            await mode.serve(Generation())

    asyncio.run(run())
    assert served == ["log"]


@pytest.mark.parametrize("text", ['{"events":[' + EVENT, '{"events":[]}', None])
def test_a_left_over_log_is_not_read_until_it_grows(tmp_path, text, caplog):
    path, served = tmp_path / "log.json", []
    if text is not None:
        path.write_text(text)

    async def run():
        async with auto(path, served, lambda: None) as mode:
            await mode.serve(Generation())
            await mode.serve(Generation())
            path.write_text('{"events":[')
            append(path)
            append(path)
            await mode.serve(Generation())

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert served == ["xray", "xray", "log"]
    told = [one.getMessage() for one in caplog.records]
    assert sum("x-ray mode" in one for one in told) == 1
    assert "grows with the requests" in told[-1]


def test_a_server_that_x_ray_cannot_ask_is_served_by_log_mode_until_it_can(tmp_path, caplog):
    path, served, answers = tmp_path / "log.json", [], iter([refuse, refuse, lambda: None])
    path.write_text('{"events":[' + EVENT)

    def asks():
        next(answers)()

    async def run():
        async with auto(path, served, asks) as mode:
            for _ in range(3):
                await mode.serve(Generation())

    asyncio.run(run())
    assert served == ["log", "log", "xray"]
    told = [one.getMessage() for one in caplog.records]
    assert ["x-ray cannot ask this server" in one for one in told] == [True, False]
    assert "left over" in told[1]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("grows", [False, True])
def test_a_reply_of_a_server_that_x_ray_cannot_ask_is_traced_if_the_log_has_grown_with_it(tmp_path, grows, is_stream):
    path, out = tmp_path / "log.json", tmp_path / "out"
    server = Patched(path, has_events=grows)
    path.write_text('{"events":[' + EVENT)
    with (
        behind(server) as stock,
        proxied(proxy_settings(stock.url, mode="auto", rejection_log=path, output_dir=out)) as proxy,
    ):
        if is_stream:
            with streamed(proxy, 1) as reply:
                reply.read()
        else:
            reply = ask(proxy, 1)
    assert reply.status_code == 200
    assert "zero" in reply.text
    files = files_of(out)
    assert len(files) == grows
    if not is_stream:
        assert ("x-combined-data-available" in reply.headers) == grows
    else:
        assert "x-combined-data-available" not in reply.headers  # the log has not grown when the stream begins
    for file in files:
        assert json.loads(file.read_text())["steps"][1]["rejection_sampling"]["rejected"]["text"] == "two"
