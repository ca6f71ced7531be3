"""Whatever a file or a child says, it ends in a documented code and one clear error: properties, looked for by hypothesis."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lib.contract import STATUS, StrataError
from lib.disk import config, files, first_look, places, schemas
from lib.plan import agents, checks_file, orchestrator_file, plan, plan_file
from lib.plan.task import Task
from lib.process import backend, tools
from lib.session import budget, signals
from lib.session.attempts import Attempt
from lib.session.step import Step
from support import CORE

settings.register_profile(
    "strata",
    database=None,
    deadline=None,
    derandomize=True,
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("strata")

PLAN = {
    "version": 1,
    "name": "trial",
    "budget": {"usd": 5},
    "phases": [
        {
            "name": "one",
            "run": [{"orchestrator": "oresearch", "params": {"topic": "x"}}],
            "verify": {"checks": ["artifacts"]},
            "checkpoint": {"at": "after", "show": ["oresearch.report"]},
        },
        {
            "name": "two",
            "depends_on": ["one"],
            "run": [{"orchestrator": "ospec", "modifier": "lean", "params": {"target": "a.md"}}],
            "verify": {"none": "a test"},
        },
    ],
}
ORCHESTRATOR = {
    "version": 1,
    "name": "trial",
    "params": {"names": {"about": "who", "type": "list", "default": "a,b"}},
    "loops": {"again": {"to": "each", "max": 1, "then": "fail"}},
    "stages": [
        {"name": "each", "agent": "researcher-tech", "action": "RESEARCH", "foreach": {"items": "param.names", "cap": 2}},
        {
            "name": "look",
            "tool": "check.py",
            "args": ["pytest"],
            "on": {"failure": "again"},
            "retry": {"max": 1, "backoff_seconds": [1]},
        },
    ],
}
CHECKS = {
    "version": 1,
    "checks": {
        "one": {"command": ["true"], "timeout_seconds": 5},
        "two": {"command": "echo x", "parser": "junit", "report": "r.xml"},
    },
}
AGENT = {
    "name": "trial",
    "description": "x",
    "tools": "Read, Bash(git log:*)",
    "strata": {"tier": "low-tier", "outputs": {"a": {"path": "a.md"}}},
}

words = st.text(max_size=20) | st.sampled_from(
    ["../x", "/etc/passwd", "a\nb", "\u202eabc", "x" * 300, "con", "attempt-1", "{item}", "*", ""]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | words
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)


@st.composite
def damaged(draw: Any, whole: Any) -> Any:
    """A good document with one or two parts replaced, removed, doubled or added."""
    document = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 2))):
        places: list[tuple[Any, Any]] = []

        def collect(node: Any, places: list[tuple[Any, Any]] = places) -> None:
            keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
            for key in keys:
                places.append((node, key))
                collect(node[key])

        collect(document)
        if not places:
            break
        node, key = draw(st.sampled_from(places))
        how = draw(st.sampled_from(["replace", "remove", "add"]))
        if how == "replace":
            node[key] = draw(anything)
        elif how == "remove":
            del node[key]
        elif isinstance(node, dict):
            node[draw(words)] = draw(anything)
        else:
            node.append(draw(anything))
    return document


@contextmanager
def clear() -> Iterator[None]:
    """Either it is good, or there is one error that says something."""
    try:
        yield
    except StrataError as error:
        assert error.exit_code in STATUS
        assert error.code.isupper()
        assert error.message.strip()


def written(tmp_path: Path, document: Any, name: str = "x.yaml") -> Path:
    path = tmp_path / name
    path.write_bytes(
        document if isinstance(document, bytes) else yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "replace")
    )
    return path


def load_plan(path: Path) -> None:
    loaded = plan_file.load(str(path))
    assert plan.read(json.loads(json.dumps(loaded.document()))) == loaded, "what is handed down is what was read"


LOADERS: dict[str, tuple[Any, Callable[[Path], object]]] = {
    "plan": (PLAN, load_plan),
    "orchestrator": (ORCHESTRATOR, lambda path: orchestrator_file.load(str(path))),
    "checks": (CHECKS, checks_file.load),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_the_documents_the_others_are_made_from_are_good(tmp_path: Path, kind: str) -> None:
    document, load = LOADERS[kind]
    load(written(tmp_path, document, "trial.yaml"))


@pytest.mark.parametrize("kind", LOADERS)
@given(data=st.data())
def test_a_damaged_document_is_refused_or_read(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    document, load = LOADERS[kind]
    path = written(tmp_path, data.draw(damaged(document)), "trial.yaml")
    with clear():
        load(path)


@pytest.mark.parametrize("kind", LOADERS)
@given(
    text=st.text(alphabet=st.sampled_from(list("ab:-{}[]#&*!|>'\"%@`,?\n \t\x00\u2028é")), max_size=60) | st.binary(max_size=60)
)
@example(text="a: &a [*a]\n")
@example(text="&x {name: *x}")
@example(
    text="a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12))
)
@example(text="[" * 5000)
@example(text="version: 1\nversion: 1\n")
@example(text="? [a]\n: b\n")
@example(text="a: !!python/object/apply:os.system [true]\n")
@example(text="a: 2026-99-99\n")
def test_what_is_no_document_at_all_is_refused(tmp_path: Path, kind: str, text: str | bytes) -> None:
    path = written(tmp_path, text.encode("utf-8", "replace") if isinstance(text, str) else text, "trial.yaml")
    with clear():
        LOADERS[kind][1](path)


@given(front=damaged(AGENT), body=st.text(max_size=40))
def test_agent_files(tmp_path: Path, front: Any, body: str) -> None:
    folder = tmp_path / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\n{yaml.safe_dump(front, allow_unicode=True)}---\n{body}"
    (folder / "trial.md").write_bytes(text.encode("utf-8", "replace"))
    agents._load.cache_clear()
    places.beside(tmp_path)
    try:
        with clear():
            agents.load("trial")
    finally:
        places.stand(tmp_path / "nowhere")


GOOD: dict[str, Any] = {"plan": PLAN, "orchestrator": ORCHESTRATOR, "checks": CHECKS, "agent": AGENT}


@pytest.mark.parametrize("name", GOOD)
def test_the_first_look_knows_our_schemas(name: str) -> None:
    assert first_look.surely_valid(GOOD[name], schemas.read(name)), "importing jsonschema would cost more than the rest"


@pytest.mark.parametrize("name", GOOD)
@given(data=st.data())
def test_the_first_look_never_takes_for_valid_what_jsonschema_refuses(name: str, data: Any) -> None:
    document = data.draw(damaged(GOOD[name]) | anything)
    schema = schemas.read(name)
    if first_look.surely_valid(document, schema):
        assert jsonschema.validators.validator_for(schema)(schema).is_valid(document), document


@given(name=words, text=st.binary(max_size=200))
def test_signals_that_anybody_put_there(tmp_path: Path, name: str, text: bytes) -> None:
    folder = tmp_path / ".signals"
    folder.mkdir(exist_ok=True)
    (folder / "exec-a.done").write_bytes(text)
    with clear():
        found = signals.present(tmp_path)
        assert "a" in [s.name for s in found]
        assert isinstance(found[0].path, str)
    with clear():
        signals.write(tmp_path, "exec", name, "success", name, name, 1.0)
    assert all(p.parent == folder for p in tmp_path.rglob("*.done")), "no name leads out of the folder"


@given(
    document=anything | damaged({"exit_code": 0, "verdict": "done", "outputs": [{"root": "session", "path": "a", "sha256": "b"}]})
)
def test_outcomes(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "outcome.json"
    path.write_text(json.dumps(document, default=str))
    with clear():
        outcome = Attempt(Step(stage="one"), tmp_path).outcome
        assert outcome is None or outcome.exit_code in STATUS


@given(document=damaged(Task(action="A", inputs={"a": "b"}, consumed={"c": "d"}).document()))
def test_steps_and_names(document: Any) -> None:
    with clear():
        Step.parse(json.dumps(document)[:60])
    with clear():
        budget.given(str(document)[:40])


@given(text=st.text(max_size=400))
@example(text="../../etc")
@example(text="\u202egnp.exe")
@example(text="a\u0000b")
@example(text="CON")
def test_a_name_from_outside_is_one_plain_folder(text: str) -> None:
    name = files.safe_name(text)
    assert files.is_safe(name)
    assert len(name) <= 64
    assert "/" not in name
    assert name not in (".", "..")
    with clear():
        assert files.below(Path("/session"), text, "a path").is_relative_to("/session")


@given(stdout=st.binary(max_size=80) | anything.map(lambda d: json.dumps(d, default=str).encode()), code=st.integers(-40, 300))
@example(stdout=b'{"exit_code": 0}{"exit_code": 0}', code=0)
@example(stdout=b'{"exit_code": true}', code=1)
@example(stdout=b'{"exit_code": 0.0}', code=0)
@example(stdout=b"[" * 100_000, code=0)
@example(stdout=b'{"exit_code": NaN}', code=0)
def test_what_a_child_says_is_believed_only_when_it_agrees(stdout: bytes, code: int) -> None:
    result = tools.believe("x.py", backend.Finished(code, stdout, ""))
    assert result.exit_code in STATUS
    if result.exit_code == 0:
        assert code == 0
        assert json.loads(stdout)["exit_code"] == 0 or json.loads(stdout)["summary"]["exit_code"] == 0
    elif result.error and result.error["code"] == "CHILD_CRASHED":
        assert result.error["message"]


FLOODS = {
    "200 MB": "import sys\nfor _ in range(200): sys.stdout.write('x' * 1048576)",
    "200 MB of one line on stderr": "import sys\nfor _ in range(200): sys.stderr.write('x' * 1048576)",
    "no newline": "print('{\"exit_code\": 0}', end='')",
    "two documents": "print('{\"exit_code\": 0}'); print('{\"exit_code\": 0}')",
    "no UTF-8": "import sys; sys.stdout.buffer.write(b'\\xff\\xfe' * 100)",
    "nothing": "",
    "a document, and a grandchild that keeps the pipe": (
        "import subprocess; print('{\"exit_code\": 0}', flush=True); subprocess.Popen(['sleep', '20'])"
    ),
}


@pytest.mark.parametrize("what", FLOODS)
def test_a_child_that_floods_or_babbles_costs_no_memory_and_no_time(tmp_path: Path, what: str) -> None:
    script = tmp_path / "child.py"
    script.write_text(FLOODS[what])
    code = f"""
import json, os, resource, sys
sys.path.insert(0, {str(CORE)!r})
from lib.process import running, tools as calling
done = running.run([sys.executable, {str(script)!r}], env=dict(os.environ))
result = calling.believe("child.py", done)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps([int(result.exit_code), peak, result.document.get("error", {{}}).get("code")]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    exit_code, peak, error = json.loads(done.stdout)
    good = what in ("no newline", "a document, and a grandchild that keeps the pipe")
    assert (exit_code, error) == ((0, None) if good else (1, "CHILD_CRASHED"))
    assert peak < 400, f"{peak} MB"


@given(tier=words)
def test_any_model_name_is_a_name(tier: str) -> None:
    with clear():
        assert config.model_id(tier) == tier or tier.endswith("-tier")
