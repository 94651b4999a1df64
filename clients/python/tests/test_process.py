"""Signals to a worker that is a process of its own, and the texts that users copy."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer, Run
from processes import ROOT, WorkerProcess, code_of_readme

from punctual import Task, Worker

WORKER = Path(__file__).parent / "drained.py"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_end_and_takes_leave(number: int) -> None:
    with FakeServer() as server, WorkerProcess(WORKER, server.url) as worker:
        run = server.add("slow", payload={"seconds": 0.5})
        worker.wait_line(f"begins {run.id} 1")
        worker.signal(number)
        assert worker.wait() == 0, worker.lines
    assert run.results[0]["output"] == "ended" and len(server.deleted) == 1
    assert worker.lines[-1] == "left"


def test_what_outlives_the_grace_is_released() -> None:
    with FakeServer() as server, WorkerProcess(WORKER, server.url, GRACE="0.1") as worker:
        runs = [server.add("slow"), server.add("slow", payload={"seconds": 0})]
        worker.wait_line(f"begins {runs[0].id} 1")
        server.wait_state(runs[1], "succeeded")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.lines
    assert [result["outcome"] for result in runs[0].results] == ["released"]
    assert runs[0].state == "pending" and len(server.deleted) == 1


def test_a_second_signal_ends_the_grace() -> None:
    with FakeServer() as server, WorkerProcess(WORKER, server.url, GRACE="600") as worker:
        run = server.add("slow")
        worker.wait_line(f"begins {run.id} 1")
        worker.signal(signal.SIGTERM)
        beats = len(server.seen("POST", "/heartbeat"))
        server.wait(lambda: len(server.seen("POST", "/heartbeat")) >= beats + 2)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.lines
    assert [result["outcome"] for result in run.results] == ["released"]


def test_the_ten_lines_of_the_readme_are_the_example_and_work() -> None:
    example = ROOT / "examples" / "ten_lines.py"
    blocks = code_of_readme()
    assert blocks[0] == example.read_text()
    assert sum(1 for line in blocks[0].splitlines() if line.strip()) <= 10
    with FakeServer() as server, WorkerProcess(example, server.url) as worker:
        run = server.add("welcome", queue="emails", payload={"n": 40})
        server.wait_state(run, "succeeded")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.lines
    assert run.results[0]["output"] == "sent 40"


def test_the_once_of_the_readme_charges_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("charges.db") as database:
        database.execute("CREATE TABLE charges (customer TEXT, cents INTEGER)")
    names: dict[str, Any] = {"worker": Worker("http://127.0.0.1:7171")}
    exec(code_of_readme()[1], names)
    task = Task(Run(1, "charge", {"payload": {"customer": "ada", "cents": 700}}).claimed())
    assert [names["charge"](task) for _ in range(2)] == [{"charged": 700}] * 2
    assert database.execute("SELECT * FROM charges").fetchall() == [("ada", 700)]
