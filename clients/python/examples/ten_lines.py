import os

from punctual import Worker

worker = Worker(os.environ.get("PUNCTUAL_SERVER", "http://127.0.0.1:7171"), queues=["emails"])


@worker.handler("welcome")
def welcome(task):
    return f"sent {task.payload['n']}"


worker.run()
