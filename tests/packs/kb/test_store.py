"""Versions of the knowledge base: nothing lost, nothing made twice, and the old one whole whenever it is cut off."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from lib.contract import StrataError
from packs.kb import changes, prose, store
from packs.kb.records import GENERAL, Index, Source
from packs.kb.store import Built, Offered, Store
from scripted_model import gtm_base
from support import some

VERTICALS, TITLES, DOMAINS = ("healthcare", "legal"), ("cfo_cluster", "procurement"), ("security", "cloud")


def offered(
    folder: Path, kind: str, text: str, run: str, vertical: str = "", persona: str = "", domain: str = GENERAL, name: str = ""
) -> Offered:
    folder.mkdir(parents=True, exist_ok=True)
    domain = "" if kind == "horizontal" else domain
    key = "/".join(part for part in (kind, domain, vertical, persona, name) if part)
    path = folder / f"{key.replace('/', '-')}-{run}.md"
    path.write_text(text)
    sha = hashlib.sha256(text.encode()).hexdigest()
    return Offered(Source(key, kind, domain, vertical, persona, name, sha, run, f"2026-01-{len(run):02d}"), path)


def build(root: Path, made: list[Offered], run: str = "r") -> Built:
    return Store(root).build(made, run, "m.json", "2026-01-01", {"security": ("ransomware",)})


def text_of(dice: random.Random, subject: str) -> str:
    words = ["money", "downtime", "security", "cloud", "privilege", "audit", "healthcare", "beds"]
    said = " ".join(dice.choices(words, k=12))
    return f"# {subject}\n\n## Summary\n\n{said.capitalize()}. It is so.\n\n## Messaging\n\nSay {said}.\n\n## Proof points\n\n- {dice.randint(1, 99)} of 100.\n"


def a_run(dice: random.Random, folder: Path, run: str) -> list[Offered]:
    """Some of what there could be, some of it as it was before."""
    found: list[Offered] = []
    for vertical in VERTICALS:
        found.append(offered(folder, "vertical", text_of(dice, vertical), run, vertical))
        for title in TITLES:
            found.append(offered(folder, "playbook_2d", text_of(dice, "p"), run, vertical, title))
            found += [offered(folder, "playbook_3d", text_of(dice, "p3"), run, vertical, title, domain) for domain in DOMAINS]
    found += [offered(folder, "service_category", text_of(dice, d), run, domain=d) for d in DOMAINS]
    found += [offered(folder, "title", text_of(dice, t), run, persona=t) for t in TITLES]
    found.append(offered(folder, "horizontal", text_of(dice, "Journey"), run, name="buyer_journey"))
    return dice.sample(found, dice.randint(1, len(found)))


def tree(folder: Path) -> dict[str, bytes]:
    kept = [p for p in sorted(folder.rglob("*.md"))]
    return {str(p.relative_to(folder)): p.read_bytes() for p in kept}


@pytest.mark.parametrize("seed", some(range(8), 4))
def test_however_runs_come_a_version_holds_the_newest_of_everything(tmp_path: Path, seed: int) -> None:
    """An oracle: a table of what was last said about each thing. A version that grew run by run equals one that is built at once."""
    dice = random.Random(seed)
    expected: dict[str, Offered] = {}
    for number in range(5):
        run = f"run{number}"
        made = a_run(dice, tmp_path / run, run)
        if expected and dice.random() < 0.4:  # the same text once more, from another run
            old = dice.choice(list(expected.values()))
            made = [one for one in made if one.source.key != old.source.key]
            made.append(Offered(store.replace(old.source, run=run), old.file))
        different = any(
            one.source.key not in expected or expected[one.source.key].source.sha256 != one.source.sha256 for one in made
        )
        for one in made:
            known = expected.get(one.source.key)
            if not known or known.source.sha256 != one.source.sha256:
                expected[one.source.key] = one
        before = Store(tmp_path / "kb").manifest().current_version
        built = build(tmp_path / "kb", made, run)
        assert built.new == different and built.version.version == before + different
    grown = Store(tmp_path / "kb")
    current = grown.folder(grown.manifest().current_version)
    index = grown.index(grown.manifest().current_version)
    assert {one.key: (one.sha256, one.run) for one in index.sources} == {
        k: (o.source.sha256, o.source.run) for k, o in expected.items()
    }
    for one in expected.values():
        assert prose.body((current / one.source.path).read_text()).strip() == one.file.read_text().strip()
    build(tmp_path / "whole", list(expected.values()))
    assert tree(current) == tree(tmp_path / "whole/kb_v1")
    ours = json.loads((current / "index.json").read_text())
    theirs = json.loads((tmp_path / "whole/kb_v1/index.json").read_text())
    assert sorted(ours["documents"], key=str) == sorted(theirs["documents"], key=str)
    rows = [sorted(Rows(folder).all()) for folder in (current, tmp_path / "whole/kb_v1")]
    assert rows[0] == rows[1]  # and it is found by the same words


class Rows:
    def __init__(self, folder: Path) -> None:
        import sqlite3

        self.base = sqlite3.connect(folder / "index.sqlite")

    def all(self) -> list[Any]:
        found = self.base.execute("SELECT path, heading, text FROM passages").fetchall()
        self.base.close()
        return found


def test_every_document_says_which_run_it_comes_from_and_when(tmp_path: Path) -> None:
    first, second = gtm_base.build(tmp_path / "kb", tmp_path / "w")
    assert (first.version.total_documents, second.version.total_documents) == (24, 38)
    index = Store(tmp_path / "kb").index(2)
    for one in index.documents:
        text = (tmp_path / "kb/kb_v2" / one.path).read_text()
        assert "source_run: run_" in text and "source_date: 2026-11-0" in text
        assert one.sources and all(origin.run.startswith("run_") for origin in one.sources)
        assert one.sha256 == hashlib.sha256(text.encode()).hexdigest() and one.summary
        assert all((tmp_path / "kb/kb_v2" / other).exists() for other in one.related), one.path
    health = index.document("domains/general/verticals/healthcare/report.md")
    assert health and health.sources[0].run == "run_1"  # the second run was about something else: it stays, with its origin
    title = index.document("domains/general/personas/cfo_cluster.md")
    assert title and title.sources[0].run == "run_1"  # the second run said the same


def test_the_changelog_is_what_really_changed(tmp_path: Path) -> None:
    _, second = gtm_base.build(tmp_path / "kb", tmp_path / "w")
    assert second.version.changelog == (
        "Added the domain cloud (8 documents)",
        "Added the vertical financial services (6 documents)",
        "Updated cross-cutting: Report: buyer journey, Messaging frameworks, Competitive landscape, Proof points",
        "Updated security: Buyer journey: security",
    )
    indexes = [Store(tmp_path / "kb").index(n) for n in (1, 2)]
    trees = [tree(tmp_path / f"kb/kb_v{n}") for n in (1, 2)]
    found = changes.changed(*indexes)
    assert {c.path for c in found if c.kind == "added"} == set(trees[1]) - set(trees[0])
    assert {c.path for c in found if c.kind == "changed"} == {p for p in trees[0] if p in trees[1] and trees[0][p] != trees[1][p]}
    assert not [c for c in found if c.kind == "removed"]
    assert changes.between(Index(), indexes[0]) == []


def test_what_did_not_change_is_not_made_again(tmp_path: Path) -> None:
    first, second = gtm_base.build(tmp_path / "kb", tmp_path / "w")
    assert first.kept == 0 and second.kept == 19
    again = gtm_base.entries(tmp_path / "w/again", "cloud", "financial_services", True, "run_3")
    built = Store(tmp_path / "kb").build(
        gtm_base.taking.sources(again, "run_3"), "run_3", "m", "2026-11-03", gtm_base.settings.read().aliases
    )
    assert not built.new and built.version.version == 2
    assert not (tmp_path / "kb/kb_v3").exists()


def crashing(at: int, work: Any) -> bool:
    """Runs it in a process that is killed at its n-th durable step. Returns whether it was."""
    child = os.fork()
    if not child:
        count = 0

        def counted(real: Any) -> Any:
            def step(*args: Any, **more: Any) -> Any:
                nonlocal count
                count += 1
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **more)

            return step

        for name in ("fsync", "replace", "rename", "link", "mkdir", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
            os._exit(0)
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def whole(root: Path) -> int:
    """The current version, every document of which is as its index says."""
    known = Store(root)
    version = known.manifest().current_version
    described = known.require()
    assert hashlib.sha256((known.folder(version) / "index.json").read_bytes()).hexdigest() == described.index_sha256
    for one in known.index(version).documents:
        assert hashlib.sha256((known.folder(version) / one.path).read_bytes()).hexdigest() == one.sha256
    assert Rows(known.folder(version)).all()
    return version


def test_a_build_that_is_cut_off_anywhere_leaves_the_old_version_whole(tmp_path: Path) -> None:
    listed = [gtm_base.entries(tmp_path / f"w{n}", *gtm_base.RUNS[n], bool(n), f"run_{n + 1}") for n in (0, 1)]
    first, second = (gtm_base.taking.sources(one, f"run_{n}") for n, one in enumerate(listed, 1))
    build(tmp_path / "clean", first)
    build(tmp_path / "clean", second)
    root = tmp_path / "kb"
    build(root, first)
    before = tree(root / "kb_v1")
    at, kills = 1, 0
    while crashing(at, lambda: build(root, second)):
        assert tree(root / "kb_v1") == before
        if whole(root) == 2:  # it had just become the current one
            break
        kills += 1
        at += 1 if at < 12 else 7
    assert kills > 10
    build(root, second)
    assert whole(root) == 2
    assert tree(root / "kb_v2") == tree(tmp_path / "clean/kb_v2")
    assert sorted(p.name for p in root.iterdir()) == [".lock", "kb_manifest.json", "kb_v1", "kb_v2"]


def test_two_that_build_at_once_come_one_after_the_other(tmp_path: Path) -> None:
    runs = [[offered(tmp_path / "w", "vertical", f"# {v}\n\nText of {v}.\n", "r", v)] for v in ("a", "b", "c", "d")]
    threads = [threading.Thread(target=build, args=(tmp_path / "kb", made)) for made in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = Store(tmp_path / "kb").manifest()
    assert [one.version for one in known.versions] == [1, 2, 3, 4]
    assert len(Store(tmp_path / "kb").index(4).sources) == 4


def test_who_reads_a_version_keeps_it(tmp_path: Path) -> None:
    for n in range(6):
        build(tmp_path / "kb", [offered(tmp_path / "w", "vertical", f"# V\n\nText {n}.\n", f"r{n}", "a")])
    known = Store(tmp_path / "kb")
    with known.pinned(2) as folder:
        assert known.prune(2, remove=False) == ([1, 3, 4], [2])
        assert (tmp_path / "kb/kb_v1").exists()
        assert known.prune(2, remove=True) == ([1, 3, 4], [2])
        assert "Text 1." in (folder / "domains/general/verticals/a/report.md").read_text()
    assert sorted(p.name for p in (tmp_path / "kb").glob("kb_v*")) == ["kb_v2", "kb_v5", "kb_v6"]
    assert known.prune(1, remove=True) == ([2, 5], [])
    with pytest.raises(StrataError, match="no version 2"):
        known.require(2)
    build(tmp_path / "kb", [offered(tmp_path / "w", "vertical", "# V\n\nNew.\n", "r9", "a")])
    assert known.manifest().current_version == 7  # a number is never used twice


def test_an_aligned_playbook_takes_the_place_of_its_draft(tmp_path: Path) -> None:
    listed = gtm_base.entries(tmp_path / "w", "security", "healthcare", False, "run_1")
    draft = next(one for one in listed if one.type == "playbook_3d")
    (tmp_path / "aligned.md").write_text("# Aligned\n\nIn our voice.\n")
    aligned = store.replace(draft, type="brand_alignment", content_path=str(tmp_path / "aligned.md"), sha256="x")
    for order in ([*listed, aligned], [aligned, *listed]):
        found = {o.source.key: o for o in gtm_base.taking.sources(order, "run_1")}
        assert found["playbook_3d/security/healthcare/cfo_cluster"].file == tmp_path / "aligned.md"
    assert len(found) == len(gtm_base.taking.sources(listed, "run_1"))


# What was tried, and did not hold once


def entry(tmp_path: Path, kind: str, text: str, **dimensions: str) -> Any:
    path = tmp_path / f"e{len(list(tmp_path.glob('e*.md')))}.md"
    path.write_text(text)
    sha = hashlib.sha256(text.encode()).hexdigest()
    return gtm_base.OutputEntry("x", kind, "", dimensions, path.name, str(path), sha, len(text), path.name, execution_id="r")


def take(tmp_path: Path, *entries: Any) -> Built:
    return build(tmp_path / "kb", gtm_base.taking.sources(entries, "r"))


@pytest.mark.parametrize("value", ["../../../evil", "a/b", "", "..", "x" * 200, "a\nb", "é"])
def test_a_dimension_that_is_no_plain_word_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(StrataError, match="needs the dimension vertical"):
        take(tmp_path, entry(tmp_path, "vertical", "# T\n\nx\n", vertical=value))


def test_what_would_be_lost_is_refused(tmp_path: Path) -> None:
    two = [entry(tmp_path, "horizontal", f"# {n}\n\nText {n}.\n") for n in range(2)]
    with pytest.raises(StrataError, match="say different things"):
        take(tmp_path, *two)
    newer = store.replace(two[1], completed_at="2026-12-01T00:00:00Z")
    for order in ((two[0], newer), (newer, two[0])):
        assert [one.file.name for one in gtm_base.taking.sources(order, "r")] == [Path(newer.content_path).name]
    assert take(tmp_path, two[0], two[0]).version.total_documents == 1


@pytest.mark.parametrize(
    "text",
    ["Plain text without any heading. It goes on.", "", "---\ntitle: x\n---\n", "---\n\n# First\n\nforty-two.\n\n---\n\n# Second\n\nrest\n",
     "# R\n\n" + "```x\n" * 60000, "# R\n\ntext\n\n## A" + " " * 60000 + "x", "```\n# no heading\n```\n# R\n\nt\n", "\x00\ufffd# R"],
)  # fmt: skip
def test_whatever_a_source_looks_like_it_is_kept_and_the_next_run_comes(tmp_path: Path, text: str) -> None:
    assert take(tmp_path, entry(tmp_path, "vertical", text, vertical="legal")).new
    kept = (tmp_path / "kb/kb_v1/domains/general/verticals/legal/report.md").read_text()
    assert prose.body(text).strip()[:2000] in kept
    second = take(tmp_path, entry(tmp_path, "vertical", "# V\n\nOther.\n", vertical="retail"))
    assert second.new and len(Store(tmp_path / "kb").index(2).sources) == 2


def test_dimensions_that_say_nothing_about_a_kind_do_not_collide(tmp_path: Path) -> None:
    made = take(
        tmp_path,
        entry(tmp_path, "vertical", "# V\n\nOne.\n", vertical="legal", service_category="security"),
        entry(tmp_path, "playbook_2d", "# P\n\nTwo.\n", vertical="legal", title="t", service_category="security"),
        entry(tmp_path, "playbook_3d", "# P\n\nThree.\n", vertical="legal", title="t", service_category="security"),
    )
    assert made.new and whole(tmp_path / "kb") == 1


def test_a_folder_of_somebody_elses_beside_the_versions_stays(tmp_path: Path) -> None:
    (tmp_path / "kb/kb_vendor_docs").mkdir(parents=True)
    (tmp_path / "kb/kb_vendor_docs/x").write_text("precious")
    take(tmp_path, entry(tmp_path, "vertical", "# V\n\nOne.\n", vertical="legal"))
    assert (tmp_path / "kb/kb_vendor_docs/x").read_text() == "precious"
