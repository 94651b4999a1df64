"""A worker in a thread, for the length of a test."""

from __future__ import annotations

import threading
from typing import Any, Optional

from fake_server import PATIENCE, FakeServer

from punctual import Worker


class Running:
    """``with Running(worker)``: works in a thread, and is stopped at the end."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.error: Optional[BaseException] = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.thread.is_alive():
            self.worker.stop()
            self.worker.stop()
        self.join()

    def join(self) -> None:
        """Waits for its end."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the worker does not end"


def worker_of(server: FakeServer, **settings: Any) -> Worker:
    """A worker for a server."""
    return Worker(server.url, **settings)
