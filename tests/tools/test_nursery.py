"""Tools below are forked from one that is kept ready: they are processes of their own all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from lib.process import keeper
from support import House, wait_for, with_marker

SLEEPER = """
def work(task, out, call):
    import time
    (call.cwd / "started").write_text(str(os.getpid()))
    while not (call.cwd / "go").exists():
        time.sleep(0.02)
    return Verdict("done")
"""
REPORTER = """
def work(task, out, call):
    import sys
    facts = {"argv": sys.argv[0], "line": open("/proc/self/cmdline").read(), "session": os.getsid(0) == os.getpid(),
             "open": sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                            if os.path.exists(f"/proc/self/fd/{n}")),
             "env": dict(os.environ), "loaded": "lib.stages" in sys.modules}
    (call.cwd / "facts.json").write_text(json.dumps(facts))
    return Verdict("done")
"""


def one_stage(house: House, body: str) -> None:
    house.tool("worker", "import json, os\n" + body)
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: a, tool: worker.py, retry: {max: 0}}\n", "trial")


def line_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def nursery_of(pid: int) -> int:
    return next(child for child in keeper.descendants(pid) if "nursery.py --of" in line_of(child))


def test_a_forked_tool_has_its_own_name_environment_and_descriptors(house: House) -> None:
    one_stage(house, REPORTER)
    ran = house.json("orchestrator", "trial", LAST_WORD="x" * 5000)
    assert ran.code == 0, ran.stderr
    facts = json.loads((house.workspace / "facts.json").read_text())
    assert facts["loaded"], "it was not forked at all"
    assert facts["argv"].endswith("core/worker.py")
    assert "core/worker.py --output-format json" in facts["line"]
    assert facts["session"]
    assert facts["env"]["LAST_WORD"] == "x" * 5000
    assert facts["env"]["AGENTIC_CHECKED"] == "1"
    kinds = [name.split(":")[0] for name in facts["open"]]
    assert kinds.count("socket") == 1, "only the way to its own nursery"
    assert kinds.count("pipe") == 3, "its two streams and its lease"


def test_when_the_nursery_dies_its_tools_end_and_nothing_is_claimed(house: House) -> None:
    one_stage(house, SLEEPER)
    with house.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: (house.workspace / "started").exists() and (house.workspace / "started").read_text())
        worker = int((house.workspace / "started").read_text())
        os.kill(nursery_of(child.pid), signal.SIGKILL)
        out, _ = child.communicate(timeout=60)
        document = json.loads(out)
        assert child.returncode == 1
        assert document["stages"][0]["status"] == "failure"
        wait_for(lambda: not Path(f"/proc/{worker}").exists(), what="the end of the tool")
    wait_for(lambda: not with_marker(str(house.folder / "core")), what="the end of the tree")


def test_a_killed_tool_takes_its_nursery_along(house: House) -> None:
    one_stage(house, SLEEPER)
    with house.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: (house.workspace / "started").exists() and (house.workspace / "started").read_text())
        nursery = nursery_of(child.pid)
        child.kill()
        wait_for(lambda: not Path(f"/proc/{nursery}").exists(), what="the end of the nursery")
    wait_for(lambda: not with_marker(str(house.folder / "core")), what="the end of the tree")


def test_a_nursery_that_is_stopped_does_not_hold_anything_up(house: House) -> None:
    one_stage(house, SLEEPER)
    with house.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: (house.workspace / "started").exists() and (house.workspace / "started").read_text())
        os.kill(nursery_of(child.pid), signal.SIGSTOP)
        child.terminate()
        assert child.wait(timeout=60) == 20
    wait_for(lambda: not with_marker(str(house.folder / "core")), what="the end of the tree")


def test_without_its_nursery_a_tool_starts_interpreters(house: House) -> None:
    one_stage(house, SLEEPER)
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: a, tool: worker.py, retry: {max: 1}}\n", "trial")
    with house.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: (house.workspace / "started").exists() and (house.workspace / "started").read_text())
        (house.workspace / "go").write_text("x")
        os.kill(nursery_of(child.pid), signal.SIGKILL)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0, out


def test_an_order_that_crosses_the_end_does_not_hide_it(house: House) -> None:
    words = (
        "import sys; sys.argv[0] = '/x'\nfrom lib.process import forking, nursery\n"
        "from lib.contract import CORE\nimport os, time\n"
        "nursery.open_nursery(forking.serve)\ncodes = set()\n"
        "for n in range(60):\n"
        "    argv = [sys.executable, str(CORE / 'signals.py'), '--help']\n"
        "    child = nursery.start(argv, cwd=None, env=dict(os.environ), inherit={}, stdin=False)\n"
        "    time.sleep(0.001 * (n % 40))\n    child.terminate(); child.terminate()\n    codes.add(child.wait(20))\n"
        "    child.stdout.close(); child.stderr.close()\n"
        "nursery.close_nursery()\nassert codes <= {0, 20, -15}, codes\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=house.folder / "core", env=house.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_signal_before_or_after_the_work_is_noted_and_raises_nothing(house: House) -> None:
    words = (
        "import os, signal\nfrom lib.tool import edge\nfrom lib.process import processes as process\n"
        "from lib.contract import Interrupted\n"
        "first = edge._Signals()\nos.kill(os.getpid(), signal.SIGTERM)\n"
        "assert process.stopping.is_set()\n"
        "try:\n    with first:\n        raise SystemExit('it began all the same')\n"
        "except Interrupted:\n    print('noted')\n"
        "process.stopping.clear()\nsecond = edge._Signals()\n"
        "with second:\n    pass\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nprint('ended')\n"
    )
    done = subprocess.run([sys.executable, "-c", words], cwd=house.folder / "core", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "noted\nended\n"), done.stderr


TWICE = """
def work(task, out, call):
    with (call.cwd / "log").open("a") as log:
        log.write("first\\n")
    script = Path(__file__)
    text = script.read_text()
    script.unlink()
    text = text.replace('log.write("fir' + 'st', 'log.write("sec' + 'ond')
    script.write_text(text.replace('nargs=' + '1', 'nargs=' + '2'))
    return Verdict("done")
"""


def test_a_tool_that_was_made_ready_and_has_changed_since_is_read_again(house: House) -> None:
    """`agent` is one of those whose script the nursery has run before anybody asks for it."""
    house.tool("agent", TWICE)
    script = house.folder / "core/agent.py"
    house.put(script, script.read_text().replace('nargs="*"', "nargs=1"))
    ways = ("{name: a, tool: agent.py, args: [x], retry: {max: 0}}", "{name: b, tool: agent.py, args: [x, y], retry: {max: 0}}")
    stages = "".join(f"  - {way}\n" for way in ways)
    house.orchestrator(f"version: 1\nname: trial\nstages:\n{stages}", "trial")
    ran = house.json("orchestrator", "trial")
    assert ran.code == 0, ran.stderr
    assert (house.workspace / "log").read_text().split() == ["first", "second"]


def test_a_tool_that_cannot_be_made_ready_says_so_itself_and_takes_nobody_along(house: House) -> None:
    house.put(house.folder / "core/spawn.py", "this is no Python\n")
    one_stage(house, REPORTER)
    ran = house.json("orchestrator", "trial")
    assert ran.code == 0, ran.stderr
    assert json.loads((house.workspace / "facts.json").read_text())["loaded"], "it was forked all the same"
