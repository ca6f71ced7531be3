"""Gates A to F: small pure functions over what a run has made. All are hard; a soft rule only warns. One checker per rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lib.disk import records
from lib.evidence.gates import FAIL, Decision, Rule, decide
from msgspec import Struct

from packs.deep_research import citing
from packs.deep_research.citing import Citation
from packs.deep_research.contract import HEADING, Complaint
from packs.deep_research.serving import Served

NAMES = {"A": "planning", "B": "wave contract", "C": "citations", "D": "summary pack", "E": "synthesis", "F": "rollout"}
RETRIES = {"A": 0, "B": 2, "C": 1, "D": 1, "E": 3, "F": 0}
AT_LEAST_USABLE, AT_MOST_BROKEN, AT_LEAST_SUMMARISED = 0.90, 0.10, 0.90
SOFT_UTILISATION, SOFT_DUPLICATES = 0.60, 0.20
SENSITIVITIES = ("normal", "restricted", "no_web")


class Planned(Struct, frozen=True):
    """What is to be researched, as it was planned."""

    run_id: str
    perspectives: tuple[str, ...]
    prompts: dict[str, str]
    plan_run_id: str
    perspectives_run_id: str


def planning(found: Planned, most: int) -> Decision:
    """A: the plan is of this run, has a prompt for each perspective and no other, and each prompt its contract."""
    bare = sorted(name for name, text in found.prompts.items() if f"## {HEADING}" not in text)
    ids = (found.run_id, found.plan_run_id, found.perspectives_run_id)
    return decide(
        "A",
        [
            Rule("there are perspectives", bool(found.perspectives), len(found.perspectives), 1, otherwise=FAIL),
            Rule("as many as allowed", len(found.perspectives) <= most, len(found.perspectives), most, otherwise=FAIL),
            Rule("each has one name", len(set(found.perspectives)) == len(found.perspectives), otherwise=FAIL),
            Rule("a prompt for each", sorted(found.prompts) == sorted(found.perspectives), sorted(found.prompts), otherwise=FAIL),
            Rule("every prompt has its contract", not bare, bare, [], otherwise=FAIL),
            Rule("all of one run", len(set(ids)) == 1, sorted(set(ids)), otherwise=FAIL),
        ],
        {"planned": records.document(found)},
    )


def wave(complaints: Mapping[str, Sequence[Complaint]], expected: Sequence[str], digests: Mapping[str, str]) -> Decision:
    """B: every output that was planned is there and keeps to its contract."""
    missing = sorted(set(expected) - set(complaints))
    broken = sorted(f"{name}: {one.code}" for name, found in complaints.items() for one in found)
    rules = [
        Rule("outputs were asked for", bool(expected), len(expected), 1),
        Rule("none is missing", not missing, missing, []),
        Rule("each keeps to its contract", not broken, broken, []),
    ]
    return decide("B", rules, {"outputs": dict(digests), "expected": sorted(expected)})


def citations(found: Sequence[Citation]) -> Decision:
    """C: what is cited was read, by far the most of it."""
    total = len({one.cid for one in found})
    usable = sum(one.usable for one in found)
    broken = sum(one.status in (citing.INVALID, citing.BLOCKED, citing.MISMATCH) for one in found)
    other = [one.cid for one in found if one.status not in citing.KINDS]
    good, bad = usable / (len(found) or 1), broken / (len(found) or 1)
    rules = [
        Rule("there are citations", total > 0, total, 1),
        Rule("most can be used", good >= AT_LEAST_USABLE, round(good, 4), AT_LEAST_USABLE),
        Rule("few are broken", bad <= AT_MOST_BROKEN, round(bad, 4), AT_MOST_BROKEN),
        Rule("none is uncategorised", not other, other, []),
    ]
    return decide("C", rules, {"citations": records.document(list(found))})


def summaries(sizes: Mapping[str, int], expected: int, most_each: int, most_total: int) -> Decision:
    """D: nearly all are summarised, and all of it fits. `sizes` in bytes, bounds in KB."""
    large = sorted(name for name, size in sizes.items() if size > most_each * 1024)
    share = len(sizes) / expected if expected else 0.0
    rules = [
        Rule("nearly all are summarised", share >= AT_LEAST_SUMMARISED, round(share, 4), AT_LEAST_SUMMARISED),
        Rule("none is too large", not large, large, []),
        Rule("all together fit", sum(sizes.values()) <= most_total * 1024, sum(sizes.values()), most_total * 1024),
    ]
    return decide("D", rules, {"sizes": dict(sizes), "expected": expected})


def synthesis(text: str, usable: Sequence[str], unsupported: Sequence[str] = ()) -> Decision:
    """E: every number is cited and stands in what it cites, only what was read is cited, and no section is missing."""
    found = citing.look(text)
    unknown = sorted(set(found.cited) - set(usable))
    used, again = citing.utilisation(found.cited, usable), citing.duplicates(found.cited)
    rules = [
        Rule("every number is cited", not found.numeric, len(found.numeric), 0),
        Rule("every number stands in a passage", not unsupported, list(unsupported), []),
        Rule("only what was read is cited", not unknown, unknown, []),
        Rule("something is cited", bool(found.cited), len(found.cited), 1),
        Rule("every citation is one", not found.malformed, list(found.malformed), []),
        Rule("every section is there", not found.missing, found.missing, []),
        Rule("citations are used", used >= SOFT_UTILISATION, round(used, 4), SOFT_UTILISATION, blocking=False),
        Rule("citations are not repeated", again <= SOFT_DUPLICATES, round(again, 4), SOFT_DUPLICATES, blocking=False),
    ]
    return decide("E", rules, {"text": text, "usable": sorted(usable), "unsupported": list(unsupported)})


def rollout(sensitivity: str, served: Served) -> Decision:
    """F: what was asked for can be served at all. no_web: of a folder alone. restricted: of places that a list names."""
    known = sensitivity in SENSITIVITIES
    from_folder = bool(served.corpus)
    ways = {
        "no_web": from_folder,
        "restricted": from_folder or (served.web and served.listed and served.service),
        "normal": served.web or from_folder,
    }
    needs = {
        "no_web": "no_web needs --corpus DIR",
        "restricted": "restricted needs --corpus DIR, or a search service and a list of hosts in web.yaml",
        "normal": "no_web is forced by the settings: give --corpus DIR",
    }
    rules = [
        Rule("a known sensitivity", known, sensitivity, list(SENSITIVITIES), otherwise=FAIL),
        Rule("a way to have sources", known and ways[sensitivity], note=needs.get(sensitivity, ""), otherwise=FAIL),
    ]
    return decide("F", rules, {"sensitivity": sensitivity, "served": records.document(served)})
