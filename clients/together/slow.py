"""The worker that is killed: it holds what it takes for longer than it lives."""

import os
import time

from punctual import Worker

worker = Worker(os.environ["PUNCTUAL_SERVER"], queues=["emails"], concurrency=5)


@worker.handler("welcome")
def welcome(task):
    time.sleep(600)


worker.run()
