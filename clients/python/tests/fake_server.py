"""A small server in this process that keeps to docs/reference/workers.md.

Leases are counted in heartbeats, not in time: an attempt that is not listed in twenty of them goes to somebody else.
Tests look at what it saw, and wait for it; nothing here sleeps.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Optional

PATIENCE = 30.0  # Seconds until a test that waits for something gives up; never reached when all is well.
LEASE_HEARTBEATS = 20  # So many that a claim's answer is read meanwhile, also on a busy machine.


class Run:
    """A run of a `worker` job."""

    def __init__(self, number: int, handler: str, members: dict[str, Any]) -> None:
        self.id = f"run-{number}"
        self.handler = handler
        self.queue = members.pop("queue", "default")
        self.members = members
        self.state = "pending"
        self.attempt = 0
        self.holder: Optional[str] = None
        self.unlisted = 0
        self.is_cancel_requested = False
        self.checkpoint: Any = None
        self.progress: Any = None
        self.log: list[str] = []
        self.results: list[dict[str, Any]] = []

    def claimed(self) -> dict[str, Any]:
        claimed = {
            "run_id": self.id,
            "attempt": self.attempt,
            "job_id": "job-1",
            "job_name": "a job",
            "handler": self.handler,
            "queue": self.queue,
            "labels": {"team": "a"},
            "scheduled_for": "2026-11-18T09:00:00.123456789Z",
            "idempotency_key": f"key-{self.id}",
            **self.members,
        }
        if self.checkpoint is not None:
            claimed["checkpoint"] = self.checkpoint
        return claimed


class FakeServer:
    """Starts at once; ``with FakeServer() as server``."""

    def __init__(self, heartbeat_every: str = "PT0.050S") -> None:
        self.heartbeat_every = heartbeat_every
        self.changed = threading.Condition()
        self.runs: dict[str, Run] = {}
        self.workers: set[str] = set()
        self.deleted: list[str] = []
        self.requests: list[tuple[str, str, Any, dict[str, str]]] = []
        self.most_held = 0
        self.fixed: dict[tuple[str, str], tuple[int, Any]] = {}
        """Answers to routes that are no worker's, and refusals of those that are."""
        self.lose_claims = 0
        """So many answers that give something never arrive."""
        self.lose_results = 0
        self.refuses_reports = False
        """Takes no progress, checkpoints and lines."""
        self.put_off_results = 0
        """So many results are refused for now, each for itself."""
        self._numbers = itertools.count(1)
        self._http: Optional[ThreadingHTTPServer] = None
        self._connections: set[socket.socket] = set()
        self.port = 0
        self.is_up = False
        self.up()

    # What tests do

    def add(self, handler: str, **members: Any) -> Run:
        with self.changed:
            run = Run(next(self._numbers), handler, members)
            self.runs[run.id] = run
            self.changed.notify_all()
            return run

    def cancel(self, run: Run) -> None:
        with self.changed:
            run.is_cancel_requested = True

    def take_away(self, run: Run) -> None:
        """Somebody else has it now."""
        with self.changed:
            run.holder = "somebody-else"

    def lose_workers(self) -> None:
        """Takes every worker for dead; what they held is pending again."""
        with self.changed:
            self.workers.clear()
            for run in self.runs.values():
                if run.state == "running":
                    run.state, run.holder = "pending", None
            self.changed.notify_all()

    def wait(self, is_true: Callable[[], object], what: str = "") -> None:
        with self.changed:
            if not self.changed.wait_for(is_true, PATIENCE):
                raise AssertionError(f"never came: {what or is_true}; {self.requests[-5:]}")

    def wait_state(self, run: Run, state: str) -> None:
        self.wait(lambda: run.state == state, f"{run.id} {state}, it is {run.state}")

    def seen(self, method: str, ending: str) -> list[Any]:
        with self.changed:
            return [body for m, path, body, _ in self.requests if m == method and path.endswith(ending)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def up(self) -> None:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                fake._connections.add(self.connection)

            def finish(self) -> None:
                fake._connections.discard(self.connection)
                try:
                    super().finish()
                except OSError:
                    pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                text = self.rfile.read(length)
                if len(text) < length:
                    self.close_connection = True  # Whoever asked has gone.
                    return
                body = json.loads(text) if text else None
                answer = fake.serve(self.command, self.path, body, dict(self.headers), self.is_gone)
                if answer is None:
                    self.close_connection = True
                    return
                status, content = answer
                data = b"" if content is None else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def is_gone(self) -> bool:
                try:
                    return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return False
                except OSError:
                    return True

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 64

        self._http = Server(("127.0.0.1", self.port), Handler)
        self.port = self._http.server_address[1]
        self.is_up = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        """Cuts every connection and listens no more; what it knows stays."""
        assert self._http is not None
        with self.changed:
            self.is_up = False
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_up:
            self.down()

    # What the page says

    def serve(
        self, method: str, path: str, body: Any, headers: dict[str, str], is_gone: Callable[[], bool]
    ) -> Optional[tuple[int, Any]]:
        with self.changed:
            self.requests.append((method, path, body, headers))
            self.changed.notify_all()
            fixed = self.fixed.get((method, path.split("?")[0]))
            if fixed is not None:
                return fixed
            if path == "/v1/claims":
                return self.claim(body, is_gone)
            parts = path.split("/")
            if parts[1:3] != ["v1", "workers"] or len(parts) < 4:
                return problem(404, "route_not_found")
            worker, verb = parts[3], parts[4] if len(parts) > 4 else ""
            if worker not in self.workers:
                return problem(409, "worker_lost")
            if method == "DELETE":
                return self.delete(worker)
            if self.refuses_reports and any(len(member) > 2 for member in body.get("held", ())):
                return problem(422, "invalid_request", "unknown field `progress`")
            if self.refuses_reports and any("log" in result for result in body.get("results", ())):
                return problem(422, "invalid_request", "unknown field `log`")
            answer = self.heartbeat(worker, body) if verb == "heartbeat" else self.results(worker, body)
            self.changed.notify_all()
            return answer

    def claim(self, body: Any, is_gone: Callable[[], bool]) -> Optional[tuple[int, Any]]:
        worker = body.get("worker")
        if worker is None:
            worker = f"worker-{next(self._numbers)}"
            self.workers.add(worker)
        elif worker not in self.workers:
            return problem(409, "worker_lost")

        def due() -> list[Run]:
            return [run for run in self.runs.values() if run.state == "pending" and run.queue in body["queues"]]

        # Only the first call is answered at once, so that its worker knows who it is.
        if body.get("worker") is not None:
            self.changed.wait_for(lambda: due() or not self.is_up or worker not in self.workers, PATIENCE)
        if not self.is_up or is_gone():
            return None
        if worker not in self.workers:
            return problem(409, "worker_lost")
        given = due()[: body["capacity"]]
        for run in given:
            run.state, run.holder, run.unlisted = "running", worker, 0
            run.attempt += 1
        held = sum(run.holder == worker and run.state == "running" for run in self.runs.values())
        self.most_held = max(self.most_held, held)
        self.changed.notify_all()
        if given and self.lose_claims > 0:
            self.lose_claims -= 1
            return None
        attempts = [run.claimed() for run in given]
        return 200, {
            "worker": worker,
            "lease": "PT15S",
            "heartbeat_every": self.heartbeat_every,
            "attempts": attempts,
        }

    def heartbeat(self, worker: str, body: Any) -> tuple[int, Any]:
        cancelled, not_held, listed = [], [], set()
        for member in body["held"]:
            run = self.runs[member["run_id"]]
            named = {"run_id": run.id, "attempt": member["attempt"]}
            if run.holder != worker or run.attempt != member["attempt"] or run.state != "running":
                not_held.append(named)
                continue
            listed.add(run.id)
            run.unlisted = 0
            run.progress = member.get("progress", run.progress)
            run.checkpoint = member.get("checkpoint", run.checkpoint)
            run.log += member.get("log", [])
            if run.is_cancel_requested:
                cancelled.append(named)
        for run in self.runs.values():
            if run.holder == worker and run.state == "running" and run.id not in listed:
                run.unlisted += 1
                if run.unlisted >= LEASE_HEARTBEATS:
                    run.state, run.holder = "pending", None
        return 200, {"cancelled": cancelled, "not_held": not_held}

    def results(self, worker: str, body: Any) -> Optional[tuple[int, Any]]:
        answers = []
        for result in body["results"]:
            run = self.runs[result["run_id"]]
            named = {"run_id": run.id, "attempt": result["attempt"]}
            if run.holder != worker or run.attempt != result["attempt"] or run.state != "running":
                answers.append({**named, "problem": problem(409, "lease_lost")[1]})
                continue
            if self.put_off_results > 0:
                self.put_off_results -= 1
                answers.append({**named, "problem": problem(503, "unavailable")[1]})
                continue
            run.results.append(result)
            run.log += result.get("log", [])
            is_retried = result["outcome"] in ("failed", "timed_out") and result["error"].get("is_retryable", True)
            is_retried = is_retried and run.attempt < run.members.get("_attempts", 1)
            run.state = "pending" if is_retried or result["outcome"] == "released" else result["outcome"]
            run.holder = None
            answers.append({**named, "state": run.state})
        if self.lose_results > 0:
            self.lose_results -= 1
            return None
        return 200, {"results": answers}

    def delete(self, worker: str) -> tuple[int, Any]:
        self.workers.discard(worker)
        self.deleted.append(worker)
        for run in self.runs.values():
            if run.holder == worker and run.state == "running":
                run.state, run.holder = "pending", None
        self.changed.notify_all()
        return 204, None


def problem(status: int, code: str, detail: str = "no") -> tuple[int, Any]:
    """A refusal."""
    kind = f"urn:punctual:problem:{code}"
    return status, {"code": code, "status": status, "title": code, "detail": detail, "type": kind}
