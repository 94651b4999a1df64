"""A worker: handlers by name, and a server to ask for their runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import socket
import threading
from typing import Any, Callable, Mapping, Optional, Sequence, TypeVar

from .engine import Engine, Settings
from .execution import Handler

F = TypeVar("F", bound=Handler)


class Worker:
    """Executes runs of jobs whose target is ``worker``.

    ``run()`` goes on until SIGTERM or SIGINT, or until ``stop()``; it then claims nothing more, lets what runs end
    within ``grace`` seconds, gives back the rest, and takes leave of the server. A second signal ends the grace.
    """

    def __init__(
        self,
        server_url: str,
        queues: Sequence[str] = ("default",),
        concurrency: int = 10,
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        key: Optional[str] = None,
        tenant: Optional[str] = None,
        *,
        grace: float = 30.0,
        wait: float = 20.0,
    ) -> None:
        """``key`` and ``tenant`` say who asks; ``wait`` is how long a claim may wait at the server, in seconds."""
        if isinstance(queues, str) or not queues:
            raise ValueError("`queues` is a list with at least one name, such as ['emails']")
        if concurrency < 1:
            raise ValueError(f"a concurrency of {concurrency} executes nothing; at least 1")
        self._handlers: dict[str, Handler] = {}
        self._settings = Settings(
            server_url=server_url,
            queues=list(queues),
            concurrency=concurrency,
            name=(name or f"{socket.gethostname()}-{os.getpid()}")[:200],
            labels=dict(labels or {}),
            key=key,
            tenant=tenant,
            grace=grace,
            wait=wait,
        )
        self._engine: Optional[Engine] = None
        self._lock = threading.Lock()
        self._is_stopping = False

    def handler(self, name: str) -> Callable[[F], F]:
        """Registers a function or coroutine function under a name::

            @worker.handler("welcome")
            async def welcome(task): ...

        Functions have a thread each, coroutines share the event loop of ``run``.
        """

        def register(function: F) -> F:
            if name in self._handlers:
                raise ValueError(f"there is a handler `{name}` already")
            self._handlers[name] = function
            return function

        return register

    def run(self) -> None:
        """Works until it is told to stop. In the main thread, SIGTERM and SIGINT tell it."""
        asyncio.run(self._run_with_signals())

    async def run_async(self) -> None:
        """The same inside a running event loop, which coroutine handlers share. Signals are the program's own affair:
        call ``stop()``. If it is cancelled, it gives everything back at once."""
        with self._lock:
            if self._engine is not None:
                raise RuntimeError("this worker runs already")
            engine = self._engine = Engine(self._settings, self._handlers, asyncio.get_running_loop())
            is_stopping = self._is_stopping
        if is_stopping:
            engine.stop()
        # A thread of its own: a handler that blocks the event loop must not keep heartbeats from being sent.
        ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        threading.Thread(target=_run_engine, args=(engine, ended), name="punctual-worker", daemon=True).start()
        waiting = asyncio.wrap_future(ended)
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            engine.stop()
            engine.stop()
            await waiting
            raise
        finally:
            with self._lock:
                self._engine = None
                self._is_stopping = False

    def stop(self) -> None:
        """Begins to stop, as SIGTERM does; called again, what runs is given back at once. From any thread."""
        with self._lock:
            self._is_stopping = True
            engine = self._engine
        if engine is not None:
            engine.stop()

    async def _run_with_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return await self.run_async()
        before: dict[signal.Signals, Any] = {}
        # Not `add_signal_handler`: this works on every system, and also while a handler blocks the loop.
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, lambda *_: self._stop_soon())
        try:
            await self.run_async()
        finally:
            for number, old in before.items():
                signal.signal(number, old)

    def _stop_soon(self) -> None:
        # A signal may arrive while this thread has a lock.
        threading.Thread(target=self.stop, daemon=True).start()


def _run_engine(engine: Engine, ended: concurrent.futures.Future[None]) -> None:
    try:
        asyncio.run(engine.run())
    except BaseException as error:  # It is raised where the worker was started.
        ended.set_exception(error)
    else:
        ended.set_result(None)
