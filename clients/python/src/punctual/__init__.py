"""Pull workers and a small management client for Punctual.

``Worker`` asks a server for runs and executes them; ``Client`` registers jobs and reads runs;
``once`` makes a handler take effect once for each idempotency key.
"""

from .client import Attempt, AttemptError, Client, Job, JobSpec, LogLine, Output, Page, Progress, Run, RunSummary
from .errors import FieldError, NotRetryable, Problem, RetryAfter, ServerUnreachable
from .once import MemoryStore, SqlStore, once
from .task import Delivery, Task
from .worker import Worker

__all__ = [
    "Attempt",
    "AttemptError",
    "Client",
    "Delivery",
    "FieldError",
    "Job",
    "JobSpec",
    "LogLine",
    "MemoryStore",
    "NotRetryable",
    "Output",
    "Page",
    "Problem",
    "Progress",
    "RetryAfter",
    "Run",
    "RunSummary",
    "ServerUnreachable",
    "SqlStore",
    "Task",
    "Worker",
    "once",
]
