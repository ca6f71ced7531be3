"""Runs from before types and dimensions were recorded: what the name of an agent says, where it can be read in one way only.

Values have underscores in them, so that counting parts says nothing: a name is compared with every name that the vocabulary could
have made.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from lib.contract import StrataError

from packs.downstream.settings import Vocabulary

Parsed = tuple[str, tuple[tuple[str, str], ...]]


def parse(name: str, vocabulary: Vocabulary) -> tuple[str, dict[str, str]]:
    """Its type and dimensions. Anything but exactly one reading is refused."""
    readings = _all(vocabulary).get(name, ())
    if len(readings) == 1:
        kind, dimensions = readings[0]
        return kind, dict(dimensions)
    if not readings:
        message, hint = (
            f"the name {name!r} cannot be read",
            "add its words to vocabulary: in the settings, or write type and dimensions",
        )
    else:
        ways = "; ".join(f"{kind} {', '.join(f'{k}={v}' for k, v in dims)}" for kind, dims in readings)
        message, hint = (
            f"the name {name!r} can be read in {len(readings)} ways: {ways}",
            "write type and dimensions into the manifest",
        )
    raise StrataError("AMBIGUOUS_NAME", message, hint, final=True)


@lru_cache(maxsize=4)
def _all(vocabulary: Vocabulary) -> dict[str, tuple[Parsed, ...]]:
    """Every name there can be, with all its readings."""
    found: dict[str, tuple[Parsed, ...]] = {}

    def add(name: str, kind: str, **dimensions: str) -> None:
        found[name] = (*found.get(name, ()), (kind, tuple(dimensions.items())))

    for value in vocabulary.service_category:
        add(f"service_category_{value}", "service_category", service_category=value)
    for value in vocabulary.horizontal:
        add(value, "horizontal")
    for value in vocabulary.vertical:
        add(f"vertical_{value}", "vertical", vertical=value)
    for value in vocabulary.title:
        add(f"title_{value}", "title", title=value)
    playbooks = [(f"{v}_{t}", {"vertical": v, "title": t}) for v, t in product(vocabulary.vertical, vocabulary.title)]
    both = [("playbook_2d", name, dims) for name, dims in playbooks]
    both += [
        ("playbook_3d", f"{name}_{category}", {**dims, "service_category": category})
        for name, dims in playbooks
        for category in vocabulary.service_category
    ]
    for kind, name, dims in both:
        add(f"playbook_{name}", kind, **dims)
        for prefix, other in (("validate_", "validation"), ("align_", "brand_alignment")):
            add(f"{prefix}{name}", other, **dims)
            add(f"{prefix}playbook_{name}", other, **dims)
    return found
