"""The management client, and requests in general."""

from __future__ import annotations

import pytest
from fake_server import FakeServer, problem

from punctual import Client, FieldError, Problem, ServerUnreachable
from punctual.connection import Connections
from punctual.wire import duration, read_time, seconds, shorten


def test_it_registers_triggers_reads_and_lists() -> None:
    with FakeServer() as server, Client(server.url + "/", key="secret", tenant="acme") as client:
        server.fixed["POST", "/v1/jobs"] = 201, {"id": "job-1", "name": "a"}
        server.fixed["POST", "/v1/jobs/job-1/trigger"] = 201, {"id": "run-1", "state": "pending"}
        server.fixed["GET", "/v1/runs/run-1"] = 200, {"id": "run-1", "attempts": []}
        server.fixed["GET", "/v1/runs"] = 200, {"items": [{"id": "run-1"}], "next_cursor": None}
        job = client.create_job({"name": "a", "schedule": {"now": True}, "target": {"worker": {"handler": "h"}}})
        run = client.trigger(job["id"], correlation_id="c")
        assert client.get_run(run["id"])["attempts"] == []
        assert [run["id"] for run in client.each_run(job=job["id"], state="pending")] == ["run-1"]
    assert [path for _, path, _, _ in server.requests] == [
        "/v1/jobs",
        "/v1/jobs/job-1/trigger",
        "/v1/runs/run-1",
        "/v1/runs?job=job-1&state=pending&limit=1000",
    ]
    assert server.requests[1][2] == {"correlation_id": "c"}
    headers = server.requests[0][3]
    assert headers["Authorization"] == "Bearer secret" and headers["Punctual-Tenant"] == "acme"
    assert headers["Idempotency-Key"] != server.requests[1][3]["Idempotency-Key"]


def test_a_key_is_taken_from_the_environment_unless_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(**options: str) -> object:
        with FakeServer() as server, Client(server.url, **options) as client:
            server.fixed["GET", "/v1/runs/run-1"] = 200, {"id": "run-1", "attempts": []}
            client.get_run("run-1")
        return server.requests[0][3].get("Authorization")

    monkeypatch.delenv("PUNCTUAL_KEY", raising=False)
    assert shown() is None
    monkeypatch.setenv("PUNCTUAL_KEY", "pk_1_2")
    assert shown() == "Bearer pk_1_2"
    assert shown(key="pk_3_4") == "Bearer pk_3_4"
    monkeypatch.setenv("PUNCTUAL_KEY", "")
    assert shown() is None
    # As it is read from a file.
    assert shown(key="pk_3_4\n") == "Bearer pk_3_4"
    monkeypatch.setenv("PUNCTUAL_KEY", " pk_1_2\r\n")
    assert shown() == "Bearer pk_1_2"


@pytest.mark.parametrize("key", ["pk_1_5ec2e7\npk_3_4", "pk_1_5ec2e7 x", "pk_1_5ec2e7\u20ac", "5ec2e7\x00"])
def test_what_is_no_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError) as raised:
        Client("http://127.0.0.1:1", key=key)
    assert "not a key" in str(raised.value) and "5ec2e7" not in repr(raised.value)


def test_a_refusal_is_raised_with_every_wrong_field() -> None:
    with FakeServer() as server, Client(server.url) as client:
        status, body = problem(422, "invalid_request", "1 field is wrong")
        wrong = {"pointer": "/schedule/cron", "code": "schedule_syntax", "detail": "no"}
        server.fixed["POST", "/v1/jobs"] = status, {**body, "errors": [wrong]}
        with pytest.raises(Problem) as raised:
            client.create_job({"name": "a"})
    assert (raised.value.code, raised.value.status, raised.value.detail) == ("invalid_request", 422, "1 field is wrong")
    assert raised.value.errors == (FieldError("/schedule/cron", "schedule_syntax", "no"),)
    assert str(raised.value) == "1 field is wrong (invalid_request)\n  /schedule/cron: no"


def test_connections_are_kept_and_one_that_was_closed_is_replaced() -> None:
    with FakeServer() as server, Client(server.url) as client:
        server.fixed["GET", "/v1/runs/a"] = 200, {"id": "a"}
        client.get_run("a")
        client.get_run("a")
        assert len(server._connections) == 1
        server.down()
        server.up()
        assert client.get_run("a") == {"id": "a"}
        server.down()
        with pytest.raises(ServerUnreachable):
            client.get_run("a")


def test_durations_and_times_are_read_and_written() -> None:
    for text, length in [("PT5S", 5.0), ("PT0.250S", 0.25), ("PT1H30M", 5400.0), ("PT24H", 86400.0), ("P1DT1S", 86401)]:
        assert seconds(text) == length
    for wrong in ("5s", "P", "PT", "", "P1M"):
        with pytest.raises(ValueError):
            seconds(wrong)
    assert [duration(length) for length in (5, 0.25, 0, 61.5)] == ["PT5S", "PT0.250S", "PT0.001S", "PT61.500S"]
    assert read_time("2026-11-18T10:00:00.5+01:00").isoformat() == "2026-11-18T09:00:00.500000+00:00"
    with pytest.raises(ValueError):
        read_time("tomorrow")


def test_texts_are_cut_between_characters() -> None:
    assert [shorten("aé", most) for most in (0, 1, 2, 3)] == ["", "a", "a", "aé"]


def test_an_abort_ends_a_request_that_was_wanted_before_it_and_is_not_sent_yet() -> None:
    with FakeServer() as server:
        connections = Connections(server.url)
        wanted = connections.aborts
        connections.abort()
        with pytest.raises(ServerUnreachable):
            connections.request("GET", "/v1/workers/w", aborts=wanted)
        assert server.requests == []
        with pytest.raises(Problem):
            connections.request("GET", "/v1/workers/w", aborts=connections.aborts)
        connections.close()
