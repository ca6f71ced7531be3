"""The guides in config/ and prompts/: what they show can be used as it stands, and what they point at is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from lib.disk import schemas
from scripted_model.server import Reply, Request, say, tool
from support import ROOT, House, wait_for

GUIDES = [
    ROOT / "config/README.md",
    ROOT / "prompts/README.md",
    ROOT / "config/packs/forge/README.md",
    ROOT / "config/packs/deep_research/README.md",
    ROOT / "config/packs/downstream/README.md",
    ROOT / "config/packs/academic/README.md",
    ROOT / "config/machines/README.md",
]


def blocks(guide: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", guide.read_text(), re.S | re.M)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda g: g.parent.name)
def test_what_a_guide_points_at_is_there(guide: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(#[^)]*)?\)", guide.read_text())
    assert links
    for place, anchor in links:
        target = guide.parent / place
        assert target.exists(), place
        titles = (
            [re.sub(r"[^a-z0-9 -]", "", t.lower()).replace(" ", "-") for t in re.findall(r"^#+ (.*)$", target.read_text(), re.M)]
            if anchor
            else []
        )
        assert not anchor or anchor[1:] in titles
    for tool_file in re.findall(r"core/(\w+\.py)", guide.read_text()):
        assert (ROOT / "core" / tool_file).exists(), tool_file


def digest(house: House) -> None:
    """The guides' own agent and orchestrator, in a house."""
    (house.folder / "prompts/executors/summariser.md").write_text(blocks(GUIDES[1], "markdown")[0])
    (house.folder / "prompts/executors/merger.md").write_text(blocks(GUIDES[1], "markdown")[1])
    text = next(b for b in blocks(GUIDES[0], "yaml") if "name: digest" in b)
    house.orchestrator(text, "digest")


def test_the_plans_of_the_guide_can_be_run(house: House) -> None:
    first, *others = [b for b in blocks(GUIDES[0], "yaml") if "run:" in b]
    assert len(others) == 2, "the first plan, then a phase for it, then one that waits"
    (house.folder / "plan.yaml").write_text(first + "".join(others))
    subprocess.run(["git", "init", "-q"], cwd=house.workspace, check=True)
    ran = house.json("campaign", str(house.folder / "plan.yaml"), "--dry-run")
    assert ran.code == 0, ran.error
    assert [p["name"] for p in ran.document["phases"]] == ["research", "build", "release"]
    checks = next(b for b in blocks(GUIDES[0], "yaml") if "checks:\n" in b)
    (house.folder / "checks.yaml").write_text(checks.replace("[make, test]", "['true']"))
    assert house.json("check", "unit", "--checks", str(house.folder / "checks.yaml")).code == 0


def test_the_orchestrator_and_the_agent_of_the_guides_work_and_their_recording_is_a_test(house: House, model) -> None:
    digest(house)
    for name in ("a.md", "b.md"):
        (house.workspace / name).write_text("# Something\n")

    def script(request: Request) -> Reply:
        name = "summary" if request.prompt.startswith("/summariser") else "digest"
        return say(tool("Write", file_path=request.path(name), content="short\n")) if not request.turn else say("DONE: yes")

    model(script)
    words = ("orchestrator", "digest", "--param", "files=a.md,b.md")
    assert house.json(*words, "--explain").code == 0
    ran = house.json(*words, "--driver", "record", "--session-dir", str(house.folder / "recorded"))
    assert ran.code == 0, ran.stderr[-2000:]
    again = house.json(*words, "--driver", "replay", "--fixtures", str(house.folder / "recorded"), ANTHROPIC_API_KEY="")
    assert again.code == 0, again.stderr[-2000:]


def test_the_settings_of_the_academic_guide_are_valid() -> None:
    (shown,) = blocks(GUIDES[5], "yaml")
    assert schemas.describe(yaml.safe_load(shown), schemas.load("academic/settings")) == []


def test_every_key_of_the_table_is_one_of_the_format() -> None:
    schema = yaml.safe_load((ROOT / "config/schemas/agent.json").read_text())
    known = {*schema["properties"], *schema["properties"]["strata"]["properties"]}
    rows = re.findall(r"^\| (`.*?) \|", GUIDES[1].read_text(), re.M)
    named = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert named
    assert named <= known, named - known


# Many machines: the files to copy

MACHINES = ROOT / "config/machines"


def test_the_commands_for_workers_are_those_of_the_worker(house: House) -> None:
    known = house.run("worker", "--help").stdout
    pod = yaml.safe_load((MACHINES / "worker.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {word.partition("=")[0] for word in container["args"]}
    text = "".join((MACHINES / name).read_text() for name in ("README.md", "worker.sbatch"))
    for line in re.findall(r"core/worker\.py ((?:[^\n]|\\\n)*)", text):
        given |= set(re.findall(r"--[a-z]+", line))
    assert {"--backend", "--root", "--slots", "--drain", "--name", "--label"} <= given
    assert not {flag for flag in given if f"{flag} " not in known}
    drain = next(int(word.partition("=")[2]) for word in container["args"] if word.startswith("--drain"))
    assert pod["terminationGracePeriodSeconds"] > drain, "a pod is not killed while it drains"
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}


@pytest.mark.parametrize("code", [0, 1])
def test_the_job_for_slurm_passes_the_end_of_its_time_on_and_waits(tmp_path: Path, code: int) -> None:
    """By real bash, with a worker that takes a moment to drain."""
    (tmp_path / "uv").write_text(
        "#!/bin/bash\n"
        f'echo "$@" > {tmp_path}/asked\n'
        f"trap 'sleep 0.5; echo drained > {tmp_path}/drained; exit {code}' TERM\n"
        f"touch {tmp_path}/ready\n"
        "while true; do sleep 0.05; done\n"
    )
    (tmp_path / "uv").chmod(0o755)
    slurm = {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "BACKEND": "temporal://h", "ROOT": "/s"}
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LABELS": "--label gpu", **slurm}
    job = subprocess.Popen(["bash", str(MACHINES / "worker.sbatch")], env=env)
    wait_for((tmp_path / "ready").exists, what="the worker")
    job.terminate()
    assert job.wait(60) == code
    assert (tmp_path / "drained").exists(), "it was waited for"
    assert "--backend temporal://h --root /s --slots 4 --drain 600 --name 7-n1 --label gpu" in (tmp_path / "asked").read_text()
