"""Reading contracts: all that are enabled, each checked alone and all of them together, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from lib.contract import CORE, Json, StrataError, nearest
from lib.disk import config, files, places, records, schemas

from packs.downstream import checking
from packs.downstream.contract import FILE, FORMAT, AgentContract, Contracts
from packs.downstream.settings import Settings


def find_folder(text: str, cwd: Path) -> Path:
    """Where contracts stand: a folder from here, beside the plan or under `.strata/`, or one of the house's packs."""
    tried = [cwd / text, *(root / text for root in places.roots()), config.CONFIG / "packs" / text]
    found = next((path for path in tried if path.is_dir()), None)
    if not found:
        raise StrataError(
            "NO_CONTRACTS", f"there is no folder {text} with contracts", f"looked for: {', '.join(map(str, tried))}"
        )
    return found.resolve()


def load_all(folder: Path, settings: Settings, only: tuple[str, ...] = (), cwd: Path | None = None) -> Contracts:
    """Every contract that is enabled, each checked alone and all of them together."""
    there = sorted(path for path in folder.iterdir() if (path / FILE).is_file())
    if not there:
        raise StrataError("NO_CONTRACTS", f"{folder} holds no contract", f"a contract is a folder with {FILE} in it")
    documents: dict[str, config.Document] = {}
    every: Contracts = {}
    for path in there:
        document, contract = _load(path, settings, cwd)
        documents[contract.name], every[contract.name] = document, contract
    wanted = only or settings.enabled_agents
    for name in wanted:
        if name != "*" and name not in every:
            raise StrataError("UNKNOWN_AGENT", f"there is no downstream agent {name!r} in {folder}", nearest(name, every))
    for name, contract in every.items():
        checking.together(documents[name], contract, every)
    enabled = every if "*" in wanted else {name: every[name] for name in every if name in wanted}
    if only:  # who is asked for brings those it needs
        enabled = {name: every[name] for name in every if any(name in {one, *checking.before(every, one)} for one in only)}
    for name, contract in enabled.items():
        for position, other in enumerate(contract.depends_on):
            if other not in enabled:
                message = f"{name} depends on {other}, which is not enabled"
                raise documents[name].error(["depends_on", position], message, f"add {other} to enabled_agents")
    return enabled


def one(folder: Path, settings: Settings, cwd: Path | None = None) -> AgentContract:
    """One that was planned: checked alone."""
    if not (folder / FILE).is_file():
        raise StrataError("NO_CONTRACTS", f"there is no {folder / FILE}", "run it again: it is planned anew", final=True)
    return _load(folder, settings, cwd)[1]


def _load(folder: Path, settings: Settings, cwd: Path | None) -> tuple[config.Document, AgentContract]:
    document = config.read(folder / FILE)
    for path, message in schemas.problems(document.data, schemas.load("downstream/agent")):
        raise document.error(path, f"{schemas.pointer(path)}: {message}", _hint(path, document.data))
    data = cast(Json, document.data)
    for output in data["outputs"]:  # paths are the agent's own: what older contracts put in front of them says the same
        output["path_template"] = output["path_template"].removeprefix(f"downstream/{data['name']}/")
    contract = records.of({**data, "folder": str(folder), "digest": _digest(folder, data["execution"], cwd)}, AgentContract)
    checking.alone(document, contract, settings)
    return document, contract


def _hint(path: list[Any], data: Any) -> str:
    if path[-2:] == ["execution", "command"] and isinstance(data["execution"]["command"], str):
        return 'a list of words, such as ["node", "{agent_dir}/run.js"]: no shell reads it'
    return f"the format is in {FORMAT}"


def _digest(folder: Path, execution: Json, cwd: Path | None) -> str:
    """Of the contract and all that stands beside it; of a Python class elsewhere, its module and those beside that."""
    kept = [(p, folder) for p in sorted(folder.rglob("*"))]
    module = _module(folder, str(execution.get("module", "")), cwd)
    kept += [(p, module.parent) for p in sorted(module.parent.glob("*.py"))] if module else []
    skipped = {"__pycache__", "node_modules"}
    found = [(str(p.relative_to(root)), files.sha256(p)) for p, root in kept if p.is_file() and not skipped & set(p.parts)]
    return files.digest(found)[:16]


def _module(folder: Path, name: str, cwd: Path | None) -> Path | None:
    """The file of a module that stands outside the contract's folder."""
    spots = [root / Path(*name.split(".")).with_suffix(".py") for root in (folder, *([cwd] if cwd else []), CORE)] if name else []
    found = next((path for path in spots if path.is_file()), None)
    return found if found and not found.is_relative_to(folder) else None
