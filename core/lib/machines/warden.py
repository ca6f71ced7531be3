"""A nursery beside a worker, which has threads and cannot fork: a program that starts the supervisors of its commands, with what
they and the commands need loaded. Its one argument is the descriptor on which it is asked."""

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
