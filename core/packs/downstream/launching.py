"""Running an agent that is no agent session: a class, a command, a service, a tool of an MCP server. Each is a process of its own
that is given a handoff folder; how it is run is the only difference between them."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lib.contract import CORE, ExitCode, Json, StrataError
from lib.disk import files, records, redact
from lib.process import environment, running
from lib.session.events import Timer
from lib.session.ledger import Ledger, Reservation
from lib.session.step import Step
from lib.tool.call import Call
from msgspec.structs import replace

from packs.downstream import accepting, handoff
from packs.downstream.accepting import FILES
from packs.downstream.bundles import ContextBundle
from packs.downstream.contract import AgentContract
from packs.downstream.handoff import Claimed, Result
from packs.downstream.helping import ASKED, CONTRACT, ERROR, Asked
from packs.downstream.jobs import Job
from packs.downstream.settings import Settings

HANDOFF_DIR = "DOWNSTREAM_HANDOFF_DIR"
MOST_LOG = 200_000_000  # bytes of one file, besides its largest output
KEPT_LOG = 1_000_000  # of each end
LOG = "agent.log"  # beside the handoff folder: all it printed


def run(call: Call, step: Step, job: Job, contract: AgentContract, bundle: ContextBundle, settings: Settings, out: Path) -> Json:
    """From the bundle to what was taken of its result. Money is held before it starts, and charged before anything is judged."""
    attempt = out.parent
    folder = attempt / "handoff"
    secrets = [os.environ[name] for name in _variables(contract, settings) if os.environ.get(name)]
    redact.remember(*secrets)
    for earlier in attempt.parent.glob("attempt-*"):  # one that was killed could not clear up behind its agent
        files.redact_below(earlier)
    word = handoff.nonce(_salt(call), str(step), attempt.name, job.digest)
    bundle = handoff.prepare(folder, bundle, word, call.cwd, settings)
    files.write_json(folder / CONTRACT, records.document(contract))
    ledger = Ledger(call.session.folder)
    place = call.session.relative(attempt)
    held = ledger.reserve(step, contract.name, place, job.usd, driver=call.driver) if job.usd else None
    with Timer() as timer:
        try:
            _start(call, contract, settings, folder, attempt)
            result = handoff.read(folder, contract, word)
        except BaseException:  # whatever became of it: what is not known is what it may have cost
            _settle(ledger, held, None)
            files.redact_below(folder)
            raise
    _settle(ledger, held, result)
    spent = _require_within(contract, job, result)
    if result.status != "complete":
        raise _failed(contract, result)
    taken = handoff.accept(result, contract, bundle, folder, out / FILES)
    files.redact_below(out / FILES)
    files.redact_below(folder)
    _require_good(contract, bundle, taken, out / FILES, secrets)
    left = replace(result, outputs=tuple(taken))
    document = records.document(left)
    files.write_json(out / handoff.RESULT, document)
    return {"verdict": "done", "downstream": summary(contract, taken, left, timer.elapsed_seconds(), spent)}


def _require_good(contract: AgentContract, bundle: ContextBundle, taken: list[Claimed], folder: Path, secrets: list[str]) -> None:
    """By the contract and the bundle as they were handed over, and inputs that are as they were: what the agent has made of its
    copies of them does not count."""
    if any(spec.grounded_by for spec in contract.outputs):
        bundle.verify()
    left = [accepting.given(contract, folder, one.name, one.path, one.dimensions) for one in taken]
    found = [wrong for one in left for wrong in accepting.complaints(contract, one, left, bundle.sources)]
    found += [f"{path.name} holds a secret" for path in folder.rglob("*") if path.is_file() and _holds(path, secrets)]
    if found:
        raise StrataError("NOT_VERIFIED", f"not accepted: {'; '.join(found[:5])}", "the attempt folder keeps what was written")


def _holds(path: Path, secrets: list[str]) -> bool:
    """Of what is no text, which nobody could take it out of."""
    data = path.read_bytes() if secrets else b""
    return any(secret.encode() in data for secret in secrets if len(secret) >= redact.LEAST_NAMED)


def _salt(call: Call) -> str:
    """The session's own word; in a replay that of the recording, because what was recorded gives back what it was told."""
    recorded = Path(call.options.fixtures) / ".trace" if call.driver == "replay" else Path()
    path = recorded if files.is_file(recorded) else call.session.folder / ".trace"
    return path.read_text(encoding="utf-8").strip()


def summary(contract: AgentContract, taken: list[Claimed], result: Result, seconds: float, spent: float | None) -> Json:
    """In the words of a run's state: what one agent came to."""
    paths = [one.path for one in taken]
    return {
        "agent_name": contract.name,
        "output_path": paths[0] if paths else "",
        "output_paths": paths,
        "searches_performed": result.metrics.searches_performed,
        "total_turns": result.metrics.turns,
        "tokens_used": result.metrics.tokens_used,
        "estimated_cost_usd": spent,
        "execution_time_seconds": round(seconds, 3),
        "completion_status": "complete",
    }


def _settle(ledger: Ledger, held: Reservation | None, result: Result | None) -> None:
    if held:
        reported = result.metrics.cost_usd if result else None
        cap = held.cap_usd if held.cap_usd is not None else reported
        charged = None if reported is None or cap is None else min(reported, cap)
        ledger.settle(
            held, charged, result.metrics.tokens_used if result else 0, "reported" if reported is not None else "unknown"
        )


def _require_within(contract: AgentContract, job: Job, result: Result) -> float | None:
    """What it spent; more than it may is no success, whatever it left."""
    spent, most = result.metrics.cost_usd, contract.budget.max_cost_usd
    if spent is not None and spent > most:
        message = f"{contract.name} says it spent {spent:g} USD, and may spend {most:g}"
        raise StrataError("BUDGET_EXCEEDED", message, "raise max_cost_usd in its contract", ExitCode.NEEDS_ESCALATION, final=True)
    searched = result.metrics.searches_performed
    if searched > job.searches:
        message = f"{contract.name} says it searched {searched} times, and may {job.searches} times"
        hint = "raise max_searches in its contract, and in the settings"
        raise StrataError("BUDGET_EXCEEDED", message, hint, ExitCode.NEEDS_ESCALATION, final=True)
    return spent


def _failed(contract: AgentContract, result: Result) -> StrataError:
    said = "; ".join(f"{fault.code}: {fault.message}" if fault.code else fault.message for fault in result.errors)
    final = bool(result.errors) and not any(fault.recoverable for fault in result.errors)
    return StrataError("AGENT_FAILED", f"{contract.name} failed: {said or 'it does not say why'}", "see agent.log", final=final)


def _start(call: Call, contract: AgentContract, settings: Settings, folder: Path, attempt: Path) -> None:
    """Has it run to its end; after its time it is ended, with all it started."""
    log = attempt / LOG
    seconds = contract.budget.timeout_seconds
    env = environment.for_stranger(os.environ, _variables(contract, settings)) | {HANDOFF_DIR: str(folder)}
    argv = command(call, contract, settings, folder, attempt)
    home = contract.home / contract.execution.working_dir if contract.execution.type == "subprocess" else contract.home
    with _bounded_files(contract):
        done = running.run_kept(argv, env=env, cwd=home.resolve(), timeout_seconds=seconds, stdout_file=log)
    text = redact.redact(_said(log))
    files.write_atomic(log, text)
    if done.timed_out:
        message = f"{contract.name}: not done after {seconds:g} s; it was ended with all it had started"
        raise StrataError("TIMEOUT", message, "raise timeout_seconds in its contract", ExitCode.TIMEOUT)
    if done.exit_code:
        _explain(contract, attempt, done.exit_code, text)


@contextmanager
def _bounded_files(contract: AgentContract) -> Generator[None]:
    """No file that it writes, its log among them, becomes larger than what is needed: a disk is full soon."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = MOST_LOG + max(spec.max_bytes for spec in contract.outputs)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _said(log: Path) -> str:
    """What it printed; of very much, the beginning and the end."""
    if not log.exists():
        return ""
    size = log.stat().st_size
    with log.open("rb") as file:
        data = file.read(KEPT_LOG)
        if size > 2 * KEPT_LOG:
            file.seek(-KEPT_LOG, os.SEEK_END)
            data += f"\n[... {size - 2 * KEPT_LOG} bytes ...]\n".encode()
        data += file.read(KEPT_LOG)
    return data.decode("utf-8", "replace")


def _explain(contract: AgentContract, attempt: Path, code: int, text: str) -> None:
    """Our own helpers say why; others end with a code, and what they printed last."""
    said = attempt / "handoff" / ERROR
    if contract.execution.type in ("webhook", "mcp") and said.is_file():
        error: Json = files.read_json(said)
        raise StrataError(error["code"], error["message"], error["hint"], ExitCode(error["exit_code"]), final=error["final"])
    last = "\n".join(text.strip().splitlines()[-8:])[-800:]
    raise StrataError(
        "AGENT_FAILED", f"{contract.name} ended with exit code {code}: {last or 'it printed nothing'}", "see agent.log"
    )


def _variables(contract: AgentContract, settings: Settings) -> tuple[str, ...]:
    server = settings.mcp_servers.get(contract.execution.server)
    return (*contract.execution.env, *(server.env if server else ()))


def command(call: Call, contract: AgentContract, settings: Settings, folder: Path, attempt: Path) -> list[str]:
    """The words that run it."""
    execution = contract.execution
    if execution.type == "python":
        host = CORE / "packs/downstream/host.py"
        return [sys.executable, "-u", str(host), str(contract.home), str(folder), str(call.cwd)]
    if execution.type == "subprocess":
        return [*_filled(execution.command, contract, folder), str(folder)]
    server = settings.mcp_servers.get(execution.server)
    asked = Asked(
        command=tuple(_filled(server.command if server else execution.command, contract, folder)),
        session=str(call.session.folder),
        attempt=str(attempt),
        driver=call.driver,
        fixtures=str(Path(call.options.fixtures).absolute()) if call.driver == "replay" else "",
        hosts=settings.webhook_allowed_hosts,
        insecure=settings.webhook_allow_insecure,
        private=settings.webhook_allow_private,
    )
    files.write_json(folder / ASKED, records.document(asked))
    return [sys.executable, "-u", str(CORE / f"packs/downstream/{execution.type}_call.py"), str(folder)]


def _filled(words: tuple[str, ...], contract: AgentContract, folder: Path) -> list[str]:
    return [word.replace("{agent_dir}", contract.folder).replace("{handoff_dir}", str(folder)) for word in words]
