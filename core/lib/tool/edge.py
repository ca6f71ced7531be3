"""The edge every tool shares: arguments in; events, signals, one document and an exit code out."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from lib import names
from lib.contract import CORE, LAYER_NAMES, MEANING, STATUS, ExitCode, Interrupted, Json, StrataError, usage
from lib.disk import places
from lib.disk.redact import redact
from lib.process import forking, keeper, nursery, processes, streams
from lib.session import events, signals, trace, watchers
from lib.tool import depth as depths
from lib.tool import grant, printing
from lib.tool.arguments import count, seconds
from lib.tool.call import AlreadyDone, Call, Tool

DRIVERS = ("live", "replay", "record")
Words = Callable[[str, list[str]], list[str]]


_PLAIN = argparse.RawDescriptionHelpFormatter


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        usage(message, f"try: {self.prog} --help")

    def print_help(self, file: Any = None) -> NoReturn:
        try:
            print(self.format_help(), end="", flush=True)
        except OSError:
            streams.end_process(1)  # argparse would say nothing of it
        streams.end_process(0)

    def format_help(self) -> str:
        self.formatter_class = partial(_PLAIN, width=shutil.get_terminal_size().columns - 2)
        return super().format_help()


STARTED_MOST = ("agent", "spawn")


def prepare_for_forks() -> None:
    """Makes those that are started most ready to begin: their scripts are run up to their last line, and their parsers made."""
    begin, here = run, vars(sys.modules[__name__])
    handed: list[tuple[Any, ...]] = []
    here["run"] = lambda *words: handed.append(words)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    for script in (str(CORE / f"{name}.py") for name in STARTED_MOST):
        try:
            changed = os.stat(script).st_mtime_ns  # noqa: PTH116
            main = forking.run_script(script)
            tool, arguments, *_ = words = handed.pop()
            forking.ready[script] = forking.Ready(main, changed, partial(begin, *words, parser=_parser(tool, arguments)))
        except Exception:  # noqa: BLE001 - whatever is wrong with it is said by the tool itself, when it is started
            continue
    here["run"] = begin


def _parser(tool: Tool, arguments: Callable[[argparse.ArgumentParser], None]) -> argparse.ArgumentParser:
    parser = _Parser(formatter_class=partial(_PLAIN, width=80), allow_abbrev=False)  # who only parses asks no terminal
    parser.prog = f"uv run core/{tool.name}.py" if (CORE / f"{tool.name}.py").is_file() else f"uv run {sys.argv[0]}"
    parser.description = tool.summary
    parser.epilog = f"example:\n  {tool.example}"
    add = parser.add_argument
    add("--model", metavar="TIER", help="low-tier, medium-tier, high-tier (config/models.yaml), or a model id")
    add("--output-format", choices=("text", "json"), default="text", help="KEY=value lines, or one JSON document")
    add("--cwd", metavar="DIR", help="the folder agents work in (default: the current folder)")
    add("--max-depth", type=count, metavar="N", help="how deep agents may start agents")
    add("--current-depth", type=count, metavar="D", help=argparse.SUPPRESS)
    add("--session-dir", metavar="DIR", help="the session folder to use; created if it does not exist")
    add("--session-base", metavar="DIR", help="where new session folders are created (default: sessions/ beside core/)")
    add("--driver", choices=DRIVERS, help="live: run real agents; record: run and record them; replay: answer from --fixtures")
    add("--fixtures", metavar="DIR", help="the recorded session folder that --driver replay answers from")
    if tool.layer >= 2:
        where = "where executors run: temporal://HOST:7233/NAMESPACE, or local (config/machines/README.md; or STRATA_BACKEND)"
        add("--backend", metavar="ADDRESS", help=where)
    add("--max-wait", type=seconds, metavar="SECONDS", help="how long to wait for a rate limit to reset (default: 6 hours)")
    add("--accept-drift", action="store_true", help="replay even where the prompt differs from the recorded one")
    arguments(parser)
    return parser


def run(
    tool: Tool,
    arguments: Callable[[argparse.ArgumentParser], None],
    main: Callable[[Call], Json],
    words: Words | None = None,
    parser: argparse.ArgumentParser | None = None,
) -> NoReturn:
    """Runs a tool from its arguments to its exit code. Nothing else in Strata ends a process. `words`: what a tool makes of its
    command line before it is parsed, where that only names what is known already. `parser`: of this tool, where it is made."""
    _open_missing_streams()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a shell may have it ignored: then nobody is told how a child ended
    if tool.layer:
        nursery.open_nursery(forking.serve)
    else:
        nursery.give_back()  # a spawn starts no tools
    keeper.become_subreaper()
    processes.inherit_lock()
    processes.hear_caller()
    if names.BACKEND in os.environ:
        _join_run()
    interrupts = _Signals()
    keeper.watch_lease(lambda: _parent_is_gone(tool.layer))
    keeper.watch_starter(lambda: _parent_is_gone(tool.layer))
    call: Call | None = None
    try:
        with interrupts:
            parser = parser or _parser(tool, arguments)
            call = _read_call(tool, parser, words)
            call.reach_workers = _workers.begin if tool.layer >= 2 else None
            events.start_heart(LAYER_NAMES[tool.layer], lambda label=call: label.label)
            document = main(call)
    except AlreadyDone as done:
        document = done.document
    except StrataError as error:
        document = error_document(tool, error)
    except OSError as error:
        document = error_document(tool, _system_error(error))
    except Exception as error:  # noqa: BLE001 - the last resort: every tool promises a code and one clear error, never a traceback
        document = error_document(tool, _unexpected(error, call))
    for watcher in watchers.watchers:
        watcher.left()
    processes.say_stop()
    _workers.end()
    nursery.close_nursery()
    keeper.end_descendants(ask_seconds=0.2)
    code = ExitCode(document.get("exit_code", ExitCode.FAILURE))
    if call and call.session_dir:
        _draw(call, document)
        _leave_word(call, code, document)
        with contextlib.suppress(OSError):  # how the tool ended does not depend on it
            call.session.release()
    if not tool.serves:
        printing.document(document, _format(call), outermost=call is None or call.outermost)
    if code != ExitCode.SUCCESS and document.get("error"):
        printing.error(document["error"])
    streams.end_process(int(code))


class _Workers:
    """Those of a run that places commands on other machines. Without one, nothing of that is imported."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], None]] = []

    def begin(self, call: Call) -> None:
        from lib.machines import submission

        placer = submission.begin(call.backend, call.session.folder, events.relay)
        if placer:
            self._ends.append(placer.end)

    def end(self) -> None:
        for end in self._ends:
            end()


_workers = _Workers()


def _join_run(address: str = "") -> None:
    """What this tool starts is placed as that of the run it belongs to."""
    from lib.machines import placing
    from lib.machines.address import Address

    Address.parse(address)  # what is wrong with it is said before anything is begun
    placing.join()


def _draw(call: Call, document: Json) -> None:
    """What a person opens is made when everything has ended; an error says where it is. Not having it does not change how the
    run ended."""
    if call.session.outermost and call.tool.layer:
        try:
            made = [watcher.ended(call.session.folder, document) for watcher in watchers.watchers]
            evidence = next((str(path) for path in made if path), "")
            if document.get("error") and evidence:
                document["error"] = {"evidence": evidence, **document["error"]}
        except Exception as error:  # noqa: BLE001 - it reads what agents could have written: none of that may change how a run ended
            words = f"{type(error).__name__}: {error}"
            events.emit_event(LAYER_NAMES[call.tool.layer], call.label, "no-report", detail=words)


def error_document(tool: Tool, error: StrataError) -> Json:
    code = int(error.exit_code)
    return {"tool": tool.name, "status": STATUS[code], "exit_code": code, "error": error.document()}


def _read_call(tool: Tool, parser: argparse.ArgumentParser, words: Words | None) -> Call:
    options = parser.parse_args(words(tool.name, sys.argv[1:]) if words else sys.argv[1:])
    current_grant = grant.inherited()
    cwd = Path(options.cwd or ".").resolve()  # the agent CLI compares real paths
    if not cwd.is_dir():
        usage(f"--cwd {options.cwd}: there is no such folder")
    if getattr(options, "backend", None):
        _join_run(options.backend)
    places.stand(cwd)
    if options.cwd:
        grant.check(current_grant, folders=(cwd,))
    if current_grant and not processes.called_by_tool and "--of" not in sys.argv and "Bash" not in current_grant.tools:
        _check_files(current_grant, options)
    inherited = os.getenv(names.DRIVER)
    if inherited is not None and inherited not in DRIVERS:
        raise StrataError("BAD_ENVIRONMENT", f"{names.DRIVER} is {inherited!r}", f"one of {', '.join(DRIVERS)}")
    if current_grant and inherited and options.driver and options.driver != inherited:
        raise StrataError("WIDENING_REFUSED", f"an agent run with {inherited} asked for {options.driver}", "leave out --driver")
    return Call(
        tool=tool,
        options=options,
        depth=depths.from_environment(tool.layer, options.current_depth, options.max_depth),
        driver=options.driver or inherited or "live",
        cwd=cwd,
        label=tool.name,
        trace_id=trace.get_trace_id() or "",
        grant=current_grant,
    )


def _open_missing_streams() -> None:
    """Started with a closed stream, a tool still works; there is only nobody to hear it. In this order each gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(nowhere, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < enough:  # many children at once need many descriptors
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


class _Signals:
    """Turns a signal into `Interrupted`, but only while the tool does its work: before and after, it is noted and no more, so
    that how a tool ended is always said."""

    def __init__(self) -> None:
        self.asked = 0.0
        self.working = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asked for that
                signal.signal(number, self._hear)

    def __enter__(self) -> None:
        self.working = True
        if self.asked:
            raise Interrupted()

    def __exit__(self, *_: object) -> None:
        self.working = False

    def _hear(self, number: int, _frame: object) -> None:
        if self.asked or processes.stopping.is_set():
            # uv passes on what the terminal already sent: only a second, later Ctrl-C means "now".
            if number == signal.SIGINT and self.asked and time.monotonic() - self.asked > 1.0:
                keeper.end_descendants()
                os._exit(int(ExitCode.INTERRUPTED))
            return
        self.asked = time.monotonic()
        processes.stopping.set()
        if processes.stop_softly:
            processes.stop_softly()
        elif self.working:
            raise Interrupted(f"stopped by {signal.Signals(number).name}")


def _parent_is_gone(layer: int) -> None:
    """Ends this tool the usual way; if that does not work in time, the other way."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(processes.grace_seconds(layer))
    keeper.end_descendants()
    os._exit(int(ExitCode.INTERRUPTED))


def _system_error(error: OSError) -> StrataError:
    where = f" ({error.filename})" if error.filename else ""
    return StrataError("SYSTEM_ERROR", f"{error.strerror or error}{where}", "check the path, its permissions and the free space")


def _unexpected(error: Exception, call: Call | None) -> StrataError:
    text = redact("".join(traceback.format_exception(error)))
    folder = call.session_dir if call else None
    if folder:
        log = folder / "strata.log"
        with log.open("a", encoding="utf-8") as file:
            file.write(text)
    else:
        descriptor, name = tempfile.mkstemp(prefix="strata-", suffix=".log")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        log = Path(name)
    return StrataError("INTERNAL", f"{type(error).__name__}: {error}", f"this is a bug; the traceback is in {log}")


def _leave_word(call: Call, code: ExitCode, document: Json) -> None:
    """The signal and the last live-report line of this tool, on success and on failure alike."""
    status = MEANING[code].signal
    error = document.get("error")
    try:
        if call.session.outermost and code != ExitCode.INTERRUPTED:
            call.session.say_ended()
        call.report(STATUS[code], {"code": error["code"]} if error else None)
        signals.write(
            call.session.folder,
            LAYER_NAMES[call.tool.layer],
            call.label,
            status,
            call.artifact,
            call.trace_id,
            call.timer.elapsed_seconds(),
            int(code),
        )
    except (OSError, StrataError) as problem:  # a full disk must not hide how the tool itself ended
        events.emit_event("monitor", call.label, "signal-not-written", detail=str(problem))


def _format(call: Call | None) -> str:
    if call:
        return call.options.output_format
    return "json" if ("json" in sys.argv and "--output-format" in sys.argv) or "--output-format=json" in sys.argv else "text"


def _check_files(given: grant.Grant, options: argparse.Namespace) -> None:
    """An agent that has no free shell itself names no commands, and only files it may read."""
    if getattr(options, "checks", None):
        raise StrataError("WIDENING_REFUSED", "an agent without a free shell named checks of its own", "leave out --checks")
    named = [*getattr(options, "extra_context", ())]
    named += [n for n in (getattr(options, flag, None) for flag in ("prompt_file", "system_prompt", "schema")) if n and n != "-"]
    grant.check(given, folders=tuple(Path(n).absolute() for n in named))
