"""What a worker does, against a server in this process."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable, Iterator

import pytest
from fake_server import PATIENCE, FakeServer, Run, problem
from support import Running, worker_of

import punctual.engine
from punctual import NotRetryable, Problem, RetryAfter, Task


@pytest.fixture()
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def test_functions_and_coroutines_are_executed_and_their_values_reported(server: FakeServer) -> None:
    worker = worker_of(server, name="mailer-7", labels={"zone": "eu"}, key="secret", tenant="acme")

    @worker.handler("text")
    def text(task: Task) -> str:
        return f"n is {task.payload['n']}"

    @worker.handler("json")
    async def json_(task: Task) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"n": task.payload["n"]}

    @worker.handler("nothing")
    def nothing(task: Task) -> None:
        pass

    runs = [server.add(name, payload={"n": 7}) for name in ("text", "json", "nothing")]
    with Running(worker):
        for run in runs:
            server.wait_state(run, "succeeded")
    outputs = [run.results[0].get("output") for run in runs]
    assert outputs == ["n is 7", '{"n":7}', None]
    assert all(run.results[0]["started_at"] <= run.results[0]["finished_at"] for run in runs)
    _, _, claim, headers = server.requests[0]
    assert headers["Authorization"] == "Bearer secret" and headers["Punctual-Tenant"] == "acme"
    assert claim["name"] == "mailer-7" and claim["labels"] == {"zone": "eu"} and "worker" not in claim
    assert claim["queues"] == ["default"] and claim["capacity"] == claim["concurrency"] == 10
    assert server.seen("POST", "/claims")[1]["worker"].startswith("worker-")


def test_a_task_says_what_the_run_is(server: FakeServer) -> None:
    worker = worker_of(server)
    seen: list[Task] = []
    worker.handler("h")(seen.append)
    run = server.add("h", payload=[1], correlation_id="c", type="t", timeout="PT5M", deadline="2099-01-01T00:00:00Z")
    run.checkpoint = {"row": 700}
    with Running(worker):
        server.wait_state(run, "succeeded")
    task = seen[0]
    assert (task.run_id, task.attempt, task.job_id, task.job_name) == (run.id, 1, "job-1", "a job")
    assert task.scheduled_for.isoformat() == "2026-11-18T09:00:00.123456+00:00"
    assert (task.idempotency_key, task.payload, task.last_checkpoint) == (f"key-{run.id}", [1], {"row": 700})
    assert (task.labels, task.correlation_id, task.type, task.timeout) == ({"team": "a"}, "c", "t", 300.0)
    assert task.deadline is not None and task.deadline.year == 2099


class CardDeclined(NotRetryable):
    pass


class HTTPError(Exception):
    pass


FAILURES: list[tuple[Callable[[], BaseException], dict[str, Any]]] = [
    (lambda: ValueError("bad"), {"code": "value_error", "message": "bad", "is_retryable": True}),
    (lambda: HTTPError(), {"code": "http_error", "message": "HTTPError", "is_retryable": True}),
    (lambda: Exception("plain"), {"code": "worker_failed", "message": "plain", "is_retryable": True}),
    (lambda: NotRetryable("no"), {"code": "worker_failed", "message": "no", "is_retryable": False}),
    (lambda: NotRetryable("no", code="gone"), {"code": "gone", "message": "no", "is_retryable": False}),
    (lambda: NotRetryable("no", code="trop tôt"), {"code": "trop_t_t", "message": "no", "is_retryable": False}),
    (lambda: CardDeclined("no"), {"code": "card_declined", "message": "no", "is_retryable": False}),
    (
        lambda: RetryAfter(1.5, "busy"),
        {"code": "worker_failed", "message": "busy", "is_retryable": True, "retry_after": "PT1.500S"},
    ),
]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("make, expected", FAILURES)
def test_an_exception_is_reported_by_its_name(
    server: FakeServer, make: Callable[[], BaseException], expected: dict[str, Any], is_async: bool
) -> None:
    worker = worker_of(server)

    def fail(task: Task) -> None:
        raise make()

    async def fail_async(task: Task) -> None:
        raise make()

    worker.handler("h")(fail_async if is_async else fail)
    run = server.add("h")
    with Running(worker):
        server.wait_state(run, "failed")
    assert run.results[0]["error"] == expected


def test_an_unknown_handler_fails_so_that_another_worker_may_have_it(server: FakeServer) -> None:
    worker = worker_of(server)
    worker.handler("known")(lambda task: None)
    run = server.add("h")
    with Running(worker):
        server.wait_state(run, "failed")
    error = run.results[0]["error"]
    assert (error["code"], error["is_retryable"]) == ("handler_unknown", True)
    assert error["message"] == "this worker has no handler `h`; it has `known`"


def test_a_value_that_is_no_json_fails_for_good(server: FakeServer) -> None:
    worker = worker_of(server)
    worker.handler("h")(lambda task: object())
    run = server.add("h")
    with Running(worker):
        server.wait_state(run, "failed")
    assert (run.results[0]["error"]["code"], run.results[0]["error"]["is_retryable"]) == ("output_not_json", False)


def test_claims_follow_free_capacity(server: FakeServer) -> None:
    worker = worker_of(server, concurrency=3)
    gate, lock, now, most = threading.Semaphore(0), threading.Lock(), 0, 0

    @worker.handler("h")
    def handler(task: Task) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        gate.acquire(timeout=PATIENCE)
        with lock:
            now -= 1

    runs = [server.add("h") for _ in range(10)]
    with Running(worker):
        server.wait(lambda: sum(run.state == "running" for run in runs) == 3)
        server.wait(lambda: len(server.seen("POST", "/heartbeat")) >= 3)
        assert sum(run.state == "pending" for run in runs) == 7
        gate.release(10)
        for run in runs:
            server.wait_state(run, "succeeded")
    assert (most, server.most_held) == (3, 3)
    assert all(claim["capacity"] <= 3 for claim in server.seen("POST", "/claims"))
    assert [len(run.results) for run in runs] == [1] * 10


def test_heartbeats_carry_progress_checkpoints_and_lines(server: FakeServer) -> None:
    worker = worker_of(server)
    go = threading.Event()

    @worker.handler("h")
    def handler(task: Task) -> None:
        task.progress(40.9, "page 4 of 10")
        task.checkpoint({"row": 800})
        task.log("page 4\nand a half")
        go.wait(PATIENCE)
        task.log("done")

    run = server.add("h")
    with Running(worker):
        server.wait(lambda: run.log)  # What is said last: a heartbeat may come in between.
        assert run.checkpoint == {"row": 800}
        assert run.progress == {"percent": 40, "message": "page 4 of 10"}
        assert run.log == ["page 4", "and a half"]
        server.wait(lambda: len(server.seen("POST", "/heartbeat")[-1]["held"][0]) == 2)
        go.set()
        server.wait_state(run, "succeeded")
    assert run.log == ["page 4", "and a half", "done"]
    beat = server.seen("POST", "/heartbeat")[0]
    assert beat["concurrency"] == 10 and 0 <= beat["saturation"] <= 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_flushed_checkpoint_is_there_when_it_says_so(is_async: bool) -> None:
    with FakeServer(heartbeat_every="PT1H") as server:
        worker = worker_of(server)

        def handler(task: Task) -> object:
            task.checkpoint(7, flush=True).result(PATIENCE)
            return server.runs[task.run_id].checkpoint

        async def handler_async(task: Task) -> object:
            await task.checkpoint(7, flush=True)
            return server.runs[task.run_id].checkpoint

        worker.handler("h")(handler_async if is_async else handler)
        run = server.add("h")
        with Running(worker):
            server.wait_state(run, "succeeded")
        assert run.results[0]["output"] == "7"


def test_the_checkpoint_of_a_failed_attempt_arrives_before_its_result() -> None:
    with FakeServer(heartbeat_every="PT1H") as server:
        worker = worker_of(server)

        @worker.handler("h")
        def handler(task: Task) -> object:
            if task.attempt == 1:
                task.checkpoint({"row": 3})
                raise ValueError("no")
            return task.last_checkpoint

        run = server.add("h", _attempts=2)
        with Running(worker):
            server.wait_state(run, "succeeded")
        assert run.results[1]["output"] == '{"row":3}'


def test_a_checkpoint_that_is_too_large_is_refused_where_it_is_made() -> None:
    run = Run(1, "h", {})
    task = Task(run.claimed())
    with pytest.raises(ValueError, match="too large"):
        task.checkpoint("x" * (64 << 10))


def test_lines_that_wait_are_bounded() -> None:
    task = Task(Run(1, "h", {}).claimed())
    for _ in range(100):
        task.log("x" * 10_000)
    reports = task._take_reports(1 << 20)
    assert reports is not None
    lines = reports.body()["log"]
    assert lines[0] == "(37 lines are left out)" and len(lines) == 64
    assert all(len(line) <= 4096 for line in lines)


def test_a_server_that_is_down_for_a_while_loses_nothing(server: FakeServer) -> None:
    worker = worker_of(server, concurrency=4)
    started, go = threading.Semaphore(0), threading.Event()

    @worker.handler("h")
    def handler(task: Task) -> str:
        started.release()
        go.wait(PATIENCE)
        return "done"

    runs = [server.add("h") for _ in range(4)]
    with Running(worker):
        for _ in runs:
            assert started.acquire(timeout=PATIENCE)
        server.down()
        go.set()
        seen = len(server.requests)
        later = [server.add("h") for _ in range(3)]
        server.up()
        for run in [*runs, *later]:
            server.wait_state(run, "succeeded")
    assert [len(run.results) for run in [*runs, *later]] == [1] * 7
    assert len({claim["worker"] for claim in server.seen("POST", "/claims") if "worker" in claim}) == 1
    assert len(server.requests) > seen


def test_what_a_handler_says_meanwhile_arrives_later(server: FakeServer) -> None:
    worker = worker_of(server)
    down, told, go = threading.Event(), threading.Event(), threading.Event()

    @worker.handler("h")
    def handler(task: Task) -> None:
        down.wait(PATIENCE)
        task.log("first")
        task.progress(10)
        task.checkpoint(1, flush=True)
        told.set()
        go.wait(PATIENCE)

    run = server.add("h")
    with Running(worker):
        server.wait_state(run, "running")
        beat = f"/v1/workers/{next(iter(server.workers))}/heartbeat"
        server.fixed["POST", beat] = problem(503, "unavailable")
        down.set()
        assert told.wait(PATIENCE)
        beats = len(server.seen("POST", "/heartbeat"))
        server.wait(lambda: len(server.seen("POST", "/heartbeat")) >= beats + 2)
        assert run.checkpoint is None
        server.fixed.clear()
        server.wait(lambda: run.checkpoint == 1)
        go.set()
        server.wait_state(run, "succeeded")
    assert (run.progress, run.log) == ({"percent": 10}, ["first"])


def test_an_answer_that_refuses_for_now_is_asked_again(server: FakeServer) -> None:
    worker = worker_of(server)
    worker.handler("h")(lambda task: None)
    with Running(worker):
        server.wait(lambda: server.workers)
        identity = next(iter(server.workers))
        for path in ("/v1/claims", f"/v1/workers/{identity}/results", f"/v1/workers/{identity}/heartbeat"):
            server.fixed["POST", path] = problem(503, "unavailable")
        run = server.add("h")
        server.wait(lambda: len(server.seen("POST", "/heartbeat")) >= 2)
        del server.fixed["POST", "/v1/claims"]
        server.wait(lambda: len(server.seen("POST", "/results")) >= 2)
        server.fixed.clear()
        server.wait_state(run, "succeeded")
    assert len(run.results) == 1


def test_a_claim_whose_answer_got_lost_is_executed_after_its_lease(server: FakeServer) -> None:
    worker = worker_of(server)
    worker.handler("h")(lambda task: task.attempt)
    with Running(worker):
        server.wait(lambda: server.workers)
        server.lose_claims = 1
        run = server.add("h")
        server.wait_state(run, "succeeded")
    assert [result["output"] for result in run.results] == ["2"]
    assert len({claim.get("worker") for claim in server.seen("POST", "/claims")} - {None}) == 1


def test_a_result_whose_answer_got_lost_is_sent_again() -> None:
    # A heartbeat in between would tell as well that the attempt is over.
    with FakeServer(heartbeat_every="PT1H") as server:
        worker = worker_of(server)
        worker.handler("h")(lambda task: None)
        server.lose_results = 1
        run = server.add("h")
        with Running(worker):
            server.wait(lambda: len(server.seen("POST", "/results")) >= 2)
            another = server.add("h")
            server.wait_state(another, "succeeded")
        assert len(run.results) == 1 and run.state == "succeeded"


def test_a_result_that_is_refused_for_now_is_sent_again(server: FakeServer) -> None:
    worker = worker_of(server)
    worker.handler("h")(lambda task: None)
    server.put_off_results = 2
    runs = [server.add("h") for _ in range(4)]
    with Running(worker):
        for run in runs:
            server.wait_state(run, "succeeded")
    assert [run.attempt for run in runs] == [1] * 4


def test_many_results_go_in_one_request_and_each_has_its_own_answer(server: FakeServer) -> None:
    worker = worker_of(server, concurrency=50)
    barrier = threading.Barrier(50)
    worker.handler("h")(lambda task: barrier.wait(PATIENCE) and None)
    runs = [server.add("h") for _ in range(50)]
    with Running(worker):
        for run in runs:
            server.wait_state(run, "succeeded")
    assert len(server.seen("POST", "/results")) < 25


def test_a_result_that_is_never_taken_becomes_a_failure(server: FakeServer) -> None:
    worker = worker_of(server)
    go = threading.Event()

    @worker.handler("h")
    def handler(task: Task) -> str:
        go.wait(PATIENCE)
        return "output"

    run = server.add("h")
    with Running(worker):
        server.wait_state(run, "running")
        identity = next(iter(server.workers))
        path = f"/v1/workers/{identity}/results"
        server.fixed["POST", path] = problem(413, "body_too_large", "too large")
        go.set()
        # The output is refused at first; what is sent instead is refused no more.
        server.wait(lambda: len(server.seen("POST", "/results")) >= 2)
        server.fixed.clear()
        server.wait(lambda: run.results or len(server.seen("POST", "/results")) >= 4)
    codes = [body["results"][0].get("error", {}).get("code") for body in server.seen("POST", "/results")]
    assert codes[0] is None and "result_refused" in codes


def test_a_server_that_refuses_reports_gets_heartbeats_and_results_without(server: FakeServer) -> None:
    server.refuses_reports = True
    worker = worker_of(server)
    errors: list[str] = []

    @worker.handler("h")
    async def handler(task: Task) -> str:
        task.progress(10)
        try:
            await task.checkpoint(1, flush=True)
        except Problem as problem:
            errors.append(problem.code)
        task.log("a line")
        return "output"

    run = server.add("h")
    with Running(worker):
        server.wait_state(run, "succeeded")
    assert errors == ["invalid_request"]
    assert (run.attempt, run.results[0]["output"]) == (1, "output")


def test_what_is_not_held_any_more_is_stopped_and_not_reported(server: FakeServer) -> None:
    worker = worker_of(server)
    started, ended = threading.Event(), threading.Event()

    @worker.handler("h")
    async def handler(task: Task) -> None:
        started.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.set()

    run = server.add("h")
    with Running(worker):
        assert started.wait(PATIENCE)
        server.wait(lambda: server.seen("POST", "/heartbeat") and server.seen("POST", "/heartbeat")[-1]["held"])
        server.take_away(run)
        assert ended.wait(PATIENCE)
        another = server.add("none")
        server.wait_state(another, "failed")
    assert run.results == []
    assert all(result["run_id"] == another.id for body in server.seen("POST", "/results") for result in body["results"])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cancelled_run_stops_its_handler_and_is_reported_so(server: FakeServer, is_async: bool) -> None:
    worker = worker_of(server)
    seen: list[bool] = []
    started = threading.Event()

    def handler(task: Task) -> str:
        started.set()
        seen.append(task.cancelled.wait(PATIENCE))
        return "ended early"

    async def handler_async(task: Task) -> None:
        started.set()
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            seen.append(task.cancelled.is_set())
            raise

    worker.handler("h")(handler_async if is_async else handler)
    run = server.add("h")
    with Running(worker):
        assert started.wait(PATIENCE)
        server.cancel(run)
        server.wait_state(run, "cancelled")
    assert seen == [True]
    assert run.results[0]["outcome"] == "cancelled" and "error" not in run.results[0]


def test_a_worker_taken_for_dead_begins_anew_holding_nothing(server: FakeServer) -> None:
    worker = worker_of(server, concurrency=1)
    started, stopped = threading.Event(), threading.Event()

    @worker.handler("h")
    def handler(task: Task) -> int:
        if task.attempt == 1:
            started.set()
            task.cancelled.wait(PATIENCE)
            stopped.set()
        return task.attempt

    run = server.add("h")
    with Running(worker):
        assert started.wait(PATIENCE)
        before = set(server.workers)
        server.lose_workers()
        server.wait_state(run, "succeeded")
        assert stopped.is_set()
        assert not before & server.workers
    assert [result["output"] for result in run.results] == ["2"]
    assert sum("worker" not in claim for claim in server.seen("POST", "/claims")) == 2


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("limit", [{"timeout": "PT0.050S"}, {"deadline": "2020-01-01T00:00:00Z", "timeout": "PT5M"}])
def test_an_attempt_that_takes_too_long_is_stopped_and_timed_out(
    server: FakeServer, limit: dict[str, str], is_async: bool
) -> None:
    worker = worker_of(server)

    async def handler_async(task: Task) -> None:
        await asyncio.sleep(PATIENCE)

    def handler(task: Task) -> None:
        task.cancelled.wait(PATIENCE)

    worker.handler("h")(handler_async if is_async else handler)
    run = server.add("h", **limit)
    with Running(worker):
        server.wait_state(run, "timed_out")
    assert run.results[0]["error"]["code"] == "timed_out"


def test_a_handler_that_does_not_stop_keeps_its_place_but_not_its_attempt(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(punctual.engine, "STOP_GRACE", 0.05)
    worker = worker_of(server, concurrency=1)
    go = threading.Event()
    worker.handler("deaf")(lambda task: go.wait(PATIENCE))
    worker.handler("h")(lambda task: None)
    run, next_ = server.add("deaf", timeout="PT0.050S"), server.add("h")
    with Running(worker):
        server.wait_state(run, "timed_out")
        beats = len(server.seen("POST", "/heartbeat"))
        server.wait(lambda: len(server.seen("POST", "/heartbeat")) >= beats + 2)
        assert next_.state == "pending"
        go.set()
        server.wait_state(next_, "succeeded")


def test_a_coroutine_that_blocks_the_loop_does_not_stop_heartbeats(server: FakeServer) -> None:
    worker = worker_of(server)
    go = threading.Event()

    @worker.handler("h")
    async def handler(task: Task) -> None:
        go.wait(PATIENCE)

    run = server.add("h")
    with Running(worker):
        server.wait_state(run, "running")
        beats = len(server.seen("POST", "/heartbeat"))
        server.wait(lambda: len(server.seen("POST", "/heartbeat")) >= beats + 3)
        go.set()
        server.wait_state(run, "succeeded")


def test_a_refusal_at_the_first_call_ends_the_worker(server: FakeServer) -> None:
    server.fixed["POST", "/v1/claims"] = problem(401, "unauthenticated", "a key is needed")
    worker = worker_of(server)
    with pytest.raises(Problem) as raised:
        worker.run()
    assert (raised.value.code, raised.value.status) == ("unauthenticated", 401)


def test_stopping_lets_what_runs_end_and_takes_leave(server: FakeServer) -> None:
    worker = worker_of(server, grace=PATIENCE)
    started, go = threading.Event(), threading.Event()

    @worker.handler("h")
    def handler(task: Task) -> str:
        started.set()
        go.wait(PATIENCE)
        return "ended"

    run = server.add("h")
    with Running(worker) as running:
        assert started.wait(PATIENCE)
        worker.stop()
        beats = len(server.seen("POST", "/heartbeat"))
        server.wait(lambda: len(server.seen("POST", "/heartbeat")) >= beats + 2, "heartbeats go on")
        late = server.add("h")
        go.set()
        running.join()
    assert run.results[0]["output"] == "ended" and len(server.deleted) == 1
    assert (late.attempt, late.results) == (0, [])


def test_what_does_not_end_within_the_grace_is_released_with_its_checkpoint(server: FakeServer) -> None:
    worker = worker_of(server, grace=0.05)
    started = threading.Event()

    @worker.handler("h")
    async def handler(task: Task) -> None:
        started.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            task.checkpoint({"row": 9})

    run = server.add("h")
    with Running(worker) as running:
        assert started.wait(PATIENCE)
        worker.stop()
        running.join()
    assert [result["outcome"] for result in run.results] == ["released"]
    assert (run.state, run.checkpoint, len(server.deleted)) == ("pending", {"row": 9}, 1)


def test_a_worker_that_stops_while_the_server_is_down_ends_all_the_same(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(punctual.engine, "DELIVER_GRACE", 0.2)
    worker = worker_of(server)
    started = threading.Event()

    @worker.handler("h")
    def handler(task: Task) -> None:
        started.set()
        task.cancelled.wait(PATIENCE)

    run = server.add("h")
    with Running(worker) as running:
        assert started.wait(PATIENCE)
        server.down()
        worker.stop()
        worker.stop()
        running.join()
    assert run.results == []


def test_it_runs_inside_an_event_loop_and_gives_all_back_when_cancelled(server: FakeServer) -> None:
    worker = worker_of(server)
    started = threading.Event()

    @worker.handler("h")
    async def handler(task: Task) -> None:
        started.set()
        await asyncio.sleep(PATIENCE)

    async def program() -> None:
        running = asyncio.ensure_future(worker.run_async())
        run = server.add("h")
        assert await asyncio.to_thread(started.wait, PATIENCE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [result["outcome"] for result in run.results] == ["released"]

    asyncio.run(program())
    assert len(server.deleted) == 1


def test_wrong_settings_are_refused_at_once() -> None:
    server_url = "http://127.0.0.1:7171"
    wrong: list[dict[str, Any]] = [{"queues": []}, {"queues": "emails"}, {"concurrency": 0}]
    for settings in wrong:
        with pytest.raises(ValueError):
            punctual.Worker(server_url, **settings)
    worker = punctual.Worker(server_url)
    worker.handler("h")(lambda task: None)
    with pytest.raises(ValueError, match="already"):
        worker.handler("h")(lambda task: None)
    with pytest.raises(ValueError, match="address"):
        punctual.Worker("127.0.0.1:7171").run()
