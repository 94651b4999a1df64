"""Workers in Rust, Python and TypeScript, side by side on one queue, one of which is killed: every run ends once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

HERE = Path(__file__).resolve().parent
CLIENTS = HERE.parent
BINARY = Path(os.environ["PUNCTUAL_BIN"])
PATIENCE = 180.0  # Seconds until the test gives up; never reached when all is well.
HELD = 5  # What the worker that is killed takes along.
WAVE = 60
AT_ONCE = 20  # Callers: while one worker is busy with its answer, the others have theirs.

# The ten lines that the documents show, of each language.
EXAMPLES = {
    "rust": [str(BINARY.parent / "examples" / "worker")],
    "python": [sys.executable, str(CLIENTS / "python" / "examples" / "ten_lines.py")],
    "typescript": ["node", str(CLIENTS / "typescript" / "examples" / "ten_lines.mjs")],
}


def wait(what: str, look: Callable[[], Any]) -> Any:
    give_up_at = time.monotonic() + PATIENCE
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < give_up_at, f"waited in vain: {what}"
        time.sleep(0.05)


class Story:
    def __init__(self, folder: Path) -> None:
        self.children: list[subprocess.Popen[str]] = []
        self.folder = folder
        self.languages: dict[str, str] = {}
        self.workers: dict[str, str] = {}
        log = folder / "server.log"
        serve = [str(BINARY), "serve", "--listen", "127.0.0.1:0", "--data", str(folder / "data"), "--lease", "8"]
        self.start(serve, log, PUNCTUAL_TZDATA="bundled")
        mark = "is listening on "
        said = wait("the server listens", lambda: [line for line in log.read_text().splitlines() if mark in line])[0]
        self.url = said.split(mark)[1].split()[0]

    def start(self, arguments: list[str], log: Path, **environment: str) -> "subprocess.Popen[str]":
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PUNCTUAL_")}
        path = str(CLIENTS / "python" / "src")
        with log.open("w") as output:
            child = subprocess.Popen(
                arguments, env={**clean, "PYTHONPATH": path, **environment}, stdout=output, stderr=output, text=True
            )
        self.children.append(child)
        return child

    def call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def start_worker(self, language: str, arguments: list[str]) -> "subprocess.Popen[str]":
        """A worker that the server knows: each client tells its process number at the end of its name."""
        log = self.folder / f"{language}.log"
        child = self.start(arguments, log, PUNCTUAL_SERVER=self.url)
        self.languages[str(child.pid)] = language

        def is_there() -> bool:
            assert child.poll() is None, f"the {language} worker ended: {log.read_text()}"
            self.look()
            return language in self.workers.values()

        wait(f"the {language} worker is there", is_there)
        return child

    def look(self) -> None:
        """Remembers who is who. One that was taken for dead on a busy machine comes again as another."""
        for worker in self.call("/v1/workers")["items"]:
            number = worker["name"].replace("-", " ").split()[-1]
            self.workers[worker["id"]] = self.languages.get(number, "unknown")

    def tell(self) -> None:
        job = self.call(
            "/v1/jobs",
            {"schedule": {"at": "2190-01-01T00:00:00Z"}, "queue": "emails", "target": {"worker": {"handler": "welcome"}}},
        )
        runs: dict[str, int] = {}

        def trigger(count: int) -> None:
            numbers = range(len(runs), len(runs) + count)
            with ThreadPoolExecutor(AT_ONCE) as callers:
                made = callers.map(lambda n: self.call(f"/v1/jobs/{job['id']}/trigger", {"payload": {"n": n}}), numbers)
                runs.update((one["id"], number) for one, number in zip(made, numbers))

        def run(run_id: str) -> Any:
            return self.call(f"/v1/runs/{run_id}")

        def ended(run_id: str) -> Any:
            """A run, once it has ended."""
            wait("a run ends", lambda: run(run_id)["state"] not in ("pending", "running"))
            return run(run_id)

        victim = self.start_worker("victim", [sys.executable, str(HERE / "slow.py")])
        trigger(HELD)
        taken = list(runs)
        wait("the victim holds them", lambda: all(run(one)["state"] == "running" for one in taken))
        for language, arguments in EXAMPLES.items():
            self.start_worker(language, arguments)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        # Until each of them has had its share: who asks first is not for us to say.
        shares: dict[str, int] = {}
        give_up_at = time.monotonic() + PATIENCE
        while not set(EXAMPLES) <= set(shares):
            assert time.monotonic() < give_up_at, f"only these had a share: {shares}"
            known = len(runs)
            trigger(WAVE)
            for one in list(runs)[known:]:
                by = ended(one)["attempts"][-1]["worker"]
                self.look()
                language = self.workers.get(by, "unknown")
                shares[language] = shares.get(language, 0) + 1
        for one, number in runs.items():
            seen = ended(one)
            outcomes = [attempt["outcome"] for attempt in seen["attempts"]]
            assert (seen["state"], outcomes.count("succeeded"), outcomes[-1]) == ("succeeded", 1, "succeeded"), seen
            assert seen["attempts"][-1]["output"]["text"] == f"sent {number}", seen
            assert one not in taken or outcomes[0] == "lost", seen
            assert one not in taken or self.workers[seen["attempts"][0]["worker"]] == "victim", seen
        print(f"together: {len(runs)} runs ended once each, {len(taken)} of a worker that was killed; {shares}")


def main() -> None:
    for name, arguments in EXAMPLES.items():
        file = Path(arguments[-1])
        if not file.exists():
            sys.exit(f"the {name} worker is not there: {file}")
    if not (CLIENTS / "typescript" / "dist" / "index.js").exists():
        sys.exit("clients/typescript/dist is not there: run clients/typescript/test.sh first")
    with tempfile.TemporaryDirectory() as folder:
        story = None
        try:
            story = Story(Path(folder))
            story.tell()
        finally:
            for child in story.children if story else []:
                child.kill()
                child.wait()


main()
