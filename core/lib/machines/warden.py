"""A nursery beside a worker: a program that starts the supervisors of the worker's commands, because the worker has threads and
cannot fork. It has loaded what they and the commands need. Its one argument is the descriptor on which requests arrive."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # core: a script finds only what is beside it
from lib.machines import captive, supervisor
from lib.process import forking

if __name__ == "__main__":
    assert supervisor.Assignment
    captive.namespace()  # what is known here is known to all that are forked from here
    forking.serve(socket.socket(fileno=int(sys.argv[1])))
