"""Ring 3: spawn on the real SDK and CLI, against the scripted model on loopback."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

import pytest
from scripted_model.server import Reply, fail, say, tool, turns
from support import House, wait_for, with_marker

QUICK = {"CLAUDE_CODE_MAX_RETRIES": "1"}


def test_an_answer_comes_back_with_everything_known_about_it(house: House, model) -> None:
    model(turns(say("Four.")))
    ran = house.json("spawn", "--prompt", "2+2?", "--model", "low-tier")
    document = ran.document
    assert ran.code == 0
    assert (document["status"], document["result"], document["turns"], document["depth"]) == ("success", "Four.", 1, 1)
    assert document["cost_usd"] > 0
    assert document["cost_source"] == "reported"
    assert next(iter(document["usage"])).startswith("claude-haiku")
    assert document["agent_session_id"]
    assert document["denials"] == []
    assert document["confinement"] == "read-only"
    attempt = house.session / "stages/spawn/attempt-1"
    assert (attempt / "output.md").read_text() == "Four."
    assert json.loads((attempt / "outcome.json").read_text())["result"] == "Four."
    assert (house.session / ".signals/spawn-spawn.done").exists()


def test_text_mode_prints_key_value_lines(house: House, model) -> None:
    model(turns(say("one\ntwo")))
    ran = house.run("spawn", "--prompt", "x")
    lines = dict(line.split("=", 1) for line in ran.stdout.splitlines())
    assert lines["STATUS"] == "success"
    assert json.loads(lines["RESULT"]) == "one\ntwo"


def test_only_the_tools_asked_for_exist(house: House, model) -> None:
    scripted = model(turns(say("ok")))
    house.json("spawn", "--prompt", "x", "--allowed-tools", "Read,Glob")
    assert set(scripted.requests[0].tools) - {"DeferredToolPlaceholder"} == {"Read", "Glob"}


def test_a_tool_that_does_not_exist_is_an_error_before_anything_is_spent(house: House, model) -> None:
    scripted = model(turns(say("ok")))
    ran = house.json("spawn", "--prompt", "x", "--allowed-tools", "Read,Bsh")
    assert ran.code == 1
    assert ran.error["code"] == "UNKNOWN_AGENT_TOOL"
    assert "Bash" in ran.error["hint"]
    assert scripted.requests == []


def test_writes_are_confined_to_the_working_folder_and_a_denial_is_in_the_document(house: House, model) -> None:
    outside = house.folder / "outside.txt"
    inside = house.workspace / "inside.txt"
    model(
        turns(
            say(tool("Write", file_path=str(outside), content="x"), tool("Write", file_path=str(inside), content="y")), say("ok")
        )
    )
    document = house.json("spawn", "--prompt", "x", "--allowed-tools", "Write").document
    assert inside.read_text() == "y"
    assert not outside.exists()
    assert [d["tool_name"] for d in document["denials"]] == ["Write"]
    assert document["confinement"] == "folders"
    assert [(a["path"], a["change"]) for a in document["changes"]] == [("inside.txt", "created")]


def test_a_good_answer_that_speaks_of_long_prompts_is_still_good(house: House, model) -> None:
    model(turns(say("The error `prompt is too long` means what it says.")))
    assert house.json("spawn", "--prompt", "x").code == 0


def test_a_wide_permission_mode_is_recorded_as_unconfined(house: House, model) -> None:
    model(turns(say(tool("Write", file_path=str(house.workspace / "x.txt"), content="x")), say("ok")))
    document = house.json("spawn", "--prompt", "x", "--allowed-tools", "Write", "--permission-mode", "acceptEdits").document
    assert document["confinement"] == "none"
    assert [a["path"] for a in document["changes"]] == ["x.txt"]


def test_an_agent_with_bash_is_recorded_as_unconfined(house: House, model) -> None:
    model(turns(say(tool("Bash", command="echo hi > made.txt")), say("ok")))
    document = house.json("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--sandbox", "off").document
    assert document["confinement"] == "none"
    assert [a["path"] for a in document["changes"]] == ["made.txt"]


def test_settings_of_the_folder_are_not_loaded_unless_asked_for(house: House, model) -> None:
    (house.workspace / "CLAUDE.md").write_text("The secret word is xylophone.")
    scripted = model(turns(say("ok")))
    house.json("spawn", "--prompt", "x")
    house.json("spawn", "--prompt", "x", "--inherit-settings")
    texts = [json.dumps(r.body) for r in scripted.requests]
    assert "xylophone" not in texts[0]
    assert "xylophone" in texts[1]


def test_a_prompt_of_ten_megabytes_arrives_whole(house: House, model) -> None:
    scripted = model(turns(say("ok")))
    prompt = "START " + "a b c d " * 1_310_720 + "END"
    ran = house.json("spawn", "--prompt-file", "-", stdin=prompt.encode())
    assert ran.code == 0, ran.stderr[-2000:]
    assert len(scripted.requests[0].prompt) >= len(prompt)
    assert scripted.requests[0].prompt.rstrip().endswith("END")


def test_extra_context_and_system_prompt_of_any_size_reach_the_model(house: House, model) -> None:
    scripted = model(turns(say("ok")))
    (house.workspace / "who.md").write_text("You are terse. " * 20_000)
    (house.workspace / "more.md").write_text("Remember the teapot.")
    house.json("spawn", "--prompt", "x", "--system-prompt", "who.md", "--extra-context", "more.md")
    assert "You are terse." in scripted.requests[0].system
    assert "Remember the teapot." in scripted.requests[0].prompt


def test_a_slash_or_an_at_in_a_prompt_is_text(house: House, model) -> None:
    (house.workspace / "secret.txt").write_text("do not read me")
    scripted = model(turns(say("ok")))
    house.json("spawn", "--prompt", "/clear @secret.txt")
    assert scripted.requests[0].prompt.strip().endswith("/clear @secret.txt")
    assert "do not read me" not in json.dumps(scripted.requests[0].body)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def test_structured_output_is_returned_as_data(house: House, model) -> None:
    (house.workspace / "s.json").write_text(json.dumps(SCHEMA))
    model(turns(say(tool("StructuredOutput", n=3)), say("ok")))
    document = house.json("spawn", "--prompt", "x", "--schema", "s.json").document
    assert document["structured_output"] == {"n": 3}


def test_bad_structured_output_fails_and_the_last_answer_is_kept(house: House, model) -> None:
    (house.workspace / "s.json").write_text(json.dumps(SCHEMA))
    model(turns(say(tool("StructuredOutput", n="three"))))
    ran = house.json("spawn", "--prompt", "x", "--schema", "s.json")
    assert (ran.code, ran.error["code"]) == (1, "SCHEMA_RETRIES")
    assert json.loads((house.session / "stages/spawn/attempt-1/output.md").read_text()) == {"n": "three"}


def test_prose_instead_of_structured_output_is_not_a_success(house: House, model) -> None:
    (house.workspace / "s.json").write_text(json.dumps(SCHEMA))
    model(turns(say("n is three")))
    ran = house.json("spawn", "--prompt", "x", "--schema", "s.json")
    assert (ran.code, ran.error["code"]) == (1, "NO_STRUCTURED_OUTPUT")
    assert ran.document["result"] == "n is three"


@pytest.mark.parametrize(
    ("reply", "code", "exit_code"),
    [
        (fail(401), "LOGIN_REFUSED", 1),
        (fail(403), "LOGIN_REFUSED", 1),
        (fail(404), "API_REFUSED", 1),
        (fail(429, retry_after="1"), "RATE_LIMITED", 1),
        (fail(500), "API_ERROR", 1),
        (fail(529), "API_OVERLOADED", 1),
        (say("cut", cut=True), "AGENT_ABORTED", 1),
    ],
    ids=["401", "403", "404", "429", "500", "529", "cut"],
)
def test_every_failure_of_the_model_is_a_code_and_a_hint(house: House, model, reply: Reply, code: str, exit_code: int) -> None:
    model(turns(reply))
    ran = house.json("spawn", "--prompt", "x", "--max-wait", "0", **QUICK)
    assert (ran.code, ran.error["code"]) == (exit_code, code)
    assert ran.error["hint"]
    assert ran.document["exit_code"] == exit_code


def test_a_refused_login_is_said_at_once_without_minutes_of_retries(house: House, model) -> None:
    scripted = model(turns(fail(401)))
    ran = house.json("spawn", "--prompt", "x")  # the CLI alone would retry ten times
    assert ran.error["code"] == "LOGIN_REFUSED"
    assert "ANTHROPIC_API_KEY" in ran.error["hint"]
    assert len(scripted.requests) <= 2


def test_a_missing_login_is_one_line_that_says_what_to_do(house: House, model) -> None:
    model(turns(say("x")))
    ran = house.json("spawn", "--prompt", "x", ANTHROPIC_API_KEY="")
    assert (ran.code, ran.error["code"]) == (1, "LOGIN_MISSING")
    assert "log in" in ran.error["hint"]


def test_too_many_turns_and_too_much_money_have_codes_of_their_own(house: House, model) -> None:
    model(turns(say(tool("Bash", command="true"))))
    ran = house.json("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--max-turns", "2")
    assert (ran.code, ran.error["code"]) == (1, "MAX_TURNS")
    ran = house.json("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--max-budget-usd", "0.0001")
    assert (ran.code, ran.error["code"]) == (11, "BUDGET_EXCEEDED")


def test_a_silent_model_ends_in_a_timeout_and_leaves_nothing_running(house: House, model) -> None:
    model(turns(say("late", hang_seconds=300)))
    ran = house.json("spawn", "--prompt", "x", "--timeout", "4")
    assert (ran.code, ran.error["code"]) == (21, "TIMEOUT")
    assert all(json.loads(line) for line in ran.stderr.splitlines()), "stderr is JSON lines, whatever the SDK logs"
    assert with_marker(str(house.folder)) == []


def test_a_killed_cli_is_a_failure_and_its_children_go_with_it(house: House, model) -> None:
    marker = f"sleep 987{os.getpid()}"
    model(turns(say(tool("Bash", command=marker)), say("ok")))
    with house.start("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--output-format", "json") as child:
        wait_for(lambda: with_marker(marker), what="the agent's Bash child")
        cli = next(p for p in with_marker("stream-json") if _parent_line(p).count("keeper") and _ours(p, child.pid))
        os.kill(cli, signal.SIGKILL)
        stdout, _ = child.communicate(timeout=60)
    document = json.loads(stdout)
    assert (child.returncode, document["error"]["code"]) == (1, "CLI_DIED")
    assert with_marker(marker) == []


def _parent_line(pid: int) -> str:
    from lib.process import keeper

    parent = keeper.parents().get(pid, 0)
    return Path(f"/proc/{parent}/cmdline").read_text()


def _ours(pid: int, root: int) -> bool:
    from lib.process import keeper

    return pid in keeper.descendants(root)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=["TERM", "INT", "KILL"])
def test_however_spawn_is_stopped_nothing_of_it_keeps_running(house: House, model, number: signal.Signals) -> None:
    marker = f"sleep 986{os.getpid()}{int(number)}"
    model(turns(say(tool("Bash", command=f"{marker} & setsid {marker}; wait")), say("ok")))
    with house.start("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--output-format", "json") as child:
        wait_for(lambda: len(with_marker(marker)) >= 2, what="the agent's Bash children")
        os.kill(child.pid, number)
        child.wait(timeout=60)
        wait_for(lambda: not with_marker(marker), what="the end of the agent's children")
        wait_for(lambda: not with_marker(str(house.folder)), what="the end of everything in the house")
    if number != signal.SIGKILL:
        assert child.returncode == 20


def test_a_session_can_be_continued(house: House, model) -> None:
    scripted = model(turns(say("I am Ada."), say("Still Ada.")))
    first = house.json("spawn", "--prompt", "who?").document
    second = house.json("spawn", "--prompt", "and now?", "--resume-id", first["agent_session_id"]).document
    assert second["agent_session_id"] == first["agent_session_id"]
    assert "I am Ada." in json.dumps(scripted.requests[-1].body)


def test_an_agent_that_starts_agents_counts_depth_and_is_stopped_at_the_limit(house: House, model) -> None:
    inner = f"{' '.join(house.argv('spawn'))} --prompt inner --allowed-tools Bash --sandbox off --output-format json"

    def script(request):
        if request.turn == 0:
            return say(tool("Bash", command=inner))
        return say(request.last)

    scripted = model(script)
    ran = house.json("spawn", "--prompt", "outer", "--allowed-tools", "Bash", "--sandbox", "off", "--max-depth", "2")
    assert ran.code == 0
    depths = {json.loads(p.read_text())["depth"] for p in house.session.glob("stages/*/attempt-*/outcome.json")}
    assert depths == {1, 2}
    assert "DEPTH_EXCEEDED" in json.dumps(scripted.requests[-1].body)


def test_no_depth_left_is_exit_2_before_anything_is_spent(house: House, model) -> None:
    scripted = model(turns(say("x")))
    assert house.json("spawn", "--prompt", "x", "--max-depth", "3", AGENTIC_SPAWN_DEPTH="3").code == 2
    assert house.json("spawn", "--prompt", "x", "--max-depth", "9", AGENTIC_MAX_DEPTH="1", AGENTIC_SPAWN_DEPTH="1").code == 2
    assert house.json("spawn", "--prompt", "x", "--current-depth", "2", "--max-depth", "2").code == 2
    assert scripted.requests == []


def test_the_last_level_is_warned_about(house: House, model) -> None:
    model(turns(say("x")))
    ran = house.json("spawn", "--prompt", "x", "--max-depth", "1")
    assert ran.code == 0
    assert "depth-warning" in [e.get("status") for e in ran.events]


def test_an_agent_cannot_give_its_children_more_than_it_has(house: House, model) -> None:
    spawn = " ".join(house.argv("spawn"))
    tries = [
        f"{spawn} --prompt x --allowed-tools Bash,Write",
        f"{spawn} --prompt x --permission-mode bypassPermissions",
        f"{spawn} --prompt x --add-dir /etc",
        f"{spawn} --prompt x --cwd /",
        f"{spawn} --prompt x --driver replay --fixtures /tmp",
        f"{spawn} --prompt x --session-dir {house.folder / 'other'}",
    ]
    script = turns(*(say(tool("Bash", command=t)) for t in tries), say("done"))
    scripted = model(script)
    ran = house.json("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--max-depth", "4")
    assert ran.code == 0
    answers = [m for m in scripted.requests[-1].messages if m["role"] == "user"][1:]
    assert len(answers) == len(tries)
    assert all("WIDENING_REFUSED" in json.dumps(a) for a in answers), json.dumps(answers)[:3000]
    assert len(scripted.requests) == len(tries) + 1


def test_a_command_of_an_agent_may_take_as_long_as_the_agent(house: House, model) -> None:
    """The CLI's own bound is two minutes, ten at most: no child of an agent would ever come to its end."""
    scripted = model(turns(say(tool("Bash", command="echo $BASH_DEFAULT_TIMEOUT_MS $BASH_MAX_TIMEOUT_MS")), say("ok")))
    assert house.json("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--timeout", "7200").code == 0
    assert "7200000 7200000" in scripted.requests[-1].heard


def test_a_killed_keeper_takes_the_agent_with_it(house: House, model) -> None:
    marker = f"sleep 984{os.getpid()}"
    model(turns(say(tool("Bash", command=marker)), say("ok")))
    with house.start("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--output-format", "json") as child:
        wait_for(lambda: with_marker(marker), what="the agent's Bash child")
        kept = next(p for p in with_marker("keeper.py") if _ours(p, child.pid))
        os.kill(kept, signal.SIGKILL)
        child.communicate(timeout=60)
    assert child.returncode == 1
    wait_for(lambda: not with_marker(marker), what="the end of the agent's child")


def test_odd_changes_are_recorded_and_replayed(house: House, model) -> None:
    """Kinds that change, names of any bytes, links that lead out, and things that cannot be kept."""

    def prepare(folder: Path) -> None:
        (folder / "was-dir").mkdir()
        (folder / "was-dir/x").write_text("x")
        (folder / "was-file").write_text("x")
        (folder / "to-link").mkdir()

    commands = (
        "rm -r was-dir; echo f > was-dir; rm was-file; mkdir was-file; echo y > was-file/y; rmdir to-link; ln -s /etc to-link;"
        " mkfifo pipe; echo n > $'new\\nline'; echo b > $'caf\\xe9'; echo '{{strata:house}} stays' > literal"
    )
    prepare(house.workspace)
    model(turns(say(tool("Bash", command=commands)), say("ok")))
    recorded = house.folder / "recorded"
    flags = ("--allowed-tools", "Bash", "--output-format", "json")
    first = house.run("spawn", "--prompt", "x", *flags, "--driver", "record", "--session-dir", str(recorded))
    assert first.code == 0, first.stderr
    other = House(house.folder / "another")
    prepare(other.workspace)
    ran = other.run("spawn", "--prompt", "x", *flags, "--driver", "replay", "--fixtures", str(recorded))
    assert ran.code == 0, ran.stderr
    work = other.workspace
    assert (work / "was-dir").read_text() == "f\n"
    assert (work / "was-file/y").read_text() == "y\n"
    assert str((work / "to-link").readlink()) == "/etc"
    assert (work / "new\nline").read_text() == "n\n"
    assert Path(os.fsdecode(os.fsencode(work) + b"/caf\xe9")).read_text() == "b\n"
    assert (work / "literal").read_text() == "{{strata:house}} stays\n"


def test_recorded_file_changes_replay_byte_for_byte_with_their_modes(house: House, model) -> None:
    (house.workspace / "old.txt").write_text("old")
    (house.workspace / "gone.txt").write_text("gone")
    commands = (
        "printf '\\000\\377\\001' > blob.bin; echo '#!/bin/sh' > run.sh; chmod 750 run.sh; echo new > old.txt; rm gone.txt;"
        " mkdir -p deep/er; echo x > deep/er/f.txt; ln -s old.txt link; chmod 600 old.txt; echo $PWD > where.txt"
    )
    model(turns(say(tool("Bash", command=commands)), say(f"All in {house.workspace}.")))
    recorded = house.folder / "recorded"
    first = house.json(
        "spawn",
        "--prompt",
        f"work in {house.workspace}",
        "--allowed-tools",
        "Bash",
        "--driver",
        "record",
        "--session-dir",
        str(recorded),
    )
    assert first.code == 0, first.stderr
    other = House(house.folder / "another")
    (other.workspace / "old.txt").write_text("old")
    (other.workspace / "gone.txt").write_text("gone")
    replay = ("--driver", "replay", "--fixtures", str(recorded))
    ran = other.json("spawn", "--prompt", f"work in {other.workspace}", "--allowed-tools", "Bash", *replay)
    assert ran.code == 0, ran.stderr
    assert (other.workspace / "blob.bin").read_bytes() == b"\x00\xff\x01"
    assert stat.S_IMODE((other.workspace / "run.sh").stat().st_mode) == 0o750
    assert stat.S_IMODE((other.workspace / "old.txt").stat().st_mode) == 0o600
    assert (other.workspace / "old.txt").read_text() == "new\n"
    assert not (other.workspace / "gone.txt").exists()
    assert (other.workspace / "deep/er/f.txt").read_text() == "x\n"
    assert (other.workspace / "link").readlink().name == "old.txt"
    assert (other.workspace / "where.txt").read_text().strip() == str(other.workspace)
    assert ran.document["result"] == f"All in {other.workspace}."
    assert ran.document["cost_source"] == "replayed"
    assert str(house.folder) not in "".join(p.read_text(errors="replace") for p in recorded.glob("stages/**/attempt-1/*.*"))
