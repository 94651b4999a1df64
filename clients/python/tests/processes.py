"""Workers and servers as processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Optional, TypeVar

from punctual import Client, Run

P = TypeVar("P", bound="Process")
ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 60.0  # Seconds until a test gives up; never reached when all is well.


class Process:
    """A program whose lines are kept; killed at the end, if it still runs."""

    def __init__(self, arguments: list[str], **environment: str) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PUNCTUAL_")}
        self.child = subprocess.Popen(
            arguments,
            env={**clean, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_line(self, pattern: str) -> str:
        """The first line in which the pattern is found."""

        def found() -> Optional[str]:
            return next((line for line in self.lines if re.search(pattern, line)), None)

        with self._changed:
            line = self._changed.wait_for(found, PATIENCE)
            assert line, f"`{pattern}` never came:\n" + "\n".join(self.lines[-50:])
            return line

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def wait(self) -> int:
        code = self.child.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def __enter__(self: P) -> P:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.wait()


class WorkerProcess(Process):
    """A Python file as a worker."""

    def __init__(self, file: Path, server_url: str, **environment: str) -> None:
        super().__init__([sys.executable, str(file)], PUNCTUAL_SERVER=server_url, **environment)


class Server(Process):
    """The real binary, on a data directory that outlives it."""

    def __init__(self, data: Path, *arguments: str, port: int = 0) -> None:
        binary = os.environ["PUNCTUAL_BIN"]
        serve = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--data", str(data), *arguments]
        super().__init__(serve, PUNCTUAL_TZDATA="bundled")
        line = self.wait_line(r"is listening on http://")
        self.url = line[line.index("http://") :].split()[0]
        self.port = int(self.url.rsplit(":", 1)[1])
        self.client = Client(self.url)

    def wait_run(self, run_id: str, is_true: Callable[[Run], bool]) -> Run:
        """Reads a run until something is true of it."""
        give_up_at = time.monotonic() + PATIENCE
        while True:
            run = self.client.get_run(run_id)
            if is_true(run):
                return run
            assert time.monotonic() < give_up_at, f"never came: {run}\n" + "\n".join(self.lines[-30:])
            time.sleep(0.05)


def code_of_readme() -> list[str]:
    """What users copy, block by block."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
