"""What a resume would do, step by step: SKIP, RUN or HALT, why, and what it may cost. Reads the session and changes nothing.

It walks the way a run walks, with the same questions asked of the same files. Where a step would run, what it will produce is
not known yet: what is made from that would run too, unless it turns out the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from lib.contract import HOUSE, ExitCode, Json, StrataError, part
from lib.disk import files, places
from lib.plan.orchestration import Orchestration, Question, Reference, Stage, Worker
from lib.plan.written import Loop
from lib.process import fanout
from lib.session import costs
from lib.session.ledger import Ledger
from lib.session.step import Step
from lib.stages import asking, loops, redo
from lib.stages.answers import Answers
from lib.stages.results import StageResult
from lib.stages.walk import Walk
from lib.stages.words import Words
from lib.tool.call import Call

SKIP, RUN, HALT = "SKIP", "RUN", "HALT"
CANNOT = "cannot run"  # the verdict of a stage that would fail before it begins


class Explanation(Struct):
    """The lines so far, and what agents are known to cost."""

    call: Call
    known: dict[str, float]
    again: dict[str, int] = {}  # what --from and --only would make count no more
    lines: list[Json] = []

    def say(self, step: str, does: str, why: str, agent: str = "", sessions: int = 0) -> None:
        line: Json = {"step": step, "does": does, "why": why}
        if does == RUN and sessions:
            refused = self._refused(step)
            if refused:
                line |= {"does": HALT, "why": f"{refused} ({why})"}
            else:
                cost = self.known.get(agent)
                line |= {"agent_sessions": sessions, "usd_expected": None if cost is None else round(cost * sessions, 6)}
        self.lines.append(line)

    def _refused(self, step: str) -> str:
        """Why the budget would not let an agent start there."""
        phase = step.split("/", maxsplit=1)[0]
        try:
            Ledger(self.call.session.folder).require(phase)
        except StrataError as error:
            return error.message
        return ""

    def document(self) -> Json:
        asked = [line for line in self.lines if "agent_sessions" in line]
        usd = [line["usd_expected"] for line in asked]
        unknown = [line["step"] for line in asked if line["usd_expected"] is None]
        return {
            "tool": self.call.tool.name,
            "status": "success",
            "exit_code": 0,
            "explained": self.lines,
            "found": places.kept()["found"],
            **{does.lower(): sum(line["does"] == does for line in self.lines) for does in (SKIP, RUN, HALT)},
            "usd_expected": None if unknown else round(sum(usd), 6),
            "cost_unknown": unknown,
        }


def begin(call: Call, chosen: redo.Chosen | None = None) -> Explanation:
    folder = call.session.folder
    known = costs.known(Path(call.options.session_base or HOUSE / "sessions"), folder)
    return Explanation(call, known, redo.voided(folder, chosen) if chosen else {})


# One orchestrator


class _Peeking(Answers, frozen=True):
    """Sees what a person answered, and leaves it where it is."""

    def take(self, stage: str, keep: Callable[[Json], None], wanted: tuple[Any, ...] | None = None) -> Json | None:
        path = self.folder / f"{stage}.json"
        record = files.read_json(path) if path.exists() else None
        return record if record and (wanted is None or record["answer"] in wanted) else None

    def put_aside(self, stage: str) -> bool:
        return False

    def decided(self, stage: str, occasion: str, choices: tuple[str, ...]) -> str:
        record = self.take(stage, lambda record: None, choices)
        return str(record["answer"]) if record else super().decided(stage, occasion, choices)


class _NotYet(Exception):  # noqa: N818 - not an error: the walk goes on without the results of this stage
    pass


class Look(Walk):
    """A walk that only looks. `unknown` are the stages and parameters whose values are not known before something ran."""

    def __init__(
        self, said: Explanation, orchestration: Orchestration, params: dict[str, Any], base: Step, unknown: set[str]
    ) -> None:
        super().__init__(said.call, orchestration, params, base)
        self.said = said
        self.unknown = unknown
        self.answers = _Peeking(self.home / "answers", said.call.session.folder)
        self.finished.redo_before = Counter({**self.finished.redo_before, **said.again})
        self.would_run = False  # whether a step of the stage at hand would
        self.sent_back = ""  # the stage a loop leads back to that has not been written down yet

    @property
    def name(self) -> str:
        return "/".join(p for p in (self.base.phase, self.base.orchestrator) if p)

    def explain(self, halted: str = "") -> str:
        """Says it for every stage, and returns why nothing after this orchestrator would start; or nothing."""
        stopped = None if halted else self.walk()
        if stopped and stopped.exit_code == ExitCode.HUMAN_INPUT:
            halted = f"{stopped.stage} waits for a person"
        elif stopped:
            halted = f"{stopped.stage} {'cannot run' if stopped.verdict == CANNOT else 'did not succeed'}"
        for stage in self.orchestration.stages[self.position + bool(stopped) :] if halted else ():
            self.say(stage, HALT, halted)
        return halted

    def visit(self, stage: Stage) -> tuple[StageResult | None, str]:
        try:
            result, back_to = super().visit(stage)
        except _NotYet:
            self.unknown.add(stage.name)
            return None, ""
        except StrataError as error:
            self.say(stage, HALT, error.message)
            return StageResult(stage.name, error.exit_code, CANNOT, error=error.document()), ""
        if result and result.exit_code == ExitCode.HUMAN_INPUT and not back_to and not result.steps:
            self.say(stage, HALT, f"a person is asked: {part(result.question, 'question') or result.note}")
        return result, back_to

    def say(self, stage: Stage, does: str, why: str, key: str = "", worker: Worker | None = None, sessions: int = 1) -> None:
        worker = worker or stage.worker
        turn = f"round-{self.rounds[stage.name]}" if stage.in_loop and self.rounds[stage.name] > 1 else ""
        name = "/".join(p for p in (self.name, stage.name, turn, key) if p)
        self.said.say(name, does, why, worker.agent or stage.name, sessions if worker.asks_agents else 0)

    def work(self, stage: Stage, step: Step) -> StageResult:
        waits = self.waits_for_news(stage)
        if waits:
            for key, worker, sessions in stage.announced():
                self.say(stage, RUN, waits, key, worker, sessions)
            raise _NotYet
        return super().work(stage, step)

    def done_as_one(self, stage: Stage) -> StageResult | None:
        together = super().done_as_one(stage)
        if together:
            self.say(stage, SKIP, together.note)
        return together

    def as_it_stands(self, stage: Stage, words: Words) -> StageResult | None:
        result = super().as_it_stands(stage, words)
        runs: set[str] = set()
        for key in fanout.one_by_one(words.after):
            does, why = self.of_step(stage, words, key, result is not None, runs)
            runs |= {key} if does == RUN else set()
            self.say(stage, does, why, key, words.table[key].worker)
        self.would_run = bool(runs)
        return result

    def perform(self, stage: Stage, words: Words) -> StageResult:
        if self.would_run or not words.complete:
            raise _NotYet
        return self.together(stage, words)

    def of_step(self, stage: Stage, words: Words, key: str, stands: bool, runs: set[str]) -> tuple[str, str]:
        waits = [other for other in words.after[key] if other in runs]
        if waits:
            return RUN, f"it waits for {', '.join(waits)}, which will run"
        known = words.known.get(key)
        outcome, why = self.finished.look(words.table[key], stage.limits.model, words.past)
        if outcome:
            return SKIP, why
        if known and asking.waits(known):
            return HALT, f"a person is asked: {known.message}"
        if known and (stands or (self.absorbs_items(stage) and not words.complete)):
            return SKIP, f"the run went on without it: {part(known.error, 'message') or why}"
        return (HALT, known.error["message"]) if known and known.verdict == "blocked" and known.error else (RUN, why)

    def waits_for_news(self, stage: Stage) -> str:
        """Of which stage or parameter the value is not known yet, if this stage is made from one."""
        if stage.name == self.sent_back:
            return "it was sent back"
        named = {".".join(("param", r.rest[0])) if r.head == "param" else r.head for r in _parsed(stage.references)}
        sources = named & self.unknown
        return f"it uses what {', '.join(sorted(sources))} will make" if sources else ""

    def ask(self, stage: Question, step: Step) -> StageResult:
        heads = {r.head for r in _parsed(stage.references)} & self.unknown
        later = f" (once {', '.join(sorted(heads))} has run)" if heads else ""
        result = self.answered(stage, step) if not heads else None
        if result:
            self.say(stage, SKIP, result.note)
            return result
        return StageResult(stage.name, ExitCode.HUMAN_INPUT, "waiting", question={"question": f"{stage.question}{later}"})

    def gone_over(self, stage: Stage) -> bool:
        """History counts, but for what is asked for again."""
        return not loops.led_over({stage.name: None}, self.said.again, self.base) and super().gone_over(stage)

    def forget_loops(self, stage: Stage) -> None:
        pass

    def publish(self, place: Path, answer: Any) -> None:
        pass

    def take(self, loop: Loop, stage: Stage, result: StageResult) -> None:
        self.taken[loop.name] += 1
        cause = self.home / "loops" / f"{loop.name}-{self.taken[loop.name]}.md"
        names = [s.name for s in self.orchestration.stages]
        for name in names[names.index(loop.to) : names.index(stage.name) + 1]:
            self.orders.causes.pop(name, None)
        if cause.exists():
            self.orders.causes[loop.to] = cause
            self.orders.handed[loop.name] = self.hand_back(stage, result, cause)
        else:
            self.sent_back = loop.to


def _parsed(texts: list[str]) -> list[Reference]:
    return [reference for text in texts if (reference := Reference.parse(text))]


def orchestrator(said: Explanation, orchestration: Orchestration, params: dict[str, Any], base: Step) -> Explanation:
    Look(said, orchestration, params, base, set()).explain()
    return said
