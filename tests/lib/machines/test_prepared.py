"""Ring 2: a process that waits and becomes a tool, with a namespace of its own: as root, and as somebody who is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import CORE

# Becomes a program in a process of its own, as root or not; says what came of it, and what is left of what it started.
DRIVER = """
import ctypes, json, os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from lib.process import forking, keeper
from lib.machines import captive
from lib.machines.prepared import Prepared
import encodings.idna, subprocess, shutil
folder, program, user, word = sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
if user:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1)  # what changed its user may not look at itself; who was somebody all along may
apart = captive.namespace()
keeper.become_subreaper()
child = Prepared(apart)
child.become([sys.executable, program, "a word"], {"SAID": "so", "PATH": os.environ["PATH"]}, folder, None)
out = b""
while not out.endswith(b"!"):
    data = os.read(child.stdout.fileno(), 4096)
    if not data:
        break
    out += data
below = keeper.descendants(child.pid)
if word == "ask":
    keeper.send(child.pid, signal.SIGTERM)
if word == "kill":
    keeper.send(child.pid, signal.SIGKILL)
code = child.wait()
keeper.end_descendants(ask_seconds=0.2)  # as the supervisor does
time.sleep(0.2)
left = [pid for pid in below if pid in keeper.parents() and open(f"/proc/{pid}/stat").read().split()[2] != "Z"]
print(json.dumps({"code": code, "out": out.decode(), "below": len(below), "left": left, "apart": list(apart),
                  "said": os.read(child.stderr.fileno(), 4096).decode() if code == 1 else ""}))
"""
TOOL = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(20))
subprocess.Popen(["setsid", "sleep", "600"], stdout=subprocess.DEVNULL)
print(sys.argv[1:], os.environ["SAID"], os.getcwd(), os.getuid(), os.getpid() < 100, "!", sep="|", end="", flush=True)
END
time.sleep(600)
"""


def became(folder: Path, user: int, end: str = "", word: str = "") -> dict[str, Any]:
    folder.chmod(0o777)
    (folder / "tool.py").write_text(TOOL.replace("END", end))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(CORE), str(folder), str(folder / "tool.py"), str(user), word],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    known = json.loads(done.stdout)
    assert known["code"] != 1, known["said"] + done.stderr
    return known


@pytest.fixture(params=[0, 65534], ids=["root", "somebody"])
def user(request: pytest.FixtureRequest) -> int:
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("only root can be somebody else")
    return int(request.param)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, user: int) -> Path:
    made = tmp_path_factory.mktemp("prepared")
    for place in (made.parent, made.parent.parent, made.parent.parent.parent):
        if str(place).startswith("/tmp/"):
            place.chmod(0o755)
    return made


def test_it_becomes_the_tool_with_its_words_environment_and_folder(folder: Path, user: int) -> None:
    known = became(folder, user, "sys.exit(12)")
    assert known["code"] == 12
    assert known["out"] == f"['a word']|so|{folder}|{user}|{bool(known['apart'])}|!"
    assert not known["left"], "what it left behind ends with it"


@pytest.mark.parametrize(("word", "code"), [("ask", 20), ("kill", -9)])
def test_it_is_asked_and_it_is_killed_with_all_it_started(folder: Path, user: int, word: str, code: int) -> None:
    known = became(folder, user, word=word)
    if not known["apart"]:
        pytest.skip("no namespaces here")
    assert known["below"] >= 3
    assert (known["code"], known["left"]) == (code, [])


def test_it_can_end_itself_like_any_process(folder: Path, user: int) -> None:
    assert became(folder, user, "os.kill(os.getpid(), 9)")["code"] == -9
