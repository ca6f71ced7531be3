"""The house as a whole: one block for all tools, one file that knows the SDK, layers in the source, a contract all keep."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from lib.disk import schemas
from lib.process import tools
from support import CORE, ROOT, House, clean_environment

TOOLS = sorted(CORE.glob("*.py"))
NAMES = [p.stem for p in TOOLS]
EACH = [pytest.param(name, marks=pytest.mark.long) if "_" in name else name for name in NAMES]  # `forge_step`: of the same make
SOURCES = sorted(CORE.rglob("*.py"))
sys.path.insert(0, str(ROOT / "tests" / "fixtures"))

import make  # noqa: E402


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
    return found


def test_all_tools_declare_the_same_block_and_the_project_agrees() -> None:
    """A tool of a pack, and the worker, may need more: only these are resolved with that."""
    packs = tuple(p.name for p in (ROOT / "core/packs").iterdir() if (p / "__init__.py").exists())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for path in TOOLS:
        lines = tools.inline_block(path).splitlines()[1:-1]
        block = tomllib.loads("\n".join(line.removeprefix("# ").removeprefix("#") for line in lines))
        more = [need for need in block["dependencies"] if need not in project["project"]["dependencies"]]
        assert [need for need in block["dependencies"] if need not in more] == project["project"]["dependencies"], path.name
        assert not more or path.stem.startswith((*packs, "worker")), f"{path.name} is no tool of a pack"
        assert block["requires-python"] == project["project"]["requires-python"]
        assert block["tool"]["uv"]["exclude-newer"] == project["tool"]["uv"]["exclude-newer"]


def test_only_spawn_imports_the_agent_sdk() -> None:
    assert [p.name for p in SOURCES if any(i.startswith("claude_agent_sdk") for i in imports(p))] == ["spawn.py"]


def test_the_library_imports_no_tool_and_no_tool_imports_another() -> None:
    for path in SOURCES:
        assert not imports(path) & set(NAMES), path


def test_every_call_of_a_tool_in_the_source_is_to_the_layer_below() -> None:
    """Stages call what the configuration names, which is checked there; every other call stands in the runtime of its layer."""
    layers = {"spawning.py": 1, "phases.py": 3, "campaigns.py": 4}
    for path in SOURCES:
        for name in re.findall(r'\.call\(\s*"(\w+\.py)"', path.read_text()):
            if path.name in ("refinements.py", "goals.py"):  # from layers 3 and 4, one executor for a single judgement
                assert name == "agent.py" and "judgement=True" in path.read_text()
                continue
            if (
                path.name == "agent_mode.py"
            ):  # the agent that takes the place of a layer is run by agent.py, whichever layer it is
                assert name == "agent.py"
                continue
            assert path.name in layers, path
            assert tools.layer_of(CORE / name) == layers[path.name] - 1, (path, name)


def test_no_tool_is_named_like_a_module_of_the_standard_library() -> None:
    assert not set(NAMES) & set(sys.stdlib_module_names)


def test_every_tool_says_its_layer_and_starts_its_docstring_with_it() -> None:
    for path in TOOLS:
        layer = tools.layer_of(path)
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert docstring.startswith(f"Layer {layer}: "), path
        assert f"uv run core/{path.name}" in docstring, path


@pytest.mark.parametrize("tool", EACH)
def test_help_has_an_example_and_nothing_happens(house: House, tool: str) -> None:
    ran = house.run(tool, "--help")
    assert ran.code == 0
    assert f"example:\n  uv run core/{tool}.py" in ran.stdout
    assert not house.sessions.exists()


@pytest.mark.parametrize("tool", ["campaign", "session"])
def test_help_that_cannot_be_printed_is_a_failure_and_no_code_of_pythons_own(house: House, tool: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(house.argv(tool, "--help"), env=house.env, stdout=full, stderr=subprocess.DEVNULL, check=False)
    assert done.returncode == 1


@pytest.mark.parametrize("tool", EACH)
def test_a_wrong_argument_is_exit_1_with_one_clear_error_on_both_channels(house: House, tool: str) -> None:
    ran = house.json(tool, "--no-such-flag")
    assert ran.code == 1
    assert ran.document["error"]["code"] == ran.error["code"] == "USAGE"
    assert "Traceback" not in ran.stderr
    assert not schemas.describe(ran.document, schemas.load("outcome"))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("AGENTIC_SPAWN_DEPTH", "x"), ("AGENTIC_MAX_DEPTH", "0"), ("AGENTIC_DRIVER", "magic"), ("AGENTIC_GRANT", "{")],
)
def test_a_malformed_environment_is_an_error_not_a_default(house: House, variable: str, value: str) -> None:
    ran = house.json("spawn", "--prompt", "x", **{variable: value})
    assert (ran.code, ran.error["code"]) == (1, "BAD_ENVIRONMENT")


def test_usage_errors_of_spawn_say_what_to_do(house: House) -> None:
    for flags, words in (
        ([], "give the prompt"),
        (["--prompt", " "], "empty"),
        (["--prompt", "x", "--prompt-file", "y"], "give the prompt"),
        (["--prompt-file", "missing.md"], "missing.md"),
        (["--prompt", "x", "--cwd", "nowhere"], "no such folder"),
        (["--prompt", "x", "--model", "giant-tier"], "no tier"),
        (["--prompt", "x", "--timeout", "-1"], "above 0"),
        (["--prompt", "x", "--timeout", "nan"], "above 0"),
        (["--prompt", "x", "--max-depth", "-1"], "0 or more"),
        (["--prompt", "x", "--schema", "missing.json"], "missing.json"),
        (["--prompt", "x", "--driver", "replay"], "--fixtures"),
        (["--prompt", "x", "--add-dir", "nowhere"], "no such folder"),
    ):
        ran = house.json("spawn", *flags)
        assert ran.code == 1, flags
        assert words in ran.error["message"], (flags, ran.error)


def test_a_session_folder_that_cannot_be_written_is_a_clear_error(house: House) -> None:
    (house.workspace / "file").write_text("x")
    ran = house.json("spawn", "--prompt", "x", "--session-dir", "file/below")
    assert (ran.code, ran.error["code"]) == (1, "SESSION_UNWRITABLE")


@pytest.mark.parametrize("name", ["oresearch", "ospec"])
def test_the_orchestrators_of_the_house_run_on_replay(house: House, name: str) -> None:
    make.furnish(house, name)
    ran = make.RUNS[name](house, "--driver", "replay", "--fixtures", str(ROOT / "tests/fixtures" / name))
    assert ran.code == 0, ran.stderr
    assert not schemas.describe(ran.document, schemas.load("manifest"))
    for path in house.session.glob("**/outcome.json"):
        assert not schemas.describe(json.loads(path.read_text()), schemas.load("outcome")), path
    if name == "ospec":
        assert "stranger" in (house.workspace / "greet.py").read_text(), "the rework's file changes were replayed"
        assert {s["name"]: s.get("round") for s in ran.document["stages"]} == {
            "plan": 1,
            "implement": 2,
            "review": 2,
            "test": 1,
        }


def test_a_finished_ospec_is_skipped_although_later_stages_changed_the_workspace(house: House) -> None:
    """Round 2 changed what round 1 wrote: the latest finished writer's hash counts."""
    make.furnish(house, "ospec")
    replay = ("--driver", "replay", "--fixtures", str(ROOT / "tests/fixtures/ospec"))
    make.ospec(house, *replay)
    ran = make.ospec(house, *replay, "--session-dir", str(house.session))
    assert ran.code == 0, ran.stderr
    assert all(s["skipped"] for s in ran.document["stages"])
    (house.workspace / "greet.py").write_text("a person was here")
    again = make.ospec(house, *replay, "--session-dir", str(house.session))
    assert not all(s["skipped"] for s in again.document["stages"]), "nobody of ours wrote that"


def test_a_missing_recording_says_what_was_looked_for_and_what_is_nearest(house: House) -> None:
    fixtures = str(ROOT / "tests/fixtures/oresearch")
    ran = house.json("oresearch", "Self-hosted wikis", "--domains", "market,law", "--driver", "replay", "--fixtures", fixtures)
    law = house.folder / "prompts/executors/researcher-law.md"
    law.write_text(
        (house.folder / "prompts/executors/researcher-tech.md").read_text().replace("researcher-tech", "researcher-law")
    )
    ran = house.json("oresearch", "Self-hosted wikis", "--domains", "law", "--driver", "replay", "--fixtures", fixtures)
    message = ran.document["stages"][0]["error"]
    assert "oresearch/stages/01-research/law (attempt 1, agent researcher-law)" in message
    item = ran.document["stages"][0]["items"][0]
    assert "the nearest recorded one is oresearch/stages/01-research/" in item["error"]
    assert "'law' is '" in item["error"]


def test_a_drifted_prompt_is_a_loud_error_with_the_difference(house: House) -> None:
    flags = ("--driver", "replay", "--fixtures", str(ROOT / "tests/fixtures/oresearch"), "--domains", "tech")
    ran = house.json("oresearch", "Hosted wikis", *flags)
    item = ran.document["stages"][0]["items"][0]
    assert item["code"] == "FIXTURE_DRIFT"
    assert "-/researcher-tech RESEARCH Self-hosted wikis\n+/researcher-tech RESEARCH Hosted wikis" in item["error"]
    assert item["attempts"] == 1, "a drift is not retried"
    accepted = house.json("oresearch", "Hosted wikis", *flags, "--accept-drift")
    assert accepted.document["stages"][0]["status"] == "success"


def test_fixtures_hold_no_path_and_no_secret_of_the_machine_that_made_them() -> None:
    found = [
        p for p in (ROOT / "tests/fixtures").rglob("*") if p.is_file() and "__pycache__" not in p.parts and p.suffix != ".py"
    ]
    text = "".join(p.read_text(errors="replace") for p in found)
    assert "/tmp/" not in text.replace("{{strata:", "")
    assert "dummy-key" not in text
    assert str(Path.home()) + "/" not in text


def test_signals_can_be_written_listed_and_waited_for_from_a_shell(house: House) -> None:
    house.sessions.mkdir()
    where = ("--session-dir", str(house.sessions))
    assert house.json("signals", "write", *where, "--layer", "exec", "--signal-name", "a").code == 0
    assert house.json("signals", "write", *where, "--layer", "exec", "--signal-name", "b", "--status", "fail").code == 0
    listed = house.json("signals", "list", *where).document["signals"]
    assert [(s["signal"], s["status"]) for s in listed] == [("exec-a", "done"), ("exec-b", "fail")]
    assert house.json("signals", "wait", *where, "--expect", "exec-a", "--timeout", "5").code == 0
    failed = house.json("signals", "wait", *where, "--expect", "exec-a", "exec-b", "--timeout", "5")
    assert (failed.code, failed.error["code"]) == (1, "SIGNALLED_FAILURE")
    late = house.json("signals", "wait", *where, "--expect", "exec-c", "--timeout", "0.2")
    assert (late.code, late.error["code"]) == (21, "TIMEOUT")
    assert house.json("signals", "wait", *where).code == 1


def test_a_tool_runs_through_uv_from_a_strange_folder(tmp_path: Path) -> None:
    strange = tmp_path / "a strange\nfolder"
    strange.mkdir()
    argv = [
        "uv",
        "run",
        "--quiet",
        str(CORE / "check.py"),
        "t",
        "--checks",
        "c.yaml",
        "--session-base",
        "s",
        "--output-format",
        "json",
    ]
    (strange / "c.yaml").write_text("version: 1\nchecks: {t: {command: 'true'}}\n")
    done = subprocess.run(argv, cwd=strange, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "success"
    assert len(list((strange / "s").iterdir())) == 1
