"""What is said to be met is looked up again; work that is not there is found out; scanners find what was added."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lib.plan.checks_file import Check
from packs.forge import builds, clusters, criteria, proofs, scanners
from packs.forge.changes import Changes, added
from packs.forge.criteria import Answer, Evidence
from packs.forge.tables import Verdict
from packs.forge.tasks import Task


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    def git(*words: str) -> str:
        argv = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x", *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "old.py").write_text("def old():\n    return 1\n")
    (tmp_path / "other.py").write_text("x = 1\n")
    git("add", ".")
    git("commit", "-qm", "first")
    return tmp_path, git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "nobody has answered"),
        (Answer("AC-1", "fail", why="it is slow"), "not met. it is slow"),
        (Answer("AC-1", "PASSED"), "not met"),
        (Answer("AC-1", "pass"), "are needed"),
        (Answer("AC-1", "pass", Evidence("old.py", 2)), "are needed"),
        (Answer("AC-1", "pass", Evidence("docs/feature/x/plan.md", 1, "x")), "is what agents wrote about it"),
        (Answer("AC-1", "pass", Evidence("none.py", 1, "x")), "is not there"),
        (Answer("AC-1", "pass", Evidence("./docs/feature/x/plan.md", 1, "x")), "no plain path"),
        (Answer("AC-1", "pass", Evidence(".git/HEAD", 1, "ref: refs/heads")), "no plain path"),
        (Answer("AC-1", "pass", Evidence("old.py", 2, "1")), "could stand anywhere"),
        (Answer("AC-1", "pass", Evidence("other.py", 1, "x = 1")), "is no file of its task"),
        (Answer("AC-1", "pass", Evidence(test="test_other.py::test_good")), "is no file of its task"),
        (Answer("AC-1", "pass", Evidence("../etc/passwd", 1, "x")), "is not there"),
        (Answer("AC-1", "pass", Evidence("old.py", 99, "x")), "has 2 lines, not 99"),
        (Answer("AC-1", "pass", Evidence("old.py", 2, "return 2")), "does not say 'return 2'"),
        (Answer("AC-1", "pass", Evidence("old.py", 2, "return  1")), ""),
        (Answer("AC-1", "pass", Evidence(test="test_x.py::test_none")), "was not run again"),
        (Answer("AC-1", "pass", Evidence(test="test_x.py::test_bad")), "fails when it is run again"),
        (Answer("AC-1", "pass", Evidence(test="test_x.py::test_good")), ""),
    ],
)
def test_a_criterion_is_met_only_with_evidence_that_can_be_looked_up(
    repository: tuple[Path, str], answer: Answer | None, words: str
) -> None:
    again = {
        "test_x.py::test_good": "",
        "test_other.py::test_good": "",
        "test_x.py::test_bad": "test_x.py::test_bad fails when it is run again",
    }
    (judged,) = criteria.judge(
        {"AC-1": "task-a"}, [answer] if answer else [], repository[0], "v-tasks", again, {"task-a": {"old.py", "test_x.py"}}
    )
    found = judged.finding
    assert judged.met == (not words) and (judged.met or (words in found.claim and found.task == "task-a" and found.blocks))


def test_of_two_answers_the_worse_counts() -> None:
    good, bad = Answer("AC-1", "pass", Evidence("old.py", 1, "def old():")), Answer("AC-1", "fail")
    for answers in ([good, bad], [bad, good]):
        (judged,) = criteria.judge({"AC-1": ""}, answers, Path(), "v-feature", {}, {})
        assert not judged.met


def test_a_task_that_is_marked_done_and_is_not_there_is_a_blocker() -> None:
    done = [Task("a", files=("old.py",)), Task("b", files=("new.py", "tests/test_new.py")), Task("c", files=("new.py",))]
    found = criteria.phantoms(done, {"b": {"new.py"}, "c": set()}, {"new.py"})
    assert [(f.task, f.severity) for f in found] == [("a", "blocker"), ("c", "blocker")]
    assert "none of its files has changed" in found[0].claim and "it changed none of its files" in found[1].claim
    (gone,) = criteria.lost_tests({"tests/test_a.py": "deleted", "a.py": "deleted", "tests/test_b.py": "changed"})
    assert gone.severity == "critical" and "tests/test_a.py were deleted" in gone.claim


PYTEST = Check("quick", ("{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider"), parser="pytest")


def test_tests_that_pass_without_the_code_they_are_of_prove_nothing(repository: tuple[Path, str], tmp_path: Path) -> None:
    """Green tests that never called the production code were what users were fooled by."""
    cwd, base = repository
    (cwd / "tests").mkdir()
    written = {
        "new.py": "def new():\n    return 2\n",
        "tests/test_new.py": "from new import new\n\n\ndef test_new():\n    assert new() == 2\n",
        "other.py": "x = 2\n",
        "test_idle.py": "import old  # and says other\n\n\ndef test_nothing():\n    assert old.old() == 1\n",
        "old.py": "def old():\n    return 1\n\n\ndef g():\n    return 3\n",
        "test_old.py": "import old\n\n\ndef test_g():\n    assert old.g() == 3\n",
        "late.py": "y = 1\n",
        "test_late.py": "from new import new\n\n\ndef test_again():\n    assert new()\n",
    }
    for name, text in written.items():
        (cwd / name).write_text(text)
    tasks = [
        Task("honest", files=("new.py", "tests/test_new.py")),
        Task("idle", files=("other.py", "test_idle.py")),
        Task("changed", files=("old.py", "test_old.py")),
        Task("tests-only", files=("test_late.py",), depends_on=("honest",)),
        Task("nothing-new", files=("late.py",)),
    ]
    empty = {"empty.py": "e = 1\n", "test_empty.py": "x = 1\n", "sub/deep.py": "d = 1\n"}
    (cwd / "sub").mkdir()
    for name, text in empty.items():
        (cwd / name).write_text(text)
    tasks.append(Task("empty", files=("empty.py", "test_empty.py")))
    suite = proofs.Suite(PYTEST, cwd, tmp_path / "evidence")
    found, looked = suite.idle(tasks, Changes(cwd, base))
    assert looked == 5 and {f.task for f in found} == {"idle", "empty"}
    assert "pass without its code (other.py)" in found[0].claim and "do not pass" in found[1].claim
    assert {name: (cwd / name).read_text() for name in written} == written, "everything is back"


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("test_x.py::test_good", ""),
        ("test_x.py", "fails when it is run again"),
        ("test_x.py::test_none", "fails when it is run again"),
        ("test_y.py", "there is no test"),
        ("--version", "there is no test"),
        ("../../etc/passwd", "there is no test"),
    ],
)
def test_a_test_that_is_named_as_evidence_is_run_again(tmp_path: Path, test: str, words: str) -> None:
    (tmp_path / "test_x.py").write_text("def test_good():\n    assert True\n\n\ndef test_bad():\n    assert False\n")
    said = proofs.Suite(PYTEST, tmp_path, tmp_path / "evidence").again(test, 1)
    assert words in said and bool(words) == bool(said)


def test_a_secret_that_was_added_is_a_blocker_and_is_not_repeated() -> None:
    token = "ghp_" + "a" * 30
    diff = f"--- a/x.py\n+++ b/x.py\n@@ -1,2 +10,3 @@\n same\n+token = '{token}'\n-old = '{token}'\n+fine = 1\n"
    (found,) = scanners.secrets(diff)
    assert (found.severity, found.where) == ("blocker", "x.py:11")
    assert token not in found.evidence


KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----\n"


def test_what_hides_from_git_does_not_hide_from_forge(repository: tuple[Path, str]) -> None:
    """Attributes, ignored files, a repository in the repository, links, strange letters: all of it is in the change."""
    cwd, base = repository
    token = "sk-ant-" + "a1" * 20
    (cwd / ".gitattributes").write_text("*.py -diff\n")
    (cwd / "other.py").write_text(f"x = 1\nkey = '{token}'\n")
    (cwd / ".git/info").mkdir(exist_ok=True)
    (cwd / ".git/info/exclude").write_text("evil.py\n")
    (cwd / "evil.py").write_text("import os\n")
    (cwd / "größe und.py").write_bytes(b"name = 'M\xfcller'\n")
    (cwd / "link.py").symlink_to("/etc/hostname")
    (cwd / "key.pem").write_text(KEY)
    subprocess.run(["git", "init", "-q", str(cwd / "nested")], check=True)
    (cwd / "nested/inner.py").write_text("y = 2\n")
    (cwd / "old.py").unlink()
    changes = Changes(cwd, base, frozenset({"evil.py"}))
    names = changes.names()
    assert names["evil.py"] == names["nested/inner.py"] == names["größe und.py"] == "created" and names["old.py"] == "deleted"
    diff = changes.diff()
    assert token in diff and "import os" in diff and "y = 2" in diff and "link to /etc/hostname" in diff
    assert {file for file, _, _ in added(diff)} >= {"other.py", "evil.py", "größe und.py", "nested/inner.py", "key.pem"}
    where = {one.where for one in scanners.secrets(diff)}
    assert "other.py:2" in where and any(place.startswith("key.pem") for place in where)


def test_a_line_that_looks_like_a_header_is_a_line() -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1,1 +1,3 @@\n same\n--- gone\n+++ b/sk\n+last\n"
    assert added(diff) == [("x.py", 2, "++ b/sk"), ("x.py", 3, "last")]


def test_a_change_is_seen_from_the_folder_that_is_worked_in(repository: tuple[Path, str]) -> None:
    cwd, _ = repository
    (cwd / "sub").mkdir()
    (cwd / "sub/a.py").write_text("a = 1\n")
    argv = ["git", "-C", str(cwd), "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["add", "."], ["commit", "-qm", "sub"]):
        subprocess.run([*argv, *words], check=True)
    base = subprocess.run([*argv, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (cwd / "sub/a.py").write_text("a = 2\n")
    (cwd / "old.py").write_text("elsewhere\n")
    changes = Changes(cwd / "sub", base)
    assert changes.names() == {"a.py": "changed"} and "+++ b/a.py" in changes.diff() and "elsewhere" not in changes.diff()
    assert changes.before("a.py") == b"a = 1\n" and changes.before("none.py") is None


def test_tests_that_are_fewer_or_steered_otherwise_are_found_out(repository: tuple[Path, str], tmp_path: Path) -> None:
    cwd, _ = repository
    (cwd / "test_old.py").write_text(
        "import old\n\n\ndef test_one():\n    assert old.old() == 1\n\n\ndef test_two():\n    assert True\n"
    )
    argv = ["git", "-C", str(cwd), "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["add", "."], ["commit", "-qm", "tests"]):
        subprocess.run([*argv, *words], check=True)
    base = subprocess.run([*argv, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    suite = proofs.Suite(PYTEST, cwd, tmp_path.parent / f"{tmp_path.name}-evidence")
    (cwd / "old.py").write_text("def old():\n    return 2\n")
    lie = "import pytest\n\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport():\n"
    (cwd / "conftest.py").write_text(f"{lie}    result = yield\n    result.get_result().outcome = 'passed'\n")
    changes = Changes(cwd, base)
    (found,) = suite.as_before(changes)
    assert "conftest.py steers the tests" in found.claim and found.severity == "major"
    assert suite.fewer(2, changes) == [] and "1 tests run, and 2 did before" in suite.fewer(1, changes)[0].claim
    (cwd / "old.py").write_text("def old():\n    return 1\n")
    assert suite.as_before(changes) == [], "an honest one is let through"


def test_the_build_system_is_found_by_its_file(tmp_path: Path) -> None:
    assert builds.find(tmp_path) is None
    for name, system in (
        ("Makefile", "Make"),
        ("go.mod", "Go"),
        ("Cargo.toml", "Cargo"),
        ("package.json", "npm"),
        ("pyproject.toml", "Python"),
    ):
        (tmp_path / name).write_text("")
        found = builds.find(tmp_path)
        assert found and found.name == system
    given = builds.find(tmp_path, "make all")
    assert given and given.command == ("sh", "-c", "make all")


def test_a_page_keeps_everybody_and_shows_what_is_open(tmp_path: Path) -> None:
    """CT-AC-3, CT-AC-4, CT-AC-5"""
    from lib.evidence.findings import Finding
    from packs.forge.tables import Member

    one = Finding("major", "it is slow", who=("ct-scalability",), topic="cache", stance="for")
    two = Finding("minor", "it is too clever", who=("ct-maintainability",), topic="cache", stance="against")
    cluster = clusters.Cluster(
        (Member("ct-scalability", True, (one,)), Member("ct-maintainability", True, (two,))), (("ct-strategy", "cost"),)
    )
    text = clusters.page("Review", cluster, Verdict("DONE", "fine", ("ct-security: missing",)))
    assert text.index("## Major") < text.index("## Minor") < text.index("## Unresolved Tensions") < text.index("## Cross-Cutting")
    assert "it is slow (ct-scalability)" in text and "ct-security: missing" in text
