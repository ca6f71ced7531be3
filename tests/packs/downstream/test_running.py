"""Downstream agents, run: in every way there is, in waves, within bounds, and believed only as far as Python has looked."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_model.server import Reply, Request, say, tool
from support import alive, some, wait_for

pytestmark = pytest.mark.rehearsed
GOOD = 'leave("out", "out.md", "# Out\\n")\ndone()'

# The ways to run an agent


def test_a_python_class_runs_in_a_process_of_its_own(trial: Any) -> None:
    folder = trial.contract(
        "digest",
        {"type": "python", "module": "digest", "class": "Digest", "config": {"words": 3}},
        outputs=[
            {"name": "digest", "path_template": "{vertical}.md", "variables": ["vertical"]},
            {"name": "index", "path_template": "index.json"},
        ],
        inputs={"required": [{"type": "vertical"}], "context_files": {"required": ["baseline"]}},
    )
    (folder / "digest.py").write_text(
        "import os, pathlib\n"
        "from packs.downstream.base import DownstreamAgent\n"
        "class Digest(DownstreamAgent):\n"
        "    async def execute(self):\n"
        "        for one in self.bundle.research_outputs['vertical']:\n"
        "            self.write('digest', ' '.join(one.content.split()[: self.bundle.config['words']]), one.dimensions)\n"
        "        self.write_json('index', {'pid': os.getpid(), 'voice': self.bundle.context_files['baseline'].content})\n"
    )
    ran = trial.run()
    assert ran.code == 0, ran.stderr
    assert trial.left("digest/healthcare.md") == "# Healthcare Hospitals"
    index = json.loads(trial.left("digest/index.json"))
    assert index["voice"] == "voice: plain\n" and not alive(index["pid"])
    events = [
        json.loads(line) for line in (trial.session / ".live-report").read_text().splitlines() if "downstream_agent" in line
    ]
    start, end = (next(e["detail"] for e in events if e["status"] == f"downstream_agent_{w}") for w in ("start", "complete"))
    assert start | {"wave": 1} == start and start["execution_type"] == "python" and start["input_count"] == 2
    assert end["agent_name"] == "digest" and end["output_count"] == 3 and end["cost_usd"] is None


def test_a_shell_script_and_a_program_of_node(trial: Any) -> None:
    house = Path(__file__).resolve().parents[3] / "config/packs/downstream/examples"
    for name in ("word_count", "headlines"):
        shutil.copytree(house / name, trial.workspace / "mine" / name)
    if not shutil.which("node"):
        shutil.rmtree(trial.workspace / "mine/headlines")
    ran = trial.run()
    assert ran.code == 0, ran.stderr
    assert trial.left("word_count/word_count.txt").splitlines() == ["healthcare 15", "legal 16"]
    if shutil.which("node"):
        assert json.loads(trial.left("headlines/headlines.json"))["headlines"] == ["Healthcare", "Legal"]


@pytest.mark.long
def test_an_agent_of_a_definition_in_its_own_folder(trial: Any, model: Any) -> None:
    folder = trial.contract(
        "letter",
        {"type": "agent", "agent": "letter-writer.md", "each": "vertical"},
        outputs=[
            {"name": "letter", "path_template": "{vertical}.md", "variables": ["vertical"], "grounded_by": "passages"},
            {"name": "passages", "path_template": "{vertical}.json", "variables": ["vertical"], "schema": "downstream/passages"},
        ],
    )
    (folder / "letter-writer.md").write_text(
        "---\nname: letter-writer\ndescription: Writes a letter.\ntools: Read, Write, WebSearch\n---\n\nYou write letters.\n"
    )
    tries: list[str] = []

    def script(request: Request) -> Reply:
        written = dict(
            line[2:].split(": ", 1) for line in request.prompt.splitlines() if line.startswith(("- letter: ", "- passages: "))
        )
        written = {name: text.partition(" (")[0] for name, text in written.items()}
        source = next(line.strip()[2:] for line in request.prompt.splitlines() if line.startswith("  - "))
        quote = "Hospitals lose money when systems are down" if "health" in source else "fear a breach of privilege"
        if request.turn == 0:
            tries.append(source)
            assert "WebSearch" not in [t["name"] for t in request.body["tools"]] if hasattr(request, "body") else True
            first = tries.count(source) == 1 and "health" in source
            data = {
                "passages": [{"id": "P1", "source": source, "quote": "words that nobody has ever written" if first else quote}]
            }
            texts = {"letter": "They lose money [P1].\n", "passages": json.dumps(data)}
            return say(*(tool("Write", file_path=path, content=texts[name]) for name, path in written.items()))
        return say("STAGE_TASK_COMPLETE")

    model(script)
    ran = trial.run()
    assert ran.code == 0, ran.stderr
    assert len(tries) == 3  # one was told that its words do not stand there, and had a second try
    assert "lose money [P1]" in trial.left("letter/healthcare.md")
    assert json.loads(trial.left("letter/legal.json"))["passages"][0]["quote"] == "fear a breach of privilege"
    assert trial.run().code == 0 and len(tries) == 3  # nothing finished is done twice


SERVER = """
import json, pathlib
from mcp.server import MCPServer
server = MCPServer("theirs")

@server.tool()
def make(bundle_path: str, handoff_dir: str) -> str:
    bundle = json.loads(pathlib.Path(bundle_path).read_text())
    if bundle["config"].get("break"):
        raise ValueError("it cannot be done today")
    pathlib.Path(handoff_dir, "out.md").write_text("# By MCP\\n")
    return json.dumps({"agent_name": bundle["agent_name"], "nonce": bundle["nonce"], "status": "complete",
                       "outputs": [{"name": "out", "path": "out.md"}], "metrics": {"cost_usd": 0}})

server.run()
"""


def test_a_tool_of_an_mcp_server(trial: Any) -> None:
    trial.settings(mcp_servers={"theirs": {"command": [sys.executable, str(trial.workspace / "server.py")]}})
    (trial.workspace / "server.py").write_text(SERVER)
    trial.contract("by_server", {"type": "mcp", "server": "theirs", "tool": "make"})
    trial.contract("by_command", {"type": "mcp", "command": [sys.executable, str(trial.workspace / "server.py")], "tool": "make"})
    ran = trial.run()
    assert ran.code == 0, ran.stderr
    assert trial.left("by_server/out.md") == trial.left("by_command/out.md") == "# By MCP\n"


@pytest.mark.long
def test_a_tool_of_an_mcp_server_that_fails_or_is_not_there(trial: Any) -> None:
    trial.settings(mcp_servers={"theirs": {"command": [sys.executable, str(trial.workspace / "server.py")]}})
    (trial.workspace / "server.py").write_text(SERVER)
    trial.contract("breaks", {"type": "mcp", "server": "theirs", "tool": "make", "config": {"break": True}})
    trial.contract("no_tool", {"type": "mcp", "server": "theirs", "tool": "mak"})
    assert "the tool make failed" in trial.job("breaks")  # the client does not raise
    assert "no tool 'mak'" in trial.job("no_tool")


# Waves, failures, resuming


def test_what_a_failure_blocks_is_blocked_and_says_by_what(trial: Any) -> None:
    trial.script("a", "sys.exit('no paper left')")
    trial.script("b", GOOD, depends_on=["a"])
    trial.script("c", GOOD, depends_on=["b"])
    trial.script("d", GOOD)
    ran = trial.run()
    assert ran.code == 12, ran.stderr
    listed = trial.listing()
    assert [listed[name]["status"] for name in "abcd"] == ["failure", "blocked", "blocked", "success"]
    assert "no paper left" in listed["a"]["message"] and all("a did not succeed" in listed[name]["message"] for name in "bc")
    (trial.workspace / "mine/a/run.py").write_text((trial.workspace / "mine/d/run.py").read_text())
    ran = trial.run()  # it was put right: it and what it blocked run, and nothing else
    assert ran.code == 0, ran.stderr
    attempts = {
        p.parent.name: len(list(p.parent.glob("attempt-*")))
        for p in trial.session.glob("downstream/stages/02-agents/*/attempt-1")
    }
    assert attempts["d"] == 1


def test_an_agent_reads_what_those_before_it_left(trial: Any) -> None:
    body = 'leave("out", "out.md", bundle["job"]["vertical"])\ndone()'
    trial.script("first", body, execution={"each": "vertical"})
    merged = 'texts = [pathlib.Path(o["content_path"]).read_text() for o in bundle["downstream_outputs"]["first"]]\nleave("out", "out.md", " ".join(texts))\ndone()'
    reads = {"required": [{"type": "vertical"}], "downstream_inputs": [{"agent": "first", "output": "out", "required": True}]}
    trial.script("second", merged, inputs=reads, depends_on=["first"])
    trial.contract(
        "first",
        {"type": "subprocess", "command": ["python3", "{agent_dir}/run.py"], "each": "vertical"},
        outputs=[{"name": "out", "path_template": "{vertical}/out.md", "variables": ["vertical"]}],
    )
    (trial.workspace / "mine/first/run.py").write_text(
        (trial.workspace / "mine/first/run.py")
        .read_text()
        .replace('"out.md", bundle', 'bundle["job"]["vertical"] + "/out.md", bundle')
    )
    ran = trial.run()
    assert ran.code == 0, ran.stderr
    assert trial.left("second/out.md") == "healthcare legal"


def test_only_what_changed_upstream_is_done_again(trial: Any) -> None:
    count = 'open("../../count", "a").write(bundle["job"]["vertical"] + "\\n")\n'
    trial.script(
        "each",
        count + 'leave("out", bundle["job"]["vertical"] + ".md", "x")\ndone()',
        execution={"each": "vertical"},
        outputs=[{"name": "out", "path_template": "{vertical}.md", "variables": ["vertical"]}],
    )
    assert trial.run().code == 0
    assert trial.run().code == 0
    ran_for = (trial.workspace / "count").read_text().split()
    assert sorted(ran_for) == ["healthcare", "legal"]
    (trial.workspace / "up/legal.md").write_text("# Legal\n\nEverything is different now.\n")
    ran = trial.run()
    assert ran.code == 0, ran.stderr
    assert (trial.workspace / "count").read_text().split()[2:] == ["legal"]
    contract = trial.workspace / "mine/each/agent.yaml"
    contract.write_text(contract.read_text().replace("1.0.0", "1.0.1"))
    assert trial.run().code == 0
    assert sorted((trial.workspace / "count").read_text().split()[3:]) == ["healthcare", "legal"]


def test_a_person_looks_at_it_where_the_settings_ask(trial: Any) -> None:
    trial.settings(after_downstream=True)
    trial.script("a", GOOD)
    ran = trial.run()
    assert ran.code == 3 and "good enough" in ran.stdout
    assert trial.run("--answer", "review=yes").code == 0


def test_what_comes_before_those_before_it_is_an_input_too(trial: Any) -> None:
    trial.script("a", GOOD)
    trial.script("b", GOOD, depends_on=["a"])
    reads = {"required": [{"type": "vertical"}], "downstream_inputs": [{"agent": "a", "output": "out", "required": True}]}
    trial.script("c", GOOD, depends_on=["b"], inputs=reads)
    assert trial.run().code == 0, trial.why("c")


def test_a_file_outside_the_run_that_changes_is_noticed(trial: Any) -> None:
    external = {"required": [{"type": "vertical"}], "external": [{"name": "deals", "path": "deals.csv"}]}
    body = 'leave("out", "out.md", pathlib.Path(bundle["external_data"]["deals"]["content_path"]).read_text())\ndone()'
    (trial.workspace / "deals.csv").write_text("1\n")
    trial.script("a", body, inputs=external)
    folder = trial.contract("b", {"type": "python", "module": "shared", "class": "Shared"})
    assert folder
    code = "from packs.downstream.base import DownstreamAgent\nclass Shared(DownstreamAgent):\n    def execute(self):\n        self.write('out', 'ONE')\n"
    (trial.workspace / "shared.py").write_text(code)
    (trial.workspace / "lib").mkdir()  # called as one of ours, and none of its business
    (trial.workspace / "lib/__init__.py").write_text("raise ImportError\n")
    ran = trial.run()
    assert ran.code == 0, ran.stderr
    (trial.workspace / "deals.csv").write_text("2\n")
    (trial.workspace / "shared.py").write_text(code.replace("ONE", "TWO"))
    assert trial.run().code == 0
    assert (trial.left("a/out.md"), trial.left("b/out.md")) == ("2\n", "TWO")


def test_what_another_output_rejects_is_not_used(trial: Any) -> None:
    document = json.loads(trial.manifest.read_text())
    for vertical, word in (("healthcare", "rejected"), ("legal", "revise")):
        (trial.workspace / f"up/{vertical}.json").write_text(json.dumps({"decision": word}))
        dimensions = {"vertical": vertical, "title": "cfo_cluster"}
        document["outputs"].append(
            {"agent_name": "x", "type": "validation", "dimensions": dimensions, "path": f"{vertical}.json"}
        )
    trial.manifest.write_text(json.dumps(document))
    inputs = {"required": [{"type": "playbook_2d", "unless": {"type": "validation", "pointer": "/decision", "is": ["rejected"]}}]}
    trial.script("a", 'leave("out", "out.md", " ".join(bundle["dimensions"]["vertical"]))\ndone()', inputs=inputs)
    assert trial.run().code == 0
    assert trial.left("a/out.md") == "legal"
    (trial.workspace / "up/legal.json").write_text("{}")
    assert "does not say /decision" in trial.run().error["message"]


def test_what_cannot_be_told_apart_is_said_before_anything_runs(trial: Any) -> None:
    document = json.loads(trial.manifest.read_text())
    document["outputs"].append({**document["outputs"][0], "id": "v9"})
    trial.manifest.write_text(json.dumps(document))
    outputs = [{"name": "out", "path_template": "{vertical}.md", "variables": ["vertical"]}]
    trial.script("a", GOOD, execution={"each": "vertical"}, outputs=outputs)
    error = trial.run().error
    assert error["code"] == "SAME_OUTPUT" and "healthcare.md" in error["message"]
    shutil.rmtree(trial.workspace / "mine/a")
    folder = trial.contract(
        "b",
        {"type": "agent", "agent": "w.md", "each": "vertical"},
        outputs=[{"name": "out", "path_template": "{title}.md", "variables": ["title"]}],
    )
    (folder / "w.md").write_text("---\nname: w\ndescription: Writes.\ntools: Write\n---\n\nYou write.\n")
    assert "nothing says which title" in trial.run().error["message"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../../../../../etc/passwd", "link.md"])
def test_a_manifest_names_files_of_its_own_folder_alone(trial: Any, path: str) -> None:
    document = json.loads(trial.manifest.read_text())
    (trial.workspace / "up/link.md").symlink_to("/etc/passwd")
    document["outputs"][0]["path"] = path
    trial.manifest.write_text(json.dumps(document))
    trial.script("a", GOOD)
    assert trial.run().error["code"] == "UNSAFE_PATH"


def test_the_settings_of_a_project_reach_the_builder_of_its_knowledge_base(trial: Any) -> None:
    trial.settings(output_dir="ours")
    contract = {"type": "python", "module": "packs.kb.builder", "class": "KnowledgeBaseBuilder"}
    outputs = [{"name": "kb_manifest", "path_template": "kb_manifest.json"}, {"name": "changes", "path_template": "changes.md"}]
    trial.contract("knowledge", contract, outputs=outputs, budget={"max_cost_usd": 0, "timeout_seconds": 60})
    ran = trial.run()
    assert ran.code == 0, ran.stderr
    assert (trial.workspace / "ours/knowledge_base/kb_v1").is_dir() and not (trial.workspace / "downstream").exists()
    assert trial.house.json("kb", "versions").document["current_version"] == 1


# Bounds


def test_a_timeout_ends_the_whole_tree(trial: Any) -> None:
    body = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "(folder.parents[6] / 'pids').write_text(f'{os.getpid()} {child.pid}')\ntime.sleep(600)"
    )
    trial.script("slow", body, budget={"max_cost_usd": 0.5, "timeout_seconds": 2})
    began = time.monotonic()
    ran = trial.run()
    assert ran.code in (1, 21), ran.stderr
    assert time.monotonic() - began < 60
    pids = [int(p) for path in trial.house.folder.rglob("pids") for p in path.read_text().split()]
    assert len(pids) == 2
    for pid in pids:
        wait_for(lambda pid=pid: not alive(pid), what=f"the end of {pid}")
    sums = json.loads((trial.session / "ledger.jsonl").read_text().splitlines()[-1])["sums"][""]
    assert sums["held"] > 0 and sums["usd"] == 0  # what it may have cost stays held
    kinds = [json.loads(line)["kind"] for line in (trial.session / "ledger.jsonl").read_text().splitlines()]
    assert kinds.count("settle") == kinds.count("reserve") > 0  # and nobody waits for it


@pytest.mark.parametrize(
    ("metrics", "code", "usd", "held"),
    [
        ({"cost_usd": 0.2}, 0, 0.2, 0.0),
        ({}, 0, 0.0, 0.5),  # not said: charged at the cap
        ({"cost_usd": 9.0}, 1, 0.5, 0.0),  # more than it may: charged at the cap, and no success
        ({"cost_usd": -1.0}, 1, 0.0, 0.5),
        ({"cost_usd": 0.1, "searches_performed": 3}, 1, 0.1, 0.0),  # the settings allow none, whatever its contract says
    ],
)
def test_money_is_what_an_agent_reports_within_its_cap(
    trial: Any, metrics: dict[str, Any], code: int, usd: float, held: float
) -> None:
    budget = {"max_cost_usd": 0.5, "timeout_seconds": 60, "max_searches": 9}
    trial.script("a", f'result["metrics"] = {metrics!r}\n{GOOD}', budget=budget)
    ran = trial.run("--until", "agents")
    assert (ran.code == 0) == (code == 0) or ran.code == 12, ran.stderr
    lines = [json.loads(line) for line in (trial.session / "ledger.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["kind"] == "settle")
    assert (round(first["sums"][""]["usd"], 6), round(first["sums"][""]["held"], 6)) == (usd, held)
    if code:
        assert trial.why("a").startswith("failure") or "11" in trial.why("a") or "escalat" in trial.why("a"), trial.why("a")


def test_all_of_them_together_stay_within_their_budget(trial: Any) -> None:
    trial.settings(budget={"max_cost_usd": 1.0, "max_searches": 0})
    for name in ("a", "b", "c"):
        trial.script(
            name, f'result["metrics"] = {{"cost_usd": 0.45}}\n{GOOD}', depends_on=[chr(ord(name) - 1)] if name > "a" else []
        )
    ran = trial.run()
    assert ran.code in (11, 12), ran.stderr
    assert "BUDGET_EXCEEDED" in ran.stdout + ran.stderr
    figures = json.loads((trial.session / "ledger.jsonl").read_text().splitlines()[-1])["sums"][""]
    assert figures["usd"] <= 1.0


def test_an_agent_has_the_variables_it_lists_and_no_secret_besides(trial: Any) -> None:
    body = 'leave("out", "out.md", json.dumps(dict(os.environ)))\ndone()'
    trial.script("a", body, execution={"env": ["OUR_KEY"]})
    trial.script("b", body)
    secrets = {"OUR_KEY": "k-1234567890", "OTHER_TOKEN": "t-1234567890", "ANTHROPIC_API_KEY": "dummy-1234567", "MY_WORD": "plain"}
    ran = trial.run(**secrets)
    assert ran.code == 0, ran.stderr
    mine, other = (json.loads(trial.left(f"{name}/out.md")) for name in "ab")
    assert mine["OUR_KEY"] == "[redacted]"  # it had it, and what it wrote down does not
    assert "OUR_KEY" not in other and not {"OTHER_TOKEN", "ANTHROPIC_API_KEY", "MY_WORD"} & (set(mine) | set(other))
    everything = b"".join(p.read_bytes() for p in trial.session.rglob("*") if p.is_file())
    assert b"k-1234567890" not in everything


# What is not believed


LIES = {
    "no result": ("pass", "MISSING_OUTPUT"),
    "another nonce": ('result["nonce"] = "0" * 32\n' + GOOD, "STALE_RESULT"),
    "no nonce": ('del result["nonce"]\n' + GOOD, "BAD_RESULT"),
    "another agent": ('result["agent_name"] = "b"\n' + GOOD, "BAD_RESULT"),
    "unknown key": ('result["grade"] = "A"\n' + GOOD, "BAD_RESULT"),
    "not JSON": ('(folder / "result.json").write_text("{")', "BAD_RESULT"),
    "NaN": ('leave("out", "out.md", "x")\n(folder / "result.json").write_text(json.dumps(result).replace("0.1", "NaN"))', "BAD_RESULT"),
    "undeclared": ('leave("out", "out.md", "x")\nleave("more", "more.md", "x")\ndone()', "UNDECLARED_OUTPUT"),
    "missing file": ('result["outputs"].append({"name": "out", "path": "out.md"})\ndone()', "MISSING_OUTPUT"),
    "no outputs": ("done()", "MISSING_OUTPUT"),
    "twice": ('leave("out", "out.md", "x")\nleave("out", "out.md", "x")\ndone()', "BAD_RESULT"),
    "elsewhere": ('leave("out", "other.md", "x")\ndone()', "BAD_RESULT"),
    "up": ('result["outputs"].append({"name": "out", "path": "../out.md"})\ndone()', "UNSAFE_PATH"),
    "absolute": ('result["outputs"].append({"name": "out", "path": "/etc/passwd"})\ndone()', "UNSAFE_PATH"),
    "a link": ('os.symlink("/etc/passwd", folder / "out.md")\nresult["outputs"].append({"name": "out"})\ndone()', "UNSAFE_PATH"),
    "a hard link": (
        '(folder.parent / "x").write_text("x")\nos.link(folder.parent / "x", folder / "out.md")\nresult["outputs"].append({"name": "out"})\ndone()',
        "UNSAFE_PATH",
    ),
    "a pipe": ('os.mkfifo(folder / "out.md")\nresult["outputs"].append({"name": "out"})\ndone()', "UNSAFE_PATH"),
    "a folder": ('(folder / "out.md").mkdir()\nresult["outputs"].append({"name": "out"})\ndone()', "UNSAFE_PATH"),
    "result is a link": (
        'leave("out", "out.md", "x")\n(folder.parent / "r").write_text(json.dumps(result))\nos.symlink(folder.parent / "r", folder / "result.json")',
        "UNSAFE_PATH",
    ),
    "too large": ('leave("out", "out.md", "x" * 11_000_000)\ndone()', "TOO_LARGE"),
    "says it failed": ('result |= {"status": "failed", "errors": [{"code": "E1", "message": "no"}]}\ndone()', "E1: no"),
    "ends badly": (GOOD + "\nsys.exit(3)", "exit code 3"),
    "odd dimension": ('result["outputs"].append({"name": "out", "path": "out.md", "dimensions": {"vertical": "../x"}})\ndone()', "BAD_RESULT"),
    "infinite seconds": ('leave("out", "out.md", "x")\n(folder / "result.json").write_text(json.dumps(result).replace(\'"duration_seconds": 1\', \'"duration_seconds": 1e999\'))', "BAD_RESULT"),
    "very deep": ('(folder / "result.json").write_text("[" * 200000)', "BAD_RESULT"),
    "half a letter": ('(folder / "result.json").write_text(json.dumps(result | {"errors": [{"message": "\\ud800"}]}))', "BAD_RESULT"),
    "empty": ('leave("out", "out.md", "")\ndone()', "MISSING_OUTPUT"),
    "our variables": ('leave("out", "out.md", "x", version="9")\ndone()', "BAD_RESULT"),
    "a vertical that is not there": ('leave("out", "out.md", "x", vertical="atlantis")\ndone()', "BAD_RESULT"),
}  # fmt: skip


@pytest.mark.parametrize("lie", some(LIES, 3))
def test_a_result_is_believed_only_inside_its_handoff_folder(trial: Any, lie: str) -> None:
    body, says = LIES[lie]
    trial.script("a", body)
    assert says in trial.job("a")


def test_a_link_on_the_way_is_not_followed(trial: Any) -> None:
    body = 'os.symlink("/etc", folder / "deep")\nresult["outputs"].append({"name": "out"})\ndone()'
    trial.script("a", body, outputs=[{"name": "out", "path_template": "deep/passwd"}])
    assert "leads through a link" in trial.job("a")


def test_a_schema_of_the_contract_is_looked_at(trial: Any) -> None:
    outputs = [{"name": "out", "path_template": "out.json", "schema": "out.json"}]
    folder = trial.script("a", 'leave("out", "out.json", \'{"n": "one"}\')\ndone()', outputs=outputs)
    (folder / "out.json").write_text(json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}))
    assert "'one' is not of type 'integer'" in trial.job("a")


# What was tried, and did not hold once

TEXT = [{"name": "out", "path_template": "out.json", "schema": "s.json"}]
REWRITES = """
leave("out", "out.json", "not json at all")
contract = json.loads((folder / "contract.json").read_text())
contract["outputs"][0]["schema"] = ""
(folder / "contract.json").write_text(json.dumps(contract))
done()
"""
GROUNDED = [
    {"name": "out", "path_template": "out.md", "grounded_by": "passages"},
    {"name": "passages", "path_template": "p.json", "schema": "downstream/passages"},
]
OWN_SOURCE = """
(folder / "evil.md").write_text("Nobody ever said these very words.")
known = json.loads((folder / "context_bundle.json").read_text())
known["context_files"]["x"] = {"name": "x", "path": "evil.md", "content_path": str(folder / "evil.md")}
(folder / "context_bundle.json").write_text(json.dumps(known))
leave("out", "out.md", "So it is [P1].")
leave("passages", "p.json", json.dumps({"passages": [{"id": "P1", "source": "evil.md", "quote": "Nobody ever said these very words"}]}))
done()
"""
OWN_EDIT = """
source = bundle["research_outputs"]["vertical"][0]
path = pathlib.Path(source["content_path"])
path.write_text(path.read_text() + "Nobody ever said these very words.")
leave("out", "out.md", "So it is [P1].")
leave("passages", "p.json", json.dumps({"passages": [{"id": "P1", "source": source["path"], "quote": "Nobody ever said these very words"}]}))
done()
"""


@pytest.mark.parametrize(
    ("body", "outputs", "says"),
    [
        (REWRITES, TEXT, "not valid JSON"),
        (OWN_SOURCE, GROUNDED, "is no input"),
        (OWN_EDIT, GROUNDED, "not as the run left it"),
        ('leave("out", "out.json", \'{"n": 1, "n": 2}\')\ndone()', TEXT, "is used twice"),
        ('leave("out", "out.json", \'{"n": 1, "m": NaN}\')\ndone()', TEXT, "NaN is not JSON"),
        ('(folder / "d").mkdir()\nresult["outputs"].append({"name": "out"})\ndone()', [{"name": "out", "path_template": "d/"}], "is empty"),
        ('leave("out", "d/x.md", "x")\nopen(os.fsencode(folder) + b"/d/\\xff.md", "w").write("x")\nresult["outputs"] = [{"name": "out"}]\ndone()', [{"name": "out", "path_template": "d/"}], "no text"),
    ],
)  # fmt: skip
def test_an_agent_does_not_write_what_it_is_judged_by(trial: Any, body: str, outputs: Any, says: str) -> None:
    folder = trial.script("a", body, outputs=outputs)
    (folder / "s.json").write_text(json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}))
    assert says in trial.job("a")


def test_an_agent_session_does_not_say_what_it_left(trial: Any, model: Any) -> None:
    folder = trial.contract("a", {"type": "agent", "agent": "w.md"}, outputs=GROUNDED)
    (folder / "w.md").write_text("---\nname: w\ndescription: Writes.\ntools: Write\n---\n\nYou write.\n")

    def script(request: Request) -> Reply:
        if request.turn:
            return say("STAGE_TASK_COMPLETE")
        place = next(line for line in request.prompt.splitlines() if line.startswith("- out: ")).split()[2]
        nothing = json.dumps({"agent_name": "a", "nonce": "x", "status": "complete", "outputs": []})
        passages = json.dumps({"passages": [{"id": "P1", "source": "x", "quote": "words that nobody wrote"}]})
        texts = {
            place: "So it is [P1].",
            place.replace("out.md", "p.json"): passages,
            place.replace("files/out.md", "result.json"): nothing,
        }
        return say(*(tool("Write", file_path=path, content=text) for path, text in texts.items()))

    model(script)
    assert trial.run().code == 1
    assert "is no input" in trial.why("a")


def test_an_agent_that_prints_without_end_is_ended_and_fills_no_disk(trial: Any) -> None:
    trial.script(
        "a",
        'import subprocess\nsubprocess.run(["yes", "words to fill a disk with"])',
        budget={"max_cost_usd": 0, "timeout_seconds": 4},
    )
    trial.house.put(
        trial.house.folder / "core/packs/downstream/launching.py",
        (trial.house.folder / "core/packs/downstream/launching.py")
        .read_text()
        .replace("MOST_LOG = 200_000_000", "MOST_LOG = 5_000_000"),
    )
    assert trial.run("--until", "agents").code in (1, 12, 21)
    logs = list(trial.session.rglob("agent.log"))
    assert logs and all(log.stat().st_size < 3_000_000 for log in logs)


def test_a_secret_in_what_is_no_text_is_not_published(trial: Any) -> None:
    trial.script(
        "a",
        'leave("out", "out.md", "x")\n(folder / "out.md").write_bytes(b"\\xff" + os.environ["OUR_WORD"].encode())\ndone()',
        execution={"env": ["OUR_WORD"]},
    )
    assert "holds a secret" in trial.job("a", OUR_WORD="a-word-of-ours")


def test_an_address_with_a_password_reaches_nobody(trial: Any) -> None:
    trial.script("a", 'leave("out", "out.md", json.dumps(dict(os.environ)))\ndone()')
    assert trial.run(PIP_INDEX_URL="https://bob:pippass77@h.test/x", HTTPS_PROXY="http://u:proxypass9@p.test:1").code == 0
    assert not {"PIP_INDEX_URL", "HTTPS_PROXY"} & set(json.loads(trial.left("a/out.md")))


def test_a_schema_fetches_nothing(trial: Any, serve: Any) -> None:
    service = serve(lambda *_: (200, {}, b"{}"))
    folder = trial.script("a", 'leave("out", "out.json", "{}")\ndone()', outputs=TEXT)
    (folder / "s.json").write_text(json.dumps({"$ref": f"{service.url}/x.json"}))
    assert "refers to" in trial.job("a") and not service.seen


def test_a_context_file_that_changes_is_noticed(trial: Any) -> None:
    body = 'leave("out", "out.md", pathlib.Path(bundle["context_files"]["baseline"]["content_path"]).read_text())\ndone()'
    trial.script("a", body, inputs={"required": [{"type": "vertical"}], "context_files": {"required": ["baseline"]}})
    assert trial.run().code == 0
    (trial.workspace / "up/baseline.yaml").write_text("voice: loud\n")
    assert trial.run().code == 0 and trial.left("a/out.md") == "voice: loud\n"


# By hand


def test_contracts_are_looked_at_by_hand(trial: Any) -> None:
    trial.script("a", GOOD)
    trial.script("b", GOOD, depends_on=["a"], inputs={"required": [{"type": "title"}]})
    call = trial.house.json
    assert call("downstream", "check", "--agents", "mine").document["agents"] == ["a", "b"]
    assert call("downstream", "order", "--agents", "mine").document["waves"] == [["a"], ["b"]]
    shown = call("downstream", "bundle", "up/manifest.json", "--agents", "mine").document
    assert [one["agent_name"] for one in shown["bundles"]] == ["a"] and "needs title" in shown["left_out"]["b"]
    assert "needs title" in call("downstream", "bundle", "up/manifest.json", "--agents", "mine", "--only", "b").error["message"]
    assert "of which run?" in call("downstream", "run").error["message"]
    assert "looked for" in call("downstream", "check", "--agents", "nowhere").error["hint"]
    trial.settings(enabled=False)
    assert call("downstream", "check", "--agents", "mine").error["code"] == "DISABLED"


def test_the_manifest_of_any_run_is_an_upstream(trial: Any) -> None:
    """A run of an orchestrator, with types and dimensions, is handed on by its session."""
    trial.house.tool(
        "make", "def work(task, out, call):\n    (out / 'v.md').write_text(task.item['vertical'])\n    return Verdict('done')"
    )
    trial.house.orchestrator(
        """
version: 1
name: trial
params: {items: {about: them, type: list}}
stages:
  - name: verticals
    tool: make.py
    foreach: {items: param.items, key: vertical}
    type: vertical
    dimensions: {vertical: "{item.vertical}"}
    outputs: {report: {path: v.md}}
"""
    )
    session = trial.house.folder / "sessions/up"
    words = ("--param", 'items=[{"vertical": "legal"}, {"vertical": "retail"}]', "--session-dir", str(session))
    ran = trial.house.json("orchestrator", "trial", *words)
    assert ran.code == 0, ran.stderr
    trial.script("a", 'leave("out", "out.md", " ".join(bundle["dimensions"]["vertical"]))\ndone()')
    ran = trial.house.json("downstream", "run", str(session), "--agents", "mine", "--session-dir", str(trial.session))
    assert ran.code == 0, ran.stderr
    assert trial.left("a/out.md") == "legal retail"
