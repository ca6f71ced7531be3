"""What the scripted model says in Forge's quickstart: a feature with a design that is sent back, a wave of three tasks, a build
that fails, a review that asks for one change, and two proposals, of which one is rejected. Recording it is what this is for.
"""

from __future__ import annotations

import re
from typing import Any

from scripted_model.server import Reply, Request, say, tool

REPORTS = {
    "researcher architecture": """# Architecture

`tally.py` is the whole program: `count(text)` makes a `Counter`, `show(counts)` makes lines, `main(argv)` reads files and prints.
There is one seam, between counting and showing. A second way to show belongs beside `show`, not into `count`.
""",
    "researcher impact": """# Impact

What people run today, `tally FILE …`, keeps its output to the letter: `test_tally.py` compares it. A new option adds a branch in
`main`; leaving words out changes what is counted, so it comes before the counting and never after it.
""",
    "researcher dependencies": """# Dependencies

None besides the standard library, and none is needed: `json` and `argparse` do both. Order: what makes JSON and what leaves words
out know nothing of each other and can be built side by side; the command line needs both.
""",
    "researcher patterns": """# Patterns

Functions are small, typed and pure; printing happens in `main` alone. Tests stand beside the module, one file each, and call the
functions directly. Errors end with exit code 2 and one line on stderr (`AGENTS.md`).
""",
    "synthesist": """# Analysis

Two additions that meet only in `main`: a way to show counts as JSON, and a way to leave words out before they are counted. All four
sides agree on the seam (between counting and showing), on the order (both parts first, the command line last) and on what must not
move: the output of `tally FILE`. Open: where the words to leave out come from, which the design has to say.
""",
    "spec": """# Feature: JSON, and words that are left out

- **AC-1** `tally --json FILE` prints one JSON object from word to count.
- **AC-2** The most frequent word comes first in it, as in the plain output.
- **AC-3** `tally --stop WORDS FILE` leaves out every word that stands in the file `WORDS`, whatever its case.
- **AC-4** A file of words that cannot be read ends with exit code 2 and one line on stderr.

Out of scope: other formats, languages, stemming.
""",
    "designer 1": """# Design

`as_json(counts)` in `json_output.py`. `without(words, stop)` in `stopwords.py`, and `load(place)`, which reads the words to leave out
from a path or from an address: lists of such words are on the web. `main` gets `--json` and `--stop`.
""",
    "designer 2": """# Design, revised

`as_json(counts)` in `json_output.py`. `without(words, stop)` in `stopwords.py`, and `load(path)`, which reads the words to leave out
from a file of this machine and from nowhere else: who wants a list from the web downloads it and looks at it. `main` gets `--json`
and `--stop`. The words are held in a set, lower case; a list of ten thousand is half a megabyte.

Changed: `load` takes a path, not an address (the critics found that the program would ask whatever it is told to).
""",
    "planner 1": """# Plan

Mode: initial. Wave 1: `json`, `stop` and `page` share no file. Wave 2: `cli`, which puts the two together.
What will go wrong first: the command line, because it is where both meet. Its tests call `main`.
""",
    "planner 2": """# Plan

Mode: replan. The build failed in `tally.py`: only `cli` is done again; the first wave stands.
""",
    "planner 3": """# Plan

Mode: fix. The review asks for the order of the JSON: one task, `order`, on `json_output.py` and its test.
""",
}
FILES = {
    "json 1": {
        "json_output.py": '"""Counts as JSON, for other programs."""\n\nimport json\nfrom collections import Counter\n\n\n'
        "def as_json(counts: Counter[str]) -> str:\n    return json.dumps(counts, ensure_ascii=False, sort_keys=True)\n",
        "test_json_output.py": "import json\nfrom collections import Counter\n\nfrom json_output import as_json\n\n\n"
        'def test_counts_become_one_object() -> None:\n    assert json.loads(as_json(Counter({"b": 2, "a": 1}))) == {"a": 1, "b": 2}\n',
    },
    "stop 1": {
        "stopwords.py": '"""Words that are not counted."""\n\nfrom pathlib import Path\n\n\n'
        "def load(path: Path) -> set[str]:\n    return set(path.read_text(encoding='utf-8').lower().split())\n\n\n"
        "def without(words: list[str], stop: set[str]) -> list[str]:\n    return [word for word in words if word not in stop]\n",
        "test_stopwords.py": "from pathlib import Path\n\nfrom stopwords import load, without\n\n\n"
        "def test_words_of_the_file_are_left_out(tmp_path: Path) -> None:\n"
        '    (tmp_path / "stop").write_text("The and\\nOF\\n")\n'
        '    assert without(["the", "end", "of", "it"], load(tmp_path / "stop")) == ["end", "it"]\n',
    },
    "page 1": {
        "README.md": "# tally\n\nCounts words: `tally FILE …`.\n\n- `--json` prints one JSON object, for other programs.\n"
        "- `--stop WORDS` leaves out the words of a file. It is read from this machine only.\n",
    },
    "cli 1": {
        "tally.py": '"""Counts words."""\n\nimport argparse\n\n\ndef main(argv: list[str]) -> int:\n'
        "    parser = argparse.ArgumentParser(\n    return 0\n",
        "test_cli.py": "def test_main() -> None:\n    assert True\n",
    },
    "cli 2": {
        "tally.py": '''"""Counts words."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from json_output import as_json
from stopwords import load, without


def count(text: str, stop: set[str] | None = None) -> Counter[str]:
    return Counter(without(text.lower().split(), stop or set()))


def show(counts: Counter[str]) -> str:
    return "\\n".join(f"{number} {word}" for word, number in counts.most_common())


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tally", description="Counts words.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--stop", type=Path, help="a file of words to leave out")
    options = parser.parse_args(argv)
    try:
        stop = load(options.stop) if options.stop else set()
        counts = count("\\n".join(file.read_text(encoding="utf-8") for file in options.files), stop)
    except OSError as error:
        print(f"tally: {error}", file=sys.stderr)
        return 2
    print(as_json(counts) if options.json else show(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
''',
        "test_cli.py": """import json
from pathlib import Path

import pytest

import tally


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text").write_text("the end of the line the end\\n")
    (tmp_path / "stop").write_text("THE\\n")
    return tmp_path / "text"


def test_json_is_one_object(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tally.main(["--json", str(text)]) == 0
    assert json.loads(capsys.readouterr().out) == {"the": 3, "end": 2, "of": 1, "line": 1}


def test_words_are_left_out_whatever_their_case(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tally.main(["--stop", str(text.parent / "stop"), str(text)]) == 0
    assert capsys.readouterr().out == "2 end\\n1 of\\n1 line\\n"


def test_words_that_cannot_be_read_are_an_error(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tally.main(["--stop", "nowhere", str(text)]) == 2
    assert "nowhere" in capsys.readouterr().err
""",
    },
    "order 1": {
        "json_output.py": '"""Counts as JSON, for other programs."""\n\nimport json\nfrom collections import Counter\n\n\n'
        'def as_json(counts: Counter[str]) -> str:\n    """The most frequent word first, as in the plain output."""\n'
        "    return json.dumps(dict(counts.most_common()), ensure_ascii=False)\n",
        "test_json_output.py": "import json\nfrom collections import Counter\n\nfrom json_output import as_json\n\n\n"
        'def test_counts_become_one_object() -> None:\n    assert json.loads(as_json(Counter({"b": 2, "a": 1}))) == {"a": 1, "b": 2}\n'
        "\n\ndef test_the_most_frequent_word_comes_first() -> None:\n"
        '    assert list(json.loads(as_json(Counter({"a": 1, "b": 2})))) == ["b", "a"]\n',
    },
}
TASKS: dict[str, dict[str, Any]] = {
    "json": {
        "goal": "Counts can be shown as JSON", "agent": "implementer", "files": ["json_output.py", "test_json_output.py"],
        "criteria": [{"id": "json-1", "text": "as_json gives one object from word to count"}], "effort": "small",
        "tests": ["test_json_output.py"],
    },
    "stop": {
        "goal": "Words of a file can be left out", "agent": "implementer", "files": ["stopwords.py", "test_stopwords.py"],
        "criteria": [{"id": "stop-1", "text": "words are compared in lower case"}], "effort": "small", "tests": ["test_stopwords.py"],
    },
    "page": {
        "goal": "The page says how", "agent": "documentation-writer", "files": ["README.md"],
        "criteria": [{"id": "page-1", "text": "README.md explains both options"}], "effort": "small",
    },
    "cli": {
        "goal": "The command line offers both", "agent": "implementer", "files": ["tally.py", "test_cli.py"],
        "depends_on": ["json", "stop"], "effort": "medium", "tests": ["test_cli.py"],
        "criteria": [{"id": "cli-1", "text": "--json and --stop work together with files"}],
    },
    "order": {
        "goal": "JSON has the order of the plain output", "agent": "implementer",
        "files": ["json_output.py", "test_json_output.py"], "effort": "small", "tests": ["test_json_output.py"],
        "criteria": [{"id": "order-1", "text": "the most frequent word comes first"}],
    },
}  # fmt: skip
PLANS = {1: ["json", "stop", "page", "cli"], 2: ["cli"], 3: ["order"]}
CRITERIA = [
    {"id": "AC-1", "text": "--json prints one object from word to count"},
    {"id": "AC-2", "text": "the most frequent word comes first in it"},
    {"id": "AC-3", "text": "--stop leaves out the words of a file, whatever their case"},
    {"id": "AC-4", "text": "a file of words that cannot be read ends with exit code 2"},
]
SEEN: dict[str, dict[str, Any]] = {
    "json-1": {"test": "test_json_output.py::test_counts_become_one_object"},
    "stop-1": {"file": "stopwords.py", "line": 7, "text": "read_text(encoding='utf-8').lower()"},
    "page-1": {"file": "README.md", "line": 5, "text": "`--json` prints one JSON object"},
    "cli-1": {"test": "test_cli.py"},
    "order-1": {"test": "test_json_output.py::test_the_most_frequent_word_comes_first"},
    "AC-1": {"test": "test_cli.py::test_json_is_one_object"},
    "AC-2": {"file": "json_output.py", "line": 8, "text": "as_json(counts: Counter[str]) -> str"},
    "AC-3": {"test": "test_cli.py::test_words_are_left_out_whatever_their_case"},
    "AC-4": {"test": "test_cli.py::test_words_that_cannot_be_read_are_an_error"},
}
FOUND: dict[str, list[dict[str, Any]]] = {
    "ct-security 1": [
        {"severity": "critical", "claim": "the program asks whatever address it is given, also ones of the inner network",
         "where": "Design, load(place)", "evidence": "load(place) takes an address"},
    ],
    "ct-scalability": [
        {"severity": "minor", "claim": "a very long list of words is held in memory as a whole", "where": "stopwords.load",
         "topic": "where the words are held", "stance": "in a file, read as needed"},
    ],
    "ct-maintainability": [
        {"severity": "minor", "claim": "reading the list as needed would make counting depend on files", "where": "stopwords.load",
         "topic": "where the words are held", "stance": "in a set"},
    ],
    "ct-strategy": [{"severity": "minor", "claim": "nobody has said which languages are meant", "where": "feature.md"}],
    "r-quality 1": [
        {"severity": "major", "claim": "the JSON is sorted by word, the plain output by count: one of them surprises",
         "where": "json_output.py:8", "fix": "keep the order of most_common()"},
    ],
    "r-testing": [{"severity": "minor", "claim": "no test has two files at once", "where": "test_cli.py"}],
}  # fmt: skip
CROSS = {
    "ct-security": ["Whatever is read from outside is decoded in one place only; keep it so."],
    "ct-strategy": ["The next request will be CSV: the seam between counting and showing should carry it."],
}
PROPOSALS = [
    {"category": "pattern-capture", "title": "One function per way to show", "file": "AGENTS.md", "section": "Code", "change": "add",
     "why": "A second way to show was added without touching counting; the third should be, too.", "risk": "low",
     "diff": "+- A way to show counts is a function beside `show`; counting knows nothing of it."},
    {"category": "instruction-update", "title": "Faster documentation changes", "file": "AGENTS.md", "section": "Before you finish",
     "change": "remove", "why": "A page needs no tests.", "risk": "low",
     "diff": "-- Run all tests before you say that something is done."},
]  # fmt: skip
DECISIONS = [
    {"title": "Words to leave out come from a file only", "context": "Lists are on the web.", "decision": "load takes a path.",
     "rationale": "The program asks no address it is told to.", "scope": "stopwords.py", "affected": "stopwords, command line"},
]  # fmt: skip


class Story:
    """The model's part. It counts how often each agent has begun, because what they say depends on the round."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}

    def __call__(self, r: Request) -> Reply:
        agent, about = re.findall(r"^/([a-z][a-z-]*) ?(\S*)", r.prompt, re.M)[0]  # the CLI may put words of its own before it
        who = f"{agent} {about}" if agent in ("researcher", "implementer", "documentation-writer") else agent
        if r.turn == 0:
            self.begun[who] = self.begun.get(who, 0) + 1
        if agent in ("implementer", "documentation-writer"):
            return self.build(r, about, self.begun[who])
        if r.turn == 0:
            return say(tool("Write", file_path=r.path("report"), content=self.report(agent, who)))
        return say(tool("StructuredOutput", **self.data(agent, self.begun[who])))

    def build(self, r: Request, task: str, number: int) -> Reply:
        folder = r.prompt.split("Working folder: ")[1].splitlines()[0]
        written = FILES[f"{task} {number}"]
        if r.turn == 0:
            return say(*(tool("Read", file_path=f"{folder}/{name}") for name in written))
        if r.turn == 1:
            writes = [tool("Write", file_path=f"{folder}/{name}", content=text) for name, text in written.items()]
            done = "\n".join(f"- {c['id']}: {c['text']}" for c in TASKS[task]["criteria"])
            return say(*writes, tool("Write", file_path=r.path("report"), content=f"# Done\n\n{done}\n"))
        return say(f"DONE: {TASKS[task]['goal']}")

    def report(self, agent: str, who: str) -> str:
        number = self.begun[who]
        known = REPORTS.get(f"{who} {number}") or REPORTS.get(who)
        found = FOUND.get(f"{agent} {number}", FOUND.get(agent, []))
        lines = [f"- {f['severity']}: {f['claim']} ({f['where']})" for f in found] or ["Nothing was found."]
        return (
            known or f"# Findings\n\n{chr(10).join(lines)}\n\n# Cross-Cutting Observations\n\n{_bullets(CROSS.get(agent, []))}\n"
        )

    def data(self, agent: str, number: int) -> dict[str, Any]:
        if agent == "researcher":
            return {"findings": [], "cross_cutting": []}
        if agent == "synthesist":
            return {"notes": _notes("analysis.md", "The four sides agree on the seam between counting and showing.")}
        if agent == "spec":
            return {"criteria": CRITERIA, "notes": _notes("feature.md", "The plain output stays as it is.")}
        if agent == "designer":
            decided = (
                "Words to leave out come from a path or an address."
                if number == 1
                else "Words to leave out come from a file only."
            )
            return {"notes": _notes("design.md", decided)}
        if agent == "planner":
            tasks = [{"id": name, **TASKS[name]} for name in PLANS[number]]
            for task in tasks:  # what was done before is there: nobody waits for it
                task["depends_on"] = [other for other in task.get("depends_on", []) if other in PLANS[number]]
            return {"tasks": tasks, "notes": _notes("plan.md", f"Planned: {', '.join(PLANS[number])}.")}
        if agent in ("v-tasks", "v-feature"):
            ids = [c["id"] for c in CRITERIA] if agent == "v-feature" else self.known_tasks()
            return {"criteria": [{"id": name, "result": "pass", "evidence": SEEN[name]} for name in ids], "findings": []}
        if agent == "r-knowledge":
            return {"proposals": PROPOSALS, "decisions": DECISIONS}
        return {"findings": FOUND.get(f"{agent} {number}", FOUND.get(agent, [])), "cross_cutting": CROSS.get(agent, [])}

    def known_tasks(self) -> list[str]:
        planned = dict.fromkeys(name for n in range(1, self.begun["planner"] + 1) for name in PLANS[n])
        return [c["id"] for name in planned for c in TASKS[name]["criteria"]]


def _notes(path: str, decided: str) -> dict[str, Any]:
    return {"artifacts": [{"path": path, "sections": []}], "decisions": [decided], "updates": [f"Wrote {path}."]}


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "None."
