"""Forge as people meet it: the quickstart, killed and resumed, and repositories nobody here wrote."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from packs.forge.artifacts import Artifacts
from scripted_model.server import Request, say, tool
from support import ROOT, House, wait_for, with_marker
from tools import test_kills as kills

PLAN = ROOT / "config/plans/forge-quickstart.yaml"


def test_the_quickstart_tells_its_story_and_nothing_of_it_would_be_done_twice(tmp_path: Path) -> None:
    """The critique sends the design back, a wave of three, a build planned again, one fix, a proposal that is rejected."""
    house = House(tmp_path / "house")
    session = tmp_path / "s"
    ran = house.json("campaign", str(PLAN), "--session-dir", str(session), timeout=250)
    assert ran.code == 0, ran.stderr[-2000:]
    loops = sorted(p.stem for p in session.glob("phases/*/forge/loops/*.json"))
    assert loops == ["fix-1", "redesign-1", "replan-1"]
    docs = session / "workspace/docs/feature/json-and-stop-words"
    rounds = json.loads((docs / "tasks.json").read_text())["rounds"]
    assert rounds[0] == [["json", "stop", "page"], ["cli"]] and rounds[1:] == [[["cli"]], [["order"]]]
    proposals = (docs / "review/knowledge-suggestions.md").read_text()
    assert "One function per way to show" in proposals.split("## Rejected")[0]
    assert "Faster documentation changes" in proposals.split("## Rejected")[1]
    page = (session / "report.html").read_text()
    for words in ("The request", "The critique of the design", "Unresolved tensions", "where the words are held",
                  "The tasks, by round and wave", "Acceptance criteria", "test_cli.py::test_json_is_one_object",
                  "Knowledge proposals", "rejected"):  # fmt: skip
        assert words in page, words
    assert "| AC-3 |" in (session / "execution-report.md").read_text()
    text = subprocess.run(
        ["python3", "tally.py", "--json", "README.md"], cwd=session / "workspace", check=True, capture_output=True, text=True
    ).stdout
    assert next(iter(json.loads(text).values())) == max(json.loads(text).values()), "it does what was asked for"
    explained = house.json("campaign", "--resume", str(session), "--explain").document["explained"]
    assert len(explained) > 60 and {one["does"] for one in explained} == {"SKIP"}


def came_to(session: Path) -> dict[str, Any]:
    """As of every run; without git's own files, and without how long something took."""
    found = kills.came_to_of(session)
    timeless = lambda data: re.sub(rb"\d+\.\d+ ?s\b|\d{4}-\d\d-\d\dT[\d:.]+Z", b"T", data.replace(str(session).encode(), b"S"))  # noqa: E731
    kept = {name: timeless(data) for name, data in found["files"].items() if not name.startswith("workspace/.git/")}
    return {**found, "files": kept}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "every", [pytest.param(20, marks=pytest.mark.crash), pytest.param(120, marks=pytest.mark.long)], ids=["many", "some"]
)
def test_a_kill_in_any_step_leaves_memory_and_artifacts_as_they_would_have_been(
    tmp_path: Path, every: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kills, "came_to_of", kills.came_to, raising=False)
    monkeypatch.setattr(kills, "came_to", came_to)
    house = kills.furnished(tmp_path / "house", None)
    found = kills.killed_everywhere(house, [str(PLAN)], tmp_path / "at", every, 0, copied=every)
    with capsys.disabled():
        print(f"\n{kills.table({'forge quickstart': found})}")
    assert len(found) >= 8 and not kills.sound(found), "\n".join(kills.sound(found)[:5])


def test_an_artifact_has_one_creator(tmp_path: Path) -> None:
    folder = tmp_path / "docs/feature/x"
    artifacts = Artifacts(tmp_path / "s", folder)
    assert artifacts.write("design.md", "one\n") == [] and artifacts.foreign() == []
    assert artifacts.write("design.md", "two\n") == [] and artifacts.foreign() == []
    (folder / "design.md").write_text("mine\n")
    (warning,) = artifacts.foreign()
    assert warning.startswith("design.md was changed by somebody else")
    assert (tmp_path / "s" / warning.rsplit(" ", 1)[1]).read_text() == "mine\n", "nothing is lost"
    assert artifacts.foreign() == [], "it is said once"
    (folder / "design.md").write_text("mine again\n")
    (warning,) = artifacts.write("design.md", "three\n")
    assert "theirs is kept as" in warning and (tmp_path / "s" / warning.rsplit(" ", 1)[1]).read_text() == "mine again\n"
    (folder / "design.md").write_text("two\n")
    assert artifacts.write("design.md", "three\n") == [], "an older one of ours, as after a cut-off step"
    (folder / "design.md").unlink()
    assert artifacts.foreign() == ["design.md was deleted by somebody else than its creator"]


class Feature:
    """A function that comes to a module of somebody else's package, with its test. The first try does not even compile."""

    def __init__(self, module: str, code: str, test: str, before: str) -> None:
        self.files = {module: before + code, "tests_of_forge/test_added.py": test}
        self.broken = before + "def broken(:\n"
        self.module, self.planned, self.held = module, 0, False

    def __call__(self, r: Request) -> Any:
        agent, _ = re.findall(r"^/([a-z][a-z-]*) ?(\S*)", r.prompt, re.M)[0]
        if agent == "implementer":
            return self.build(r)
        if r.turn == 0:
            return say(tool("Write", file_path=r.path("report"), content="# Report\n\nAC-1 holds.\n"))
        if agent == "planner":
            self.planned += 1
        return say(tool("StructuredOutput", **self.data(agent)))

    def build(self, r: Request) -> Any:
        folder = r.prompt.split("Working folder: ")[1].splitlines()[0]
        files = self.files | ({self.module: self.broken} if self.planned == 1 else {})
        if r.turn == 0:
            return say(*(tool("Read", file_path=f"{folder}/{name}") for name in files))
        if r.turn == 1:
            writes = [tool("Write", file_path=f"{folder}/{name}", content=text) for name, text in files.items()]
            return say(*writes, tool("Write", file_path=r.path("report"), content="# Done\n"))
        return say("DONE: yes", hang_seconds=20 if self.held else 0)

    def data(self, agent: str) -> dict[str, Any]:
        criterion = {"id": "AC-1", "result": "pass", "evidence": {"test": "tests_of_forge/test_added.py"}}
        task = {"id": "add", "goal": "it is there", "agent": "implementer", "files": list(self.files),
                "criteria": [{"id": "add-1", "text": "it works"}]}  # fmt: skip
        known: dict[str, dict[str, Any]] = {
            "synthesist": {"notes": {}}, "designer": {"notes": {}}, "planner": {"tasks": [task], "notes": {}},
            "spec": {"criteria": [{"id": "AC-1", "text": "it works"}], "notes": {}},
            "v-tasks": {"criteria": [{**criterion, "id": "add-1"}], "findings": []},
            "v-feature": {"criteria": [criterion], "findings": []},
            "r-knowledge": {"proposals": [], "decisions": []},
        }  # fmt: skip
        return known.get(agent, {"findings": [], "cross_cutting": []})


PACKAGES = {
    "inflection==0.5.1": ("inflection/__init__.py", "\n\ndef kebab(word):\n    return dasherize(underscore(word))\n",
                          "from inflection import kebab\n\n\ndef test_kebab():\n    assert kebab('OneTwo') == 'one-two'\n"),
    "parse==1.22.4": ("parse/__init__.py", "\n\ndef names(format):\n    return sorted(compile(format).named_fields)\n",
                      "from parse import names\n\n\ndef test_names():\n    assert names('{b} and {a}') == ['a', 'b']\n"),
    "tabulate==0.10.0": ("tabulate/__init__.py", "\n\ndef plain(rows):\n    return tabulate(rows, tablefmt='plain')\n",
                         "from tabulate import plain\n\n\ndef test_plain():\n    assert plain([[1, 2]]) == '1  2'\n"),
}  # fmt: skip


@pytest.fixture
def fetched(request: pytest.FixtureRequest, house: House, tmp_path: Path) -> tuple[House, Feature]:
    """A source distribution, fetched by its name and put under git."""
    pip = ["uv", "run", "--quiet", "--no-project", "--with", "pip", "python", "-m", "pip"]
    argv = [*pip, "download", request.param, "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run([*argv, "-d", str(tmp_path / "sdist")], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{request.param} cannot be had here: {done.stderr[-300:]}"
    (archive,) = (tmp_path / "sdist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    house.workspace.rmdir()
    unpacked.rename(house.workspace)
    (house.workspace / ".gitignore").write_text("__pycache__/\n")
    command = "['{python}', -m, pytest, -q, -p, 'no:cacheprovider', -c, /dev/null, --rootdir, .]"
    (house.folder / "checks.yaml").write_text(f"version: 1\nchecks:\n  own: {{command: {command}, parser: pytest}}\n")
    git = ["git", "-C", str(house.workspace), "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    module, code, test = PACKAGES[request.param]
    return house, Feature(module, code, test, (house.workspace / module).read_text())


def forged(house: House, name: str) -> list[str]:
    words = ["Add a function", "--slug", "added", "--tests", "own", "--checks", str(house.folder / "checks.yaml")]
    return [*words, "--session-dir", str(house.folder / name)]


@pytest.mark.long
@pytest.mark.rehearsed
@pytest.mark.parametrize("fetched", list(PACKAGES), indirect=True, ids=lambda p: p.split("=")[0])
def test_a_feature_goes_into_a_package_nobody_here_wrote_and_its_own_tests_judge(fetched: tuple[House, Feature], model) -> None:
    house, feature = fetched
    model(feature)
    ran = house.json("forge", *forged(house, "s"), timeout=280)
    assert ran.code == 0, ran.stderr[-2000:]
    assert feature.planned == 2, "the build was broken on purpose, and planned again"
    suite = json.loads(next(house.workspace.glob("docs/feature/added/verification/v-suite.json")).read_text())
    assert suite["passed"] and suite["tests"] > 100, suite["count"]


@pytest.mark.long
@pytest.mark.rehearsed
@pytest.mark.parametrize("fetched", ["inflection==0.5.1"], indirect=True)
def test_a_kill_in_a_wave_of_a_real_package_leaves_the_tree_of_an_undisturbed_run(
    fetched: tuple[House, Feature], model, tmp_path: Path
) -> None:
    house, feature = fetched
    before = tmp_path / "before"
    shutil.copytree(house.workspace, before, symlinks=True)
    model(feature)
    feature.held = True
    with house.start("forge", *forged(house, "s")) as child:
        wait_for(
            lambda: any(house.folder.glob("s/forge/stages/*-build/**/add/attempt-1/transcript.jsonl")), what="a task is at work"
        )
        time.sleep(1)
        child.kill()
    wait_for(lambda: not with_marker(str(house.folder / "core")), what="nothing is left")
    feature.held = False
    assert house.json("forge", *forged(house, "s"), timeout=280).code == 0
    disturbed = tree(house.workspace)
    feature.planned = 0
    shutil.rmtree(house.workspace)
    shutil.copytree(before, house.workspace, symlinks=True)
    assert house.json("forge", *forged(house, "t"), timeout=280).code == 0
    assert disturbed == tree(house.workspace)


def tree(folder: Path) -> dict[str, bytes]:
    skipped = (".git", "__pycache__")
    files = [p for p in folder.rglob("*") if p.is_file() and not any(part in skipped for part in p.relative_to(folder).parts)]
    return {str(p.relative_to(folder)): re.sub(rb"\d+\.\d+ ?s\b", b"T", p.read_bytes()) for p in files}
