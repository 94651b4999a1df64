"""Once for each idempotency key, in memory and in a database."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from fake_server import PATIENCE, Run

from punctual import MemoryStore, SqlStore, Task, once
from punctual.once import Store, Transaction

Stores = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    return sql(tmp_path)


def sql(folder: Path) -> SqlStore:
    store = SqlStore(lambda: connect(folder))
    store.create_table()
    return store


def connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "once.db", check_same_thread=False, timeout=PATIENCE)


def task(number: int) -> Task:
    return Task(Run(number, "h", {}).claimed())


@pytest.fixture()
def counted() -> Iterator[list[str]]:
    yield []


@pytest.mark.parametrize("value", [None, "text", {"n": [1, 2]}, 7])
def test_a_second_delivery_gets_the_recorded_result(store: Store, counted: list[str], value: Any) -> None:
    @once(store)
    def handler(task: Task) -> Any:
        counted.append(task.run_id)
        return value

    assert [handler(task(n)) for n in (1, 1, 2, 1)] == [value] * 4
    assert counted == ["run-1", "run-2"]


def test_coroutines_too(store: Store, counted: list[str]) -> None:
    @once(store)
    async def handler(task: Task) -> str:
        await asyncio.sleep(0)
        counted.append(task.run_id)
        return "value"

    async def both() -> list[str]:
        return list(await asyncio.gather(handler(task(1)), handler(task(1))))

    assert asyncio.run(both()) == ["value", "value"]
    assert counted == ["run-1"]


def test_coroutines_that_wait_for_a_key_do_not_keep_its_holder_from_ending() -> None:
    @once(MemoryStore())
    async def handler(task: Task) -> str:
        while waiting < 5:
            await asyncio.sleep(0)
        return "value"

    waiting = 0

    async def delivered() -> str:
        nonlocal waiting
        waiting += 1
        return await handler(task(1))

    async def all_of_them() -> list[str]:
        executor = ThreadPoolExecutor(1)  # As few threads as a program may have for other things.
        asyncio.get_running_loop().set_default_executor(executor)
        return list(await asyncio.wait_for(asyncio.gather(*(delivered() for _ in range(5))), PATIENCE))

    assert asyncio.run(all_of_them()) == ["value"] * 5


def test_a_coroutine_that_is_cancelled_while_it_waits_for_a_key_does_not_take_it_along() -> None:
    class Told(MemoryStore):
        def begin(self, key: str) -> Transaction:
            wanted.release()
            return super().begin(key)

    wanted, store = threading.Semaphore(0), Told()
    handler = once(store)(_nothing)

    async def cancelled() -> None:
        holder = store.begin(task(1).idempotency_key)
        assert wanted.acquire(timeout=PATIENCE)
        waits = asyncio.ensure_future(handler(task(1)))
        while not wanted.acquire(blocking=False):
            await asyncio.sleep(0.001)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        holder.rollback()
        await asyncio.wait_for(handler(task(1)), PATIENCE)

    asyncio.run(cancelled())


async def _nothing(task: Task) -> None:
    pass


def test_a_failure_is_not_recorded(store: Store, counted: list[str]) -> None:
    @once(store)
    def handler(task: Task) -> str:
        counted.append(task.run_id)
        if len(counted) == 1:
            raise ValueError("no")
        return "value"

    with pytest.raises(ValueError):
        handler(task(1))
    assert handler(task(1)) == "value"
    assert len(counted) == 2


def test_two_at_once_take_effect_once(store: Store, counted: list[str]) -> None:
    @once(store)
    def handler(task: Task) -> str:
        counted.append(task.run_id)
        return "value"

    barrier, values = threading.Barrier(8), []

    def deliver() -> None:
        barrier.wait(PATIENCE)
        values.append(handler(task(1)))

    threads = [threading.Thread(target=deliver) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert values == ["value"] * 8 and counted == ["run-1"]


def test_the_effect_and_the_record_are_committed_together(tmp_path: Path) -> None:
    store = sql(tmp_path)
    with connect(tmp_path) as database:
        database.execute("CREATE TABLE charges (cents INTEGER)")
    is_broken = True

    @once(store)
    def charge(task: Task, connection: sqlite3.Connection) -> str:
        connection.execute("INSERT INTO charges VALUES (7)")
        if is_broken:
            raise ValueError("after the effect")
        return "charged"

    def charges() -> int:
        count: int = connect(tmp_path).execute("SELECT count(*) FROM charges").fetchone()[0]
        return count

    with pytest.raises(ValueError):
        charge(task(1))
    assert charges() == 0
    is_broken = False
    assert [charge(task(1)), charge(task(1))] == ["charged", "charged"]
    assert charges() == 1


def test_memory_forgets_the_oldest_keys() -> None:
    store, counted = MemoryStore(keys_max=2), []

    @once(store)
    def handler(task: Task) -> None:
        counted.append(task.run_id)

    for number in (1, 2, 3, 3, 1):
        handler(task(number))
    assert counted == ["run-1", "run-2", "run-3", "run-1"]
