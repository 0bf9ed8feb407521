"""The lock whose places are taken in order: shared ones together, exclusive ones alone."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.dispatch.call import CallLock


@settings(deadline=None, max_examples=60)
@given(
    shared=st.lists(st.booleans(), min_size=1, max_size=8),
    waits=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    works=st.lists(st.integers(0, 3), min_size=8, max_size=8),
)
def test_whoever_comes_late_to_its_place_nobody_overtakes_and_exclusive_is_alone(
    shared, waits, works
):
    lock, inside, entered = CallLock(), set(), []

    async def call(number, place):
        for _ in range(waits[number]):  # a question is being answered
            await asyncio.sleep(0)
        await place.wait()
        inside.add(number)
        entered.append(number)
        assert len(inside) == 1 or all(shared[each] for each in inside)
        for _ in range(works[number]):
            await asyncio.sleep(0)
        inside.remove(number)
        place.leave()

    async def main():
        places = [lock.take_place(shared=each) for each in shared]
        async with asyncio.timeout(20):
            await asyncio.gather(*(call(n, place) for n, place in enumerate(places)))

    asyncio.run(main())
    assert sorted(entered) == list(range(len(shared)))
    for number, is_shared in enumerate(shared):
        if not is_shared:  # everything before it came first, everything after it later
            at = entered.index(number)
            assert sorted(entered[:at]) == list(range(number))


@settings(deadline=None, max_examples=60)
@given(
    kinds=st.lists(st.sampled_from(["shared", "alone", "alone at last"]), min_size=1, max_size=8),
    waits=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    works=st.lists(st.integers(0, 3), min_size=8, max_size=8),
)
def test_a_place_that_becomes_exclusive_while_it_waits_is_alone_too(kinds, waits, works):
    """Its call was changed meanwhile, by a hook or the person."""
    lock, inside, entered = CallLock(), set(), []

    async def call(number, place):
        for _ in range(waits[number]):
            await asyncio.sleep(0)
        place.is_admitted()  # as another place may ask: all in front are admitted then
        if kinds[number] == "alone at last":
            place.exclude()
        await place.wait()
        inside.add(number)
        entered.append(number)
        assert len(inside) == 1 or {kinds[each] for each in inside} == {"shared"}
        for _ in range(works[number]):
            await asyncio.sleep(0)
        inside.remove(number)
        place.leave()

    async def main():
        places = [lock.take_place(shared=kind != "alone") for kind in kinds]
        async with asyncio.timeout(20):
            await asyncio.gather(*(call(n, place) for n, place in enumerate(places)))

    asyncio.run(main())
    assert sorted(entered) == list(range(len(kinds)))
    for number, kind in enumerate(kinds):
        if kind == "alone":
            assert sorted(entered[: entered.index(number)]) == list(range(number))


def test_a_place_given_up_unused_lets_the_next_in():
    async def main():
        lock = CallLock()
        first, second = lock.take_place(shared=False), lock.take_place(shared=False)
        waiting = asyncio.create_task(second.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        first.leave()
        await waiting

    asyncio.run(main())


def test_a_place_is_left_once():
    lock = CallLock()
    place = lock.take_place(shared=True)
    place.leave()
    with pytest.raises(ValueError, match="deque"):
        place.leave()
