"""Against the real server: the binary of PUNCTUAL_BIN, a data directory of its own for each test."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any, Iterator

import pytest
from processes import ROOT, Server, WorkerProcess, code_of_readme

from punctual import Job, JobSpec, Problem

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("PUNCTUAL_BIN" not in os.environ, reason="PUNCTUAL_BIN is not set"),
]
WORKER = Path(__file__).parent / "drained.py"


@pytest.fixture()
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data") as server:
        yield server


def register(server: Server, handler: str, payload: Any = None, **members: Any) -> Job:
    spec: JobSpec = {
        "name": handler,
        "schedule": {"at": "2099-01-01T00:00:00Z"},
        "target": {"worker": {"handler": handler}},
        "payload": payload,
    }
    return server.client.create_job({**spec, **members})  # type: ignore[typeddict-item]


def test_the_ten_lines_work(server: Server) -> None:
    job = register(server, "welcome", {"n": 40}, queue="emails", schedule={"now": True})
    with WorkerProcess(ROOT / "examples" / "ten_lines.py", server.url) as worker:
        run_id = server.client.list_runs(job=job["id"])["items"][0]["id"]
        run = server.wait_run(run_id, lambda run: run["state"] == "succeeded")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.lines
    assert run["attempts"][0]["output"]["text"] == "sent 40"
    assert len(run["attempts"]) == 1


def test_every_run_ends_once_with_several_workers(server: Server) -> None:
    job = register(server, "slow", {"seconds": 0})
    runs = [server.client.trigger(job["id"])["id"] for _ in range(100)]
    with WorkerProcess(WORKER, server.url) as one, WorkerProcess(WORKER, server.url) as two:
        for run_id in runs:
            run = server.wait_run(run_id, lambda run: run["state"] == "succeeded")
            assert len(run["attempts"]) == 1, run
        begun = [line for worker in (one, two) for line in worker.lines if line.startswith("begins")]
    assert sorted(begun) == sorted(f"begins {run_id} 1" for run_id in runs)


def test_a_run_goes_on_from_its_checkpoint_after_its_worker_was_killed(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--lease", "10") as server:
        job = register(server, "steps", retry={"max_attempts": 5, "delays": ["PT0.1S"]})
        run_id = server.client.trigger(job["id"])["id"]
        with WorkerProcess(WORKER, server.url) as killed:
            killed.wait_line(f"saved {run_id} 1")
            before = server.client.get_run(run_id)
            killed.signal(signal.SIGKILL)
            killed.wait()
        with WorkerProcess(WORKER, server.url):
            run = server.wait_run(run_id, lambda run: run["state"] == "succeeded")
    assert before["progress"] == {"percent": 50, "message": "half way"}
    assert before["checkpoint"] == {"row": 800}
    output = json.loads(run["attempts"][-1]["output"]["text"])
    assert output["from"] == {"row": 800} and output["attempt"] >= 2


def test_a_drained_worker_loses_nothing(server: Server) -> None:
    job = register(server, "slow", {"seconds": 0.5})
    runs = [server.client.trigger(job["id"])["id"] for _ in range(20)]
    with WorkerProcess(WORKER, server.url) as drained:
        drained.wait_line("begins")
        drained.signal(signal.SIGTERM)
        assert drained.wait() == 0, drained.lines
        assert drained.lines[-1] == "left"
    assert server.client.list_workers() == []
    with WorkerProcess(WORKER, server.url):
        for run_id in runs:
            run = server.wait_run(run_id, lambda run: run["state"] == "succeeded")
            outcomes = [attempt["outcome"] for attempt in run["attempts"]]
            assert outcomes.count("succeeded") == 1 and "failed" not in outcomes and "lost" not in outcomes, run
    ended = [line for line in drained.lines if line.startswith("ends")]
    assert len(ended) == sum(line.startswith("begins") for line in drained.lines) >= 1


def test_what_outlives_the_grace_is_done_by_somebody_else_at_once(server: Server) -> None:
    job = register(server, "slow", {"seconds": 2})
    run_id = server.client.trigger(job["id"])["id"]
    with WorkerProcess(WORKER, server.url, GRACE="0.1") as drained:
        drained.wait_line(f"begins {run_id}")
        drained.signal(signal.SIGTERM)
        assert drained.wait() == 0, drained.lines
    with WorkerProcess(WORKER, server.url):
        run = server.wait_run(run_id, lambda run: run["state"] == "succeeded")
    assert run["attempts"][-1]["output"]["text"] == "ended"


def test_a_cancelled_run_stops(server: Server) -> None:
    job = register(server, "slow")
    run_id = server.client.trigger(job["id"])["id"]
    with WorkerProcess(WORKER, server.url) as worker:
        worker.wait_line(f"begins {run_id} 1")
        server.client.cancel_run(run_id)
        worker.wait_line(f"stops {run_id} 1")
        run = server.wait_run(run_id, lambda run: run["state"] == "cancelled")
    assert run["attempts"][0]["outcome"] == "cancelled"


def test_an_attempt_that_takes_too_long_is_timed_out(server: Server) -> None:
    job = register(server, "slow", timeout="PT0.3S", retry={"max_attempts": 1})
    run_id = server.client.trigger(job["id"])["id"]
    with WorkerProcess(WORKER, server.url) as worker:
        worker.wait_line(f"stops {run_id} 1")
        run = server.wait_run(run_id, lambda run: run["state"] == "timed_out")
    assert run["attempts"][0]["error"]["code"] == "timed_out"


def test_a_handler_that_nobody_has_fails(server: Server) -> None:
    job = register(server, "none", retry={"max_attempts": 1})
    run_id = server.client.trigger(job["id"])["id"]
    with WorkerProcess(WORKER, server.url):
        run = server.wait_run(run_id, lambda run: run["state"] == "failed")
    assert run["attempts"][0]["error"]["code"] == "handler_unknown"


def test_a_server_that_is_restarted_gets_the_result_of_what_went_on_meanwhile(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        job = register(server, "slow", {"seconds": 1})
        run_id = server.client.trigger(job["id"])["id"]
        with WorkerProcess(WORKER, server.url) as worker:
            worker.wait_line(f"begins {run_id} 1")
            server.signal(signal.SIGKILL)
            server.wait()
            worker.wait_line(f"ends {run_id} 1")
            with Server(tmp_path / "data", port=server.port) as again:
                run = again.wait_run(run_id, lambda run: run["state"] == "succeeded")
                assert len(run["attempts"]) == 1, run
                # It goes on working, as the same or as another.
                next_id = again.client.trigger(job["id"])["id"]
                again.wait_run(next_id, lambda run: run["state"] == "succeeded")
    assert worker.lines.count(f"begins {run_id} 1") == 1


def test_the_example_charges_once(server: Server, tmp_path: Path) -> None:
    job = register(server, "charge", {"customer": "ada", "cents": 700}, queue="charges")
    run_id = server.client.trigger(job["id"])["id"]
    file = tmp_path / "charges.db"
    with WorkerProcess(ROOT / "examples" / "once.py", server.url, CHARGES=str(file)):
        server.wait_run(run_id, lambda run: run["state"] == "succeeded")
    assert sqlite3.connect(file).execute("SELECT * FROM charges").fetchall() == [("ada", 700)]


def test_the_example_that_resumes_ends(server: Server) -> None:
    environment = {"ROWS": "20", "SECONDS_PER_ROW": "0.01"}
    with WorkerProcess(ROOT / "examples" / "resume.py", server.url, **environment) as worker:
        worker.wait_line("this worker is")
        runs = server.client.list_runs(queue="rows")["items"]
        run = server.wait_run(runs[0]["id"], lambda run: run["state"] == "succeeded")
    assert run["attempts"][0]["output"]["text"] == '{"first":0,"rows":20}'
    assert [line["text"] for line in run["attempts"][0]["log"]] == ["rows 0 to 20"]


def test_refusals_are_problems(server: Server) -> None:
    with pytest.raises(Problem) as raised:
        server.client.get_run("none")
    assert raised.value.status in (404, 422)
    with pytest.raises(Problem) as raised:
        register(server, "h", timeout="soon")
    assert raised.value.errors[0].pointer == "/timeout"


def test_the_readme_registers_a_job(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    exec(code_of_readme()[2].replace("http://127.0.0.1:7171", server.url), {})
    assert capsys.readouterr().out == "pending\n"
