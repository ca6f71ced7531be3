"""What a person does with a knowledge base: build it, ask it, look at its versions, clear old ones away, make a page of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from lib.attempt import executor
from lib.cli import Call
from lib.contract import Json, StrataError, command, usage
from lib.disk import files, records
from lib.disk.clock import now
from lib.plan import agents
from lib.plan.task import Task
from lib.tool import service

from packs.downstream import bundles, upstream
from packs.downstream import settings as settings_file
from packs.downstream.contract import Unless
from packs.kb import asking, builder, changes, librarian, page, serving, taking
from packs.kb.asking import Answer, Base
from packs.kb.routing import ConversationState
from packs.kb.store import Store

REJECTED = Unless("validation", "/decision", ("rejected",))  # what is not taken in, as the contract of the builder says
CONVERSATIONS = "conversations"  # in the root


def store(call: Call) -> Store:
    return Store(call.cwd / (call.options.kb or builder.default_root()))


@contextmanager
def opened(call: Call) -> Generator[Base]:
    """A version, pinned as long as it is read."""
    settings, known = settings_file.read(), store(call)
    version = known.require(call.options.version).version
    with known.pinned(version) as folder:
        base = Base(folder, version, settings.aliases)
        try:
            yield base
        finally:
            base.close()


def said(**fields: object) -> Json:
    return {"tool": "kb", "status": "success", "exit_code": 0, **fields}


def build(call: Call) -> Json:
    run = _one_word(call, "RUN", "of which run? its session, latest, or its manifest")
    settings, known = settings_file.read(), store(call)
    session = Path(call.options.session_dir) if call.options.session_dir else None
    manifest = upstream.load(run, call.cwd, settings, session)
    kept = [one for one in bundles.not_barred(manifest, REJECTED) if one.type in (*taking.KINDS, taking.ALIGNED)]
    for one in kept:
        one.verify()
    offered = taking.sources(kept, manifest.execution_id)
    if not offered:
        kinds = ", ".join(sorted({one.type for one in manifest.outputs}))
        raise StrataError(
            "NOTHING_TO_TAKE", f"{run} has no output for a knowledge base: {kinds}", f"it takes {', '.join(taking.KINDS)}"
        )
    built = known.build(offered, manifest.execution_id, manifest.path, now(), settings.aliases)
    text = builder.told(built.version.version, built.new, built.version.changelog, built.version.total_documents)
    return said(
        kb=str(known.root), new=built.new, made=built.written, kept=built.kept, **records.document(built.version), text=text
    )


def versions(call: Call) -> Json:
    known = store(call)
    known.require()
    manifest = known.manifest()
    lines = [
        f"{'*' if one.version == manifest.current_version else ' '} {one.version}  {one.created_at}  "
        f"{one.total_documents} documents from {one.source_execution_id}" + "".join(f"\n      {line}" for line in one.changelog)
        for one in manifest.versions
    ]
    return said(kb=str(known.root), **records.document(manifest), text="\n".join(lines))


def diff(call: Call) -> Json:
    words = [int(word) for word in call.options.words if re.fullmatch(r"[0-9]{1,9}", word)]
    known = store(call)
    if len(words) != 2 or len(call.options.words) != 2:
        usage("diff takes two versions", f"{command('kb')} diff 1 2")
    before, after = (known.index(known.require(number).version) for number in words)
    found = changes.changed(before, after)
    lines = [f"{one.kind:8} {one.path}  ({one.title})" for one in found] or ["they are the same"]
    return said(changes=records.document(found), changelog=changes.between(before, after), text="\n".join(lines))


def prune(call: Call) -> Json:
    known = store(call)
    known.require()
    free, read = known.prune(call.options.keep, call.options.yes)
    verb = "" if not free else ": removed" if call.options.yes else " could go: --yes removes them"
    text = f"{', '.join(map(str, free)) or 'no version is old enough to go'}{verb}" + (
        f"; being read, and kept: {', '.join(map(str, read))}" if read else ""
    )
    return said(versions=free, read=read, removed=call.options.yes, text=text)


def make_page(call: Call) -> Json:
    target = call.cwd / (call.options.words[0] if call.options.words else "knowledge-base.html")
    with opened(call) as base:
        files.write_atomic(target, page.html(base))
    return said(page=str(target), text=str(target))


def serve(call: Call) -> Json:
    with opened(call) as base:
        call.open_session("kb-serve", "kb")
        return service.protocol(call, lambda served: serving.run(base, served))


# Asking


def _one_word(call: Call, name: str, question: str) -> str:
    words = call.options.words
    if len(words) != 1 or not words[0].strip():
        usage(
            question if not words else f"one {name}, and not {len(words)} words", "put it into quotes" if len(words) > 1 else ""
        )
    return str(words[0])


def _document(answer: Answer, **more: object) -> Json:
    route = records.document(answer.route)
    hits = [serving.line(h.document) | {"heading": h.heading, "text": h.text, "score": h.score} for h in answer.hits]
    known = {"question": answer.question, "found": answer.found, "documents": list(answer.documents), "tier": answer.route.tier}
    return said(**known, route=route, coverage=answer.coverage, version=answer.version, passages=hits, text=answer.text, **more)


def ask(call: Call) -> Json:
    """Python first; a small model only where Python is in doubt. As a stage of an orchestrator, never a model."""
    question = _one_word(call, "QUESTION", "what do you want to know?")
    if call.options.task:
        return _as_a_stage(call, question)
    path = _conversation(call)
    state = ConversationState(session_id=call.options.conversation)
    state = records.read(path, ConversationState) if path and path.exists() else state
    with opened(call) as base:
        answer = base.ask(question, state)
        doubts = bool(answer.route.doubt) or not answer.found
        if (doubts or call.options.write) and not call.options.no_model:
            document = _librarian(call, base, answer)
        else:
            document = _document(answer)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(path, records.document(asking.after(state, answer)))
    return document


def _librarian(call: Call, base: Base, answer: Answer) -> Json:
    """An agent looks where Python was in doubt. What it cites is looked up; without an agent, the passages are the answer."""
    task = librarian.task(call, base, answer)
    try:
        reply = executor.run_agent(call, agents.load(librarian.AGENT), task)
    except StrataError as error:
        return _warned(_document(answer), f"no agent could be asked: {error.message}")
    said = librarian.believed(base, answer, reply)
    return _warned(_document(answer), str(said["warning"])) if "warning" in said else _document(answer) | said


def _warned(document: Json, why: str) -> Json:
    """A person reads the text alone."""
    return document | {"warning": why, "text": f"{document['text']}\n\n({why}. --no-model asks none.)"}


def _as_a_stage(call: Call, question: str) -> Json:
    def work(task: Task, out: Path) -> Json:
        with opened(call) as base:
            answer = base.ask(question)
            files.write_atomic(task.output_path("answer", out, call.cwd), f"# {question}\n\n{answer.text}\n")
            return {"verdict": "done", "found": answer.found, "documents": list(answer.documents), "version": base.version}

    return executor.run_function(call, "kb-ask", executor.read_task(call, Task(action="ASK", target=question)), work)


def _conversation(call: Call) -> Path | None:
    name = call.options.conversation
    if name and not files.is_safe(name):
        usage(f"--conversation {name!r} is no plain name", "letters, digits, - and _")
    return store(call).root / CONVERSATIONS / f"{name}.json" if name else None


def chat(call: Call) -> Json:
    """At a terminal, until an empty line."""
    if not sys.stdin.isatty():
        usage("chat is for a terminal", f'{command("kb")} ask "…" answers one question')
    state = ConversationState(session_id="chat")
    with opened(call) as base:
        there = ", ".join([*base.router.known["domain"], *base.router.known["vertical"], *base.router.known["persona"]])
        print(f"Version {base.version}: {there}. `tell me more` goes deeper; an empty line ends.", file=sys.stderr)
        while question := _asked():
            answer = base.ask(question, state)
            state = asking.after(state, answer)
            print(f"\n{answer.text}\n", flush=True)
    return said(turns=state.turn_count, text=f"{state.turn_count} questions")


def _asked() -> str:
    try:
        return input("? ").strip()
    except EOFError:
        return ""


VERBS: dict[str, Callable[[Call], Json]] = {
    "build": build, "ask": ask, "chat": chat, "serve": serve,
    "versions": versions, "diff": diff, "prune": prune, "page": make_page,
}  # fmt: skip
