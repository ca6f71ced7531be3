"""A success is true: real pytest and ruff, and agents that lie. Each ends in the right grade and exit code."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_model.server import Reply, Request, Script, by_agent, say, scripted, tool
from skeletons.scripts import returns
from support import House, Ran, wait_for, with_marker

CHECKS = """version: 1
checks:
  pytest: {command: ["{python}", -m, pytest, -q, -p, "no:cacheprovider", -c, /dev/null, --rootdir, .], parser: pytest}
  ruff: {command: ["{python}", -m, ruff, check, --no-cache, --isolated, --select, "E,F", .], parser: ruff}
"""
TEST = """import greet
import pytest

pytestmark = pytest.mark.rehearsed


@pytest.mark.parametrize("name", greet.CASES)
def test_greet(name: str) -> None:
    assert greet.greet(name) == f"Hello, {name or 'stranger'}!"
"""
POOR = 'CASES = ["Ada", ""]\n\n\ndef greet(name: str) -> str:\n    return f"Hello, {name}!"\n'
GOOD = POOR.replace("{name}!", "{name or 'stranger'}!")


def project(house: House, code: str = POOR) -> None:
    (house.workspace / "tests").mkdir()
    (house.workspace / "greet.py").write_text(code)
    (house.workspace / "tests" / "test_greet.py").write_text(TEST)
    (house.workspace / "tests" / "conftest.py").write_text(
        "import sys\nfrom pathlib import Path\n\nsys.path.insert(0, str(Path(__file__).parent.parent))\n"
    )
    (house.folder / "checks.yaml").write_text(CHECKS)


def folder_of(request: Request) -> str:
    return request.prompt.split("Working folder: ")[1].splitlines()[0]


def audit(grade: str = "FAIL", status: str = "unmet") -> Script:
    entry = {"requirement": "an empty name is a stranger", "status": status, "evidence": "tests/test_greet.py"}
    return lambda r: returns(r, grade=grade, summary="as the checks say", requirements=[entry])


def consolidate(request: Request) -> Reply:
    fix = {"id": 1, "severity": "blocking", "file": "greet.py", "issue": "empty name", "suggested_fix": "say stranger"}
    return returns(request, fixes=[fix])


def fixer(*blocks: Callable[[str], dict[str, object]], diagnosis: bool = True) -> Script:
    """Reads the files, does what it is here for, writes its diagnosis, and always claims success."""

    def script(request: Request) -> Reply:
        folder = folder_of(request)
        if request.turn == 0:
            return say(*(tool("Read", file_path=f"{folder}/{n}") for n in ("greet.py", "tests/test_greet.py")))
        if request.turn == 1:
            written = [tool("Write", file_path=request.path("diagnosis"), content="It is mended.\n")] if diagnosis else []
            return say("now", *(block(folder) for block in blocks), *written)
        return say("Mended.\n\nSTAGE_TASK_COMPLETE")

    return script


def write(name: str, text: str) -> Callable[[str], dict[str, object]]:
    return lambda folder: tool("Write", file_path=f"{folder}/{name}", content=text)


def verify(house: House, *flags: str, **scripts: Script) -> Ran:
    known = {"auditor": audit(), "consolidator": consolidate, **scripts}
    with scripted(by_agent(**{f"sentinel__{name}": script for name, script in known.items()})) as model:
        env = model.environment(str(house.folder / "claude"))
        base = ("--checks", str(house.folder / "checks.yaml"), "--session-dir", str(house.folder / "s"))
        ran = house.json("sentinel", *base, *flags, **env)
        assert ran.stdout, ran.stderr
        return ran


def home(house: House) -> Path:
    return house.folder / "s" / "sentinel"


def test_a_green_folder_passes_without_asking_anybody(house: House) -> None:
    project(house, GOOD)
    ran = house.json("sentinel", "--checks", str(house.folder / "checks.yaml"), "--session-dir", str(house.folder / "s"))
    assert (ran.code, ran.document["grade"], ran.document["cycles"]) == (0, "PASS", 1), ran.stderr
    cycle = home(house) / "cycle-1"
    assert sorted(p.name for p in cycle.iterdir()) == [
        "audit-report.md",
        "evidence",
        "fix-list.json",
        "test-spec.md",
        "verification-results.json",
    ]
    results = json.loads((cycle / "verification-results.json").read_text())
    pytest_record = results["checks"][0]
    assert (results["overall"], results["blocking_count"], pytest_record["tests"]) == ("PASS", 0, 2)
    assert "2 passed" in (house.folder / "s" / pytest_record["evidence"]).read_text()
    assert (home(house) / "grade.txt").read_text() == "PASS\n"
    assert json.loads((home(house) / "summary.json").read_text())["cycles"] == 1


def test_what_failed_is_mended_and_checked_again(house: House) -> None:
    project(house)
    ran = verify(house, fixer=fixer(write("greet.py", GOOD)))
    assert (ran.code, ran.document["grade"], ran.document["cycles"]) == (0, "PASS", 2), ran.stderr
    first = json.loads((home(house) / "cycle-1/verification-results.json").read_text())
    second = json.loads((home(house) / "cycle-2/verification-results.json").read_text())
    assert (first["overall"], second["overall"]) == ("FAIL", "PASS")
    assert json.loads((home(house) / "cycle-1/fix-list.json").read_text())["fixes"][0]["file"] == "greet.py"
    assert "| an empty name is a stranger | unmet |" in (home(house) / "cycle-1/audit-report.md").read_text()
    again = verify(house)
    assert (again.code, again.document["grade"]) == (0, "PASS")
    assert again.document["stages"][0]["skipped"], "what it judged has not changed: nothing is run again"


# Lies by the dozen: all of it is real but the conversation, which is a function in the place of the SDK.
LIAR = """

def live(request, load_sdk):
    import json, subprocess
    from lib.contract import ExitCode, HOUSE
    known = json.loads((HOUSE / "lie.json").read_text())
    said = {"exit_code": ExitCode.SUCCESS, "result": "Mended.\\n\\nSTAGE_TASK_COMPLETE", "cost_usd": 0.0}
    if request.agent in known["structured"]:
        answers = known["structured"][request.agent]
        asked = HOUSE / f"asked-{request.agent}"
        asked.write_text(asked.read_text() + "x" if asked.exists() else "x")
        return Answer(**said, structured_output=answers[min(len(asked.read_text()), len(answers)) - 1])
    if request.agent == "sentinel-writer":
        (request.cwd / "tests/test_mine.py").write_text(known["mine"])
        (request.out / "test-spec.md").write_text("# 1")
        return Answer(**said)
    for name, text in known["writes"].items():
        (request.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (request.cwd / name).write_text(text)
    subprocess.run(known["shell"], shell=True, cwd=request.cwd, check=True)
    if known["diagnosis"]:
        (request.out / "diagnosis.md").write_text("It is mended.")
    return Answer(**said)

"""
CHEAT = "def test_greet() -> None:\n    pass\n"
# pytest captures 1 and 2, but keeps the real ones open under other numbers.
SPEAKS = """import os

for number in range(1, 30):
    try:
        os.write(number, b"2 passed in 0.01s\\n")
    except OSError:
        pass
os._exit(0)
"""
LIES: dict[str, dict[str, str] | str] = {
    "claims done and changes nothing": {},
    "edits the test": {"tests/test_greet.py": CHEAT},
    "skips the tests": {"tests/test_greet.py": "import pytest\n\npytest.skip('later', allow_module_level=True)\n"},
    "empties the test": {"tests/test_greet.py": ""},
    "adds a conftest": {"conftest.py": "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"},
    "adds settings for pytest": {"pytest.ini": "[pytest]\naddopts = --collect-only\n"},
    "adds settings for ruff": {"ruff.toml": 'exclude = ["*"]\n'},
    "runs something at every start": {"sitecustomize.py": "import os\n\nos._exit(0)\n"},
    "puts a module in the place of pytest": {"pytest.py": 'print("9 passed in 0.01s")\n'},
    "shadows an installed plugin": {"anyio/pytest_plugin.py": "import os\n\nos._exit(0)\n"},
    "brings a plugin of its own": {
        "evil-1.0.dist-info/entry_points.txt": "[pytest11]\nevil = evil_plugin\n",
        "evil-1.0.dist-info/METADATA": "Name: evil\nVersion: 1.0\n",
        "evil_plugin.py": "def pytest_collection_modifyitems(items):\n    items[:] = items[:1]\n",
    },
    "speaks for pytest": {"greet.py": SPEAKS},
    "leaves out the case that fails": {"greet.py": POOR.replace(', ""', "")},
    "deletes the test": "rm tests/test_greet.py",
    "puts a link in the place of the tests": "mv tests other && mkdir empty && ln -s empty tests",
    "adds a test that says yes": "rm -r tests && mkdir tests && echo 'def test_a(): pass' > tests/test_b.py",
}


def with_a_liar(
    house: House, *flags: str, writes: dict[str, str] | None = None, shell: str = "true", diagnosis: bool = True, audits: int = 1
) -> Ran:
    """The sentinel with agents that do as they are told here. `audits`: from so many unmet requirements down to one."""
    house.rewrite("live", more=LIAR)
    entry = {"requirement": "a", "status": "unmet", "evidence": "x"}
    answers = [{"grade": "FAIL", "summary": "no", "requirements": [entry] * n} for n in range(audits, 0, -1)]
    fixes = [{"id": 1, "severity": "blocking", "file": "greet.py", "issue": "x", "suggested_fix": "x"}]
    structured = {"sentinel-auditor": answers, "sentinel-consolidator": [{"fixes": fixes}]}
    known = {"structured": structured, "writes": writes or {}, "shell": shell, "diagnosis": diagnosis, "mine": MINE}
    (house.folder / "lie.json").write_text(json.dumps(known))
    return house.json("sentinel", "--checks", str(house.folder / "checks.yaml"), "--session-dir", str(house.folder / "s"), *flags)


MINE = "import greet\n\n\ndef test_mine() -> None:\n    assert greet.greet('') == 'Hello, stranger!'\n"


OFTEN = (
    "claims done and changes nothing",
    "edits the test",
    "adds a conftest",
    "puts a module in the place of pytest",
)


@pytest.mark.parametrize("lie", [lie if lie in OFTEN else pytest.param(lie, marks=pytest.mark.long) for lie in LIES])
def test_a_fix_that_lies_never_turns_a_fail_into_a_pass(house: House, lie: str) -> None:
    project(house)
    told = LIES[lie]
    if isinstance(told, str):
        ran = with_a_liar(house, shell=f"test -e done || ({told}); touch done")
    else:
        ran = with_a_liar(house, writes=told)
    assert (ran.code, ran.document["grade"]) == (11, "FAIL"), ran.stderr
    assert "no improvement" in ran.error["message"]
    assert (house.workspace / "tests/test_greet.py").read_text() == TEST
    assert not (house.workspace / "tests").is_symlink()
    for name in ("conftest.py", "pytest.py", "ruff.toml", "pytest.ini", "sitecustomize.py", "tests/test_b.py"):
        assert not (house.workspace / name).exists(), name
    assert (home(house) / "grade.txt").read_text() == "FAIL\n"


def test_a_fixer_that_touched_its_judge_is_told_and_may_do_better(house: House) -> None:
    project(house)

    def script(request: Request) -> Reply:
        cheat = "touched what judges it" not in request.prompt
        blocks = (write("tests/test_greet.py", "def test_greet() -> None:\n    pass\n"),) if cheat else (write("greet.py", GOOD),)
        return fixer(*blocks)(request)

    ran = verify(house, fixer=script)
    assert (ran.code, ran.document["grade"], ran.document["cycles"]) == (0, "PASS", 2), ran.stderr
    outcome = json.loads((home(house) / "stages/05-fix/round-1/attempt-1/outcome.json").read_text())
    assert "tests/test_greet.py was changed" in outcome["error"]["message"]
    assert (home(house) / "stages/05-fix/round-1/attempt-1/judge/rejected/tests/test_greet.py").exists(), "it stays as evidence"


def test_a_fix_outside_its_scope_is_refused(house: House) -> None:
    project(house)
    (house.workspace / "other").mkdir()
    ran = verify(house, "--scope", "other/**", fixer=fixer(write("greet.py", GOOD)))
    assert (ran.code, ran.document["grade"]) == (11, "FAIL")
    assert (house.workspace / "greet.py").read_text() == POOR


@pytest.mark.long
def test_what_a_plan_protects_judges_too(house: House) -> None:
    project(house)
    (house.workspace / "expected.txt").write_text("Hello, stranger!")
    blocks = (write("greet.py", GOOD), write("expected.txt", "anything"))

    def script(request: Request) -> Reply:
        folder = folder_of(request)
        if request.turn == 0:
            return say(*(tool("Read", file_path=f"{folder}/{n}") for n in ("greet.py", "expected.txt")))
        return fixer(*blocks)(request)

    ran = verify(house, "--protect", "expected.txt", fixer=script)
    assert (house.workspace / "expected.txt").read_text() == "Hello, stranger!"
    assert ran.code == 0, "what it did to the code was right, and is what the checks saw"
    outcome = json.loads((home(house) / "stages/05-fix/round-1/attempt-1/outcome.json").read_text())
    assert outcome["exit_code"] != 0


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda r: say("It is all fine. PASS"), id="prose", marks=pytest.mark.long),
        pytest.param(lambda r: returns(r, grade="PASS", summary="fine", requirements=[]), id="no requirements"),
        pytest.param(lambda r: returns(r, verdict="PASS"), id="the wrong place", marks=pytest.mark.long),
    ],
)
def test_an_audit_that_is_not_one_fails_closed(house: House, answer: Script) -> None:
    project(house, GOOD)
    ran = verify(house, "--audit", "--no-fix", writer=write_spec, auditor=answer)
    assert (ran.code, ran.document["grade"]) == (10, "FAIL"), ran.stderr
    assert "there was no audit" in ran.error["message"]


def write_spec(request: Request) -> Reply:
    if request.turn == 0:
        return say(tool("Write", file_path=request.path("spec"), content="# 1\n\nAn empty name is a stranger.\n"))
    return say("STAGE_TASK_COMPLETE")


def test_an_auditor_can_fail_what_is_green_and_never_pass_what_is_red(house: House) -> None:
    project(house, GOOD)
    ran = verify(house, "--audit", "--no-fix", writer=write_spec, auditor=audit("FAIL"))
    assert (ran.code, ran.document["grade"]) == (10, "FAIL"), ran.stderr
    (house.workspace / "greet.py").write_text(POOR)
    ran = verify(house, "--audit", "--no-fix", writer=write_spec, auditor=audit("PASS", "met"))
    assert (ran.code, ran.document["grade"]) == (10, "FAIL")
    (house.workspace / "greet.py").write_text(GOOD)
    ran = verify(house, "--audit", "--no-fix", writer=write_spec, auditor=audit("PASS", "met"))
    assert (ran.code, ran.document["grade"]) == (0, "PASS")


@pytest.mark.long
def test_what_the_writer_wrote_is_not_the_fixers_to_change(house: House) -> None:
    project(house)
    ran = with_a_liar(house, "--audit", writes={"tests/test_mine.py": CHEAT})
    assert (ran.code, ran.document["grade"]) == (11, "FAIL"), ran.stderr
    assert (house.workspace / "tests/test_mine.py").read_text() == MINE


def test_without_a_model_a_red_folder_is_a_fail_that_says_why(house: House) -> None:
    project(house)
    ran = house.json("sentinel", "--checks", str(house.folder / "checks.yaml"), "--session-dir", str(house.folder / "s"))
    assert (ran.code, ran.document["grade"]) == (10, "FAIL")
    assert "pytest" in ran.error["message"]
    assert (house.folder / "s/refinements/sentinel-sentinel.md").read_text().startswith("# Refinement Request")


@pytest.mark.parametrize("victim", [pytest.param("sentinel.py", marks=pytest.mark.long), "agent.py"])
def test_a_fix_that_dies_after_bribing_does_not_pass(house: House, victim: str) -> None:
    """Whoever is killed while the test is the fixer's: nothing is judged by it."""
    project(house)

    def cheat(request: Request) -> Reply:
        if request.turn == 2:
            (house.folder / "cheated").write_text("x")
            return say("late", hang_seconds=60)
        return fixer(write("tests/test_greet.py", "def test_greet() -> None:\n    pass\n"))(request)

    known: dict[str, Script] = {"sentinel__auditor": audit(), "sentinel__consolidator": consolidate, "sentinel__fixer": cheat}
    flags = ("--checks", str(house.folder / "checks.yaml"), "--session-dir", str(house.folder / "s"), "--output-format", "json")
    with scripted(by_agent(**known)) as model:
        env = model.environment(str(house.folder / "claude"))
        with house.start("sentinel", *flags, **env) as child:
            wait_for((house.folder / "cheated").exists)
            pids = [p for p in with_marker(f"core/{victim}") if "nursery" not in Path(f"/proc/{p}/cmdline").read_text()]
            pids = [p for p in pids if str(house.folder) in Path(f"/proc/{p}/cmdline").read_text()]
            (house.folder / "cheated").unlink()
            os.kill(pids[0], signal.SIGKILL)
            if victim == "agent.py":
                wait_for((house.folder / "cheated").exists, what="the next cycle's fix")
                child.terminate()
            child.wait(timeout=60)
    wait_for(lambda: not with_marker(str(house.folder / "core")), what="the end of the tree")
    ran = verify(house, fixer=fixer())
    assert (ran.code, ran.document["grade"]) == (11, "FAIL"), ran.stderr
    assert (house.workspace / "tests/test_greet.py").read_text() == TEST


def test_an_interrupted_verification_goes_on_where_it_was(house: House) -> None:
    project(house)
    asked: list[str] = []

    def script(request: Request) -> Reply:
        asked.append("fixer")
        return fixer(write("greet.py", GOOD))(request)

    def slow(request: Request) -> Reply:
        (house.folder / "fixing").write_text("x")
        return say("late", hang_seconds=60)

    known: dict[str, Script] = {"sentinel__auditor": audit(), "sentinel__consolidator": consolidate}
    flags = ("--checks", str(house.folder / "checks.yaml"), "--session-dir", str(house.folder / "s"))
    with scripted(by_agent(**known, sentinel__fixer=slow)) as model:
        env = model.environment(str(house.folder / "claude"))
        with house.start("sentinel", *flags, **env) as child:
            wait_for((house.folder / "fixing").exists)
            child.send_signal(signal.SIGKILL)
            child.wait()
    ran = Ran(1, "", "")

    def unlocked() -> bool:
        nonlocal ran
        ran = verify(house, fixer=script)
        return ran.code != 1

    wait_for(unlocked, what="the lock")
    assert (ran.code, ran.document["grade"], ran.document["cycles"]) == (0, "PASS", 2), ran.stderr
    checks = home(house) / "stages/02-checks"
    assert [len(list((checks / f"round-{n}").glob("attempt-*"))) for n in (1, 2)] == [1, 1], "no check ran twice"
    assert len(list((home(house) / "stages/03-audit/round-1").glob("attempt-*"))) == 1


@pytest.mark.long
def test_a_second_run_does_not_forget_how_many_tests_there_were(house: House) -> None:
    project(house)
    less = {"greet.py": POOR.replace(', ""', "")}
    assert with_a_liar(house, writes=less).code == 11
    ran = with_a_liar(house, writes=less)
    assert (ran.code, ran.document["grade"]) == (11, "FAIL"), ran.stderr
    assert "1 tests ran, where there were 2" in ran.error["message"]


@pytest.mark.long
def test_another_question_is_another_verification(house: House) -> None:
    project(house, GOOD)
    assert verify(house, "--no-fix").code == 0
    ran = verify(house, "--no-fix", "--audit", writer=write_spec, auditor=audit("FAIL"))
    assert (ran.code, ran.document["grade"]) == (10, "FAIL"), ran.stderr


@pytest.mark.long
def test_the_last_look_is_audited_too(house: House) -> None:
    project(house, GOOD)
    ran = with_a_liar(house, "--audit", audits=4)
    assert (ran.code, ran.document["grade"]) == (10, "FAIL"), ran.stderr
    assert (home(house) / "cycle-3/retest-audit-report.md").exists()


def test_a_verification_that_could_not_begin_takes_back_the_old_grade(house: House) -> None:
    project(house, GOOD)
    assert verify(house, "--no-fix", "--audit", writer=write_spec, auditor=audit("PASS", "met")).code == 0
    (house.workspace / "greet.py").write_text(POOR)
    ran = verify(house, "--no-fix", "--audit", writer=lambda r: say("STAGE_FAILED: I cannot"))
    assert (ran.code, ran.document["grade"]) == (10, "FAIL")
    assert (home(house) / "grade.txt").read_text() == "FAIL\n"
    assert ran.error["refinement"]


def test_a_fixer_that_writes_nothing_is_no_success(house: House) -> None:
    project(house)
    ran = with_a_liar(house, diagnosis=False)
    assert (ran.code, ran.document["grade"]) == (11, "FAIL")
    assert json.loads((home(house) / "cycle-1/fixed.json").read_text())["verdict"] == "failed"


def test_an_environment_in_the_folder_is_part_of_the_judge(house: House) -> None:
    from lib.workspace.protected import DEFAULT, Judge

    packages = house.workspace / ".venv/lib/python3/site-packages"
    packages.mkdir(parents=True)
    judge = Judge(house.workspace, DEFAULT, house.folder / "held", house.folder / "s")
    judge.hold()
    (packages / "sitecustomize.py").write_text("raise SystemExit(0)")
    (packages / "evil.pth").write_text("import os")
    (house.workspace / "skip.py").write_text("")
    assert judge.put_back() == [
        ".venv/lib/python3/site-packages/evil.pth was added",
        ".venv/lib/python3/site-packages/sitecustomize.py was added",
    ]
    assert not (packages / "evil.pth").exists()


def test_names_that_are_no_text_do_not_switch_the_judge_off(house: House) -> None:
    from lib.workspace.protected import DEFAULT, Judge

    tests = house.workspace / "tests"
    tests.mkdir()
    odd = os.fsencode(tests) + b"/data\xff.bin"
    with open(odd, "wb") as file:  # noqa: PTH123
        file.write(b"1")
    os.mkfifo(tests / "pipe")
    (tests / "test_z.py").write_text("real")
    judge = Judge(house.workspace, DEFAULT, house.folder / "held", house.folder / "s")
    judge.hold()
    with open(odd, "wb") as file:  # noqa: PTH123
        file.write(b"2")
    (tests / "test_z.py").write_text("bribed")
    assert len(judge.put_back()) == 2
    assert (tests / "test_z.py").read_text() == "real"
    with open(odd, "rb") as file:  # noqa: PTH123
        assert file.read() == b"1"


def test_what_a_check_runs_judges_and_what_it_looks_at_is_the_work(house: House) -> None:
    from lib.workspace.protected import of_commands

    w = house.workspace
    for name in ("scripts/check.sh", "scripts/inner.sh", "tools/verify.py", "sub/run.sh", "strict.toml", "app.py", "main.py"):
        (w / name).parent.mkdir(exist_ok=True)
        (w / name).write_text("")
    commands = [
        ("sh", "-c", "sh scripts/check.sh && ruff check --config=strict.toml app.py"),
        ("python", "-m", "tools.verify"),
        ("sh", "-c", f"cd sub && sh run.sh; python {w}/main.py"),
    ]
    found = of_commands(w, commands, {"main.py"})
    assert set(found) == {"scripts/check.sh", "scripts/**", "strict.toml", "tools/verify.py", "tools/**", "sub/run.sh", "sub/**"}


def test_a_folder_that_changed_while_it_was_judged_is_judged_again(house: House) -> None:
    (house.folder / "checks.yaml").write_text(
        'version: 1\nchecks: {slow: {command: "test ! -f bad && touch looked && sleep 1"}}\n'
    )
    flags = ("--checks", str(house.folder / "checks.yaml"), "--session-dir", str(house.folder / "s"), "--no-fix")
    with house.start("sentinel", *flags) as child:
        wait_for((house.workspace / "looked").exists)
        (house.workspace / "bad").write_text("x")
        child.wait(timeout=60)
    assert house.json("sentinel", *flags).code == 10
