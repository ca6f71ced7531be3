"""The keeper as a program: `python start_keeper.py [--parent PID] -- COMMAND ARGS`. So short because Python compiles what it is
started with every time, and what that imports only once."""

import os
import sys

if __name__ == "__main__":
    sys.path[0] = os.path.abspath(f"{__file__}/../../..")  # core: a script finds only what is beside it
    from lib.process import keeper

    keeper.main(sys.argv[1:])
