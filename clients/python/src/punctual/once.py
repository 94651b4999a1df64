"""Runs a handler once for each idempotency key, and gives the recorded result when a run is delivered again.

What it promises depends on where the effect is. An effect in the same database as the record, through the connection
that the handler is given, happens exactly once: both are committed together or not at all. Any other effect (a mail, a
call to another service) happens at least once: a crash between the effect and the record repeats it. Pass
``task.idempotency_key`` on to such a service, if it takes one.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import threading
from collections import OrderedDict
from typing import Any, Callable, Optional, Protocol, TypeVar

from .execution import in_thread
from .task import Task
from .wire import to_json

R = TypeVar("R")


class Transaction(Protocol):
    """A key that nobody else has meanwhile."""

    recorded: Optional[str]
    """The JSON of the result, if the key has one."""
    connection: Any
    """What the handler makes its effect through; ``None`` if the store has none."""

    def commit(self, result: str) -> None:
        """Records the result, with the effect."""

    def rollback(self) -> None:
        """Gives the key back; nothing happened."""


class Store(Protocol):
    """Where results are recorded."""

    def begin(self, key: str) -> Transaction:
        """Takes a key, waiting for whoever has it."""


def once(store: Store) -> Callable[[Callable[..., R]], Callable[[Task], R]]:
    """Makes a handler, sync or async, take effect once for each idempotency key::

        @worker.handler("charge")
        @once(SqlStore(connect))
        def charge(task, connection):
            connection.execute("INSERT INTO charges ...")
            return {"charged": 7}

    A handler with a second parameter is given the connection of the transaction, and must not commit it.
    What it raises undoes the transaction, and nothing is recorded.
    """

    def wrap(function: Callable[..., R]) -> Callable[[Task], R]:
        takes_connection = len(inspect.signature(function).parameters) > 1

        def call(task: Task, transaction: Transaction) -> Any:
            return function(task, transaction.connection) if takes_connection else function(task)

        @functools.wraps(function)
        def run(task: Task) -> Any:
            transaction = store.begin(task.idempotency_key)
            if transaction.recorded is not None:
                transaction.rollback()
                return json.loads(transaction.recorded)
            try:
                result = call(task, transaction)
                text = to_json(result)
            except BaseException:
                transaction.rollback()
                raise
            transaction.commit(text)
            return result

        @functools.wraps(function)
        async def run_async(task: Task) -> Any:
            transaction = await _begin(store, task.idempotency_key)
            if transaction.recorded is not None:
                await _to_thread(transaction.rollback)
                return json.loads(transaction.recorded)
            try:
                result = await call(task, transaction)
                text = to_json(result)
            except BaseException:
                await _to_thread(transaction.rollback)
                raise
            await _to_thread(lambda: transaction.commit(text))
            return result

        return run_async if inspect.iscoroutinefunction(function) else run  # type: ignore[return-value]

    return wrap


async def _to_thread(function: Callable[[], R]) -> R:
    """Calls it in a thread of its own, to its end: those that wait for a key must not keep its holder from one."""
    value, error = await asyncio.shield(in_thread(function))
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


async def _begin(store: Store, key: str) -> Transaction:
    beginning = _Beginning(store, key)
    try:
        return await _to_thread(beginning.take)
    except asyncio.CancelledError:
        beginning.leave()
        raise


class _Beginning:
    """A key that is being taken, and given back at once if nobody wants it any more."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key
        self._lock = threading.Lock()
        self._taken: Optional[Transaction] = None
        self._is_left = False

    def take(self) -> Transaction:
        taken = self._store.begin(self._key)
        with self._lock:
            self._taken, is_left = taken, self._is_left
        if is_left:
            taken.rollback()
        return taken

    def leave(self) -> None:
        with self._lock:
            self._is_left, taken = True, self._taken
        if taken is not None:
            in_thread(taken.rollback)


class MemoryStore:
    """Records in this process: forgotten when it ends, so it is for tests and for effects inside the process."""

    def __init__(self, keys_max: int = 10_000) -> None:
        """Of more keys than ``keys_max`` the oldest are forgotten."""
        self._keys_max = keys_max
        self._results: OrderedDict[str, str] = OrderedDict()
        self._taken: set[str] = set()
        self._changed = threading.Condition()

    def begin(self, key: str) -> Transaction:
        """Takes a key, waiting for whoever has it."""
        with self._changed:
            self._changed.wait_for(lambda: key not in self._taken)
            self._taken.add(key)
            return _InMemory(self, key, self._results.get(key))

    def _end(self, key: str, result: Optional[str]) -> None:
        with self._changed:
            self._taken.discard(key)
            if result is not None:
                self._results[key] = result
                while len(self._results) > self._keys_max:
                    self._results.popitem(last=False)
            self._changed.notify_all()


class _InMemory:
    def __init__(self, store: MemoryStore, key: str, recorded: Optional[str]) -> None:
        self.recorded = recorded
        self.connection: Any = None
        self._store, self._key = store, key

    def commit(self, result: str) -> None:
        self._store._end(self._key, result)

    def rollback(self) -> None:
        self._store._end(self._key, None)


class SqlStore:
    """Records in a database of yours: SQLite 3.24 or newer, or PostgreSQL, by any DB-API driver.

    ``connect`` gives a connection for one transaction, which is closed after it (a pool gives one that goes back then).
    The table is made by ``create_table``; delete rows that are older than any run may be delivered again.
    """

    def __init__(self, connect: Callable[[], Any], *, table: str = "punctual_once", placeholder: str = "?") -> None:
        """``placeholder`` is how the driver writes parameters: ``?`` for sqlite3, ``%s`` for psycopg."""
        if not table.replace("_", "").replace(".", "").isalnum():
            raise ValueError(f"`{table}` is not the plain name of a table")
        self._connect, self._table, self._placeholder = connect, table, placeholder

    def create_table(self) -> None:
        """Makes the table, unless it is there."""
        connection = self._connect()
        try:
            connection.cursor().execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (key TEXT PRIMARY KEY, result TEXT,"
                " recorded_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)"
            )
            connection.commit()
        finally:
            connection.close()

    def begin(self, key: str) -> Transaction:
        """Takes a key by writing its row: whoever else wants it waits until this transaction ends."""
        connection = self._connect()
        try:
            cursor, mark = connection.cursor(), self._placeholder
            insert = f"INSERT INTO {self._table} (key) VALUES ({mark}) ON CONFLICT (key) DO NOTHING"
            cursor.execute(insert, (key,))
            if cursor.rowcount == 1:
                return _InSql(self, connection, key, None)
            cursor.execute(f"SELECT result FROM {self._table} WHERE key = {mark}", (key,))
            (recorded,) = cursor.fetchone()
            return _InSql(self, connection, key, recorded)
        except BaseException:
            connection.close()
            raise

    def _record(self, connection: Any, key: str, result: str) -> None:
        mark = self._placeholder
        update = f"UPDATE {self._table} SET result = {mark} WHERE key = {mark}"
        connection.cursor().execute(update, (result, key))
        connection.commit()


class _InSql:
    def __init__(self, store: SqlStore, connection: Any, key: str, recorded: Optional[str]) -> None:
        self.recorded = recorded
        self.connection = connection
        self._store, self._key = store, key

    def commit(self, result: str) -> None:
        try:
            self._store._record(self.connection, self._key, result)
        finally:
            self.connection.close()

    def rollback(self) -> None:
        try:
            self.connection.rollback()
        finally:
            self.connection.close()
