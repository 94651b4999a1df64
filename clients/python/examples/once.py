"""Charges a card once for each run, however often the run is delivered."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from punctual import SqlStore, Task, Worker, once

FILE = os.environ.get("CHARGES", "charges.db")

worker = Worker(os.environ.get("PUNCTUAL_SERVER", "http://127.0.0.1:7171"), queues=["charges"])
store = SqlStore(lambda: sqlite3.connect(FILE))


@worker.handler("charge")
@once(store)
def charge(task: Task, connection: Any) -> dict[str, int]:
    # The charge and the record that it was made are committed together.
    connection.execute("INSERT INTO charges VALUES (?, ?)", (task.payload["customer"], task.payload["cents"]))
    return {"charged": task.payload["cents"]}


if __name__ == "__main__":
    with sqlite3.connect(FILE) as database:
        database.execute("CREATE TABLE IF NOT EXISTS charges (customer TEXT, cents INTEGER)")
    store.create_table()
    worker.run()
