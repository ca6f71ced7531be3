"""Layer 1: nothing is done because an agent says so. The agents here lie in every way they can."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_model.server import Request, fail, say, tool, turns
from support import House, wait_for, with_marker

pytestmark = pytest.mark.rehearsed

OUTPUT = {"tools": "Write, Read", "strata": {"outputs": {"report": {"path": "report.md"}}}}


def writes(content: str, last: str = "STAGE_TASK_COMPLETE", name: str = "report"):
    def script(request: Request):
        if request.turn == 0:
            return say(tool("Write", file_path=request.path(name), content=content))
        return say(f"There.\n\n{last}")

    return script


def outcome(house: House, number: int = 1, step: str = "trial") -> dict:
    return json.loads((house.session / f"stages/{step}/attempt-{number}/outcome.json").read_text())


def test_a_verified_output_is_published_and_the_outcome_says_what_was_verified(house: House, model) -> None:
    house.agent("trial", **OUTPUT)
    model(writes("# Findings"))
    ran = house.json("agent", "trial", "", "topic")
    assert ran.code == 0, ran.stderr
    (output,) = ran.document["outputs"]
    assert Path(output["path"]).read_text() == "# Findings"
    assert Path(output["path"]).is_relative_to(house.session / "artifacts")
    kept = outcome(house)
    assert kept["verdict"] == "done"
    assert kept["outputs"][0]["checks"] == ["exists", "not empty"]
    assert kept["changes"] == [], "one produced file is described once"
    assert kept["outputs"][0]["path"] == "artifacts/trial/report.md"
    assert (house.session / ".signals/exec-trial.done").exists()


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        (turns(say("All done!\nSTAGE_TASK_COMPLETE")), "NOT_VERIFIED", "missing"),
        (writes(" \n"), "NOT_VERIFIED", "empty"),
        (writes("# good", last="I am finished."), "STAGE_FAILED", "no status line"),
        (writes("# good", last="STAGE_FAILED: I could not"), "STAGE_FAILED", "I could not"),
        (writes("# good", last="STAGE_OTHER_COMPLETE"), "STAGE_FAILED", "was asked for TASK"),
    ],
    ids=["writes nothing", "writes nothing much", "no status line", "says it failed", "another stage's line"],
)
def test_an_agent_that_lies_or_fails_is_not_a_success_and_publishes_nothing(house: House, model, script, code, words) -> None:
    house.agent("trial", **OUTPUT)
    model(script)
    ran = house.json("agent", "trial")
    assert (ran.code, ran.error["code"]) == (1, code)
    assert words in ran.error["message"]
    assert not (house.session / "artifacts").exists()
    assert (house.session / ".signals/exec-trial.fail").exists()
    assert outcome(house)["exit_code"] == 1


def test_an_output_that_does_not_match_its_schema_is_not_a_success(house: House, model) -> None:
    house.agent("trial", tools="Write", strata={"outputs": {"report": {"path": "r.json", "schema": "checks"}}})
    model(writes('{"version": 1, "checks": {}}'))
    ran = house.json("agent", "trial")
    assert ran.error["code"] == "NOT_VERIFIED"
    assert "does not match schema checks" in ran.error["message"]


def test_an_output_put_outside_through_a_link_is_found_out(house: House, model) -> None:
    house.agent("trial", tools="Bash", strata={"outputs": {"report": {"path": "report.md"}}})

    def script(request: Request):
        if request.turn == 0:
            return say(tool("Bash", command=f"ln -s /etc/hostname {request.path('report')}"))
        return say("STAGE_TASK_COMPLETE")

    model(script)
    assert "symbolic link" in house.json("agent", "trial").error["message"]


def test_self_heal_tells_the_next_attempt_exactly_what_was_wrong_and_counts_depth(house: House, model) -> None:
    house.agent("trial", **OUTPUT)
    scripted = model(lambda r: writes("" if "did not pass" not in r.prompt else "# good")(r))
    ran = house.json("agent", "trial", "--self-heal", "--max-depth", "3")
    assert ran.code == 0, ran.stderr
    assert (outcome(house, 1)["exit_code"], outcome(house, 2)["exit_code"]) == (1, 0)
    assert outcome(house, 2)["kind"] == "heal"
    assert (outcome(house, 1)["depth"], outcome(house, 2)["depth"]) == (1, 2)
    assert "output report (report.md): empty" in scripted.requests[-1].prompt
    assert outcome(house, 1)["agent_session_id"] == outcome(house, 2)["agent_session_id"], "it goes on where it was"
    assert scripted.requests[-1].start > 0, "and has what it read before"


def test_a_session_that_has_grown_long_is_not_continued(house: House, model) -> None:
    house.rewrite("healing", ("CONTINUE_TOKENS = 200_000", "CONTINUE_TOKENS = 1"))
    house.agent("trial", **OUTPUT)
    model(lambda r: writes("" if "did not pass" not in r.prompt else "# good")(r))
    assert house.json("agent", "trial", "--self-heal", "--max-depth", "3").code == 0
    assert outcome(house, 1)["agent_session_id"] != outcome(house, 2)["agent_session_id"]


def test_healing_ends_after_two_and_asks_the_parent_with_a_document(house: House, model) -> None:
    house.agent("trial", **OUTPUT)
    model(turns(say("STAGE_TASK_COMPLETE")))
    ran = house.json("agent", "trial", "--self-heal", "--max-depth", "9")
    assert ran.code == 10
    assert len(list(house.session.glob("stages/trial/attempt-*"))) == 3
    text = (house.session / "refinements/exec-trial.md").read_text()
    for heading in ("# Refinement Request", "## Summary", "## Context", "## Issue", "## Diagnostics", "## Suggested Resolution"):
        assert heading in text
    assert "Attempt: 3 of 3 (self-heal exhausted)" in text
    assert (house.session / ".signals/exec-trial.refine").exists()


def test_without_depth_to_heal_the_parent_is_asked_at_once(house: House, model) -> None:
    house.agent("trial", **OUTPUT)
    model(turns(say("STAGE_TASK_COMPLETE")))
    ran = house.json("agent", "trial", "--self-heal", "--max-depth", "1")
    assert ran.code == 10
    assert len(list(house.session.glob("stages/trial/attempt-*"))) == 1
    assert "cannot-heal" in [e.get("status") for e in ran.events]


def test_what_healing_cannot_mend_is_not_tried_again(house: House, model) -> None:
    house.agent("trial", **OUTPUT)
    scripted = model(turns(fail(403)))
    ran = house.json("agent", "trial", "--self-heal", "--max-depth", "5")
    assert (ran.code, ran.error["code"]) == (1, "LOGIN_REFUSED")
    assert len(scripted.requests) == 1
    assert not (house.session / "refinements").exists(), "no parent could answer that"


def test_a_folder_output_must_hold_real_files_and_is_watched(house: House, model) -> None:
    house.agent("trial", tools="Bash", strata={"outputs": {"tasks": {"path": "tasks/"}}})

    def script(request: Request):
        words = (
            "ln -s /etc/hostname l" if "link" in request.prompt else ("echo x > a" if "good" in request.prompt else ": > empty")
        )
        if request.turn == 0:
            return say(tool("Bash", command=f"mkdir -p {request.path('tasks')} && cd {request.path('tasks')} && {words}"))
        return say("STAGE_TASK_COMPLETE")

    model(script)
    assert "symbolic link" in house.json("agent", "trial", "link").error["message"]
    assert "not a folder with something in it" in house.json("agent", "trial", "nothing").error["message"]
    ran = house.json("agent", "trial", "good")
    assert ran.code == 0, ran.stderr
    assert len(ran.document["outputs"][0]["sha256"]) == 64


STRUCTURED = {"tools": "Read", "strata": {"structured": "answer", "outputs": {"answer": {"path": "a.json", "schema": "trial"}}}}
SCHEMA = {
    "type": "object",
    "required": ["n"],
    "properties": {"n": {"type": "integer"}, "verdict": {}},
    "additionalProperties": False,
}


def with_schema(house: House) -> None:
    (house.folder / "config/schemas/trial.json").write_text(json.dumps(SCHEMA))
    house.agent("trial", **STRUCTURED)


def test_structured_answers_become_the_output_file(house: House, model) -> None:
    with_schema(house)
    model(turns(say(tool("StructuredOutput", n=7))))
    ran = house.json("agent", "trial")
    assert ran.code == 0, ran.stderr
    assert json.loads(Path(ran.document["outputs"][0]["path"]).read_text()) == {"n": 7}


def test_a_verdict_in_structured_data_is_a_verdict(house: House, model) -> None:
    with_schema(house)
    model(turns(say(tool("StructuredOutput", n=7, verdict="needs_revision"))))
    assert house.json("agent", "trial").code == 10


def test_prose_where_data_was_asked_for_is_repaired_once_by_a_small_model(house: House, model) -> None:
    with_schema(house)

    def script(request: Request):
        return say(tool("StructuredOutput", n=12)) if "Put the text below" in request.prompt else say("It is twelve.")

    scripted = model(script)
    ran = house.json("agent", "trial", "--max-depth", "2")
    assert ran.code == 0, ran.stderr
    assert "It is twelve." in scripted.requests[-1].prompt
    assert "haiku" in scripted.requests[-1].body["model"]
    assert [outcome(house, n)["kind"] for n in (1, 2)] == ["first", "repair"]


def test_a_repaired_answer_is_still_judged_by_the_checks(house: House, model) -> None:
    with_schema(house)
    (house.workspace / "checks.yaml").write_text("version: 1\nchecks: {never: {command: 'false'}}\n")
    house.agent("trial", tools="Read", strata={**STRUCTURED["strata"], "checks": ["never"]})

    def script(request: Request):
        return say(tool("StructuredOutput", n=12)) if "Put the text below" in request.prompt else say("It is twelve.")

    model(script)
    assert house.json("agent", "trial", "--checks", "checks.yaml").code == 1


def test_a_failed_attempt_leaves_the_workspace_output_as_it_was(house: House, model) -> None:
    house.agent("trial", tools="Write", strata={"outputs": {"spec": {"path": "{target}", "in": "workspace", "schema": "checks"}}})
    (house.workspace / "old.json").write_text("what was there")
    model(writes("not JSON", name="spec"))
    assert house.json("agent", "trial", "", "old.json").code == 1
    assert (house.workspace / "old.json").read_text() == "what was there"
    assert house.json("agent", "trial", "", "new.json").code == 1
    assert not (house.workspace / "new.json").exists()
    rejected = [p.name for p in house.sessions.glob("*/stages/trial/attempt-*/rejected/*/*")]
    assert sorted(rejected) == ["new.json", "old.json"], "what it wrote is kept as evidence"


@pytest.mark.real_cli
def test_an_agent_without_scope_cannot_write_the_workspace_with_its_file_tools(house: House, model) -> None:
    house.agent("trial", **OUTPUT)
    target = house.workspace / "sneaky.md"
    model(turns(say(tool("Write", file_path=str(target), content="x")), say("STAGE_TASK_COMPLETE")))
    ran = house.json("agent", "trial")
    assert not target.exists()
    assert [d["tool_name"] for d in ran.document["denials"]] == ["Write"]


@pytest.mark.parametrize("how", ["..", "link"])
@pytest.mark.real_cli
def test_folders_may_be_given_by_a_detour(house: House, model, how: str) -> None:
    house.agent("trial", tools="Write", strata={"scope": ["**"], "outputs": {"report": {"path": "report.md"}}})
    (house.folder / "project").mkdir()
    (house.folder / "real").mkdir()
    (house.folder / "link").symlink_to(house.folder / "real")
    session = "../sessions/s" if how == ".." else str(house.folder / "link/s")
    cwd = "../project" if how == ".." else str(house.folder / "link")
    model(writes("# good"))
    ran = house.json("agent", "trial", "--session-dir", session, "--cwd", cwd)
    assert ran.code == 0, ran.stdout
    assert ran.document["denials"] == []


@pytest.mark.real_cli
def test_an_agent_cannot_read_what_it_was_not_given(house: House, model) -> None:
    house.agent("trial", **OUTPUT)
    (house.folder / "private.txt").write_text("the secret")
    scripted = model(turns(say(tool("Read", file_path=str(house.folder / "private.txt"))), say("STAGE_TASK_COMPLETE")))
    ran = house.json("agent", "trial")
    assert "the secret" not in json.dumps(scripted.requests[-1].body)
    assert [d["tool_name"] for d in ran.document["denials"]] == ["Read"]


@pytest.mark.real_cli
def test_an_agent_writes_only_in_its_scope_and_is_found_out_where_a_shell_let_it(house: House, model) -> None:
    house.agent("trial", tools="Write, Bash", strata={"scope": ["docs/**", "*.md"], "outputs": {"report": {"path": "r.md"}}})

    def script(request: Request):
        folder = house.workspace
        if request.turn == 0:
            return say(
                tool("Write", file_path=str(folder / "docs/a.txt"), content="x"),
                tool("Write", file_path=str(folder / "b.md"), content="x"),
                tool("Write", file_path=str(folder / "src.py"), content="x"),
                tool("Write", file_path=request.path("report"), content="x"),
            )
        if "shell" in request.prompt and request.turn == 1:
            return say(tool("Bash", command=f"echo x > {folder}/src.py"))
        return say("STAGE_TASK_COMPLETE")

    model(script)
    ran = house.json("agent", "trial")
    assert ran.code == 0, ran.stderr
    assert not (house.workspace / "src.py").exists()
    assert len(ran.document["denials"]) == 1
    assert (house.workspace / "docs/a.txt").exists()
    ran = house.json("agent", "trial", "with the shell")
    assert ran.code == 1
    assert ran.error["message"].startswith("changed outside its scope: src.py; the agent was denied: Write")


def test_an_interrupted_attempt_takes_its_half_written_output_back(house: House, model) -> None:
    house.agent("trial", tools="Write", strata={"outputs": {"spec": {"path": "spec.md", "in": "workspace"}}})
    (house.workspace / "spec.md").write_text("what was there")
    late = say("late", hang_seconds=300)

    def script(request: Request):
        steps = [
            say(tool("Read", file_path=request.path("spec"))),
            say(tool("Write", file_path=request.path("spec"), content="half")),
        ]
        return steps[request.turn] if request.turn < 2 else late

    house.agent("trial", tools="Read, Write", strata={"outputs": {"spec": {"path": "spec.md", "in": "workspace"}}})
    model(script)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with house.start("agent", "trial", "--session-dir", str(house.folder / "s")) as child:
            wait_for(lambda: (house.workspace / "spec.md").read_text() == "half", 60)
            child.send_signal(number)
            child.wait(timeout=60)
            wait_for(lambda: not with_marker(str(house.folder / "core")), what="the end of the tree")
        if number == signal.SIGTERM:
            assert (house.workspace / "spec.md").read_text() == "what was there"
    model(turns(say("STAGE_FAILED: no")))
    house.json("agent", "trial", "--session-dir", str(house.folder / "s"))
    assert (house.workspace / "spec.md").read_text() == "what was there", "the next attempt takes back what kill -9 left"


@pytest.mark.real_cli
def test_what_the_definition_disallows_is_denied(house: House, model) -> None:
    house.agent("trial", tools="Bash", disallowedTools="Bash(touch:*)")
    model(
        turns(
            say(tool("Bash", command="touch no.txt")), say(tool("Bash", command="echo x > yes.txt")), say("STAGE_TASK_COMPLETE")
        )
    )
    ran = house.json("agent", "trial")
    assert not (house.workspace / "no.txt").exists()
    assert (house.workspace / "yes.txt").exists()
    assert len(ran.document["denials"]) == 1


def test_checks_of_a_definition_judge_the_work(house: House, model) -> None:
    (house.workspace / "checks.yaml").write_text("version: 1\nchecks: {good: {command: test -f made.txt}}\n")
    house.agent("trial", tools="Write", strata={"checks": ["good"], "scope": ["**"], "outputs": {"report": {"path": "r.md"}}})
    scripted = model(
        lambda r: say(tool("Write", file_path="made.txt" if "did not pass" in r.prompt else r.path("report"), content="x"),
                      tool("Write", file_path=r.path("report"), content="x"))
        if r.turn == 0 else say("STAGE_TASK_COMPLETE")
    )  # fmt: skip
    ran = house.json("agent", "trial", "--checks", "checks.yaml", "--self-heal", "--max-depth", "3")
    assert ran.code == 0, ran.stderr
    assert "check good" in scripted.requests[-1].prompt
    record = outcome(house, 2)["checks"][-1]
    assert {"name": "good", "passed": True}.items() <= record.items()
    assert len(record["output_sha256"]) == 64


def test_spec_and_researcher_bind_their_definitions(house: House, model) -> None:
    scripted = model(writes("# Plan", "STAGE_PLAN_COMPLETE", "plan"))
    (house.workspace / "spec.md").write_text("# Spec")
    ran = house.json("spec", "PLAN", "spec.md", "keep it small")
    assert ran.code == 0, ran.stderr
    assert "/spec-plan PLAN spec.md keep it small" in scripted.requests[0].prompt
    assert "# Planner" in scripted.requests[0].system
    model(writes("# UX", "STAGE_RESEARCH_COMPLETE", "report"))
    assert house.json("researcher", "ux", "Wikis").code == 0


def test_a_further_research_domain_is_one_markdown_file(house: House, model) -> None:
    text = (house.folder / "prompts/executors/researcher-tech.md").read_text()
    (house.folder / "prompts/executors/researcher-law.md").write_text(text.replace("researcher-tech", "researcher-law"))
    model(writes("# Law", "STAGE_RESEARCH_COMPLETE", "report"))
    assert house.json("researcher", "law", "Wikis").code == 0
    assert "law" in house.run("researcher", "--help").stdout
    ran = house.json("researcher", "astrology", "Wikis")
    assert "no research domain 'astrology'" in ran.error["message"]


def test_an_agent_inside_a_session_gets_what_its_definition_gives_and_no_more(house: House, model) -> None:
    """An executor called by an agent through Bash runs with its own tools, in the same session, one level deeper."""
    house.agent("helper", **OUTPUT)
    helper = f"{' '.join(house.argv('agent'))} helper --output-format json"

    def script(request: Request):
        if "/helper" in request.prompt:
            return writes("# help")(request)
        commands = [helper, f"{helper} --permission-mode bypassPermissions"]
        return say(tool("Bash", command=commands[request.turn])) if request.turn < 2 else say("ok")

    scripted = model(script)
    ran = house.json("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--sandbox", "off", "--max-depth", "3")
    assert ran.code == 0, ran.stderr
    assert outcome(house, 1, "helper")["exit_code"] == 0
    assert outcome(house, 1, "helper")["depth"] == 2
    assert "WIDENING_REFUSED" in json.dumps(scripted.requests[-1].body)


def test_an_agent_without_a_free_shell_names_no_commands_and_reads_no_files_through_a_tool(house: House, model) -> None:
    (house.folder / "mine.yaml").write_text(f"version: 1\nchecks: {{x: {{command: touch {house.folder}/mark}}}}\n")
    (house.folder / "secret.txt").write_text("not for it")
    check, agent = (f"{sys.executable} {house.folder}/core/{name}.py" for name in ("check", "agent"))
    house.agent("helper", **OUTPUT)
    tries = [f"{check} x --checks {house.folder}/mine.yaml", f"{agent} helper --extra-context {house.folder}/secret.txt"]
    scripted = model(turns(*(say(tool("Bash", command=t)) for t in tries), say("done")))
    rules = f"Bash({check}:*),Bash({agent}:*)"
    assert house.json("spawn", "--prompt", "x", "--allowed-tools", rules, "--max-depth", "4").code == 0
    assert scripted.requests[-1].heard.count("WIDENING_REFUSED") >= len(tries), scripted.requests[-1].heard[-2000:]
    assert not (house.folder / "mark").exists()


# check.py


def project(house: House, test: str) -> None:
    (house.workspace / "test_it.py").write_text(test)
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ruff_command = [sys.executable, "-m", "ruff", "check", "--no-cache", "."]
    checks = {
        "pytest": {"command": pytest_command, "parser": "pytest"},
        "ruff": {"command": ruff_command, "parser": "ruff"},
        "warn": {"command": "false", "blocking": False},
        "slow": {"command": "sleep 600", "timeout_seconds": 0.5},
        "chatty": {"command": [*pytest_command, "-s"], "parser": "pytest"},
        "nofiles": {"command": "echo warning: No Python files found; echo All checks passed", "parser": "ruff"},
        "missing": {"command": ["no-such-program"]},
        "junit": {"command": [*pytest_command, "--junitxml=r.xml"], "parser": "junit", "report": "r.xml"},
    }
    (house.workspace / "checks.yaml").write_text(json.dumps({"version": 1, "checks": checks}))


@pytest.mark.parametrize(
    ("test", "names", "code", "overall", "words"),
    [
        ("def test_a():\n    assert 1\n", ["pytest", "ruff", "junit"], 0, "PASS", ""),
        ("def test_a():\n    assert 0\n", ["pytest"], 1, "FAIL", "1 error"),
        ("def test_a():\n    assert 0\n", ["junit"], 1, "FAIL", "1 tests"),
        ("", ["pytest"], 1, "FAIL", "no test ran"),
        ("", ["junit"], 1, "FAIL", "no test ran"),
        ("import pytest\n\n\n@pytest.mark.skip\ndef test_a():\n    assert 1\n", ["pytest"], 1, "FAIL", "no test ran"),
        ("import pytest\n\n\n@pytest.mark.skip\ndef test_a():\n    assert 1\n", ["junit"], 1, "FAIL", "no test ran"),
        ("import os\n", ["ruff"], 1, "FAIL", "1 error"),
        (
            "def test_a():\n    print('12 passed upstream')\n    import pytest\n    pytest.skip('x')\n",
            ["chatty"],
            1,
            "FAIL",
            "no test ran",
        ),
        ("", ["nofiles"], 1, "FAIL", "no file to check"),
        ("", ["warn"], 0, "WARN", ""),
        ("", ["slow"], 1, "FAIL", "still running"),
        ("", ["missing"], 1, "FAIL", "could not be started"),
    ],
)
def test_checks_are_run_by_python_and_a_run_without_tests_is_no_pass(house: House, test, names, code, overall, words) -> None:
    project(house, test)
    ran = house.json("check", *names, "--checks", "checks.yaml")
    assert ran.code == code, ran.stdout
    results = json.loads((house.session / "stages/check/attempt-1/out/verification-results.json").read_text())
    assert results["overall"] == overall
    assert words in ran.document.get("note", "")
    record = results["checks"][0]
    log = house.session / "stages/check/attempt-1/out/evidence" / record["output"]
    assert log.exists()
    assert {"command", "folder", "exit_code", "duration_seconds", "output_sha256", "git_commit", "git_dirty"} <= set(record)


def test_evidence_names_the_commit_and_whether_it_was_dirty(house: House) -> None:
    project(house, "def test_a():\n    assert 1\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(house.workspace)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    (house.workspace / "more.txt").write_text("x")
    record = house.json("check", "warn", "--checks", "checks.yaml").document["results"]["checks"][0]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert (record["git_commit"], record["git_dirty"]) == (head, True)


def test_a_red_check_is_red_whatever_signals_its_starter_ignored(house: House) -> None:
    """With SIGCHLD ignored, nobody is told how a child ended, and to Python that reads as 0."""
    (house.folder / "mine.yaml").write_text("version: 1\nchecks: {bad: {command: 'false'}}\n")
    argv = [*house.argv("check", "bad", "--checks", str(house.folder / "mine.yaml"), "--output-format", "json")]
    ignore = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", ignore, *argv], env=house.env, cwd=house.workspace, capture_output=True, check=False
    )
    assert done.returncode not in (0, 12), done.stdout


def test_a_check_does_not_get_the_agents_login(house: House) -> None:
    (house.workspace / "checks.yaml").write_text("version: 1\nchecks: {env: {command: env}}\n")
    house.json("check", "env", "--checks", "checks.yaml", ANTHROPIC_API_KEY="dummy-but-private")
    assert "ANTHROPIC" not in (house.session / "stages/check/attempt-1/out/evidence/env.log").read_text()


def test_an_unknown_check_says_which_there_are(house: House) -> None:
    ran = house.json("check", "pytset")
    assert ran.error["code"] == "UNKNOWN_CHECK"
    assert "pytest" in ran.error["hint"]
