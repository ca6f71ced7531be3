"""Looking after a run from its folder: how it is set up, continued, answered, shown and packed."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from lib.campaign import named, people
from lib.contract import ExitCode, Json, StrataError, command, usage
from lib.disk import files, lenient, schemas
from lib.plan import orchestrator_file
from lib.session.documents import Question
from lib.stages import asking, runs
from lib.tool.call import Call

from packs.academic import gate
from packs.academic.folder import CONFIG, HANDOVERS, Folder
from packs.academic.settings import OF_RUN, settings
from packs.academic.state import PHASES, State, Waiting

TOOL = "academic"
FIRST_AND_LAST = {
    0: ("begin", "check0"), 1: ("open1", "check1"), 2: ("open2", "merge"), 3: ("open3", "check3"), 4: ("open4", "downloads"),
    5: ("text", "check5"), 6: ("finish", "close"),
}  # fmt: skip
DATABASES = ("OpenAlex", "Crossref", "Semantic Scholar", "arXiv")
_RECENT = re.compile(r"\b(?:recent(?:ly)?|latest|newest|state of the art|nowadays)\b", re.I)
# What may stand behind an answer; everything else is a part of it, also where it begins with two hyphens.
_FLAGS = (
    "--output-format", "--driver", "--fixtures", "--explain", "--until", "--max-wait", "--model", "--accept-drift",
)  # fmt: skip
_NEVER_PACKED = ("config/profiles", "logs/state.lock")


def words(tool: str, given: list[str]) -> list[str]:
    """The command line: what belongs to a run that has a session resumes it; the rest is as it was given."""
    verb, rest = (given[0] if given else ""), given[1:]
    if verb not in ("run", "answer", "phase") or any(w in ("-h", "--help") for w in rest):
        return named.words(tool, given)
    places = rest[1:] if verb == "phase" else rest
    if not places or places[0].startswith("-"):
        return given  # the parser says what is missing
    root = Path(places[0]).absolute()
    first, last = _phase(rest[0]) if verb == "phase" else ("", "")
    if not root.is_dir():
        raise StrataError("NO_RUN", f"{root} is not there", f"{command(TOOL)} setup {root}", final=True)
    session = Path(_state(root).session or "/nonexistent")
    more = places[1:]
    if last:
        more = [*(["--from", first] if session.is_dir() else []), "--until", last, *more]
    if verb == "answer":
        more = _answer(root, more)
    said = ["--resume", str(session), *more] if session.is_dir() else ["run", str(root), "--cwd", str(root), *more]
    sys.argv[1:] = said  # the session keeps the command it was begun with
    return named.words(tool, said)


def _phase(text: str) -> tuple[str, str]:
    if not text.isdecimal() or int(text) not in PHASES:
        usage(f"there is no phase {text!r}", "phase N RUN, N from 0 to 6")
    return FIRST_AND_LAST[int(text)]


def _answer(root: Path, given: list[str]) -> list[str]:
    waiting = _state(root).waiting
    if not waiting:
        raise StrataError("NOT_WAITING", f"{root} is not waiting for an answer", f"{command(TOOL)} status {root}")
    if not given or given[0].startswith("--"):
        usage(f"what is the answer? {waiting.question}", f"one of {', '.join(waiting.choices)}")
    flags = next((n for n, w in enumerate(given) if w.partition("=")[0] in _FLAGS), len(given))
    return ["--answer", f"{waiting.stage}={' '.join(given[:flags])}", *given[flags:]]


def _state(root: Path) -> State:
    return Folder(root).state.read() if root.is_dir() else State()


def run(call: Call) -> Json:
    """Walks as far as it goes. At a terminal a person is asked at once; elsewhere it ends, and says how to answer."""
    root = _run_folder(call)
    if not (root / HANDOVERS[CONFIG].file).is_file():
        raise StrataError(
            "MISSING_HANDOVER", f"{root} has no {HANDOVERS[CONFIG].file}", f"{command(TOOL)} setup {root}", final=True
        )
    params = {"run": "."}
    orchestration = orchestrator_file.load(TOOL, "")
    bounded = bool(call.options.until)
    document = noted(root, runs.run(call, orchestration, params, topic=root.name))
    while document["exit_code"] == ExitCode.HUMAN_INPUT and not call.options.explain and people.at_a_terminal():
        waiting = Folder(root).state.read().waiting
        said = _asked(root) if waiting else ""
        if not waiting or not said:
            break
        document = noted(root, runs.answered(call, orchestration, params, f"{waiting.stage}={said}"))
    return _told(root, document, bounded)


def noted(root: Path, document: Json) -> Json:
    """Several may wait at once, such as two search pages with a CAPTCHA each: the state names one that still does."""
    asked = [lenient.of(one, Question) for one in asking.each(document.get("waiting") or {})]
    state = Folder(root).state
    known = state.read().waiting
    if asked and (not known or known.stage not in [one.name for one in asked]):
        first = asked[0]
        state.waits(Waiting(first.name, _phase_of(first.stage), first.question, first.choices, first.show))
    return document


def _phase_of(stage: str) -> int:
    number = stage.removeprefix("check")
    return int(number) if number.isdecimal() else {"portal": 0, "browse": 2}.get(stage, 0)


def _asked(root: Path) -> str:
    """What a person says; empty is for later. What cannot be an answer is asked again."""
    waiting = Folder(root).state.read().waiting
    assert waiting
    shown = "".join(f"  {root / path}\n" for path in waiting.show)
    schema = "academic/choice" if waiting.stage == "check3" else "academic/answer"
    while True:
        said = people.read_line(f"\n{waiting.question}\n{shown}{', '.join(waiting.choices)}, or Enter for later: ")
        fits = said in waiting.choices if "/" in waiting.stage else not schemas.describe(said, schemas.load(schema))
        if not said or fits:
            return said
        sys.stderr.write(f"{said!r} is none of these.\n")


def _told(root: Path, document: Json, bounded: bool) -> Json:
    if bounded and document["exit_code"] == ExitCode.PARTIAL_SUCCESS:
        document = {name: value for name, value in document.items() if name != "error"} | {"status": "success", "exit_code": 0}
    if document["exit_code"] == ExitCode.HUMAN_INPUT and isinstance(document.get("error"), dict):
        document["error"]["hint"] = f"{command(TOOL)} answer {root} yes"
    return document


def _run_folder(call: Call) -> Path:
    return Path(call.options.words[0]).absolute() if call.options.words else call.cwd


def status(root: Path) -> Json:
    """Where a run stands, for people and for programs."""
    if (root / HANDOVERS[CONFIG].file).is_file() and not (root / "research_state.json").is_file():
        return {"tool": TOOL, "status": "success", "exit_code": 0, "run": root.name, "next": f"{command(TOOL)} run {root}"}
    state = _existing(root)
    waiting = state.waiting
    phases = {f"phase {n} ({name})": state.phase_status.get(str(n), "pending") for n, name in PHASES.items()}
    said: Json = {"tool": TOOL, "status": "success", "exit_code": 0, "run": state.run_id, "session": state.session, **phases}
    said |= {f"alarm {name}": f"{a.level} ({a.count})" for name, a in state.alarms.items() if a.level != "ok"}
    said |= {"errors": len(state.errors), "retries": len(state.retries)}
    if state.errors:
        said["last error"] = state.errors[-1].error
    if waiting:
        said |= {
            "waits": waiting.question,
            "show": list(waiting.show),
            "answer with": f"{command(TOOL)} answer {root} {waiting.choices[0]}",
        }
    outputs = root / "outputs"
    return said | {"outputs": sorted(p.name for p in outputs.iterdir()) if outputs.is_dir() else []}


def _existing(root: Path) -> State:
    if not (root / "research_state.json").is_file():
        raise StrataError("NO_RUN", f"{root} has no run", f"{command(TOOL)} setup {root}, then {command(TOOL)} run {root}")
    return _state(root)


def export(root: Path, target: Path | None) -> Json:
    """Everything of a run in one file, with the digests of what is in it."""
    state = _existing(root)
    made = target or root.with_name(f"{root.name}.zip")
    listed = [p for p in sorted(root.rglob("*")) if p.is_file() and not p.is_symlink() and p.resolve() != made.resolve()]
    profiles = settings(root / OF_RUN).browser.profiles  # a login is nobody else's
    never = [*(root / name for name in _NEVER_PACKED), *([Path(profiles).expanduser()] if profiles else [])]
    packed = [p for p in listed if not any(p.is_relative_to(place) for place in never)]
    made.parent.mkdir(parents=True, exist_ok=True)
    part = made.with_name(f".{made.name}.part")
    sums: dict[str, str] = {}
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as pack:
        for path in packed:
            data = path.read_bytes()
            sums[str(path.relative_to(root))] = files.digest_bytes(data)
            pack.writestr(str(path.relative_to(root)), data)
        pack.writestr("SHA256SUMS", "".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    part.replace(made)
    done = state.phase_status.get("6") == "completed"
    note = "" if done else "the run is not finished: what is there was packed"
    return {
        "tool": TOOL,
        "status": "success",
        "exit_code": 0,
        "file": str(made),
        "files": len(sums),
        **({"note": note} if note else {}),
    }


# Setup


def setup(options: Namespace) -> Json:
    """Writes run_config.json, from a file, from what the command says, or from what a person is asked."""
    root = Path(options.words[0]).absolute() if options.words else None
    config = _clear(_from_file(Path(options.config)) if options.config else _from_words(options, root))
    years: Json = config.get("period") or {}
    if years.get("from") and years.get("to") and years["from"] > years["to"]:
        usage(f"the years go from {years['from']} to {years['to']}", "the first year comes first")
    gated = gate.passed(config, CONFIG, by_person=True)
    if gated.problems:
        usage("; ".join(gated.problems[:5]), "the format is config/packs/academic/schemas/run_config.json")
    root = root or Path(str(config["run_id"])).absolute()
    folder = Folder(root)
    path = root / HANDOVERS[CONFIG].file
    kept: Path | None = None
    if path.exists() and path.read_bytes() != files.as_written(gated.document):
        if not options.force:
            raise StrataError("EXISTS", f"{path} is there, and says something else", "--force writes it anew; or edit it")
        kept = folder.keep_aside(path)
    folder.make()
    files.write_json(path, gated.document)
    context = folder.write_context(config["project"], str(config.get("context") or ""))
    said: Json = {"tool": TOOL, "status": "success", "exit_code": 0, "config": str(path), "context": str(context)}
    return said | ({"kept": str(kept)} if kept else {}) | {"next": f"{command(TOOL)} run {root}"}


def _from_file(path: Path) -> Json:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise StrataError("NOT_FOUND", f"{path}: {error.strerror}", "name a run_config.json", final=True) from None
    except ValueError as error:
        raise StrataError("BAD_CONFIG", f"{path} is not JSON: {error}", "", final=True) from None
    wrong = gate.passed(found, CONFIG, by_person=True).problems
    if wrong:
        raise StrataError("BAD_CONFIG", f"{path}: {'; '.join(wrong[:5])}", "correct it there", final=True)
    return found


def _from_words(options: Namespace, root: Path | None) -> Json:
    shape = schemas.load("academic/run_config")["properties"]
    fields = ", ".join(shape["disciplines"]["items"]["enum"])
    question = options.question or _ask("What is to be found out? (one sentence)", "--question", shape["research_question"])
    name = options.project or _ask("What is the work called that it is for?", "--project", shape["project"])
    keywords = _listed(options.keywords) or _ask("Its keywords, with commas between them?", "--keywords", shape["keywords"])
    disciplines = _listed(options.disciplines) or _ask(
        f"Which fields? (one or more of {fields})", "--disciplines", shape["disciplines"]
    )
    usual = ", ".join(DATABASES)
    databases = _listed(options.databases) or _ask(f"Which databases? (Enter: {usual})", "", {"type": "array"}, usual)
    mail = options.mail or _ask("A mail address that the services may write to? (Enter for none)", "", shape["mail"], " ")
    run_id = files.slug(root.name if root else name, "review")[:64]
    made: Json = {"version": 1, "run_id": run_id, "project": name, "research_question": question, "keywords": keywords}
    made |= {"disciplines": disciplines, "databases": [{"name": d} for d in databases]}
    if options.from_year or options.to_year:
        made["period"] = {"from": options.from_year, "to": options.to_year}
    return made | ({"mail": mail.strip()} if mail.strip() else {}) | ({"portal": options.portal} if options.portal else {})


def _clear(config: Json) -> Json:
    """What can be read in two ways is asked, and not guessed."""
    said = _RECENT.search(" ".join((str(config["research_question"]), *config["keywords"])))
    if said and "period" not in config:
        question = f"{said[0]!r} may mean one year or ten. From which year on? (Enter: any year)"
        year = _ask(question, "--from-year, or period in the file", {"type": "string", "pattern": r"^((19|20)\d\d)?$"}, "")
        config = config | {"period": {"from": int(year) if year else None, "to": None}}
    return config


def _ask(question: str, flag: str, shape: Json, default: str | None = None) -> Any:
    """What a person says, as often as it takes until it can be used; a list where the format has one."""
    if not people.at_a_terminal():
        if default is not None and not flag:
            return _listed(default) if shape.get("type") == "array" else default
        usage(f"there is no terminal to ask at: {question}", f"say it with {flag}, or --config FILE")
    while True:
        line = people.read_line(f"{question}\n> ")
        text = line or default or ""
        said: Any = _listed(text) if shape.get("type") == "array" else text
        wrong = [] if not line and default is not None else schemas.describe(said, shape)
        if not wrong:
            return said
        sys.stderr.write(f"{wrong[0]}\n")


def _listed(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]
