"""The life of a worker: claims as there is room, heartbeats, results until they are delivered, and a good end.

Runs in an event loop of its own; requests are made in threads. Promise: what was claimed is executed and its result
reported, through any number of outages, unless the server says that it is not held any more.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, Mapping, Optional

from .connection import Connections
from .errors import Problem, ServerUnreachable
from .execution import Handler, Work, failed, in_thread, outcome_of, start
from .task import Reports, Task
from .wire import duration, seconds, to_json, write_time

log = logging.getLogger("punctual")

CAPACITY_MAX = 1000  # Attempts of one claim, and results of one request: what the server takes.
BODY_MAX = 768 << 10  # Bytes of a request; a server takes 1 MiB, and this is counted without what surrounds it.
REPORTS_MIN = 400 << 10  # Of these, so many are left for reports: what one attempt has always finds room.
STOP_GRACE = 5.0  # Seconds that a handler has to end after it was told to; then its attempt is reported without it.
DELIVER_GRACE = 10.0  # Seconds that the last results have to be delivered when a worker ends.
BACKOFF_FIRST, BACKOFF_MAX = 0.1, 5.0  # Seconds; results arrive so soon after a server is back.

Key = tuple[str, int]


@dataclass(frozen=True)
class Settings:
    """What a worker was made with."""

    server_url: str
    queues: list[str]
    concurrency: int
    name: str
    labels: dict[str, str]
    key: Optional[str]
    tenant: Optional[str]
    grace: float
    wait: float


class Held:
    """An attempt that the server gave to this worker."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.key: Key = (task.run_id, task.attempt)
        self.stopping: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.started_at = datetime.now(timezone.utc)
        self.result: Optional[dict[str, Any]] = None
        """Set when it is over and waits to be reported."""
        self.is_working = False
        self.is_refused = False

    def stop(self, why: str) -> None:
        """Tells the handler to stop: ``cancelled``, ``released`` or ``not_held``. The first reason counts."""
        if not self.stopping.done():
            self.stopping.set_result(why)

    def name(self) -> dict[str, Any]:
        """As requests name it."""
        return {"run_id": self.key[0], "attempt": self.key[1]}


class Engine:
    """Runs once."""

    def __init__(self, settings: Settings, handlers: Mapping[str, Handler], loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._handlers = handlers
        self._program = loop
        # Of its own, so that a claim that waits can be ended without touching other requests.
        self._claims = Connections(settings.server_url, settings.key, settings.tenant)
        self._http = Connections(settings.server_url, settings.key, settings.tenant)
        self._identity: Optional[str] = None
        self._was_known = False
        self._heartbeat_every = 5.0
        self._held: dict[Key, Held] = {}
        self._places: set[Held] = set()
        """What is held, and what was but has a handler that still goes on: together never more than `concurrency`."""
        self._executions: set[asyncio.Task[None]] = set()
        self._stops = 0
        self._lock = threading.Lock()
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def stop(self) -> None:
        """Begins to stop; the second time the grace is over. From any thread."""
        with self._lock:
            self._stops += 1
            loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._told_to_stop)
            except RuntimeError:
                pass  # It has ended.

    async def run(self) -> None:
        """Works until ``stop``. Raises ``Problem`` if the server refuses the worker at its first call."""
        self._stopped, self._hurried = asyncio.Event(), asyncio.Event()
        self._room, self._over, self._quiet = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._beat_now, self._beating = asyncio.Event(), asyncio.Lock()
        with self._lock:
            self._loop = asyncio.get_running_loop()
        self._told_to_stop()
        duties = [asyncio.ensure_future(duty()) for duty in (self._claim, self._heartbeat, self._report)]
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            done, _ = await asyncio.wait([stopped, *duties], return_when=asyncio.FIRST_COMPLETED)
            for duty in done:
                duty.result()  # Only the first refusal ends a duty; it is raised.
            await self._drain()
        finally:
            self._claims.abort()
            for duty in [stopped, *duties]:
                duty.cancel()
            await asyncio.gather(stopped, *duties, return_exceptions=True)
            for held in list(self._held.values()):
                self._forget(held)
            await self._take_leave()
            self._http.close()

    def _told_to_stop(self) -> None:
        if self._stops >= 1:
            self._stopped.set()
            self._room.set()
        if self._stops >= 2:
            self._hurried.set()

    # Claim

    async def _claim(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            room = self._settings.concurrency - len(self._places)
            if room < 1:
                self._room.clear()
                await self._room.wait()
                continue
            asked_as = self._identity
            try:
                answer = await self._ask(asked_as, min(room, CAPACITY_MAX))
            except (Problem, ServerUnreachable) as error:
                if self._is_lost(error, asked_as):
                    continue
                if isinstance(error, Problem) and _is_final(error) and not self._was_known:
                    raise
                if asked_as != self._identity:
                    continue  # It was aborted to begin anew.
                failures += 1
                log.warning("claim: %s; trying again", error)
                await self._sleep(_backoff(failures, error))
                continue
            failures = 0
            if asked_as != self._identity:
                continue  # Given to who this worker was before; not listed, it goes to somebody else.
            self._accept(answer)

    async def _ask(self, asked_as: Optional[str], capacity: int) -> Any:
        settings = self._settings
        body: dict[str, Any] = {
            "name": settings.name,
            "queues": settings.queues,
            "labels": settings.labels,
            "capacity": capacity,
            "concurrency": settings.concurrency,
            "wait": duration(settings.wait),
        }
        if asked_as is not None:
            body["worker"] = asked_as
        # Counted here, so that an abort ends it even if its thread has not begun.
        aborts = self._claims.aborts
        return await _call(self._claims, "POST", "/v1/claims", body, settings.wait + 10, aborts)

    def _accept(self, answer: Any) -> None:
        if self._identity != answer["worker"]:
            log.info("this worker is %s", answer["worker"])
            self._beat_now.set()  # The pause that goes on now is longer than this server may want.
        self._identity, self._was_known = answer["worker"], True
        self._heartbeat_every = seconds(answer["heartbeat_every"])
        for attempt in answer["attempts"]:
            held = Held(Task(attempt, self._wake))
            if held.key in self._held:
                continue
            self._held[held.key] = held
            self._places.add(held)
            if self._stopped.is_set():
                self._finish(held, {"outcome": "released"})
                continue
            execution = asyncio.ensure_future(self._execute(held))
            self._executions.add(execution)
            execution.add_done_callback(self._executions.discard)

    # Execute

    async def _execute(self, held: Held) -> None:
        handler = self._handlers.get(held.task.handler)
        if handler is None:
            known = ", ".join(f"`{name}`" for name in sorted(self._handlers)) or "none"
            message = f"this worker has no handler `{held.task.handler}`; it has {known}"
            self._finish(held, failed("handler_unknown", message))
            return
        work = start(handler, held.task, self._program)
        held.is_working = True
        work.ended.add_done_callback(lambda _: self._ended(held))
        limit = _time_left(held.task)
        either: list[asyncio.Future[Any]] = [work.ended, held.stopping]
        await asyncio.wait(either, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if work.ended.done():
            value, error = work.ended.result()
            if error is not None and held.key in self._held:
                log.info("run %s, attempt %d failed", *held.key, exc_info=error)
            self._finish(held, outcome_of(value, error))
            return
        why = held.stopping.result() if held.stopping.done() else "timed_out"
        await _stop(held, work)
        if why == "timed_out":
            message = f"the attempt did not end within {limit or 0:g} s"
            self._finish(held, failed("timed_out", message, outcome="timed_out"))
        else:
            self._finish(held, {"outcome": why})

    def _ended(self, held: Held) -> None:
        held.is_working = False
        self._leave(held)

    def _finish(self, held: Held, outcome: dict[str, Any]) -> None:
        """It is over: reported, unless it is not held any more."""
        if self._held.get(held.key) is not held:
            return
        now = datetime.now(timezone.utc)
        times = {"started_at": write_time(held.started_at), "finished_at": write_time(now)}
        held.result = {**held.name(), **outcome, **({} if outcome["outcome"] == "released" else times)}
        self._over.set()
        self._check_quiet()

    def _forget(self, held: Held) -> None:
        """It is not held any more: reported, given to somebody else, or lost with the identity."""
        if self._held.get(held.key) is held:
            del self._held[held.key]
        held.stop("not_held")
        held.task._close()
        self._leave(held)

    def _leave(self, held: Held) -> None:
        if not held.is_working and self._held.get(held.key) is not held:
            self._places.discard(held)
            self._room.set()
        self._check_quiet()

    # Heartbeat

    def _wake(self) -> None:
        """Asks for a heartbeat at once. From any thread."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._beat_now.set)
            except RuntimeError:
                pass  # It has ended.

    async def _heartbeat(self) -> None:
        failures = 0
        while True:
            pause = self._heartbeat_every
            if failures:
                pause = min(pause, _backoff(failures))
                await asyncio.sleep(pause)
            else:
                await _wait(self._beat_now, pause)
            self._beat_now.clear()
            try:
                async with self._beating:
                    await self._beat()
                failures = 0
            except (Problem, ServerUnreachable) as error:
                failures += 1
                log.warning("heartbeat: %s; trying again", error)

    async def _beat(self) -> None:
        """One heartbeat. The caller has the lock, so that no report is sent twice at once."""
        beat_as = self._identity
        if beat_as is None:
            return
        listed = list(self._held.values())
        taken: list[tuple[Task, Reports]] = []
        room, members = max(BODY_MAX - 100 * len(listed), REPORTS_MIN), []
        for held in listed:
            member = held.name()
            reports = held.task._take_reports(room)
            if reports is None:
                self._beat_now.set()  # There is more than one request takes.
            else:
                room -= reports.size()
                taken.append((held.task, reports))
                member.update(reports.body())
            members.append(member)
        working = sum(held.is_working for held in self._places)
        concurrency = self._settings.concurrency
        body = {"held": members, "concurrency": concurrency, "saturation": min(1.0, working / concurrency)}
        path, timeout = f"/v1/workers/{beat_as}/heartbeat", max(1.0, self._heartbeat_every)
        try:
            answer = await _call(self._http, "POST", path, body, timeout)
        except (Problem, ServerUnreachable) as error:
            if isinstance(error, Problem) and _is_refusal(error) and any(reports.body() for _, reports in taken):
                # What is held must be kept, whatever is wrong with what a handler said.
                log.error("heartbeat: %s; sent without what handlers reported", error)
                for _, reports in taken:
                    reports.refused(error)
                return await self._beat()
            for task, reports in taken:
                task._put_back(reports)
            if self._is_lost(error, beat_as):
                return
            raise
        for _, reports in taken:
            reports.delivered()
        if beat_as != self._identity:
            return
        for named in answer.get("cancelled") or ():
            held_ = self._held.get((named["run_id"], named["attempt"]))
            if held_ is not None and held_.result is None:
                held_.stop("cancelled")
        for named in answer.get("not_held") or ():
            held_ = self._held.get((named["run_id"], named["attempt"]))
            if held_ is not None:
                log.warning("run %s, attempt %d is not held any more; stopping it", *held_.key)
                self._forget(held_)

    # Results

    async def _report(self) -> None:
        failures = 0
        while True:
            batch = self._next_batch()
            if not batch:
                self._over.clear()
                await self._over.wait()
                continue
            try:
                await self._deliver(batch)
                failures = 0
            except (Problem, ServerUnreachable) as error:
                failures += 1
                log.warning("results: %s; trying again", error)
                await asyncio.sleep(_backoff(failures, error))

    def _next_batch(self) -> list[Held]:
        batch: list[Held] = []
        room = BODY_MAX
        for held in self._held.values():
            if held.result is not None:
                room -= len(to_json(held.result).encode())
                if batch and (room < 0 or len(batch) == CAPACITY_MAX):
                    break
                batch.append(held)
                if held.is_refused:
                    return [held]
        return batch

    async def _deliver(self, batch: list[Held]) -> None:
        sent_as = self._identity
        async with self._beating:
            # The next attempt is given the checkpoint, so it has to be there before this one ends.
            if any(held.task._has_checkpoint() and _has_next(held) for held in batch):
                await self._beat()
            batch = [held for held in batch if self._held.get(held.key) is held]
            for held in batch:
                if held.result is not None:
                    lines = held.task._take_lines()
                    if lines:
                        held.result["log"] = held.result.get("log", []) + lines
        if not batch or sent_as != self._identity:
            return
        body = {"results": [held.result for held in batch]}
        try:
            answer = await _call(self._http, "POST", f"/v1/workers/{sent_as}/results", body, 30)
        except Problem as problem:
            if self._is_lost(problem, sent_as):
                return
            if _is_refusal(problem):
                self._refused(batch, problem)
                return
            raise
        unavailable: Optional[Problem] = None
        for held, said in zip(batch, answer["results"]):
            refusal = said.get("problem")
            if refusal is not None and refusal.get("status", 500) >= 500:
                unavailable = Problem.read(refusal.get("status", 500), refusal, "")
                continue
            if refusal is not None:
                log.warning("run %s, attempt %d: result not taken: %s", *held.key, refusal.get("detail"))
            self._forget(held)
        if unavailable is not None:
            raise unavailable

    def _refused(self, batch: list[Held], problem: Problem) -> None:
        """A request that will never be taken: each of its results is sent alone, without its log, and as a failure."""
        for held in batch:
            if len(batch) == 1 and held.result is not None:
                if held.result.get("error", {}).get("code") == "result_refused":
                    log.error("run %s, attempt %d: %s", *held.key, problem)
                    self._forget(held)
                    return
                log.error("run %s, attempt %d: %s; trying with less", *held.key, problem)
                if held.result.pop("log", None) is None:
                    held.result = {**held.name(), **failed("result_refused", str(problem), is_retryable=False)}
            held.is_refused = True

    # The end

    async def _drain(self) -> None:
        log.info("stopping; %d attempts still run", self._count_working())
        # What is released must not come back by a claim that still waits. If one is answered right now, the server
        # gives those attempts to somebody else, because they are never listed.
        self._claims.abort()
        quiet = asyncio.ensure_future(self._until(lambda: self._count_working() == 0))
        hurried = asyncio.ensure_future(self._hurried.wait())
        await asyncio.wait([quiet, hurried], timeout=self._settings.grace, return_when=asyncio.FIRST_COMPLETED)
        for held in list(self._held.values()):
            if held.result is None:
                held.stop("released")
        await asyncio.wait([quiet], timeout=STOP_GRACE + 1)
        delivered = asyncio.ensure_future(self._until(lambda: not self._held))
        await asyncio.wait([delivered], timeout=DELIVER_GRACE)
        if self._held:
            log.error("%d results could not be delivered", len(self._held))
        for waiting in (quiet, hurried, delivered):
            waiting.cancel()

    def _count_working(self) -> int:
        return sum(held.result is None for held in self._held.values())

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            self._quiet.clear()
            await self._quiet.wait()

    def _check_quiet(self) -> None:
        self._quiet.set()

    async def _take_leave(self) -> None:
        if self._identity is None:
            return
        try:
            await _call(self._http, "DELETE", f"/v1/workers/{self._identity}", None, 5)
        except (Problem, ServerUnreachable) as error:
            log.warning("taking leave: %s", error)  # The server will notice by itself.

    # Shared by the duties

    def _is_lost(self, error: Exception, asked_as: Optional[str]) -> bool:
        """Whether the server does not know this worker any more; then it begins anew, holding nothing."""
        if not isinstance(error, Problem) or error.code != "worker_lost" or asked_as is None:
            return False
        if self._identity == asked_as:
            log.warning("the server took this worker for dead; beginning anew")
            self._identity = None
            for held in list(self._held.values()):
                self._forget(held)
            self._claims.abort()
        return True

    async def _sleep(self, length: float) -> None:
        await _wait(self._stopped, length)


def _time_left(task: Task) -> Optional[float]:
    limits = [] if task.timeout is None else [task.timeout]
    if task.deadline is not None:
        limits.append(max(0.0, task.deadline.timestamp() - time.time()))
    return min(limits) if limits else None


async def _stop(held: Held, work: Work) -> None:
    held.task.cancelled.set()
    work.cancel()
    await asyncio.wait([work.ended], timeout=STOP_GRACE)


def _has_next(held: Held) -> bool:
    return held.result is not None and held.result["outcome"] in ("failed", "timed_out", "released")


def _is_final(problem: Problem) -> bool:
    """Whether the same request would be refused again."""
    return 400 <= problem.status < 500 and problem.status not in (408, 425, 429)


def _is_refusal(problem: Problem) -> bool:
    """Whether it is the body that is refused, and not who sends it."""
    return problem.status in (400, 413, 422)


def _backoff(failures: int, error: Optional[Exception] = None) -> float:
    """How long to wait after so many failures in a row. Chance keeps workers from coming back all at once."""
    longest = min(BACKOFF_MAX, BACKOFF_FIRST * 2.0 ** min(failures - 1, 16))
    asked = getattr(error, "retry_after", None) or 0.0
    return max(longest * random.uniform(0.5, 1.0), min(float(asked), 30.0))


async def _wait(event: asyncio.Event, timeout: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), timeout)
    except asyncio.TimeoutError:
        pass


async def _call(
    http: Connections, method: str, path: str, body: Any, timeout: float, aborts: Optional[int] = None
) -> Any:
    answer, error = await in_thread(lambda: http.request(method, path, body, timeout=timeout, aborts=aborts))
    if error is not None:
        raise error
    return answer
