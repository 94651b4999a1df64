"""Executes one handler, and says what came of it.

Functions run in a thread of their own, coroutines in the event loop of the program. Either may go on after it was
told to stop: its end is seen here, whenever it comes.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from typing import Any, Awaitable, Callable, Optional, TypeVar, Union

from .errors import MESSAGE_MAX, NotRetryable, RetryAfter, code_of, word
from .task import Task
from .wire import duration, shorten, to_json

Handler = Union[Callable[[Task], Any], Callable[[Task], Awaitable[Any]]]
T = TypeVar("T")

OUTPUT_MAX = (256 << 10) + 4  # A character more than a server keeps at most, so that it says that there was more.


class Work:
    """A handler that was started; ``ended`` is what it returned or raised, however late."""

    def __init__(self, ended: asyncio.Future[tuple[Any, Optional[BaseException]]], cancel: Callable[[], None]) -> None:
        self.ended = ended
        self.cancel = cancel


def start(handler: Handler, task: Task, loop: asyncio.AbstractEventLoop) -> Work:
    """Starts a handler: a coroutine function in ``loop``, any other in a thread."""
    return _start_coroutine(handler, task, loop) if is_coroutine(handler) else _start_thread(handler, task)


def is_coroutine(handler: Any) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))


def in_thread(function: Callable[[], T]) -> asyncio.Future[tuple[Optional[T], Optional[BaseException]]]:
    """Calls a function in a thread that does not keep the process alive, and gives its value or its error."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Optional[T], Optional[BaseException]]] = loop.create_future()

    def body() -> None:
        try:
            outcome: tuple[Optional[T], Optional[BaseException]] = (context.run(function), None)
        except BaseException as error:
            outcome = (None, error)
        _settle(loop, ended, outcome)

    context = contextvars.copy_context()
    threading.Thread(target=body, daemon=True).start()
    return ended


def _start_thread(handler: Handler, task: Task) -> Work:
    return Work(in_thread(lambda: handler(task)), cancel=lambda: None)


def _start_coroutine(handler: Handler, task: Task, loop: asyncio.AbstractEventLoop) -> Work:
    here = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, Optional[BaseException]]] = here.create_future()
    running: list[asyncio.Task[Any]] = []

    async def body() -> Any:
        value: Any = handler(task)
        return await value

    def report(done: asyncio.Task[Any]) -> None:
        if done.cancelled():
            outcome: tuple[Any, Optional[BaseException]] = (None, asyncio.CancelledError())
        else:
            error = done.exception()
            outcome = (None, error) if error is not None else (done.result(), None)
        _settle(here, ended, outcome)

    def begin() -> None:
        running.append(loop.create_task(body()))
        running[0].add_done_callback(report)

    def cancel() -> None:
        _call(loop, lambda: running[0].cancel())

    _call(loop, begin)
    return Work(ended, cancel)


def _settle(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[tuple[Any, Optional[BaseException]]],
    outcome: tuple[Any, Optional[BaseException]],
) -> None:
    _call(loop, lambda: None if future.done() else future.set_result(outcome))


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        pass  # The loop is closed: nobody waits any more.


def outcome_of(value: Any, error: Optional[BaseException]) -> dict[str, Any]:
    """The members of a result for what a handler returned or raised."""
    if error is not None:
        return failure(error)
    if value is None:
        return {"outcome": "succeeded"}
    try:
        text = value if isinstance(value, str) else to_json(value)
    except (TypeError, ValueError) as wrong:
        # It would do its work again to fail again.
        return failed("output_not_json", f"what the handler returned is no JSON: {wrong}", is_retryable=False)
    return {"outcome": "succeeded", "output": shorten(text, OUTPUT_MAX)}


def failure(error: BaseException) -> dict[str, Any]:
    """The members of a result for an exception."""
    message = str(error) or type(error).__name__
    result = failed(code_of(error), message, is_retryable=not isinstance(error, NotRetryable))
    if isinstance(error, RetryAfter):
        result["error"]["retry_after"] = duration(error.seconds)
    return result


def failed(code: str, message: str, *, is_retryable: bool = True, outcome: str = "failed") -> dict[str, Any]:
    """The members of a result that is none."""
    error = {"code": word(code), "message": shorten(message, MESSAGE_MAX), "is_retryable": is_retryable}
    return {"outcome": outcome, "error": error}
