"""A whole run, from a question to a bibliography: agents are scripted, the library is a server on loopback, the rest is real."""

from __future__ import annotations

import pytest
from scripted_model.academic_desk import Desk

pytestmark = pytest.mark.rehearsed


def test_whole(desk: Desk) -> None:
    ran = desk.run()
    print(ran.stdout[-3000:], ran.stderr[-3000:])
    assert ran.code == 0
