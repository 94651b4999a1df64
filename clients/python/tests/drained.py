"""A worker for tests: says when an attempt begins and ends, and takes as long as its payload says."""

from __future__ import annotations

import os
import sys
import time

from punctual import Task, Worker

worker = Worker(
    os.environ["PUNCTUAL_SERVER"],
    queues=os.environ.get("QUEUES", "default").split(","),
    concurrency=int(os.environ.get("CONCURRENCY", "4")),
    grace=float(os.environ.get("GRACE", "30")),
)


def say(line: str) -> None:
    # In one piece: several threads write.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@worker.handler("slow")
def slow(task: Task) -> str:
    say(f"begins {task.run_id} {task.attempt}")
    seconds = (task.payload or {}).get("seconds", 60)
    if task.cancelled.wait(seconds):
        say(f"stops {task.run_id} {task.attempt}")
        return "stopped"
    say(f"ends {task.run_id} {task.attempt}")
    return "ended"


@worker.handler("steps")
def steps(task: Task) -> dict[str, object]:
    """Waits for somebody to kill it at its first attempt; goes on from its checkpoint at the next."""
    if task.last_checkpoint is None:
        task.progress(50, "half way")
        task.checkpoint({"row": 800}, flush=True).result()
        say(f"saved {task.run_id} {task.attempt}")
        time.sleep(600)
    return {"from": task.last_checkpoint, "attempt": task.attempt}


if __name__ == "__main__":
    worker.run()
    say("left")
    sys.exit(0)
