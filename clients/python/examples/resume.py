"""Works through many rows, and goes on where an earlier attempt was when its worker is killed or stopped.

Try it: start a server, this file twice, and kill one of them while `punctual run get` shows its progress.
"""

from __future__ import annotations

import asyncio
import logging
import os

from punctual import Client, Task, Worker

SERVER = os.environ.get("PUNCTUAL_SERVER", "http://127.0.0.1:7171")
ROWS = int(os.environ.get("ROWS", "100"))
SECONDS_PER_ROW = float(os.environ.get("SECONDS_PER_ROW", "0.2"))

worker = Worker(SERVER, queues=["rows"], concurrency=4)


@worker.handler("rows")
async def rows(task: Task) -> dict[str, int]:
    first = task.last_checkpoint["row"] if task.last_checkpoint else 0
    for row in range(first, ROWS):
        await asyncio.sleep(SECONDS_PER_ROW)
        task.progress(100 * (row + 1) / ROWS, f"row {row + 1} of {ROWS}")
        task.checkpoint({"row": row + 1}, flush=row % 10 == 9)
    task.log(f"rows {first} to {ROWS}")
    return {"first": first, "rows": ROWS - first}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with Client(SERVER) as client:
        client.create_job(
            {"name": "rows", "queue": "rows", "schedule": {"now": True}, "target": {"worker": {"handler": "rows"}}}
        )
    worker.run()
