"""Who decides, and when."""

from __future__ import annotations

import getpass
import os

from lib import names
from lib.contract import Json
from lib.disk.clock import now


def signature() -> Json:
    """Who decides, and when."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid {os.getuid()}"  # a user without a name, as in some containers
    return {"by": os.getenv(names.USER) or name, "when": now()}
