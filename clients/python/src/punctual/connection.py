"""Requests over connections that stay open.

``http.client`` and nothing else. Any number of threads may call; each request has a connection of its own while
it lasts. Promise: a request that ends without an exception had a complete answer.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
from typing import Any, Mapping, Optional
from urllib.parse import urlsplit

from .errors import Problem, ServerUnreachable
from .wire import to_json

IDLE_MAX = 4  # A worker claims, reports and sends heartbeats at the same time; one more is to spare.
CONNECT_TIMEOUT = 5.0  # A server that does not take a connection by then is as good as down.
_KEY = re.compile(r"[!-~]+")  # What goes into a header as it is.


class Connections:
    """The way to one server."""

    def __init__(self, server_url: str, key: Optional[str] = None, tenant: Optional[str] = None) -> None:
        url = urlsplit(server_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"`{server_url}` is not the address of a server; write it as `http://host:7171`")
        self._host, self._port, self._is_tls = url.hostname, url.port, url.scheme == "https"
        self._prefix = url.path.rstrip("/")
        self._headers = {"Accept": "application/json", "User-Agent": "punctual-python/0.1.0"}
        # A file that a key was read from ends with a line break.
        key = (key or os.environ.get("PUNCTUAL_KEY") or "").strip()
        if key and not _KEY.fullmatch(key):
            # What somebody put there may be a secret, and is not repeated.
            raise ValueError("that is not a key: one word that begins with `pk_`, as it was shown when it was created")
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        if tenant is not None:
            self._headers["Punctual-Tenant"] = tenant
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._aborts = 0

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout: float = 30.0,
        headers: Optional[Mapping[str, str]] = None,
        aborts: Optional[int] = None,
    ) -> Any:
        """Sends a request and gives the JSON of its answer.

        Raises ``Problem`` if the server refuses and ``ServerUnreachable`` if there is no answer. With ``aborts``, how
        many there were when somebody wanted the request, one that came since ends it before it is sent.
        """
        text = None if body is None else (body if isinstance(body, str) else to_json(body)).encode()
        head = {**self._headers, **(headers or {})}
        if text is not None:
            head["Content-Type"] = "application/json"
        aborts = self._aborts if aborts is None else aborts
        # A connection that lay idle may have been closed by the server: that says nothing about the server.
        while True:
            connection, is_fresh = self._take()
            try:
                if connection.sock is None:
                    connection.connect()
                # From here on an abort finds the socket.
                if aborts != self._aborts:
                    raise ConnectionAbortedError("aborted")
                status, answer, retry_after = _exchange(connection, method, self._prefix + path, text, head, timeout)
                break
            except (OSError, http.client.HTTPException) as error:
                self._drop(connection)
                is_final = is_fresh or isinstance(error, (TimeoutError, socket.timeout)) or aborts != self._aborts
                if is_final:
                    reason = str(error) or type(error).__name__
                    raise ServerUnreachable(f"{method} {path}: {reason}") from error
        self._give_back(connection)
        decoded = answer.decode("utf-8", "replace")
        try:
            parsed = json.loads(decoded) if decoded.strip() else None
        except ValueError:
            parsed = None
            if 200 <= status < 300:
                raise Problem("http_status", status, f"{method} {path}: the answer is not JSON") from None
        if 200 <= status < 300:
            return parsed
        raise Problem.read(status, parsed, decoded, retry_after)

    @property
    def aborts(self) -> int:
        """How many there were."""
        return self._aborts

    def abort(self) -> None:
        """Ends every request that waits for its answer; each raises ``ServerUnreachable``."""
        with self._lock:
            self._aborts += 1
            busy = list(self._busy)
            self._close_idle()
        for connection in busy:
            sock = connection.sock
            if sock is not None:
                try:
                    # Not the method of a TLS socket, which would pull the session from under the reader.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
                except OSError:
                    pass  # It is closed already.

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        with self._lock:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
            is_fresh = connection is None
            if connection is None:
                made = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
                connection = made(self._host, self._port, timeout=CONNECT_TIMEOUT)
            self._busy.add(connection)
            return connection, is_fresh

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._busy.discard(connection)
            is_kept = connection.sock is not None and len(self._idle) < IDLE_MAX
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: Optional[bytes],
    headers: Mapping[str, str],
    timeout: float,
) -> tuple[int, bytes, Optional[float]]:
    sock: socket.socket = connection.sock
    sock.settimeout(timeout)
    connection.request(method, path, body, dict(headers))
    answer = connection.getresponse()
    text = answer.read()
    after = answer.getheader("Retry-After", "")
    return answer.status, text, float(after) if after.isdigit() else None
