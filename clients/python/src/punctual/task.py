"""An attempt as its handler sees it.

Handlers report through it from any thread or event loop; what they report waits here until the worker sends it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from datetime import datetime
from typing import Any, Callable, Generator, Mapping, Optional

from .wire import read_time, seconds, shorten, to_json

CHECKPOINT_MAX = 64 << 10  # What the server takes.
LINE_MAX = 4 << 10  # What the server takes.
LOG_MAX = 256 << 10  # Bytes of lines that wait: a request has room for them; when there are more, older ones make room.


class Delivery(concurrent.futures.Future[None]):
    """A report on its way. ``await`` it, or ``result()`` in a sync handler, to know that the server has it.

    It is cancelled if the attempt ends, or is not held any more, before the server has it, and raises ``Problem`` if
    the server refuses it.
    """

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self).__await__()


class Task:
    """One attempt of a run."""

    run_id: str
    attempt: int
    """From 1."""
    job_id: str
    job_name: str
    handler: str
    queue: str
    part: Optional[int]
    """Which part of its slot, from 1, of a job in parts; ``None`` for a whole run."""
    parts: Optional[int]
    """Of how many."""
    labels: Mapping[str, str]
    type: Optional[str]
    scheduled_for: datetime
    """The nominal time of the run, in UTC."""
    idempotency_key: str
    """The same for every attempt of the run."""
    payload: Any
    """The job's payload, parsed; ``None`` if it has none."""
    correlation_id: Optional[str]
    timeout: Optional[float]
    """How many seconds the attempt may take."""
    deadline: Optional[datetime]
    last_checkpoint: Any
    """What an earlier attempt left with ``checkpoint``; ``None`` if none did."""
    cancelled: threading.Event
    """Set when the handler is to stop. Coroutines are cancelled too; functions have to look."""

    def __init__(self, attempt: Mapping[str, Any], wake: Callable[[], None] = lambda: None) -> None:
        """From the member of a claim's answer; ``wake`` asks for a heartbeat at once."""
        self.run_id = attempt["run_id"]
        self.attempt = attempt["attempt"]
        self.job_id = attempt["job_id"]
        self.job_name = attempt.get("job_name", "")
        self.handler = attempt["handler"]
        self.queue = attempt.get("queue", "default")
        self.part = attempt.get("part")
        self.parts = attempt.get("parts")
        self.labels = attempt.get("labels") or {}
        self.type = attempt.get("type")
        self.scheduled_for = read_time(attempt["scheduled_for"])
        self.idempotency_key = attempt["idempotency_key"]
        self.payload = attempt.get("payload")
        self.correlation_id = attempt.get("correlation_id")
        timeout, deadline = attempt.get("timeout"), attempt.get("deadline")
        self.timeout = None if timeout is None else seconds(timeout)
        self.deadline = None if deadline is None else read_time(deadline)
        self.last_checkpoint = attempt.get("checkpoint")
        self.cancelled = threading.Event()
        self._wake = wake
        self._lock = threading.Lock()
        self._reports = Reports()

    def progress(self, percent: float, message: Optional[str] = None) -> None:
        """Says how far it is, in whole percent; people see it after the next heartbeat."""
        progress: dict[str, Any] = {"percent": int(max(0, min(100, percent)))}
        if message is not None:
            progress["message"] = shorten(message, LINE_MAX)
        with self._lock:
            self._reports.progress = progress

    def checkpoint(self, value: Any, *, flush: bool = False) -> Delivery:
        """Leaves JSON of up to 64 KiB for the next attempt; the last one counts.

        It is sent with the next heartbeat or, with ``flush``, at once. What comes back tells when the server has it.
        """
        size = len(to_json(value).encode())
        if size > CHECKPOINT_MAX:
            raise ValueError(f"a checkpoint of {size} bytes is too large, at most {CHECKPOINT_MAX}")
        delivery = Delivery()
        with self._lock:
            self._reports.checkpoint = (value,)
            self._reports.bytes = size
            self._reports.deliveries.append(delivery)
            is_over = self._reports.is_closed
        if is_over:
            delivery.cancel()
        elif flush:
            self._wake()
        return delivery

    def log(self, line: str) -> None:
        """Adds lines to the attempt's log, each cut at 4 KiB."""
        lines = [shorten(part, LINE_MAX) for part in line.splitlines() or [""]]
        with self._lock:
            self._reports.lines.extend(lines)
            self._reports.line_bytes += sum(map(_cost, lines))
            self._reports.make_room()
            is_much = self._reports.line_bytes > LOG_MAX // 2
        if is_much:
            self._wake()

    # What follows is the worker's.

    def _take_reports(self, most: int) -> Optional[Reports]:
        """What waits to be sent, if it has no more bytes than this."""
        with self._lock:
            if self._reports.size() > most:
                return None
            taken, self._reports = self._reports, Reports()
            self._reports.is_closed = taken.is_closed
            return taken

    def _put_back(self, taken: Reports) -> None:
        """What could not be sent waits again, unless something newer takes its place."""
        with self._lock:
            newer = self._reports
            newer.progress = newer.progress or taken.progress
            if newer.checkpoint is None:
                newer.checkpoint, newer.bytes = taken.checkpoint, taken.bytes
            newer.deliveries = taken.deliveries + newer.deliveries
            newer.dropped += taken.dropped
            newer.lines.extendleft(reversed(taken.lines))
            newer.line_bytes += taken.line_bytes
            newer.make_room()

    def _take_lines(self) -> list[str]:
        with self._lock:
            lines = self._reports.told()
            self._reports.lines.clear()
            self._reports.line_bytes = self._reports.dropped = 0
            return lines

    def _has_checkpoint(self) -> bool:
        with self._lock:
            return self._reports.checkpoint is not None

    def _close(self) -> None:
        """Nothing more will be sent."""
        with self._lock:
            self._reports.is_closed = True
            deliveries, self._reports.deliveries = self._reports.deliveries, []
        for delivery in deliveries:
            delivery.cancel()


class Reports:
    """What a handler said since the last heartbeat."""

    def __init__(self) -> None:
        self.progress: Optional[dict[str, Any]] = None
        self.checkpoint: Optional[tuple[Any]] = None
        """In a tuple, because ``None`` is a checkpoint too."""
        self.bytes = 0
        self.deliveries: list[Delivery] = []
        self.lines: deque[str] = deque()
        self.line_bytes = 0
        self.dropped = 0
        self.is_closed = False

    def size(self) -> int:
        """About how many bytes it takes."""
        return self.bytes + self.line_bytes + (LINE_MAX if self.progress is not None else 0)

    def make_room(self) -> None:
        """Leaves the oldest lines out if there are too many."""
        while self.line_bytes > LOG_MAX:
            self.line_bytes -= _cost(self.lines.popleft())
            self.dropped += 1

    def told(self) -> list[str]:
        """The lines, the first of which says how many are missing."""
        return ([f"({self.dropped} lines are left out)"] if self.dropped else []) + list(self.lines)

    def body(self) -> dict[str, Any]:
        """The members of a heartbeat."""
        body: dict[str, Any] = {}
        if self.progress is not None:
            body["progress"] = self.progress
        if self.checkpoint is not None:
            body["checkpoint"] = self.checkpoint[0]
        if self.lines or self.dropped:
            body["log"] = self.told()
        return body

    def delivered(self) -> None:
        """Tells whoever waits."""
        for delivery in self.deliveries:
            if delivery.set_running_or_notify_cancel():
                delivery.set_result(None)

    def refused(self, error: Exception) -> None:
        """Tells whoever waits that it is lost."""
        for delivery in self.deliveries:
            if delivery.set_running_or_notify_cancel():
                delivery.set_exception(error)


def _cost(line: str) -> int:
    """The bytes of a line in a list."""
    return len(line.encode("utf-8", "replace")) + 3
