"""Agents get the least: an agent tries to take more, through the real SDK and CLI, is refused, and the outcome says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from lib.agent import sandbox
from lib.process import environment
from scripted_model.server import Reply, Request, say, tool, turns
from support import House

SECRETS = {"GITHUB_TOKEN": "ghx-not-a-real-one-1", "DB_PASSWORD": "correct horse battery", "STRANGE": "of no list"}


def heard(model: Any) -> str:
    """What came back to the agent from its tools."""
    return "\n".join(r.heard for r in model.requests)


def outcome(house: House) -> dict[str, Any]:
    (path,) = house.session.glob("**/outcome.json")
    return json.loads(path.read_text())


def helper(house: House, tools: str, **strata: Any) -> None:
    house.agent("helper", tools=tools, strata={"completion": "cluster", **strata})


def test_an_agent_gets_the_listed_variables_and_its_shell_no_login(house: House, model) -> None:
    helper(house, "Bash", env=["STRANGE"], sandbox="off")
    scripted = model(turns(say(tool("Bash", command="env")), say("DONE: x")))
    ran = house.json("agent", "helper", "DO", **SECRETS)
    assert ran.code == 0, ran.stderr
    names = {line.partition("=")[0] for line in heard(scripted).splitlines()}
    assert {"PATH", "HOME", "AGENTIC_SPAWN_DEPTH", "AGENTIC_SESSION_DIR", "STRANGE"} <= names
    assert not names & {"GITHUB_TOKEN", "DB_PASSWORD", "ANTHROPIC_API_KEY"}


def test_a_tool_that_an_agent_starts_still_has_the_login(house: House, model) -> None:
    spawn = f"{sys.executable} {house.folder}/core/spawn.py --prompt inner --output-format json"

    def script(request: Request) -> Reply:
        if "inner" in request.prompt and "outer" not in request.prompt:
            return say("from the inside")
        return turns(say(tool("Bash", command=spawn)), say("DONE: x"))(request)

    scripted = model(script)
    ran = house.json("spawn", "--prompt", "outer", "--allowed-tools", "Bash", "--sandbox", "off")
    assert ran.code == 0, ran.stderr
    assert "from the inside" in heard(scripted)
    assert not list(Path(house.env["TMPDIR"]).glob("strata-*")), "the login was handed on in a file that is gone"


def test_a_check_gets_no_secrets_but_those_it_names(house: House) -> None:
    checks = "version: 1\nchecks: {env: {command: env, env: [GITHUB_TOKEN]}, plain: {command: env}}\n"
    (house.folder / "checks.yaml").write_text(checks)
    ran = house.json(
        "check", "--checks", str(house.folder / "checks.yaml"), "env", "plain", ANTHROPIC_API_KEY="k" * 20, **SECRETS
    )
    assert ran.code == 0, ran.stderr
    logs = {p.stem: p.read_text() for p in house.session.glob("**/evidence/*.log")}
    assert "GITHUB_TOKEN" in logs["env"]
    assert "STRANGE=of no list" in logs["plain"], "a check needs the user's own environment"
    for name in ("GITHUB_TOKEN", "DB_PASSWORD", "ANTHROPIC_API_KEY"):
        assert name not in logs["plain"], name


def test_cloud_logins_reach_an_agent_only_where_they_are_its_login() -> None:
    env = {"AWS_SECRET_ACCESS_KEY": "x" * 20, "AWS_REGION": "r", "PATH": "p", "MY_TOKEN": "t" * 9}
    assert environment.for_agent(env) == {"PATH": "p"}
    assert set(environment.for_agent(env | {"CLAUDE_CODE_USE_BEDROCK": "1"})) == {
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "PATH",
        "CLAUDE_CODE_USE_BEDROCK",
    }


TRIES = {
    "a tool it was not given": tool("Bash", command="touch {outside}/made"),
    "the network": tool("WebFetch", url="http://127.0.0.1:9/", prompt="x"),
    "a search": tool("WebSearch", query="x"),
    "an MCP server": tool("mcp__project__anything", x=1),
    "a file outside": tool("Write", file_path="{outside}/made", content="x"),
    "a file above": tool("Write", file_path="{cwd}/../made", content="x"),
    "a file of the working folder": tool("Write", file_path="{cwd}/made", content="x"),
    "another agent": tool("Agent", description="x", prompt="x", subagent_type="general-purpose"),
}


def test_what_an_agent_was_not_given_is_refused_and_the_outcome_says_so(house: House, model, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    helper(house, "Write, Read")
    text = json.dumps(list(TRIES.values())).replace("{outside}", str(tmp_path / "outside")).replace("{cwd}", str(house.workspace))
    blocks: list[dict[str, Any]] = json.loads(text)

    def script(request: Request) -> Reply:
        return say(blocks[request.turn]) if request.turn < len(blocks) else say("DONE: it worked")

    model(script)
    ran = house.json("agent", "helper", "DO")
    assert not list(tmp_path.rglob("made"))
    denials = outcome(house)["denials"]
    assert sorted(d["tool_name"] for d in denials) == sorted(b["name"] for b in blocks), ran.stdout
    assert ran.document["denials"] == denials


def test_hooks_and_servers_of_a_project_do_not_run_unless_asked_for(house: House, model) -> None:
    settings = house.workspace / ".claude/settings.json"
    settings.parent.mkdir()
    hook = {"type": "command", "command": f"touch {house.workspace}/hooked"}
    settings.write_text(json.dumps({"hooks": {"SessionStart": [{"hooks": [hook]}]}}))
    server = {"command": "sh", "args": ["-c", f"touch {house.workspace}/served"]}
    (house.workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"own": server}}))
    model(turns(say("done")))
    assert house.json("spawn", "--prompt", "x").code == 0
    assert not (house.workspace / "hooked").exists()
    assert not (house.workspace / "served").exists()
    assert house.json("spawn", "--prompt", "x", "--inherit-settings").code == 0
    assert (house.workspace / "hooked").exists()


def without_bwrap(house: House) -> dict[str, str]:
    """A PATH on which there is no sandbox."""
    folder = house.folder / "bin"
    folder.mkdir()
    for name in ("sh", "bash", "env", "git", "uname", "cat", "which"):
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return {"PATH": str(folder)}


def test_a_sandbox_that_is_required_and_not_there_is_refused_not_left_out(house: House, model) -> None:
    scripted = model(turns(say("DONE: x")))
    helper(house, "Bash", sandbox="require")
    ran = house.json("agent", "helper", "DO", **without_bwrap(house))
    assert (ran.code, ran.error["code"]) == (1, "NO_SANDBOX")
    assert "bubblewrap" in ran.error["hint"]
    assert not scripted.requests, "before anything was spent"


def test_a_sandbox_that_is_preferred_and_not_there_is_said_to_be_missing(house: House, model) -> None:
    model(turns(say("DONE: x")))
    helper(house, "Bash")
    ran = house.json("agent", "helper", "DO", **without_bwrap(house))
    assert (ran.code, ran.document["confinement"]) == (0, "none")


@pytest.mark.skipif(bool(sandbox.available()), reason=f"no sandbox here: {sandbox.available()}")
def test_a_shell_in_the_sandbox_writes_only_where_it_may(house: House, model, tmp_path: Path) -> None:
    commands = f"echo in > inside; echo out > {tmp_path}/outside; touch {house.folder}/core/new; true"
    model(turns(say(tool("Bash", command=commands)), say("DONE: x")))
    helper(house, "Bash", sandbox="require", scope=["**"])
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as short:  # a socket's path may not be long
        ran = house.json("agent", "helper", "DO", TMPDIR=short)
    assert ran.code == 0, ran.stderr
    assert ran.document["confinement"] == "sandbox"
    assert (house.workspace / "inside").read_text() == "in\n"
    assert not (tmp_path / "outside").exists()
    assert not (house.folder / "core/new").exists()


def test_the_login_file_is_for_this_user_only(tmp_path: Path) -> None:
    told = environment.hide_login(tmp_path, {"ANTHROPIC_API_KEY": "k" * 20, "PATH": "x"})
    assert oct((tmp_path / "login.json").stat().st_mode & 0o777) == "0o600"
    done = subprocess.run(
        ["sh", "-c", f". {told['CLAUDE_ENV_FILE']}; env"],
        env={"ANTHROPIC_API_KEY": "k" * 20},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ANTHROPIC_API_KEY" not in done.stdout
    assert os.environ.get("ANTHROPIC_API_KEY") is None
