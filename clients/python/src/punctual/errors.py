"""What a server refuses, and what a handler raises to say how its attempt failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Optional

MESSAGE_MAX = 4096  # Characters of an error's message: enough for people, small enough for a list of a thousand.


@dataclass(frozen=True)
class FieldError:
    """One wrong field of a request."""

    pointer: str
    code: str
    detail: str


class Problem(Exception):
    """A refusal of the server (RFC 9457), with its stable ``code``."""

    def __init__(
        self,
        code: str,
        status: int,
        detail: str,
        title: str = "",
        errors: tuple[FieldError, ...] = (),
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(f"{detail} ({code})" + "".join(f"\n  {e.pointer}: {e.detail}" for e in errors))
        self.code = code
        self.status = status
        self.detail = detail
        self.title = title
        self.errors = errors
        self.retry_after = retry_after

    @classmethod
    def read(cls, status: int, body: Any, text: str, retry_after: Optional[float] = None) -> Problem:
        """From an answer; one that is no problem document, as a proxy's, has the code ``http_status``."""
        if not isinstance(body, dict) or not isinstance(body.get("code"), str):
            detail = f"the server answered {status}: {text[:200].strip()}"
            return cls("http_status", status, detail, retry_after=retry_after)
        errors = tuple(
            FieldError(str(e.get("pointer", "")), str(e.get("code", "")), str(e.get("detail", "")))
            for e in body.get("errors") or ()
        )
        return cls(body["code"], status, str(body.get("detail", "")), str(body.get("title", "")), errors, retry_after)


class ServerUnreachable(ConnectionError):
    """The server could not be reached, or went away before its answer was complete."""


class NotRetryable(Exception):
    """Raised by a handler: the attempt failed, and another would fail as well."""

    def __init__(self, message: str = "", *, code: Optional[str] = None) -> None:
        super().__init__(message)
        self.code = code


class RetryAfter(Exception):
    """Raised by a handler: the attempt failed, and the next one is to wait for so many seconds."""

    def __init__(self, seconds: float, message: str = "", *, code: Optional[str] = None) -> None:
        super().__init__(message or f"to be tried again in {seconds:g} s")
        self.seconds = seconds
        self.code = code


# These say nothing about what happened.
_NAMELESS = (Exception, BaseException, NotRetryable, RetryAfter)


def code_of(error: BaseException) -> str:
    """The stable word of an error: its own, or the name of its class as ``snake_case``."""
    if isinstance(error, (NotRetryable, RetryAfter)) and error.code:
        return error.code
    if type(error) in _NAMELESS:
        return "worker_failed"
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(error).__name__)
    return name.strip("_").lower() or "worker_failed"


def word(text: str) -> str:
    """As the server takes words: up to 200 printable ASCII characters without spaces."""
    return re.sub(r"[^!-~]+", "_", text)[:200] or "worker_failed"
