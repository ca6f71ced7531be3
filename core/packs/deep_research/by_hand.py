"""One tool of the machine, called by an operator: words checked against what it takes, and only where it belongs."""

from __future__ import annotations

import inspect
from typing import Any

from lib.contract import Json, StrataError, usage

from packs.deep_research.at import Desk
from packs.deep_research.tools import TOOLS, use

AT = {  # what changes a run for good, by the stages in which somebody may do it by hand
    "wave1_plan": ("init", "perspectives"),
    "wave_output_ingest": ("wave1", "wave2"),
    "pivot_decide": ("pivot",),
    "citations_validate": ("citations",),
    "summary_pack_build": ("summaries",),
    "synthesis_write": ("synthesis",),
    "review_factory_run": ("review",),
    "revision_control": ("review",),
}


def require_stage(desk: Desk, name: str) -> None:
    here = desk.run.manifest().stage.current
    if name in AT and here not in AT[name]:
        raise StrataError("INVALID_STATE", f"{name} belongs to {' and '.join(AT[name])}, and the run is in {here}", "see triage")


def call(desk: Desk, name: str, given: dict[str, str]) -> Any:
    """As an operator calls it: words, checked against what the tool takes."""
    takes = {k: p for k, p in inspect.signature(TOOLS[name]).parameters.items() if k != "desk"}
    unknown = sorted(set(given) - set(takes))
    missing = [k for k, p in takes.items() if p.default is p.empty and k not in given]
    if unknown or missing:
        shape = " ".join(f"{k}=…" if p.default is p.empty else f"[{k}={p.default}]" for k, p in takes.items())
        usage(
            f"{name}: {'it takes no ' + ', '.join(unknown) if unknown else 'it needs ' + ', '.join(missing)}",
            f"{name} RUN {shape}",
        )
    arguments: Json = {}
    for key, text in given.items():
        number = "int" in str(takes[key].annotation)
        if number and not text.isdigit():
            usage(f"{name}: {key}={text} is no number")
        arguments[key] = int(text) if number else text
    require_stage(desk, name)
    try:
        return use(desk, name, **arguments)
    except FileNotFoundError as error:
        raise StrataError("MISSING_ARTIFACT", f"{name}: {error.filename} is not there", "see triage") from None
    except (ValueError, KeyError) as error:
        raise StrataError(
            "SCHEMA_VALIDATION_FAILED", f"{name}: {type(error).__name__}: {error}", "look at what it was given"
        ) from None
