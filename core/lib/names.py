"""The environment variables a tool hands down, each named once. Imports nothing of ours: the keeper reads it too."""

import os

DEPTH = "AGENTIC_SPAWN_DEPTH"  # how many agents are above this process; written only by spawn
MAX_DEPTH = "AGENTIC_MAX_DEPTH"
TRACE = "AGENTIC_TRACE_ID"
SESSION = "AGENTIC_SESSION_DIR"
DRIVER = "AGENTIC_DRIVER"
GRANT = "AGENTIC_GRANT"  # what the agent that started this process may do
AGENT = "AGENTIC_AGENT"  # the attempt of the agent that started this process
LOGIN = "AGENTIC_LOGIN"  # a file with the login, for a tool that an agent starts
CHECKED = "AGENTIC_CHECKED"  # an ancestor has checked the configuration
CALLER = "AGENTIC_CALLER"  # a tool started this process, wherever it runs
LEASE = "AGENTIC_LEASE_FD"  # the pipe whose end of file says that the parent is gone
NURSERY = "AGENTIC_NURSERY_FD"  # where the tools below are asked for
LOCK = "AGENTIC_LOCK_FD"  # the lock of the session, held until the whole tree has ended
BACKEND = "AGENTIC_BACKEND"  # how a tool reaches those that place commands on other machines
HEARD = "AGENTIC_HEARD"  # a file that is there once somebody has noted what this process hands over
WORKER = "AGENTIC_WORKER"  # the worker this process runs on, where that is another machine
USER = "STRATA_USER"  # who decides, where that is not the user of this machine


def worker() -> str:
    """The worker that runs this process, by its name; nothing beside the run itself."""
    return os.getenv(WORKER, "")
