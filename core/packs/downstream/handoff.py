"""The handoff: a folder of one attempt, in which an external agent finds its bundle and leaves its result.

Nothing of it is believed before it was looked at: the nonce of this very attempt comes back, every output is one of the
contract's, stands inside the folder where its template says, is a regular file of its own, and is no larger than it may be.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from lib.contract import StrataError, finite_cost
from lib.disk import files, records, schemas
from msgspec import Struct
from msgspec.structs import replace

from packs.downstream import bundles
from packs.downstream.bundles import ContextBundle, Dimensions
from packs.downstream.contract import AgentContract, OutputSpec
from packs.downstream.settings import Settings

RESULT = "result.json"
MOST_RESULT = 50_000_000  # bytes: a service sends its outputs in it
CHUNK = 1 << 20


class Metrics(Struct, frozen=True):
    duration_seconds: float = 0.0
    tokens_used: int = 0
    cost_usd: float | None = None
    searches_performed: int = 0
    turns: int = 0


class Fault(Struct, frozen=True):
    code: str = ""
    message: str = ""
    recoverable: bool = True


class Claimed(Struct, frozen=True):
    name: str
    path: str = ""
    dimensions: Dimensions = {}
    content: str | None = None


class Result(Struct, frozen=True):
    agent_name: str
    nonce: str
    status: str
    outputs: tuple[Claimed, ...]
    metrics: Metrics = Metrics()
    errors: tuple[Fault, ...] = ()
    schema_version: str = "1.0.0"


def nonce(salt: str, step: str, attempt: str, digest: str) -> str:
    """Of one attempt in one session. A replay is told the word of the recording, which is what the recorded answers give back."""
    return files.digest([salt, step, attempt, digest])[:32]


def prepare(folder: Path, bundle: ContextBundle, word: str, cwd: Path, settings: Settings) -> ContextBundle:
    folder.mkdir(parents=True, exist_ok=True)
    known = {"output_dir": settings.output_dir, "aliases": settings.aliases}
    made = replace(bundle, output_dir=str(folder), nonce=word, working_dir=str(cwd), settings=known)
    files.write_json(folder / bundles.FILE, records.document(made))
    return made


def refuse(code: str, message: str, hint: str = "the agent is to be put right") -> StrataError:
    return StrataError(code, message, hint)


def read(folder: Path, contract: AgentContract, word: str) -> Result:
    """What the agent says it has done, as far as it can be told from the file alone."""
    path = folder / RESULT
    data = _bytes(folder, RESULT, MOST_RESULT, "its result")
    try:
        document: Any = json.loads(data.decode("utf-8"), parse_constant=_no_number)
        json.dumps(document, ensure_ascii=False).encode()  # half of a letter is no text
    except (ValueError, RecursionError) as error:
        raise refuse("BAD_RESULT", f"{path.name} is no JSON: {error}") from None
    wrong = schemas.describe(document, schemas.load("downstream/result"))
    if wrong:
        raise refuse(
            "BAD_RESULT", f"{path.name}: {'; '.join(wrong)}", "the format is in config/packs/downstream/schemas/result.json"
        )
    try:
        result = records.of(document, Result)
    except ValueError as error:
        raise refuse("BAD_RESULT", f"{path.name}: {error}") from None
    if result.nonce != word:
        raise refuse("STALE_RESULT", f"{path.name} does not give back the nonce of this attempt", "copy `nonce` from the bundle")
    if result.agent_name != contract.name:
        raise refuse("BAD_RESULT", f"{path.name} is of {result.agent_name!r}, and not of {contract.name!r}")
    finite_cost(result.metrics.cost_usd)
    return result


def _no_number(word: str) -> object:
    raise ValueError(f"{word} is not JSON")


def accept(result: Result, contract: AgentContract, bundle: ContextBundle, folder: Path, to: Path) -> list[Claimed]:
    """Takes every output out of the handoff folder and into `to`, where nobody else writes. Returns them as they stand there."""
    taken: dict[str, Claimed] = {}
    for one in result.outputs:
        spec = contract.output(one.name)
        if not spec:
            known = ", ".join(o.name for o in contract.outputs)
            raise refuse("UNDECLARED_OUTPUT", f"{one.name!r} is none of its outputs", f"the contract declares {known}")
        path = _place(contract, spec, one, bundle)
        if path in taken:
            raise refuse("BAD_RESULT", f"{path} is listed twice")
        _take(folder, spec, one, path, to)
        taken[path] = replace(one, path=path, content=None, dimensions=bundle.job | one.dimensions)
    for spec in contract.outputs:
        if not spec.optional and not any(one.name == spec.name for one in taken.values()):
            raise refuse("MISSING_OUTPUT", f"it left no {spec.name}")
    return list(taken.values())


def _place(contract: AgentContract, spec: OutputSpec, one: Claimed, bundle: ContextBundle) -> str:
    """Where its template says, for the dimensions it names; a path that says something else is not taken."""
    job = bundle.job
    for name, value in one.dimensions.items():
        if name in contract.variables or (name in bundle.dimensions and value not in bundle.dimensions[name]):
            raise refuse("BAD_RESULT", f"{spec.name}: {name} {value[:80]!r} is not in what it was given")
        if not files.is_safe(value):
            raise refuse("BAD_RESULT", f"{spec.name}: the {name} {value[:80]!r} is no plain word")
        if name in job and job[name] != value:
            raise refuse("BAD_RESULT", f"{spec.name}: it is about {name} {value!r}, and was asked about {job[name]!r}")
    expected = spec.path(job | one.dimensions | contract.variables)
    if expected is None:
        missing = [v for v in spec.variables if v not in contract.variables | job | one.dimensions]
        raise refuse("BAD_RESULT", f"{spec.name}: its dimensions do not say which {', '.join(missing)}")
    if one.path and one.path.rstrip("/") != expected.rstrip("/"):
        files.below(Path(), one.path, "the output")  # the clearer error, where it leaves its folder
        raise refuse("BAD_RESULT", f"{spec.name}: it stands at {one.path!r}, and its template says {expected!r}")
    return expected


def _take(folder: Path, spec: OutputSpec, one: Claimed, path: str, to: Path) -> None:
    target = files.below(to, path, "the output")
    if one.content is not None:
        if path.endswith("/"):
            raise refuse("BAD_RESULT", f"{spec.name} is a folder: it cannot be sent as one text")
        if len(one.content.encode()) > spec.max_bytes:
            raise refuse("TOO_LARGE", f"{path} is larger than {spec.max_bytes} bytes")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(one.content, encoding="utf-8")
    elif path.endswith("/"):
        _take_folder(folder, spec, path, to)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_bytes(folder, path, spec.max_bytes, spec.name))
    if not any(p.stat().st_size for p in ([target] if target.is_file() else target.rglob("*")) if p.is_file()):
        raise refuse("MISSING_OUTPUT", f"{spec.name}: {path} is empty")


def _take_folder(folder: Path, spec: OutputSpec, path: str, to: Path) -> None:
    root, left = folder / path, spec.max_bytes
    if root.is_symlink() or not root.is_dir():
        raise refuse("MISSING_OUTPUT", f"there is no folder {path}")
    for place, folders, names in os.walk(root, followlinks=False):
        here = Path(place)
        if any((here / name).is_symlink() for name in folders):
            raise refuse("UNSAFE_PATH", f"{path} holds a link")
        for name in names:
            relative = str((here / name).relative_to(folder))
            if not relative.isprintable() or relative != relative.encode("utf-8", "replace").decode():
                raise refuse("UNSAFE_PATH", f"{path} holds a file whose name is no text")
            data = _bytes(folder, relative, left, spec.name)
            left -= len(data)
            (to / relative).parent.mkdir(parents=True, exist_ok=True)
            (to / relative).write_bytes(data)


def _bytes(folder: Path, path: str, most: int, what: str) -> bytes:
    """Of a regular file that has one name, reached without a link. It is looked at once it is open: what is checked is what is
    read."""
    place = files.below(folder, path, what)
    here = folder
    for part in Path(path).parts[:-1]:
        here /= part
        if here.is_symlink():
            raise refuse("UNSAFE_PATH", f"{what}: {path} leads through a link")
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise refuse("MISSING_OUTPUT", f"{what}: there is no {path}") from None
    except OSError as error:
        raise refuse("UNSAFE_PATH", f"{what}: {path} cannot be opened ({error.strerror}): a link, or no file") from None
    known = os.fstat(descriptor)
    if not stat.S_ISREG(known.st_mode):
        os.close(descriptor)
        raise refuse("UNSAFE_PATH", f"{what}: {path} is no regular file")
    with os.fdopen(descriptor, "rb") as file:
        if known.st_nlink != 1:
            raise refuse("UNSAFE_PATH", f"{what}: {path} has {known.st_nlink} names: a hard link is not taken")
        if known.st_size > most:
            raise refuse("TOO_LARGE", f"{what}: {path} is larger than {most} bytes")
        data = file.read(most + 1)
    if len(data) > most:
        raise refuse("TOO_LARGE", f"{what}: {path} is larger than {most} bytes")
    return data
