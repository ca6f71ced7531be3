"""What the page says in words and figures: the head, the goal, the cost, what was verified, what was decided."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from lib.contract import Json
from lib.disk import lenient
from lib.plan.params import in_words
from lib.session import verified
from lib.session.attempts import ANSWER
from lib.session.documents import CheckResult, Decision, Fixes, Results
from lib.view import terminal
from lib.view.page.markup import anchor, badge, cut, date, e, folded, grade, heading, href, read, short, soft, table, tag
from lib.view.page.steps import TEXT_LIMIT, leaves
from lib.view.tree import Scene

PLACES = ("result", "graph", "timeline", "steps", "cost", "verification", "decisions")


def header(seen: Scene) -> list[str]:
    root = seen.root
    attempts = list(root.every_row())
    limit = seen.limit_usd
    paid = (f"of {limit:g} USD" if limit else "spent") + (", replayed" if seen.replayed else "")
    facts = [
        (terminal.clock(terminal.took(seen)), "so far" if seen.alive else "took"),
        (f"{seen.spent.usd:.4f} USD", paid + (f", {seen.spent.held:.4f} held" if seen.spent.held else "")),
        (f"{seen.spent.tokens:,}", "tokens"),
        (str(seen.spent.agents), "agent sessions"),
        (str(len(attempts)), "attempts"),
        (str(sum(t.kind in ("retry", "rerun", "heal", "repair") for t in attempts)), "of them again"),
        (str(sum(len(t.denials) for t in attempts)), "denials"),
    ]
    parts = [tag("h1", e(root.name), " ", badge(root.status), " ", grade(root.grade))]
    parts += [tag("p", e(seen.description))] if seen.description and seen.description != seen.goal else []
    parts += [soft(", ".join(f"{name}: {in_words(value)}" for name, value in seen.params.items()))] if seen.params else []
    parts.append(soft(f"Started {date(seen.started)}, in {seen.session.name}"))
    parts += [soft("The run is still going; this is how it stood when the page was made.")] if seen.alive else []
    listed = [tag("li", tag("b", e(value)), tag("span", e(name))) for value, name in facts]
    return [tag("header", *parts, tag("ul", *listed, cls="facts"))]


def nav() -> list[str]:
    links = tag("ul", *(tag("li", tag("a", p.capitalize(), href=f"#{p}")) for p in PLACES))
    tools = [
        tag("label", "Filter", cls="soft", **{"for": "search"}),
        '<input id="search" type="search" placeholder="stage, agent, status … (press /)">',
        tag("button", "Only problems", type="button", id="problems", aria_pressed="false"),
        tag("button", "Unfold all", type="button", id="open"),
        tag("button", "Fold all", type="button", id="close"),
        tag("span", id="count", cls="soft", role="status", aria_live="polite"),
    ]
    return [tag("nav", links, tag("div", *tools, cls="tools", role="search"), aria_label="Sections")]


def warnings(seen: Scene) -> list[str]:
    """What did not succeed in a run that did."""
    if not seen.manifest.warnings or seen.alive:
        return []
    listed = tag("ul", *(tag("li", e(w)) for w in seen.manifest.warnings))
    return [tag("section", heading("warnings", "Done with warnings"), listed)]


def first(seen: Scene) -> list[str]:
    """What to look at first, where something went wrong."""
    error = seen.manifest.error
    if not error or seen.alive:
        return []
    parts = [tag("b", e(error.code)), " ", e(error.message)]
    parts += [tag("p", "→ ", tag("code", e(error.hint)))] if error.hint else []
    failed = [t for t in seen.root.every_row() if t.error and t.ended]
    last = max(failed, key=lambda t: t.ended or 0, default=None)
    if last:
        link = tag("a", e(last.folder), href=f"#{anchor(last.folder)}")
        parts.append(tag("p", "The last attempt that failed: ", link))
    return [tag("section", *parts, cls="card first", aria_label="Look at this first")]


def goal(seen: Scene) -> list[str]:
    if not seen.goal:
        return []
    judged = seen.manifest.evaluation
    parts = [tag("b", "Goal"), tag("p", e(seen.goal))]
    if judged:
        words = {"met": "success", "unmet": "failed"}
        rows = [[e(r.requirement), badge(words.get(r.status, "waiting"), r.status), e(r.evidence)] for r in judged.requirements]
        parts.append(tag("p", "Met: ", tag("b", e(judged.met)), ". ", e(judged.summary)))
        parts.append(table(("requirement", "status", "evidence"), rows))
        parts += [tag("p", "Missing: ", e(gap)) for gap in judged.gaps]
    else:
        parts.append(soft("Nobody has judged yet whether it is met."))
    return [tag("section", *parts, cls="card goal", aria_label="Goal")]


class _Used(Struct, frozen=True):
    """What a model was used for, as the CLI counts it."""

    usd: float = field(name="costUSD", default=0.0)
    read: int = field(name="inputTokens", default=0)
    written: int = field(name="outputTokens", default=0)
    cached: int = field(name="cacheReadInputTokens", default=0)
    kept: int = field(name="cacheCreationInputTokens", default=0)

    @property
    def tokens(self) -> int:
        return self.read + self.written + self.cached + self.kept


def cost(seen: Scene) -> list[str]:
    stages: dict[str, list[float]] = {}
    models: dict[str, list[float]] = {}
    for names, node in leaves(seen.root):
        place = "/".join(names[:-1] if node.kind == "item" else names)
        for one in node.rows:
            if one.turns or one.usd:
                _add(stages, place, one.usd, one.tokens)
            for model, used in one.usage.items():
                known = lenient.of(used, _Used)
                _add(models, model, known.usd, known.tokens)
    sums = seen.spent
    total = [
        tag("span", f"{sums.tokens:,}", id="total-tokens"),
        tag("span", f"{sums.usd:.6f}", id="total-usd"),
    ]
    parts = [heading("cost")]
    parts += [soft("Replayed: somebody paid this once; this run did not.")] if seen.replayed else []
    if not stages:
        return [*parts, soft("No agent was asked anything.")]
    parts.append(_costs("stage", stages, ["in the ledger", str(sums.agents), *total]))
    return [*parts, _costs("model", models, None)]


def _add(found: dict[str, list[float]], name: str, usd: float, tokens: int) -> None:
    entry = found.setdefault(name, [0, 0.0, 0])
    entry[0] += 1
    entry[1] += usd
    entry[2] += tokens


def _costs(what: str, found: dict[str, list[float]], foot: list[str] | None) -> str:
    dear = sorted(found.items(), key=lambda pair: -pair[1][1])
    rows = [[e(n), f"{int(v[0])}", f"{int(v[2]):,}", f"{v[1]:.6f}"] for n, v in dear]
    return table((what, "sessions", "tokens", "USD"), rows, 3, foot)


def verification(session: Path) -> list[str]:
    """Cycle by cycle: what the checks found, what was to be fixed, what the audit said."""
    parts = [heading("verification")]
    for folder in [*sorted(session.glob("phases/*/sentinel")), *sorted(session.glob("sentinel"))]:
        where = folder.parent.name if folder.parent != session else "sentinel"
        for cycle in sorted(folder.glob("cycle-*"), key=lambda p: (len(p.name), p.name)):
            results = lenient.read(cycle / "verification-results.json", Results)
            rows = [_check(session, c) for c in results.checks]
            if rows:
                parts.append(tag("h3", e(f"{where}, {cycle.name} "), grade(results.overall)))
                parts.append(table(("check", "result", "errors", "evidence"), rows))
            for fix in lenient.read(cycle / "fix-list.json", Fixes).fixes:
                parts.append(tag("p", badge("to be revised", "to fix"), " ", tag("code", e(fix.file)), " ", e(fix.issue)))
            audit = read(cycle / "audit-report.md")
            parts += [folded(f"Audit, {where}, {cycle.name}", cut(audit, TEXT_LIMIT))] if audit.strip() else []
    return parts if len(parts) > 1 else [*parts, soft("Nothing was verified.")]


def _check(session: Path, record: CheckResult) -> list[str]:
    evidence = tag("a", "evidence", href=href(record.evidence)) if record.evidence else ""
    result = badge("success", "passed") if record.passed else badge("failed")
    said = verified.lines_of(session, record) if not record.passed else ""
    inline = tag("pre", e(said), tabindex=0) if said else ""  # here too: the page may stand alone
    return [e(record.name), result, e(record.errors), f"{e(record.note)} {evidence}{inline}"]


class _Answered(Struct, frozen=True):
    question: str = ""
    answer: Any = ""
    by: str = ""
    at: str = ""


class _Denial(Struct, frozen=True):
    tool_name: str = ""
    tool_input: Json = {}
    reason: str = ""


def decisions(seen: Scene) -> list[str]:
    session = seen.session
    parts = [heading("decisions", "Refinements, approvals, denials")]
    for path in sorted((session / "approvals").glob("*.json")):
        known = lenient.read(path, Decision)
        if known.decision:
            said = f"{known.decision} by {known.by}, {known.when}" + (f": {known.why}" if known.why else "")
            mark = badge("success" if known.decision == "approve" else "failed", known.decision)
            parts.append(tag("p", mark, " ", e(known.question), " ", tag("span", e(said), cls="soft")))
    for step in sorted({os.path.dirname(row.folder) for row in seen.root.every_row()}):  # noqa: PTH120 - one for each step
        told = lenient.read(session / step / ANSWER, _Answered)
        if told.by:
            words = tag("code", e(short(json.dumps(told.answer, ensure_ascii=False), 300)))
            who = tag("span", e(f"by {told.by}, {told.at}"), cls="soft")
            parts.append(tag("p", badge("success", "answered"), " ", e(told.question), " ", words, " ", who))
    for where in ("escalations", "refinements", "resolutions"):
        for path in sorted((session / where).glob("*.md")):
            parts.append(folded(path.relative_to(session).as_posix(), cut(read(path), TEXT_LIMIT)))
    for one in seen.root.every_row():
        for denial in one.denials:
            known = lenient.of(denial, _Denial)
            what = json.dumps(known.tool_input or known.reason, ensure_ascii=False)
            who = tag("a", e(one.agent), href=f"#{anchor(one.folder)}")
            tried = [tag("b", e(known.tool_name)), " ", tag("code", e(short(what, 300)))]
            parts.append(tag("p", badge("blocked", "denied"), " ", who, " tried ", *tried))
    return parts if len(parts) > 1 else [*parts, soft("There were none.")]
