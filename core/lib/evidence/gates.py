"""Gates: a decision, with everything that was evaluated for it, a digest of what it was made from, and which revision it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from lib.contract import StrataError, usage
from lib.disk import files, records
from lib.disk.clock import now

PASS, REVISE, FAIL = "pass", "revise", "fail"


class Rule(Struct, frozen=True):
    """One thing that was looked at. One that is not blocking is a warning where it does not hold."""

    name: str
    holds: bool
    found: Any = None
    wanted: Any = None
    note: str = ""
    blocking: bool = True
    otherwise: str = REVISE  # what becomes of it where a blocking one does not hold: revise, or fail


class Decision(Struct, frozen=True):
    gate: str
    decision: str  # pass, revise or fail
    evaluated: tuple[Rule, ...]
    inputs: dict[str, str]  # by name: a digest of what it was
    inputs_digest: str
    revision: int  # how many times it was decided about other inputs, this one included
    warnings: tuple[str, ...]
    reasons: tuple[str, ...]
    at: str

    @property
    def passed(self) -> bool:
        return self.decision == PASS


def decide(gate: str, rules: Sequence[Rule], inputs: Mapping[str, Any], earlier: Path | None = None) -> Decision:
    """Everything is evaluated, whatever comes first. `earlier`: where the last decision of this gate is, if there was one."""
    if not rules:
        usage(f"the gate {gate} evaluates nothing", "a gate without a rule lets everything pass")
    for name in (n for n, value in inputs.items() if isinstance(value, Path) and not value.exists()):
        raise StrataError(
            "MISSING_INPUT", f"the gate {gate}: {name} ({inputs[name]}) is not there", "a gate decides about what is there"
        )
    for rule in rules:
        if rule.otherwise not in (REVISE, FAIL):
            usage(f"the gate {gate}: {rule.name} otherwise {rule.otherwise!r}", f"{REVISE} or {FAIL}")
    digests = {name: _digest(value) for name, value in sorted(inputs.items())}
    whole = files.digest([digests, [(r.name, r.wanted) for r in rules]])
    known = records.read(earlier, Decision) if earlier and earlier.is_file() else None
    broken = [r for r in rules if not r.holds and r.blocking]
    word = PASS if not broken else (FAIL if any(r.otherwise == FAIL for r in broken) else REVISE)
    return Decision(
        gate=gate,
        decision=word,
        evaluated=tuple(rules),
        inputs=digests,
        inputs_digest=whole,
        revision=1 if known is None else known.revision + (known.inputs_digest != whole),
        warnings=tuple(_words(r) for r in rules if not r.holds and not r.blocking),
        reasons=tuple(_words(r) for r in broken),
        at=now(),
    )


def keep(decision: Decision, path: Path) -> Decision:
    files.write_json(path, records.document(decision))
    return decision


def _digest(value: Any) -> str:
    return files.fingerprint(value) if isinstance(value, Path) else files.digest(value)


def _words(rule: Rule) -> str:
    sizes = f": {rule.found!r}, wanted {rule.wanted!r}" if rule.wanted is not None else ""
    return f"{rule.name}{sizes}{f' ({rule.note})' if rule.note else ''}"
