"""A house with a library on loopback and scholars who read there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripted_model.academic_desk import Desk
from scripted_model.academic_library import Library
from scripted_model.academic_story import Scholars
from support import House


@pytest.fixture
def library() -> Iterator[Library]:
    with Library() as made:
        yield made


@pytest.fixture
def scholars() -> Scholars:
    return Scholars()


@pytest.fixture
def desk(house: House, model: Any, library: Library, scholars: Scholars) -> Desk:
    model(scholars)
    return Desk(house, library, scholars).configure()
