"""Starts the real server and lets schemathesis ask it for everything that the committed OpenAPI document allows, and for what it does not.

Two processes side by side, because one keeps one core busy with making up requests: the first goes through the examples, the limits of every
parameter and random requests, operation by operation; the second goes from answer to answer, as a client does. The seeds are fixed. It fails
if a check fails, or if there were fewer requests than promised, so that a run that tried nothing cannot look like one that passed.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "crates" / "api" / "openapi.json"
BINARY = os.environ["PUNCTUAL_BIN"]
REQUESTS_MIN = 20_000
PATIENCE = 60.0  # Seconds until the server listens; never reached when all is well.

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    # Ours, in hooks.py.
    "every_answer_names_its_request",
    "only_the_fields_that_were_asked_for",
]

# The phases of each process, its seed, and how many random requests or stories it makes of each operation.
PARTS = {
    "operations": (["examples", "coverage", "fuzzing"], 7, int(os.environ.get("OPERATIONS_EXAMPLES", "55"))),
    "stories": (["stateful", "fuzzing"], 11, int(os.environ.get("STORIES_EXAMPLES", "40"))),
}


def serve(folder: Path, key_file: Path) -> tuple["subprocess.Popen[str]", str]:
    """A server on a free port that executes nothing: what random jobs call is nobody's business."""
    log = folder / "server.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PUNCTUAL_")}
    arguments = [BINARY, "serve", "--listen", "127.0.0.1:0", "--data", str(folder / "data")]
    arguments += ["--roles", "api,scheduler", "--admin-key-file", str(key_file), "--log", "warn,punctual=info"]
    with log.open("w") as output:
        server = subprocess.Popen(
            arguments, env={**clean, "PUNCTUAL_TZDATA": "bundled"}, stdout=output, stderr=output, text=True
        )
    mark = "is listening on "
    give_up_at = time.monotonic() + PATIENCE
    while True:
        said = [line for line in log.read_text().splitlines() if mark in line]
        if said:
            return server, said[0].split(mark)[1].split()[0].rstrip('",')
        assert server.poll() is None and time.monotonic() < give_up_at, log.read_text()
        time.sleep(0.05)


def ask(name: str, url: str, key: str, folder: Path) -> "subprocess.Popen[str]":
    phases, seed, examples = PARTS[name]
    arguments = [str(Path(sys.executable).parent / "st"), "run", str(DOCUMENT), "--url", url]
    arguments += ["--checks", ",".join(CHECKS), "--phases", ",".join(phases), "--seed", str(seed)]
    arguments += ["--max-examples", str(examples), "--header", f"Authorization: Bearer {key}"]
    arguments += ["--generation-database", "none", "--suppress-health-check", "all", "--no-shrink"]
    arguments += ["--continue-on-failure", "--warnings", "off", "--no-color", "--request-timeout", "60"]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": str(HERE / "hooks.py"),
        "OWN_KEY": key,
        "COUNT_FILE": str(folder / f"{name}.count"),
    }
    with (folder / f"{name}.txt").open("w") as output:
        return subprocess.Popen(arguments, env=environment, cwd=folder, stdout=output, stderr=output, text=True)


def main() -> None:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="punctual-schemathesis-") as name:
        folder = Path(name)
        key = f"pk_{secrets.token_hex(8)}_{secrets.token_hex(32)}"
        key_file = folder / "key"
        key_file.touch(mode=0o600)
        key_file.write_text(key + "\n")
        server, url = serve(folder, key_file)
        asking = {}
        try:
            for part in PARTS:
                asking[part] = ask(part, url, key, folder)
            failed = [part for part, process in asking.items() if process.wait() != 0]
            is_up = server.poll() is None
        finally:
            for process in [*asking.values(), server]:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        for part in failed:
            print(f"== {part}\n{(folder / f'{part}.txt').read_text()[-20_000:]}")
        if failed or not is_up:
            print(f"== the server, at the end\n{(folder / 'server.log').read_text()[-4_000:]}")
            sys.exit(f"schemathesis: {', '.join(failed) or 'the server'} failed")
        requests = sum(int((folder / f"{part}.count").read_text()) for part in PARTS)
        assert requests >= REQUESTS_MIN, f"only {requests} requests: make PARTS larger"
        print(f"schemathesis: {requests} requests, 0 failures, {time.monotonic() - begun:.0f} s")


main()
