"""Work that outlives its request is waited for when the proxy ends, and so is what it begins itself."""

from __future__ import annotations

import asyncio

from espalier.server.proxy.outliving import Outliving


def test_work_that_other_work_begins_while_the_proxy_ends_is_waited_for():
    async def work():
        outliving, ending, done = Outliving(), asyncio.Event(), []
        turns = 20  # of the loop; whoever waits for the first work alone is awake long before

        async def second():
            for _ in range(turns):
                await asyncio.sleep(0)
            done.append("second")

        async def first():
            await ending.wait()
            outliving.begin(second())

        outliving.begin(first())
        closing = asyncio.ensure_future(outliving.close())
        await asyncio.sleep(0)
        ending.set()
        await closing
        return done

    assert asyncio.run(work()) == ["second"]
