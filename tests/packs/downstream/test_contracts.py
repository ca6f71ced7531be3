"""Contracts, their order and what they match: every mistake by file and line, and shapes that nobody chose."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from lib.contract import StrataError
from packs.downstream import bundles, jobs, loading, old_names, order, upstream
from packs.downstream.contract import AgentContract, Execution, Inputs, InputSpec, OutputSpec
from packs.downstream.settings import Settings, Vocabulary
from packs.downstream.settings import read as read_settings
from packs.downstream.upstream import Manifest, OutputEntry

SETTINGS = Settings()
GOOD = """\
name: digest
version: 1.0.0
description: A digest.
inputs:
  required:
    - type: vertical
      dimensions: {}
  optional:
    - {id: aligned, type: brand_alignment}
  context_files: {required: [baseline], optional: [glossary]}
  external:
    - {name: deals, path: data/deals.csv, required: false}
outputs:
  - name: digest
    path_template: "downstream/digest/{vertical}_digest.md"
    variables: [vertical]
  - {name: index, path_template: index.json}
execution:
  type: python
  module: downstream.agents.digest.agent
  class: Digest
depends_on: []
model: {name: medium-tier, max_tokens: 16000, temperature: 1.0}
budget: {max_cost_usd: 5.0, timeout_seconds: 300, max_searches: 0}
"""


def put(folder: Path, name: str, text: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "agent.yaml").write_text(text)
    return folder


def mistake(folder: Path) -> StrataError:
    with pytest.raises(StrataError) as raised:
        loading.load_all(folder, SETTINGS)
    return raised.value


def test_a_contract_with_every_key_of_the_seed_is_read(tmp_path: Path) -> None:
    contract = loading.load_all(put(tmp_path, "digest", GOOD), SETTINGS)["digest"]
    assert contract.execution.class_ == "Digest" and contract.budget.max_cost_usd == 5.0
    assert contract.outputs[0].path({"vertical": "legal"}) == "legal_digest.md"  # paths are the agent's own
    assert contract.outputs[0].path({}) is None


MISTAKES = [
    ("name: digest", "nam: digest", "unknown key 'nam'", 1),
    ("name: digest", "name: other", "its folder 'digest'", 1),
    ("name: digest", "name: Dige st", "name", 1),
    ("version: 1.0.0", "version: one", "version", 2),
    ("version: 1.0.0\n", "", "version", 1),
    ("    - type: vertical\n", "    - typ: vertical\n", "typ", 6),
    ("      dimensions: {}", "      dimensions: {verticle: legal}", "did you mean vertical?", 7),
    ("{id: aligned, type: brand_alignment}", "{type: vertical}", "two inputs are called 'vertical'", 9),
    ("path: data/deals.csv", "path: ../deals.csv", "leaves the working folder", 12),
    ("path: data/deals.csv", "path: /etc/passwd", "leaves the working folder", 12),
    ('"downstream/digest/{vertical}_digest.md"', '"../{vertical}.md"', "cannot be used", 15),
    ('"downstream/digest/{vertical}_digest.md"', '"/tmp/{vertical}.md"', "cannot be used", 15),
    ('"downstream/digest/{vertical}_digest.md"', '"a/./{vertical}.md"', "cannot be used", 15),
    ('"downstream/digest/{vertical}_digest.md"', '"{vertical!r}.md"', "cannot be used", 15),
    ('"downstream/digest/{vertical}_digest.md"', '"{vertical.__class__}.md"', "is no variable", 15),
    ('"downstream/digest/{vertical}_digest.md"', '"{HOME}.md"', "is no variable", 15),
    ('"downstream/digest/{vertical}_digest.md"', '"{vertical}{.md"', "brace", 15),
    ('"downstream/digest/{vertical}_digest.md"', '"{vertical}$(id).md"', "cannot be used", 15),
    ("    variables: [vertical]", "    variables: [vertical, title]", "list exactly those the template uses", 16),
    ("    variables: [vertical]\n", "", "list exactly those the template uses", 14),
    ("{name: index, path_template: index.json}", "{name: digest, path_template: index.json}", "two outputs are called", 14),
    ("{name: index, path_template: index.json}", "{name: index, path_template: i.json, schema: none.json}", "none.json", 17),
    (
        "{name: index, path_template: index.json}",
        "{name: index, path_template: i.md, grounded_by: passages}",
        "no other output",
        17,
    ),
    ("{name: index, path_template: index.json}", "{name: index, path_template: result.json}", "a file of the handoff itself", 17),
    (
        "{name: index, path_template: index.json}",
        "{name: index, path_template: d/, schema: downstream/result}",
        "is a folder",
        17,
    ),
    ("  class: Digest\n", "", "python needs class", 18),
    ("  type: python", "  type: robot", "type", 19),
    ("  class: Digest", "  class: Digest\n  url: https://x.test/", "'url' means nothing to python", 22),
    ("  class: Digest", "  class: Digest\n  each: title", "no required input", 22),
    ("depends_on: []", "depends_on: [ghost]", "'ghost', which does not exist", 22),
    ("depends_on: []", "depends_on: [digest]", "wait for each other: digest → digest", 22),
    ("max_cost_usd: 5.0", "max_cost_usd: -1", "max_cost_usd", 24),
    ("max_cost_usd: 5.0", "max_cost_usd: .nan", "is not a number", 24),
    ("max_cost_usd: 5.0", "max_cost_usd: .inf", "is not a number", 24),
    ("timeout_seconds: 300", "timeout_seconds: 0", "timeout_seconds", 24),
    ("max_searches: 0", "max_searches: -1", "max_searches", 24),
    ("max_searches: 0", "max_serches: 0", "max_serches", 24),
]


@pytest.mark.parametrize(("old", "new", "says", "line"), MISTAKES, ids=[f"{n:02d}-{m[2][:24]}" for n, m in enumerate(MISTAKES)])
def test_a_mistake_is_said_with_its_file_and_line(tmp_path: Path, old: str, new: str, says: str, line: int) -> None:
    assert old in GOOD
    error = mistake(put(tmp_path, "digest", GOOD.replace(old, new)))
    assert f"digest/agent.yaml:{line}:" in error.message, error.message
    assert says in f"{error.message} {error.hint}", (error.message, error.hint)


EXECUTIONS = [
    ("{type: subprocess}", "subprocess needs command"),
    ("{type: subprocess, command: node run.js}", "a list of words"),
    ("{type: webhook}", "webhook needs url"),
    ("{type: webhook, url: 'https://x.test/', method: GET}", "method"),
    ("{type: webhook, url: 'https://x.test/', headers: {Authorization: '${KEY}'}}", "env: does not list"),
    ("{type: mcp, tool: make}", "a server by name, or a command"),
    ("{type: mcp, tool: make, server: ours}", "no MCP server 'ours'"),
    ("{type: mcp, server: ours}", "mcp needs tool"),
    ("{type: agent}", "agent needs agent"),
    ("{type: agent, agent: nobody-of-that-name}", "no agent 'nobody-of-that-name'"),
    ("{type: agent, agent: ../../x.md}", "leaves its folder"),
    ("{type: agent, agent: writer.md}", "writer.md"),
]


@pytest.mark.parametrize(("execution", "says"), EXECUTIONS)
def test_each_way_to_run_says_what_it_needs(tmp_path: Path, execution: str, says: str) -> None:
    text = yaml.safe_load(GOOD) | {"execution": yaml.safe_load(execution)}
    error = mistake(put(tmp_path, "digest", yaml.safe_dump(text)))
    assert says in f"{error.message} {error.hint}", error.message
    assert "agent.yaml:" in error.message


def small(name: str, after: tuple[str, ...] = (), reads: str = "", output: str = "out") -> str:
    inputs: dict[str, Any] = {"required": [{"type": "vertical"}]}
    if reads:
        inputs["downstream_inputs"] = [{"agent": reads, "output": output}]
    execution = {"type": "subprocess", "command": ["true"]}
    outputs = [{"name": "out", "path_template": "out.md"}]
    return yaml.safe_dump(
        {
            "name": name,
            "version": "1.0.0",
            "inputs": inputs,
            "outputs": outputs,
            "execution": execution,
            "depends_on": list(after),
        }
    )


def test_what_agents_read_of_each_other_must_come_before_them_and_be_there(tmp_path: Path) -> None:
    put(tmp_path, "a", small("a"))
    put(tmp_path, "b", small("b", (), "a"))
    assert "does not depend on it" in mistake(tmp_path).message
    (tmp_path / "b/agent.yaml").write_text(small("b", ("a",), "a", "draft"))
    assert "a has no output 'draft'" in mistake(tmp_path).message
    (tmp_path / "b/agent.yaml").write_text(small("b", ("a",), "a"))
    put(tmp_path, "c", small("c", ("b",), "a"))  # through b
    assert order.waves(loading.load_all(tmp_path, SETTINGS)) == [["a"], ["b"], ["c"]]
    disabled = Settings(enabled_agents=("c", "b"))
    with pytest.raises(StrataError, match="depends on a, which is not enabled"):
        loading.load_all(tmp_path, disabled)
    assert list(loading.load_all(tmp_path, disabled, ("c",))) == ["a", "b", "c"]  # who is asked for brings those it needs


def contract(name: str, after: tuple[str, ...] = (), inputs: Inputs | None = None, **more: Any) -> AgentContract:
    given = inputs or Inputs()
    return AgentContract(name, "1.0.0", given, (OutputSpec("out", "out.md"),), Execution("subprocess"), depends_on=after, **more)


def naive_wave(graph: dict[str, tuple[str, ...]], name: str) -> int:
    return 1 + max((naive_wave(graph, other) for other in graph[name]), default=0)


@pytest.mark.parametrize("seed", range(40))
def test_waves_of_any_graph_are_those_of_the_longest_way(seed: int) -> None:
    """An oracle: the wave of an agent is the length of the longest chain that leads to it."""
    dice = random.Random(seed)
    names = [f"a{n}" for n in range(dice.randint(1, 12))]
    graph = {name: tuple(dice.sample(names[:n], dice.randint(0, min(n, 3)))) for n, name in enumerate(names)}
    waves = order.waves({name: contract(name, after) for name, after in graph.items()})
    assert {name: n for n, wave in enumerate(waves, 1) for name in wave} == {name: naive_wave(graph, name) for name in names}
    assert all(wave == sorted(wave) for wave in waves)


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_a_circle_is_named(tmp_path: Path, length: int) -> None:
    names = [f"a{n}" for n in range(length)]
    for n, name in enumerate(names):
        put(tmp_path, name, small(name, (names[(n + 1) % length],)))
    error = mistake(tmp_path)
    assert "wait for each other" in error.message and error.message.count("→") == length
    with pytest.raises(StrataError, match="wait for each other"):
        order.waves({name: contract(name, (names[(n + 1) % length],)) for n, name in enumerate(names)})


VALUES = {"vertical": ("healthcare", "legal"), "title": ("cfo_cluster", "procurement"), "service_category": ("security", "cloud")}


def outputs(dice: random.Random, count: int) -> tuple[OutputEntry, ...]:
    made: list[OutputEntry] = []
    for n in range(count):
        names = dice.sample(sorted(VALUES), dice.randint(0, 3))
        dimensions = {name: dice.choice(VALUES[name]) for name in names}
        kind = dice.choice(["vertical", "playbook_2d", "horizontal"])
        made.append(OutputEntry("someone", kind, "layer", dimensions, f"o{n}.md", f"/o{n}.md", str(n), n, f"id{n}"))
    return tuple(made)


@pytest.mark.parametrize("seed", range(40))
def test_what_matches_is_what_a_plain_look_finds(seed: int) -> None:
    """An oracle: every output is held against every filter, in the seed's words."""
    dice = random.Random(seed)
    manifest = Manifest("run", "m.json", outputs(dice, 30), {})
    filters = {name: dice.choice(VALUES[name]) for name in dice.sample(sorted(VALUES), dice.randint(0, 2))}
    spec = InputSpec("playbook_2d", dimensions=filters)
    expected = [
        o for o in manifest.outputs if o.type == "playbook_2d" and all(o.dimensions.get(k) == v for k, v in filters.items())
    ]
    assert list(bundles.matched(spec, manifest)) == expected
    job = {"vertical": "legal"}
    narrowed = [o for o in expected if o.dimensions.get("vertical", "legal") == "legal"]
    assert list(bundles.matched(spec, manifest, job)) == narrowed


def manifest_of(tmp_path: Path, *entries: tuple[str, dict[str, str]], context: tuple[str, ...] = ()) -> Manifest:
    made: list[OutputEntry] = []
    for n, (kind, dimensions) in enumerate(entries):
        path = tmp_path / f"o{n}.md"
        path.write_text(f"# {kind} {dimensions}\n")
        sha = bundles.files.sha256(path)
        made.append(OutputEntry("x", kind, "", dimensions, path.name, str(path), sha, path.stat().st_size, f"id{n}"))
    for name in context:
        (tmp_path / f"{name}.yaml").write_text(f"{name}: 1\n")
    files = {n: OutputEntry("", "context_file", path=f"{n}.yaml", content_path=str(tmp_path / f"{n}.yaml")) for n in context}
    return Manifest("run", str(tmp_path / "m.json"), tuple(made), files)


def test_two_inputs_of_one_type_stay_two_and_absence_is_said(tmp_path: Path) -> None:
    legal, health = {"vertical": "legal"}, {"vertical": "healthcare"}
    manifest = manifest_of(tmp_path, ("vertical", legal), ("vertical", health), context=("baseline",))
    inputs = Inputs(
        required=(InputSpec("vertical", "all_of_them"), InputSpec("vertical", "law", dimensions=legal)),
        optional=(InputSpec("title"),),
    )
    bundle = bundles.assemble(contract("a", inputs=inputs), manifest, tmp_path)
    assert [len(found) for found in bundle.research_outputs.values()] == [2, 1, 0]
    assert len(bundle.entries) == 2 and bundle.absent == ("title",)
    assert bundle.dimensions == {"vertical": ["legal", "healthcare"]}
    assert bundle.research_outputs["law"][0].content.startswith("# vertical")


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"required": [{"type": "title"}]}, "MISSING_REQUIRED_INPUT"),
        ({"required": [{"type": "vertical", "dimensions": {"vertical": "retail"}}]}, "MISSING_REQUIRED_INPUT"),
        ({"context_files": {"required": ["glossary"]}}, "MISSING_CONTEXT_FILE"),
        ({"external": [{"name": "deals", "path": "deals.csv", "required": True}]}, "MISSING_EXTERNAL_DATA"),
    ],
)
def test_what_is_missing_leaves_an_agent_out_and_is_an_error_where_it_was_asked_for(
    tmp_path: Path, inputs: Any, code: str
) -> None:
    manifest = manifest_of(tmp_path, ("vertical", {"vertical": "legal"}))
    needy = contract("needy", inputs=bundles.records.of(inputs, Inputs))
    fine = contract("fine", inputs=Inputs(required=(InputSpec("vertical"),)))
    behind = contract("behind", after=("needy",))
    every = {"fine": fine, "needy": needy, "behind": behind}
    planned = jobs.plan(every, manifest, tmp_path, SETTINGS)
    assert [job.id for job in planned.jobs] == ["fine"]
    assert set(planned.left_out) == {"needy", "behind"} and "needy, which is left out" in planned.left_out["behind"]
    with pytest.raises(StrataError) as raised:
        jobs.plan(every, manifest, tmp_path, SETTINGS, ("needy",))
    assert raised.value.code == code


def test_a_job_for_each_output_is_given_what_agrees_with_it(tmp_path: Path) -> None:
    entries = [("playbook_2d", {"vertical": v, "title": t}) for v, t in itertools.product(VALUES["vertical"], VALUES["title"])]
    entries += [("vertical", {"vertical": v}) for v in VALUES["vertical"]] + [("horizontal", {})]
    manifest = manifest_of(tmp_path, *entries)
    inputs = Inputs(required=(InputSpec("playbook_2d"), InputSpec("vertical"), InputSpec("horizontal")))
    first = AgentContract(
        "first",
        "1.0.0",
        inputs,
        (OutputSpec("out", "{vertical}_{title}.md", variables=("vertical", "title")),),
        Execution("subprocess", each="playbook_2d"),
    )
    second = AgentContract(
        "second",
        "1.0.0",
        inputs,
        (OutputSpec("out", "{vertical}.md", variables=("vertical",)),),
        Execution("subprocess", each="vertical"),
        depends_on=("first",),
    )
    planned = jobs.plan({"first": first, "second": second}, manifest, tmp_path, SETTINGS)
    assert [job.id for job in planned.jobs][:2] == ["first:healthcare.cfo_cluster", "first:healthcare.procurement"]
    law = next(job for job in planned.jobs if job.id == "second:legal")
    assert set(law.after) == {"first:legal.cfo_cluster", "first:legal.procurement"}  # the others are about something else
    bundle = jobs.bundle_of(law, second, manifest, tmp_path)
    assert {k: len(v) for k, v in bundle.research_outputs.items()} == {"playbook_2d": 2, "vertical": 1, "horizontal": 1}


def test_a_job_is_another_when_what_it_is_given_changes_and_only_then(tmp_path: Path) -> None:
    entries = [("vertical", {"vertical": v}) for v in VALUES["vertical"]]
    inputs = Inputs(required=(InputSpec("vertical"),))
    one = AgentContract(
        "one",
        "1.0.0",
        inputs,
        (OutputSpec("out", "{vertical}.md", variables=("vertical",)),),
        Execution("subprocess", each="vertical"),
    )

    def digests(manifest: Manifest) -> dict[str, str]:
        return {job.id: job.digest for job in jobs.plan({"one": one}, manifest, tmp_path, SETTINGS).jobs}

    before = digests(manifest_of(tmp_path, *entries))
    assert before == digests(manifest_of(tmp_path, *entries))
    (tmp_path / "elsewhere").mkdir()
    assert before == digests(manifest_of(tmp_path / "elsewhere", *entries))  # wherever it stands
    changed = manifest_of(tmp_path, *entries)
    (tmp_path / "o0.md").write_text("another text\n")
    with pytest.raises(StrataError, match="not as the run left it"):
        changed.outputs[0].verify()
    outputs = (bundles.replace(changed.outputs[0], sha256="another"), *changed.outputs[1:])
    after = digests(bundles.replace(changed, outputs=outputs))
    assert [before[key] == after[key] for key in before] == [False, True]


# Runs from before types and dimensions were recorded


def test_every_name_of_the_vocabulary_is_read_back_as_it_was_made() -> None:
    words = read_settings().vocabulary
    count = 0
    for v, t in itertools.product(words.vertical, words.title):
        assert old_names.parse(f"playbook_{v}_{t}", words) == ("playbook_2d", {"vertical": v, "title": t})
        for c in words.service_category:
            dimensions = {"vertical": v, "title": t, "service_category": c}
            assert old_names.parse(f"playbook_{v}_{t}_{c}", words) == ("playbook_3d", dimensions)
            assert old_names.parse(f"align_playbook_{v}_{t}_{c}", words) == ("brand_alignment", dimensions)
            count += 1
    assert count == 216
    assert old_names.parse("service_category_data_center", words) == ("service_category", {"service_category": "data_center"})
    assert old_names.parse("buyer_journey", words) == ("horizontal", {})


@pytest.mark.parametrize(
    ("name", "says"), [("playbook_a_b_c", "in 2 ways"), ("playbook_x_y", "cannot be read"), ("vertical_", "cannot be read")]
)
def test_a_name_that_can_be_read_in_two_ways_is_refused(name: str, says: str) -> None:
    words = Vocabulary(vertical=("a", "a_b"), title=("b_c", "c", "b"), service_category=("z",))
    with pytest.raises(StrataError, match=says):
        old_names.parse(name, words)


def test_the_manifest_of_the_seed_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "outputs/research_1"
    (folder / "playbooks").mkdir(parents=True)
    (folder / "playbooks/p.md").write_text("# P\n")
    (tmp_path / "context").mkdir()
    (tmp_path / "context/baseline.yaml").write_text("a: 1\n")
    listed = [
        {
            "agent_name": "playbook_legal_procurement_cloud",
            "path": "outputs/research_1/playbooks/p.md",
            "completion_status": "complete",
        },
        {"agent_name": "vertical_legal", "type": "vertical", "dimensions": {}, "path": "v.md", "completion_status": "partial"},
    ]
    document = {"execution_id": "research_1", "outputs": listed, "context_files": {"baseline": "context/baseline.yaml"}}
    (folder / "manifest.json").write_text(json.dumps(document))
    for named in ("outputs/research_1", "outputs/research_1/manifest.json"):
        found = upstream.load(named, tmp_path, read_settings())
        assert [(o.type, o.dimensions["service_category"]) for o in found.outputs] == [("playbook_3d", "cloud")]
        assert found.outputs[0].content == "# P\n" and found.context_files["baseline"].content == "a: 1\n"
    assert len(upstream.load("outputs/research_1", tmp_path, read_settings(), partial=True).outputs) == 2
    (folder / "manifest.json").write_text('{"outputs": [{"agent_name": "x", "type": "t", "dimensions": {}, "layer": "layer_9"}]}')
    with pytest.raises(StrataError, match="no layer 'layer_9'"):
        upstream.load("outputs/research_1", tmp_path, SETTINGS)
    (folder / "manifest.json").write_text("[]")
    with pytest.raises(StrataError, match="no manifest of outputs"):
        upstream.load("outputs/research_1", tmp_path, SETTINGS)
