"""The part of the management API that programs around workers need: jobs and runs, typed and thin."""

from __future__ import annotations

import uuid
from typing import Any, Iterator, Optional, TypedDict, cast
from urllib.parse import quote, urlencode

from .connection import Connections


class JobSpec(TypedDict, total=False):
    """A job as its owner asks for it."""

    name: str
    key: str
    type: str
    labels: dict[str, str]
    queue: str
    requires: dict[str, str]
    lane: str
    priority: int
    schedule: dict[str, Any]
    target: dict[str, Any]
    dead_letter_target: dict[str, Any]
    payload: Any
    retry: dict[str, Any]
    catch_up: dict[str, Any]
    overlap: dict[str, Any]
    concurrency: dict[str, Any]
    rate: dict[str, Any]
    breaker: dict[str, Any]
    start_window: str
    timeout: str
    deadline: str
    min_duration: str
    retention: dict[str, Any]
    correlation_id: str


class Job(JobSpec, total=False):
    """A job as it is."""

    id: str
    tenant: str
    version: int
    state: str
    next_fire_at: Optional[str]
    last_run: dict[str, Any]
    paused: dict[str, Any]
    warnings: list[str]
    created_at: str
    updated_at: str


class RunSummary(TypedDict, total=False):
    """A run as lists show it."""

    id: str
    job_id: str
    tenant: str
    job_version: int
    type: Optional[str]
    queue: str
    requires: dict[str, str]
    cause: str
    scheduled_for: str
    state: str
    reason: str
    waiting_for: Optional[str]
    available_at: Optional[str]
    start_by: str
    attempt: int
    started_at: Optional[str]
    finished_at: Optional[str]
    lateness_ms: Optional[int]
    redriven_at: str
    is_cancel_requested: bool
    idempotency_key: str
    correlation_id: str


class AttemptError(TypedDict, total=False):
    """Why an attempt failed."""

    code: str
    message: str
    is_retryable: bool
    retry_after: str


class Output(TypedDict, total=False):
    """What an attempt gave: ``text``, or ``base64`` if it is not UTF-8."""

    text: str
    base64: str
    is_truncated: bool


class Progress(TypedDict, total=False):
    """How far an attempt is."""

    percent: int
    message: str


class LogLine(TypedDict):
    """A line of an attempt's log."""

    at: str
    text: str


class Attempt(TypedDict, total=False):
    """One try of a run."""

    number: int
    worker: str
    outcome: Optional[str]
    claimed_at: str
    started_at: Optional[str]
    finished_at: Optional[str]
    duration_ms: Optional[int]
    status: int
    error: AttemptError
    output: Output
    phases: list[dict[str, Any]]
    log: list[LogLine]
    log_dropped: int


class Run(RunSummary, total=False):
    """A run with its attempts, oldest first."""

    attempts: list[Attempt]
    progress: Progress
    checkpoint: Any
    warnings: list[str]


class Page(TypedDict):
    """A part of a list; ``next_cursor`` leads to the next one."""

    items: list[RunSummary]
    next_cursor: Optional[str]


class Client:
    """Registers jobs and reads runs. Refusals are raised as ``Problem``. Threads may share it."""

    def __init__(self, server_url: str, *, key: Optional[str] = None, tenant: Optional[str] = None) -> None:
        self._http = Connections(server_url, key, tenant)

    def create_job(self, spec: JobSpec, *, idempotency_key: Optional[str] = None) -> Job:
        """Registers a job. Repeated under the same ``idempotency_key``, it is registered once."""
        return cast(Job, self._http.request("POST", "/v1/jobs", spec, headers=_once(idempotency_key)))

    def get_job(self, job_id: str) -> Job:
        """Reads a job."""
        return cast(Job, self._http.request("GET", f"/v1/jobs/{quote(job_id, safe='')}"))

    def delete_job(self, job_id: str) -> None:
        """Deletes a job; its history stays until it expires."""
        self._http.request("DELETE", f"/v1/jobs/{quote(job_id, safe='')}")

    def trigger(
        self, job_id: str, *, correlation_id: Optional[str] = None, idempotency_key: Optional[str] = None
    ) -> RunSummary:
        """Runs a job now."""
        body = {} if correlation_id is None else {"correlation_id": correlation_id}
        path = f"/v1/jobs/{quote(job_id, safe='')}/trigger"
        return cast(RunSummary, self._http.request("POST", path, body, headers=_once(idempotency_key)))

    def get_run(self, run_id: str) -> Run:
        """Reads a run with its attempts."""
        return cast(Run, self._http.request("GET", f"/v1/runs/{quote(run_id, safe='')}"))

    def cancel_run(self, run_id: str) -> RunSummary:
        """Ends a waiting run, or asks a running one to stop."""
        return cast(RunSummary, self._http.request("POST", f"/v1/runs/{quote(run_id, safe='')}/cancel"))

    def list_runs(
        self,
        *,
        job: Optional[str] = None,
        state: Optional[str] = None,
        queue: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page:
        """A page of runs, newest first."""
        query = {"job": job, "state": state, "queue": queue, "limit": limit, "cursor": cursor}
        given = urlencode({name: value for name, value in query.items() if value is not None})
        return cast(Page, self._http.request("GET", "/v1/runs" + (f"?{given}" if given else "")))

    def each_run(
        self, *, job: Optional[str] = None, state: Optional[str] = None, queue: Optional[str] = None
    ) -> Iterator[RunSummary]:
        """Every run, newest first, page by page."""
        cursor: Optional[str] = None
        while True:
            page = self.list_runs(job=job, state=state, queue=queue, limit=1000, cursor=cursor)
            yield from page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def list_workers(self) -> list[dict[str, Any]]:
        """The workers of the tenant that are there."""
        answer = self._http.request("GET", "/v1/workers")
        return cast("list[dict[str, Any]]", answer["items"] if isinstance(answer, dict) else answer)

    def close(self) -> None:
        """Closes idle connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _once(key: Optional[str]) -> dict[str, str]:
    # A request that was sent again because its answer got lost must not do its work twice.
    return {"Idempotency-Key": key or str(uuid.uuid4())}
