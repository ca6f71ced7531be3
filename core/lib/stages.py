"""Layer 2's runtime: walks an orchestration's stages, routes on what came back, and writes the manifest as it goes.

All that decides the way is on disk: outcomes say what is finished, loop records say which loops were taken and why, and
answers say what a person decided. Walking again from the start therefore ends up where the last walk stopped.
"""

from __future__ import annotations

import argparse
import getpass
import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from lib import agents, cli, fanout, files, schemas
from lib.cli import Call
from lib.contract import STATUS, ExitCode, Json, StrataError, usage
from lib.depth import MINIMUM_STACK
from lib.observability import Timer
from lib.orchestration import Loop, Orchestration, Reference, Stage, Worker
from lib.session import Step, now
from lib.steps import Finished, Order, StepResult, fingerprint, perform
from lib.task import Task

PASSED = "success"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What every orchestrator understands, besides its own words."""
    add = parser.add_argument
    add("--modifier", default="", help="run only the stages this modifier keeps")
    add("--answer", metavar="STAGE=ANSWER", action="append", default=[], help="answer a stage that waits for a person; @FILE reads it")
    add("--extra-context", metavar="FILE", action="append", default=[], help="told to every stage that runs (repeatable)")
    add("--checks", metavar="FILE", help="where named checks are defined (default: config/checks.yaml)")
    add("--phase", default="", help=argparse.SUPPRESS)
    add("--inherit-settings", action="store_true", help="let agents load CLAUDE.md, settings, hooks and MCP servers")


@dataclass(frozen=True)
class StageResult:
    stage: str
    exit_code: ExitCode
    verdict: str
    results: tuple[StepResult, ...] = ()
    error: Json | None = None
    note: str = ""
    round: int = 0
    elapsed_seconds: float = 0.0
    open: bool = False  # went on although something was left unresolved
    question: Json | None = None

    @property
    def outputs(self) -> dict[str, dict[str, str]]:
        return {r.key: r.outputs for r in self.results if r.ok}

    def document(self) -> Json:
        status = STATUS[self.exit_code]
        first = next((p for r in self.results for p in r.outputs.values()), None)
        entry: Json = {"name": self.stage, "status": status, "exit_code": int(self.exit_code), "artifact": first}
        entry |= {"verdict": self.verdict, "attempts": sum(r.attempts for r in self.results)}
        entry |= {"skipped": bool(self.results) and all(r.skipped for r in self.results)}
        entry["elapsed_seconds"] = round(self.elapsed_seconds, 3)
        if self.round:
            entry["round"] = self.round
        if self.error:
            entry |= {"error": self.error.get("message", ""), "code": self.error.get("code", "")}
        if self.note:
            entry["note"] = self.note
        if self.question:
            entry["question"] = self.question
        if any(r.key for r in self.results):
            entry["items"] = [r.document() for r in self.results]
        return entry


def run(call: Call, orchestration: Orchestration, params: dict[str, Any], topic: str) -> Json:
    """Runs the stages and returns the stage manifest."""
    call.depth.require(MINIMUM_STACK[2] if call.depth.current == 0 else 1)
    values = read_params(orchestration, params, call.cwd)
    step = Step(phase=call.options.phase, orchestrator=orchestration.name)
    call.open_session(f"{orchestration.name}-{topic}" if topic else orchestration.name, step.slug)
    walk = Walk(call, orchestration, values, step)
    walk.take_answers(cli.keyword(call.options.answer, "--answer"))
    return walk.go()


def read_params(orchestration: Orchestration, given: dict[str, Any], cwd: Path) -> dict[str, Any]:
    for name in given:
        if name not in orchestration.params:
            usage(f"{orchestration.name} has no parameter {name!r}", f"it has: {', '.join(orchestration.params) or 'none'}")
    values: dict[str, Any] = {}
    for name, param in orchestration.params.items():
        value = given.get(name, param.default)
        if value is None or value == "":
            usage(f"{orchestration.name} needs the parameter {name!r}: {param.about}", f"--param {name}=…")
        if param.type == "list" and isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        elif param.type == "file":
            value = _file_param(str(value), cwd)
        values[name] = value
    return values


def _file_param(value: str, cwd: Path) -> str:
    """A path as the user gave it, seen from the working folder wherever it lies inside."""
    here = Path(value).absolute()
    path = here if here.exists() or Path(value).is_absolute() else cwd / value
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


@dataclass
class Walk:
    call: Call
    orchestration: Orchestration
    params: dict[str, Any]
    base: Step
    rounds: Counter[str] = field(default_factory=Counter[str])
    fired: Counter[str] = field(default_factory=Counter[str])
    results: dict[str, StageResult] = field(default_factory=dict[str, StageResult])
    causes: dict[str, Path] = field(default_factory=dict[str, Path])  # stage → why a loop came back to it

    def __post_init__(self) -> None:
        self.home = self.call.session.folder / self.base.home
        self.finished = Finished(self.call.session, self.call.cwd)

    def go(self) -> Json:
        stages = self.orchestration.stages
        position = 0
        stopped_by: StageResult | None = None
        while position < len(stages):
            stage = stages[position]
            result = self.do(stage)
            back = self.route(stage, result)
            result = self.results[stage.name]
            self.write_manifest(None)
            if back:
                position = stages.index(self.orchestration.stage(back))
            elif result.exit_code == ExitCode.SUCCESS or result.open:
                position += 1
            else:
                stopped_by = result
                break
        return self.write_manifest(stopped_by, final=True)

    def do(self, stage: Stage) -> StageResult:
        """One round of one stage, from disk where that is enough."""
        self.rounds[stage.name] += 1
        with Timer() as timer:
            if stage.ask:
                result = self.ask_person(stage)
            else:
                result = self.work(stage)
        result = replace(result, elapsed_seconds=timer.elapsed_seconds(), round=self.round_of(stage))
        self.results[stage.name] = result
        if not (result.results and all(r.skipped for r in result.results)):
            self.call.event(f"{self.base.slug}.{stage.name}", STATUS[result.exit_code], result.note or None, timer.elapsed_ms())
        return result

    def round_of(self, stage: Stage) -> int:
        return self.rounds[stage.name] if stage.in_loop else 0

    def step(self, stage: Stage, item: str = "") -> Step:
        return replace(self.base, stage=stage.folder, round=self.round_of(stage), item=files.safe_name(item) if item else "")

    # Doing a stage

    def work(self, stage: Stage) -> StageResult:
        try:
            orders = self.orders(stage)
        except StrataError as error:
            if error.exit_code == ExitCode.INTERRUPTED:
                raise
            return StageResult(stage.name, error.exit_code, "failed", error=error.document())
        stored = self.stored_result(stage, orders)
        if stored:
            return stored
        if not stage.fans_out:
            result = perform(self.call, stage, orders[0], self.finished)
            return StageResult(stage.name, result.exit_code, result.verdict, (result,), result.error, result.note)
        return self.fan_out(stage, orders)

    def fan_out(self, stage: Stage, orders: list[Order]) -> StageResult:
        table = {o.key: o for o in orders}
        after = {o.key: self.waits_for(stage, o) for o in orders}
        fanout.check_graph(after, stage.name)
        skip = stage.on_item_failure == "skip" or stage.members

        def blocked(key: str, cause: str) -> StepResult:
            error = {"code": "BLOCKED", "message": f"{cause} did not succeed"}
            return StepResult(key, ExitCode.FAILURE, "blocked", error=error)

        results = fanout.run(
            after,
            stage.cap,
            lambda key: perform(self.call, stage, table[key], self.finished),
            succeeded=lambda r: r.ok,
            blocked=blocked,
            # Depth, interruption and a person's input are never absorbed; with `abort` no failure is.
            go_on=lambda r: r.ok or (bool(skip) and r.exit_code not in NEVER_ABSORBED),
        )
        return self.sum_up(stage, list(results.values()), len(orders))

    def sum_up(self, stage: Stage, results: list[StepResult], wanted: int) -> StageResult:
        good = [r for r in results if r.ok]
        bad = [r for r in results if not r.ok]
        note = f"{len(good)} of {wanted} succeeded"
        made = tuple(results)
        hard = next((r for r in bad if r.exit_code in NEVER_ABSORBED), None)
        if hard:
            return StageResult(stage.name, hard.exit_code, "failed", made, hard.error, note)
        enough = len(good) >= (wanted if stage.min_success is None else stage.min_success)
        if enough:
            revision = next((r for r in good if r.verdict == "needs_revision"), None)
            if revision:
                return StageResult(stage.name, revision.exit_code, "needs_revision", made, revision.error, revision.note)
            return StageResult(stage.name, ExitCode.SUCCESS, "done", made, note=note)
        error = {"code": "ITEMS_FAILED", "message": f"{note}: {self.reasons(bad)}", "hint": "see `items` in the manifest"}
        if stage.on_item_failure == "ask" and stage.foreach:
            return self.ask_about_items(stage, made, error, note)
        if stage.on_item_failure == "skip" and stage.foreach and good and stage.min_success is None:
            return StageResult(stage.name, ExitCode.PARTIAL_SUCCESS, "done", made, error, note, open=True)
        code = bad[0].exit_code if len(bad) == 1 and bad[0].exit_code in STATUS else ExitCode.FAILURE
        return StageResult(stage.name, code, "failed", made, error, note)

    def reasons(self, bad: list[StepResult]) -> str:
        texts = [f"{r.key} ({(r.error or {}).get('message', STATUS[r.exit_code])[:120]})" for r in bad[:5]]
        return ", ".join(texts) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")

    def waits_for(self, stage: Stage, order: Order) -> list[str]:
        if stage.members:
            return list(order.worker.after)
        if not (stage.foreach and stage.foreach.after):
            return []
        value = order.task.item.get(stage.foreach.after, []) if isinstance(order.task.item, dict) else []  # type: ignore[reportUnknownMemberType]
        if not isinstance(value, list):
            raise StrataError("BAD_ITEMS", f"{stage.name}: {order.key!r} has no list under {stage.foreach.after!r}")
        return [str(v) for v in cast(list[Any], value)]

    # What there is to do

    def orders(self, stage: Stage) -> list[Order]:
        if stage.members:
            return [self.order(stage, worker, name, None) for name, worker in stage.members.items()]
        if stage.foreach:
            return [self.order(stage, stage.worker, key, item) for key, item in self.items(stage).items()]
        return [self.order(stage, stage.worker, "", None)]

    def items(self, stage: Stage) -> dict[str, Any]:
        each = stage.foreach
        assert each
        value = self.resolve(each.items, None)
        if isinstance(value, str) and Path(value).is_file():
            try:
                value = json.loads(Path(value).read_text(encoding="utf-8"))
            except ValueError as error:
                raise StrataError("BAD_ITEMS", f"{stage.name}: {each.items} is not JSON: {error}") from None
        for part in each.pointer.split("/")[1:]:
            value = cast(Json, value).get(part) if isinstance(value, dict) else None
        if value is None and each.items.endswith("?"):
            value = []
        if not isinstance(value, list):
            raise StrataError("BAD_ITEMS", f"{stage.name}: {each.items}{each.pointer} is not a list", "check foreach.pointer")
        found = cast(list[Any], value)
        if len(found) > each.max_items:
            raise StrataError("TOO_MANY_ITEMS", f"{stage.name}: {len(found)} items, at most {each.max_items}", "raise max_items")
        items: dict[str, Any] = {}
        for item in found:
            key = cast(Json, item).get(each.key) if each.key and isinstance(item, dict) else item
            if not isinstance(key, str | int) or key == "":
                raise StrataError("BAD_ITEMS", f"{stage.name}: an item has no text under the key {each.key!r}: {str(item)[:100]}")
            if str(key) in items:
                raise StrataError("BAD_ITEMS", f"{stage.name}: two items have the key {str(key)!r}", "keys must differ")
            items[str(key)] = item
        return items

    def order(self, stage: Stage, worker: Worker, key: str, item: Any) -> Order:
        agent = worker.agent
        if worker.agent_from:
            agent = str(self.resolve(worker.agent_from, item))
            if agent not in worker.allow:
                raise StrataError("AGENT_NOT_ALLOWED", f"{stage.name}: {key!r} asks for the agent {agent!r}", f"allowed: {', '.join(worker.allow)}")
        outputs = {o.name: o for o in worker.outputs}
        if worker.agent_from:
            outputs = {o.name: o for o in agents.load(agent).outputs} | {o.name: o for o in worker.outputs if o.name not in outputs}
        task = Task(
            action=worker.action,
            target=self.fill(worker.target, item),
            inputs={name: v for name, text in worker.inputs.items() if (v := self.resolve(text, item)) is not None},
            outputs=tuple(outputs.values()),
            item=item,
        )
        cause = self.causes.get(stage.name)
        order = Order(
            step=self.step(stage, key),
            key=key,
            worker=worker,
            agent=agent,
            args=tuple(self.fill(a, item) for a in worker.args),
            task=replace(task, consumed=self.consumed(task)),
            context=(cause,) if cause else (),
        )
        return replace(order, task=replace(order.task, fingerprint=fingerprint(self.call, stage, order)))

    def consumed(self, task: Task) -> dict[str, str]:
        """Files of the workspace the task is told about, with their hashes, except those it is to write itself."""
        own = {o.path.replace("{target}", task.target) for o in task.outputs if o.place == "workspace"}
        found: dict[str, str] = {}
        for value in (task.target, *task.inputs.values()):
            if isinstance(value, str) and value and "\n" not in value and len(value) < 1000 and value not in own:
                path = self.call.cwd / value
                if path.is_file() and path.is_relative_to(self.call.cwd):
                    found[str(path.relative_to(self.call.cwd))] = files.sha256(path)
        return found

    def fill(self, text: str, item: Any) -> str:
        """`{param.topic}` and `{item.id}` in a text."""

        def value(found: re.Match[str]) -> str:
            inner = self.resolve(found[1], item)
            return inner if isinstance(inner, str) else json.dumps(inner)

        return re.sub(r"\{((?:param|item)[^{}]*)\}", value, text)

    def resolve(self, text: str, item: Any) -> Any:
        """A reference's value: a text, an item, a path, or a list of paths; None for an optional one that is absent."""
        reference = Reference.parse(text)
        assert reference
        if reference.head == "param":
            return self.params[reference.rest[0]]
        if reference.head == "item":
            value = item
            for part in reference.rest:
                value = cast(Json, value).get(part) if isinstance(value, dict) else None
            if value is None and not reference.optional:
                raise StrataError("BAD_ITEMS", f"an item has no {'.'.join(reference.rest)!r}: {str(item)[:200]}")
            return value
        result = self.results.get(reference.head)
        table = result.outputs if result else {}
        member, output = (reference.rest[0], reference.rest[1]) if len(reference.rest) == 2 else ("", reference.rest[0])
        if member == "*":
            return [outputs[output] for outputs in table.values() if output in outputs]
        path = table.get(member, {}).get(output)
        if path is None and not reference.optional:
            raise StrataError("MISSING_INPUT", f"{text}: the stage {reference.head!r} did not produce it", f"write {text}? if it is optional")
        return path

    # Where to go next

    def route(self, stage: Stage, result: StageResult) -> str:
        """The stage a loop goes back to, or nothing. What is absorbed on the way is marked `open`."""
        event = {"needs_revision": "needs_revision", "failed": "failure"}.get(result.verdict, "")
        name = stage.on.get(event, "")
        if name and result.exit_code not in NEVER_ABSORBED and result.exit_code != ExitCode.SUCCESS:
            loop = self.orchestration.loops[name]
            if self.fired[name] < loop.max + self.granted(stage, loop):
                self.fired[name] += 1
                self.take_loop(stage, result, loop)
                return loop.to
            result = self.exhausted(stage, result, loop)
        elif not stage.required and result.exit_code not in (*NEVER_ABSORBED, ExitCode.SUCCESS):
            result = replace(result, open=True, note=result.note or "optional; the run went on without it")
        self.results[stage.name] = result
        return ""

    def exhausted(self, stage: Stage, result: StageResult, loop: Loop) -> StageResult:
        note = f"the loop {loop.name} was taken {self.fired[loop.name]} of {loop.max} times and is used up"
        if loop.then == "continue":
            return replace(result, open=True, note=note)
        if loop.then == "ask":
            decision = self.decision(stage, "loop")
            if decision == "continue":
                return replace(result, open=True, note=f"{note}; a person decided to go on")
            if decision != "fail":
                question = self.question(stage, f"{note}. {(result.error or {}).get('message', '')}", ("again", "continue", "fail"))
                return replace(result, exit_code=ExitCode.HUMAN_INPUT, verdict="waiting", note=note, question=question)
        return replace(result, note=note)

    def take_loop(self, stage: Stage, result: StageResult, loop: Loop) -> None:
        """Writes down that and why: the counter survives a crash, and the cause is handed to the loop's target."""
        number = self.fired[loop.name]
        text = [f"The stage `{stage.name}` sent the work back to `{loop.to}` (time {number} of {loop.max}).", ""]
        text += [f"Reason: {result.note or (result.error or {}).get('message', 'none given')}", ""]
        for step in result.results:
            text += [f"- {step.key or stage.name}, {name}: {path}" for name, path in step.outputs.items()]
        cause = self.home / "loops" / f"{loop.name}-{number}.md"
        files.write_atomic(cause, "\n".join(text).rstrip() + "\n")
        record: Json = {"loop": loop.name, "number": number, "from": stage.name, "round": self.rounds[stage.name]}
        record |= {"steps": self.steps_digest(stage), "result": _stored(result, self.call)}
        files.write_json(cause.with_suffix(".json"), record)
        self.causes[loop.to] = cause
        self.call.event(f"{self.base.slug}.{loop.name}", "loop", {"from": stage.name, "to": loop.to, "time": number})

    def steps_digest(self, stage: Stage) -> str:
        return files.digest([o.task.fingerprint for o in self.orders(stage)])

    def stored_result(self, stage: Stage, orders: list[Order]) -> StageResult | None:
        """How this round ended, if a loop has already been taken because of it: a routed failure is not run again."""
        for path in sorted((self.home / "loops").glob("*.json")):
            record = files.read_json(path)
            if record["from"] == stage.name and record["round"] == self.rounds[stage.name]:
                if record["steps"] == files.digest([o.task.fingerprint for o in orders]):
                    return _restored(record["result"], self.call)
        return None

    # Asking a person

    def take_answers(self, answers: dict[str, str]) -> None:
        known = {s.name: s for s in self.orchestration.stages}
        for name, text in answers.items():
            if name not in known:
                usage(f"there is no stage {name!r} to answer", f"the stages are: {', '.join(known)}")
            raw = cli.read_text(text[1:], "--answer") if text.startswith("@") else text
            try:
                answer = json.loads(raw)
            except ValueError:
                answer = raw.strip()
            stage = known[name]
            if stage.ask and stage.ask.answer_schema:
                wrong = schemas.describe(answer, schemas.load(stage.ask.answer_schema))
                if wrong:
                    usage(f"the answer to {name} does not match the schema {stage.ask.answer_schema}: {'; '.join(wrong)}")
            record = {"answer": answer, "by": getpass.getuser(), "at": now(), "taken": False}
            files.write_json(self.home / "answers" / f"{name}.json", record)

    def ask_person(self, stage: Stage) -> StageResult:
        """A stage that is a question. What was shown is kept by its hash: if it changed, the question is asked again."""
        ask = stage.ask
        assert ask
        shown = [v for text in ask.show if (v := self.resolve(text, None)) is not None]
        paths = [str(p) for value in shown for p in (cast(list[Any], value) if isinstance(value, list) else [value])]
        seen = {self.call.session.relative(Path(p)): files.sha256(Path(p)) for p in paths if Path(p).is_file()}
        step = self.step(stage)
        place = self.call.session.folder / step.artifacts / "answer.json"
        record_file = self.call.session.folder / step.folder / "answer.json"
        given = self.home / "answers" / f"{stage.name}.json"
        record = files.read_json(record_file) if record_file.exists() else None
        if given.exists() and not files.read_json(given)["taken"]:
            record = files.read_json(given) | {"shown": seen, "question": ask.question, "taken": True}
            files.write_json(record_file, record)
            files.write_json(given, record)
        if record and record["shown"] == seen and record["question"] == ask.question:
            files.write_json(place, record["answer"])
            result = StepResult("", ExitCode.SUCCESS, "done", {"answer": str(place)}, note=f"answered by {record['by']}")
            return StageResult(stage.name, ExitCode.SUCCESS, "done", (result,), note=result.note)
        question = self.question(stage, ask.question, ()) | {"show": paths, "answer_schema": ask.answer_schema}
        return StageResult(stage.name, ExitCode.HUMAN_INPUT, "waiting", question=question, note=ask.question)

    def ask_about_items(self, stage: Stage, made: tuple[StepResult, ...], error: Json, note: str) -> StageResult:
        decision = self.decision(stage, "items")
        if decision == "skip":
            return StageResult(stage.name, ExitCode.PARTIAL_SUCCESS, "done", made, error, f"{note}; a person decided to skip the rest", open=True)
        if decision == "abort":
            return StageResult(stage.name, ExitCode.FAILURE, "failed", made, error, f"{note}; a person decided to abort")
        question = self.question(stage, error["message"], ("retry", "skip", "abort"))
        return StageResult(stage.name, ExitCode.HUMAN_INPUT, "waiting", made, error, note, question=question)

    def decision(self, stage: Stage, about: str) -> str:
        """What a person decided here, kept for good once taken; `retry` and `again` count only once."""
        given = self.home / "answers" / f"{stage.name}.json"
        kept = self.home / "answers" / f"{stage.name}.{about}.r{self.rounds[stage.name]}.json"
        if given.exists() and not files.read_json(given)["taken"]:
            record = files.read_json(given)
            files.write_json(given, record | {"taken": True})
            if record["answer"] in ("retry", "again"):
                return ""  # running again is what has just happened
            files.write_json(kept, record)
        return str(files.read_json(kept)["answer"]) if kept.exists() else ""

    def granted(self, stage: Stage, loop: Loop) -> int:
        """Further rounds a person allowed to a loop that asks."""
        if loop.then != "ask":
            return 0
        given = self.home / "answers" / f"{stage.name}.json"
        count = self.home / "answers" / f"{stage.name}.again.json"
        granted = files.read_json(count)["rounds"] if count.exists() else 0
        used_up = self.fired[loop.name] >= loop.max + granted
        if used_up and given.exists() and (record := files.read_json(given)) and not record["taken"] and record["answer"] == "again":
            granted += 1
            files.write_json(count, {"rounds": granted})
            files.write_json(given, record | {"taken": True})
        return int(granted)

    def question(self, stage: Stage, text: str, choices: tuple[str, ...]) -> Json:
        shown = "|".join(choices) or "@answer.json"
        again = f"--session-dir {self.call.session.folder} --answer {stage.name}={shown}"
        return {"stage": stage.name, "question": text, "choices": list(choices), "answer_with": again}

    # What is told

    def write_manifest(self, stopped_by: StageResult | None, final: bool = False) -> Json:
        listed: list[Json] = []
        for stage in self.orchestration.stages:
            result = self.results.get(stage.name)
            listed.append(result.document() if result else {"name": stage.name, "status": "not-run", "exit_code": None, "artifact": None})
        ran = list(self.results.values())
        failed = [r for r in ran if r.exit_code != ExitCode.SUCCESS]
        code = stopped_by.exit_code if stopped_by else (ExitCode.PARTIAL_SUCCESS if failed else ExitCode.SUCCESS)
        summary: Json = {"total": len(listed), "passed": len(ran) - len(failed), "failed": len(failed), "exit_code": int(code)}
        manifest: Json = {"orchestrator": self.orchestration.name, "status": STATUS[code] if final else "running", "stages": listed}
        manifest |= {"summary": summary, "exit_code": int(code), "trace_id": self.call.trace_id}
        if stopped_by and stopped_by.question:
            manifest["waiting"] = stopped_by.question
            hint = f"run the same command with {stopped_by.question['answer_with']}"
            manifest["error"] = {"code": "HUMAN_INPUT", "message": stopped_by.question["question"], "hint": hint}
        elif stopped_by:
            manifest["error"] = {**(stopped_by.error or {"code": "STAGE_FAILED", "message": stopped_by.note}), "stage": stopped_by.stage}
        elif failed and final:
            names = ", ".join(r.stage for r in failed)
            manifest["error"] = {"code": "PARTIAL_SUCCESS", "message": f"went on without: {names}", "hint": "run it again to try these once more"}
        folder = str(self.call.session.folder) + "/"
        stored = json.loads(json.dumps(manifest).replace(json.dumps(folder)[1:-1], ""))
        files.write_json(self.home / "manifest.json", stored)
        self.call.artifact = self.home / "manifest.json"
        return manifest | {"session_dir": str(self.call.session.folder), "manifest": str(self.home / "manifest.json")}


NEVER_ABSORBED = (ExitCode.DEPTH_EXCEEDED, ExitCode.INTERRUPTED, ExitCode.HUMAN_INPUT)


def _stored(result: StageResult, call: Call) -> Json:
    """A stage's result with its paths relative, for a loop record."""
    steps = [
        {
            "key": r.key,
            "exit_code": int(r.exit_code),
            "verdict": r.verdict,
            "error": r.error,
            "attempts": r.attempts,
            "note": r.note,
            "outputs": {n: call.session.relative(Path(p)) for n, p in r.outputs.items()},
        }
        for r in result.results
    ]
    return {"stage": result.stage, "exit_code": int(result.exit_code), "verdict": result.verdict, "error": result.error, "note": result.note, "steps": steps}


def _restored(stored: Json, call: Call) -> StageResult:
    steps = tuple(
        StepResult(
            key=s["key"],
            exit_code=ExitCode(s["exit_code"]),
            verdict=s["verdict"],
            outputs={n: str(call.session.folder / p) for n, p in s["outputs"].items()},
            error=s["error"],
            attempts=s["attempts"],
            skipped=True,
            note=s["note"],
        )
        for s in stored["steps"]
    )
    return StageResult(stored["stage"], ExitCode(stored["exit_code"]), stored["verdict"], steps, stored["error"], stored["note"])
