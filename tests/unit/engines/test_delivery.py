"""Mailboxes from the thread of a model to its readers."""

from __future__ import annotations

import asyncio

import pytest

from espalier.engines.serving.delivery import Mailbox, hand_out


def test_a_loop_is_woken_once_a_round_however_many_read_on_it():
    async def main():
        loop = asyncio.get_running_loop()
        boxes = [Mailbox(lambda: None) for _ in range(20)]
        readers = [asyncio.create_task(box.take_async()) for box in boxes]
        await asyncio.sleep(0)
        calls = []
        inner = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args: (calls.append(args), inner(*args))[1]
        await asyncio.to_thread(hand_out, [(box, [n], True) for n, box in enumerate(boxes)])
        woken = [call for call in calls if call[0].__name__ == "_wake"]
        assert await asyncio.gather(*readers) == [[n] for n in range(20)]
        return len(woken)

    assert asyncio.run(main()) == 1


def test_a_reader_that_is_cancelled_while_it_waits_loses_nothing():
    async def main():
        box = Mailbox(lambda: None)
        reader = asyncio.create_task(box.take_async())
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        hand_out([(box, ["a"], True)])
        hand_out([(box, ["b"], True)])
        return await box.take_async()

    assert asyncio.run(main()) == ["a", "b"]


def test_who_reads_on_a_loop_that_is_closed_is_told_to_be_lost():
    lost = []
    box = Mailbox(lambda: lost.append(box))
    loop = asyncio.new_event_loop()
    reading = box.take_async()

    async def begin():
        reading.send(None)  # up to where it sleeps, and never again

    loop.run_until_complete(begin())
    loop.close()
    hand_out([(box, ["a"], True)])
    assert lost == [box]
    reading.close()


def test_a_reader_of_the_whole_is_woken_by_its_last_items_alone():
    async def main():
        box = Mailbox(lambda: None)
        reader = asyncio.create_task(box.take_async())
        await asyncio.sleep(0)
        for item in "ab":
            hand_out([(box, [item], False)])
            await asyncio.sleep(0)
            assert not reader.done()
        hand_out([(box, ["c"], True)])
        return await reader

    assert asyncio.run(main()) == ["a", "b", "c"]
