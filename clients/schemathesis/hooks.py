"""What schemathesis is told about this server beyond the document, and two checks of our own.

Loaded by it in each process. Promise: nothing here makes a request right that is wrong, or lets an answer pass that is not documented, but for
`fields=`, which may leave out what is required otherwise; what is left out is checked instead.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import zlib
from typing import Any

import schemathesis
from schemathesis.openapi.checks import JsonSchemaError

OWN_ID = os.environ["OWN_KEY"].split("_")[1]
ANOTHER_ID = "0" * 16

_lock = threading.Lock()
_count = 0


def _tell() -> None:
    with open(os.environ["COUNT_FILE"], "w", encoding="ascii") as file:
        file.write(str(_count))


atexit.register(_tell)


@schemathesis.serializer("application/x-ndjson")
def lines(ctx: Any, value: Any) -> bytes:
    """A job as a line, or whatever it is instead."""
    return value if isinstance(value, bytes) else json.dumps(value, default=str).encode() + b"\n"


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    global _count
    with _lock:
        _count += 1
    # Whoever revokes or rotates the key that the requests are made with hears 401 from then on.
    for name, value in (case.path_parameters or {}).items():
        if value == OWN_ID:
            case.path_parameters[name] = ANOTHER_ID
    # Most of what names a tenant names none that is there; an eighth of it is enough to see that.
    said = f"{case.method}{case.path}{case.query!r}{case.body!r}"
    if case.headers and "Punctual-Tenant" in case.headers and zlib.crc32(said.encode(errors="replace")) % 8:
        del case.headers["Punctual-Tenant"]
    # What waits for something to happen is asked not to: nothing will.
    if case.path == "/v1/claims" and isinstance(case.body, dict):
        case.body["wait"] = "PT0.001S"
    if case.query and case.query.get("follow"):
        case.query["follow"] = "false"


def asked_for(case: Any) -> set[str]:
    """The fields that a request asks for; none if it wants them all."""
    asked = (case.query or {}).get("fields")
    if isinstance(asked, (list, tuple)):
        asked = ",".join(map(str, asked))
    return set(asked.split(",")) if isinstance(asked, str) and asked else set()


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Whether a failure is one. Of what was asked for by its fields, others may be missing."""
    is_missing = isinstance(failure, JsonSchemaError) and "required" in str(failure.schema_path)
    return not (is_missing and asked_for(case))


@schemathesis.check
def every_answer_names_its_request(ctx: Any, response: Any, case: Any) -> None:
    names = response.headers.get("x-request-id") or []
    assert names, "an answer without X-Request-Id"
    if response.status_code >= 400 and "problem+json" in str(response.headers.get("content-type")):
        assert response.json()["instance"] == f"urn:request:{names[0]}", "a problem that is about another request"


@schemathesis.check
def only_the_fields_that_were_asked_for(ctx: Any, response: Any, case: Any) -> None:
    asked = asked_for(case)
    # What has a field of that name is no page.
    if not asked or "items" in asked or response.status_code != 200 or not case.path.startswith("/v1/"):
        return
    body = response.json()
    items = body["items"] if set(body) == {"items", "next_cursor"} else [body]
    for item in items:
        assert set(item) <= asked, f"{set(item) - asked} was not asked for"
