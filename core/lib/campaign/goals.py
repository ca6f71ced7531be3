"""A goal in words becomes a plan, and what came of the plan is compared with the goal, round by round, a bounded number of times.

An agent proposes. What it proposes is read as a person's plan is, may use only what there is, and waits for a yes. Everything is
on disk: `goal.json`, the plan of each round (`goal/round-1.yaml`), what was decided about it (`approvals/`), what the evaluator
found (`goal/evaluation-1.json`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import yaml
from msgspec.structs import replace

from lib.attempt import verdicts
from lib.campaign import forecast, resumed
from lib.campaign.approvals import Approvals, Asked
from lib.contract import ExitCode, Json, StrataError, part, usage
from lib.disk import config, files, schemas
from lib.disk.clock import now
from lib.plan import agents, checks_file, orchestrator_file, params, plan_file
from lib.plan.plan import Plan
from lib.plan.task import Task
from lib.session import budget, ledger
from lib.session.attempts import finished
from lib.session.step import Step
from lib.tool.call import Call

GOAL = "goal.json"
MAX_REPAIRS = 2
MAX_ROUNDS = 5
WRITTEN = ("name", "description", "budget", "max_parallel", "phases")  # what an agent may say of a plan; the rest is the user's


def begin(call: Call) -> None:
    """What was asked, before anything is done about it."""
    path = call.session.folder / GOAL
    if path.exists() and read(call.session.folder)["goal"] != call.options.goal:
        usage(f"{call.session.folder} is the session of another goal", "resume it with --resume, or give another --session-dir")
    if not path.exists():
        known = {"goal": call.options.goal, "rounds": call.options.rounds or 1, "at": now()}
        named = call.options.checks
        files.write_json(path, known | {"checks": str(Path(named).absolute()) if named else ""})


def read(session: Path) -> Json:
    return files.read_json(session / GOAL) if (session / GOAL).exists() else {}


# Planning


def plan_file_of(session: Path, number: int) -> Path:
    return session / "goal" / f"round-{number}.yaml"


def load(session: Path, number: int) -> Plan:
    return replace(plan_file.load(str(plan_file_of(session, number))), round=number, written=True)


def given(session: Path, file: Path, loaded: Plan, before: int) -> Plan:
    """A plan that a person gave on resume is theirs, unless it is word for word one that was written for the goal."""
    for path in (session / "goal").glob("round-*.yaml"):
        if path.read_bytes() == file.read_bytes():
            return load(session, int(path.stem.removeprefix("round-")))
    return replace(loaded, round=before)


def write_plan(call: Call, known: Json, number: int, earlier: Plan | None = None, gaps: Path | None = None) -> Path:
    """The plan of a round. One that was written already, for the same goal and the same gaps, is taken as it is."""
    session = call.session.folder
    path = plan_file_of(session, number)
    made_from = files.digest([known["goal"], files.sha256(gaps) if gaps else ""])
    record = path.with_suffix(".json")
    if path.exists() and record.exists() and files.read_json(record)["made_from"] == made_from:
        return path
    said, wrong = _ask_writer(call, known, number, earlier, gaps)
    if wrong:
        hint = f"see {session / 'goal/stages/01-roadmap'}; state the goal more exactly, or write the plan yourself"
        raise StrataError("BAD_ROADMAP", f"the goal led to no plan that can run, after {MAX_REPAIRS} repairs: {wrong}", hint)
    files.write_atomic(path, said)
    files.write_json(record, {"made_from": made_from, "at": now()})
    return path


def _ask_writer(call: Call, known: Json, number: int, earlier: Plan | None, gaps: Path | None) -> tuple[str, str]:
    """The text of a plan that can be read, or what was wrong with the last one."""
    session = call.session.folder
    step = Step("", "goal", "01-roadmap", round=number)
    goal, table = session / "goal" / "goal.md", session / "goal" / "catalogue.json"
    files.write_atomic(goal, known["goal"].strip() + "\n")
    files.write_json(table, catalogue(known.get("checks", "")))
    inputs: Json = {"goal": str(goal), "catalogue": str(table)}
    if earlier and gaps:
        inputs |= {"gaps": str(gaps), "earlier": str(session / "plan.yaml")}
    text = wrong = ""
    for repair in range(MAX_REPAIRS + 1):
        lesson: list[str] = []
        if wrong:
            call.event("goal.01-roadmap", "repairing", wrong)
            note = session / "goal" / f"mistake-{number}-{repair}.md"
            files.write_atomic(note, f"Your plan cannot be run as it is: {wrong}\n\nThe plan was:\n\n```yaml\n{text}```\n")
            lesson = ["--extra-context", str(note)]
        said = _ask(call, "roadmap-writer", "PLAN" if not earlier else "REPLAN", step, inputs, "roadmap", lesson)
        if not verdicts.plans(said):
            hint = "change the goal, or add what is missing (an orchestrator, a check)"
            raise StrataError("GOAL_IMPOSSIBLE", f"there is no plan for this goal: {said['reason']}", hint)
        text = _text(said["plan"], known, earlier and _as_text(session, earlier))
        draft = session / "goal" / f"draft-{number}-{repair + 1}.yaml"
        files.write_atomic(draft, text)
        wrong = mistake(draft, said["plan"], earlier)
        if not wrong:
            return text, ""
    return "", wrong


def _text(written: Json, known: Json, before: Json | None) -> str:
    """The whole plan: what was written, with what only the user says."""
    whole: Json = {"version": 1, **{key: written[key] for key in WRITTEN if key in written}}
    if before:
        whole = {**before, "phases": [*before["phases"], *written.get("phases", [])]}
        more: Any = written.get("budget", {})
        if before.get("budget") and isinstance(more, dict):
            added = {key: cast(Json, more).get(key, 0) for key in before["budget"]}
            sound = all(isinstance(value, int | float) for value in added.values())
            whole["budget"] = {key: limit + added[key] for key, limit in before["budget"].items()} if sound else more
    whole["goal"] = known["goal"]
    whole["rounds"] = known["rounds"]
    if known.get("checks"):
        whole["checks"] = known["checks"]
    return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=110)


def _as_text(session: Path, plan: Plan) -> Json:
    """The plan so far, as it was written; what it names beside itself, by whole paths."""
    before = cast(Json, yaml.safe_load((session / "plan.yaml").read_text(encoding="utf-8")))
    before = params.fill({k: v for k, v in before.items() if k != "params"}, plan.params, lambda at, name: KeyError(name))
    if [p["name"] for p in before["phases"]] != [p.name for p in plan.phases]:
        hint = "give the changed plan as a file of its own: --resume SESSION PLAN"
        raise StrataError("PLAN_CHANGED", f"{session / 'plan.yaml'} is not the plan that was run", hint)
    for phase, fields in zip(plan.phases, before["phases"], strict=True):
        for run, spec in zip(phase.runs, fields["run"], strict=True):
            spec["orchestrator"] = run.orchestrator
    places = {"checks": plan.checks_file, "fixtures": plan.fixtures}
    return before | {key: value for key, value in places.items() if value}


def mistake(draft: Path, written: Json, earlier: Plan | None) -> str:
    """Why this cannot be run, for the one who wrote it; nothing where it can."""
    extra = [key for key in written if key not in WRITTEN]
    if extra:
        return f"a plan has no {', '.join(extra)}; it has {', '.join(WRITTEN)}"
    try:
        plan_file.load(str(draft))
    except StrataError as error:
        return f"{error.message.replace(str(draft), 'the plan')} ({error.hint})"
    if "usd" not in written.get("budget", {}):
        return "budget: {usd: …} is missing: say what the whole plan may cost at most"
    done = {p.name for p in earlier.phases} if earlier else set[str]()
    known = {path.stem for path in (config.CONFIG / "orchestrators").glob("*.yaml")}
    phases: list[Json] = written["phases"]  # the reader has found its form right
    for phase in phases:
        runs: list[Json] = phase["run"]
        if "mode" in phase or any("mode" in run for run in runs):
            return "mode is not for a plan that is written for a goal: leave it out"
        beside = [str(run["orchestrator"]) for run in runs if run["orchestrator"] not in known]
        if beside:
            return f"orchestrator: {beside[0]} is a file; name one of the catalogue"
        if phase["name"] in done:
            return f"the phase {phase['name']!r} is finished already: give yours a name of its own"
    return ""


def catalogue(chosen: str) -> Json:
    """All that a plan can be made of, as somebody needs to know it who has not seen the files."""
    known: Json = {}
    for path in sorted((config.CONFIG / "orchestrators").glob("*.yaml")):
        orchestration = orchestrator_file.load(path.stem)
        asked = {
            name: {"about": p.about, "type": p.type, "default": p.default, "needed": p.default is None and not p.optional}
            for name, p in orchestration.params.items()
        }
        outputs = {o.name: o.about for s in orchestration.stages for o in s.worker.outputs}
        names = {w.agent for s in orchestration.stages for w in s.workers if w.agent}
        known[path.stem] = {
            "about": orchestration.description,
            "params": asked,
            "modifiers": sorted(orchestration.modifiers),
            "outputs": outputs,
            "agents": {name: agents.load(name).description for name in sorted(names)},
        }
    table = checks_file.known(chosen).table
    offered: Json = {name: {"command": check.command, "blocking": check.blocking} for name, check in table.items()}
    offered[checks_file.ARTIFACTS] = {"command": "every output is there, and is what its stage recorded", "blocking": True}
    form = schemas.load("plan")["$defs"]
    return {"orchestrators": known, "checks": offered, "phase": form["phase"], "run": form["run"], "budget": form["budget"]}


def _ask(call: Call, agent: str, action: str, step: Step, inputs: Json, output: str, flags: list[str]) -> Json:
    """One executor, one answer of a known shape. What it does not give is an error with its own code."""
    number = max((a.number for a in call.session.attempts(step)), default=0) + 1
    path = call.session.folder / step.folder / f"task-{number}.json"
    kind = "first" if number == 1 else "rerun"
    made_of = {"inputs": files.digest(inputs), "definition": agents.load(agent).fingerprint}
    task = Task(action=action, inputs=inputs, kind=kind, fingerprint=files.digest([made_of, flags]), made_of=made_of)
    files.write_json(path, task.document())
    reply = call.call("agent.py", ["--task", str(path), "--step", str(step), *flags, "--", agent, action], judgement=True)
    found = reply.output(output)
    if reply.exit_code != ExitCode.SUCCESS or not found:
        code = reply.exit_code if reply.exit_code != ExitCode.SUCCESS else ExitCode.FAILURE
        message = f"{agent}: {reply.message or 'it gave no answer'}"
        raise StrataError(reply.code or "NO_ANSWER", message, part(reply.error, "hint") or "resume to ask again", code)
    return files.read_json(found)


# Saying yes to a plan


def asked(call: Call, plan: Plan, base: Path) -> Asked | None:
    """What a person has to say yes to before this round runs: a plan that no person wrote."""
    session = call.session.folder
    if not plan.written:
        return None
    path = plan_file_of(session, plan.round)
    shown = path.relative_to(session).as_posix()
    known = ledger.Ledger(session).limits.get(budget.WHOLE, {})
    plan = replace(plan, budget=plan.budget | known)  # what was said on the command line counts
    cost = forecast.of(plan, base, call.cwd)
    return Asked("plan", f"round-{plan.round}", question(plan, cost), (shown,), "", files.digest([files.sha256(path)]))


def question(plan: Plan, cost: Json) -> str:
    """The plan as somebody reads it who has to pay for it."""
    lines = [f"Run this plan for: {plan.goal.strip()}" + (f" (round {plan.round} of {plan.rounds})" if plan.rounds > 1 else "")]
    for phase in plan.phases:
        runs = ", ".join(f"{r.name}{_given(r.params)}" for r in phase.runs)
        after = f", after {', '.join(phase.depends_on)}" if phase.depends_on else ""
        judged = f"checked by {', '.join(phase.checks)}" if phase.checks else f"not checked ({_line(phase.unverified)})"
        lines.append(f"  {phase.name}: {runs}{after}; {judged}")
    usd = "not known yet" if cost["usd_expected"] is None else f"{cost['usd_expected']:.2f} USD"
    limits = ", ".join(f"{key}={value:g}" for key, value in plan.budget.items())
    lines.append(f"  expected: {cost['agent_sessions']} agent sessions, {usd}; it stops at: {limits or 'no limit'}")
    return "\n".join(lines)


def _given(params: dict[str, Any]) -> str:
    shown = ", ".join(f"{key}={_line(value)}" for key, value in params.items())
    return f" ({shown})" if shown else ""


def _line(value: object) -> str:
    """What somebody else wrote, on one line: it cannot pass for a line of ours."""
    words = " ".join(str(value).split())
    return words if len(words) <= 80 else f"{words[:79]}…"


# Judging what came of it


def evaluate(call: Call, plan: Plan) -> Json:
    """What the evaluator says of the campaign as it stands now. The same work is not judged twice."""
    session = call.session.folder
    path = session / "goal" / f"evaluation-{plan.round}.json"
    if judged(session, plan):
        return files.read_json(path)["evaluation"]
    of = stand(session, plan)
    goal = session / "goal" / "goal.md"
    files.write_atomic(goal, plan.goal.strip() + "\n")
    made = sorted({str(p) for p in _made(session, call.cwd) if p.exists()})
    inputs: Json = {"goal": str(goal), "report": str(session / "execution-report.md"), "artifacts": made[:200]}
    step = Step("", "goal", "02-evaluate", round=plan.round)
    said = _ask(call, "evaluator", "EVALUATE", step, inputs, "evaluation", [])
    said["met"] = verdicts.met(said)
    files.write_json(path, {"of": of, "evaluation": said, "at": now()})
    return said


def last_evaluation(session: Path) -> Json | None:
    """Of the last round that was judged."""
    found = sorted((session / "goal").glob("evaluation-*.json"))
    return files.read_json(found[-1])["evaluation"] if found else None


def judged(session: Path, plan: Plan) -> bool:
    """Whether the evaluator has spoken about the campaign as it stands."""
    path = session / "goal" / f"evaluation-{plan.round}.json"
    return path.exists() and files.read_json(path)["of"] == stand(session, plan)


def stand(session: Path, plan: Plan) -> str:
    """A digest of the goal and of all that the plan's phases have come to."""
    approvals = Approvals(session, plan)
    return files.digest([plan.goal, agents.load("evaluator").fingerprint, [approvals.work(p) for p in plan.phases]])


def _made(session: Path, cwd: Path) -> list[Path]:
    roots = {"session": session, "workspace": cwd}
    found: list[Path] = []
    for attempt, outcome in finished(session):
        if attempt.step.orchestrator != "goal":
            found += [roots[c.root] / c.path for c in (*outcome.outputs, *(outcome.changes or ())) if c.root in roots]
    return found


def unmet(evaluation: Json, hint: str) -> Json:
    message = f"the goal is {'only partly' if evaluation['met'] == 'partly' else 'not'} met: {evaluation['summary']}"
    return {"code": "GOAL_NOT_MET", "message": message, "hint": hint, "gaps": evaluation["gaps"]}


def next_round(call: Call, plan: Plan, evaluation: Json) -> Plan:
    """The plan with phases for what is still missing behind those that are done."""
    session = call.session.folder
    gaps = session / "goal" / f"gaps-{plan.round}.md"
    files.write_atomic(gaps, "".join(f"- {gap}\n" for gap in evaluation["gaps"]))
    known: Json = {"goal": plan.goal, "rounds": plan.rounds, "checks": plan.checks_file}
    path = write_plan(call, known, plan.round + 1, plan, gaps)
    assert path == plan_file_of(session, plan.round + 1)
    return resumed.keep_folders(load(session, plan.round + 1), session)
