"""Figures of academic: pages read and quotes found against the bare reader, candidates scored, papers fetched at once, memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripted_model.academic_desk import Desk
from scripted_model.academic_library import Library, slow
from scripted_model.academic_producers import LINES, reportlab
from scripted_model.academic_story import Scholars
from scripted_model.server import scripted
from support import ROOT, House

# Each in a process of its own: CPU and memory are those of this and nothing else.
BARE = """
import resource, sys, time
import pypdfium2
start = time.process_time()
document = pypdfium2.PdfDocument(sys.argv[1])
letters = 0
for number in range(len(document)):
    page = document[number]
    content = page.get_textpage()
    letters += len(content.get_text_range())
    content.close()
    page.close()
print(time.process_time() - start, len(document), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
OURS = """
import resource, sys, time
from pathlib import Path
from packs.academic import pdfs, quoting
from packs.academic.quoting import Paper
start = time.process_time()
path = Path(sys.argv[1])
pdfs.look(path)
looked = time.process_time() - start
start = time.process_time()
read = tuple(pdfs.pages(path, 2000))
text = time.process_time() - start
start = time.process_time()
paper = Paper("C1", read)
proposed = [{"quote": f"Page {n}. A page without an owner was wrong after fourteen months on the average.", "page": n + 1} for n in range(0, len(read), 10)]
kept, rejected = quoting.sort_out(proposed, paper, "C1")
assert len(kept) == len(proposed), rejected[:1]
found = time.process_time() - start
print(looked + text + found, text, found / len(proposed), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
SCORE = """
import sys, time
from packs.academic import merging, scoring
from packs.academic.records import Assessed, Candidate, Scoring
count = int(sys.argv[1])
found = [Candidate(f"C{n:04d}", f"Title {n} on street trees and nights", ("A. B",), 2000 + n % 25, f"10.5555/{n}", "An abstract.", "OpenAlex", "q", n, None) for n in range(count)]
said = {c.id: Assessed(c.id, (i % 10) / 10, "r", (i % 7) / 7, "m", 0.8) for i, c in enumerate(found)}
start = time.process_time()
for _ in range(20):
    ranking = scoring.rank(found, said, Scoring(), 2026)
took = time.process_time() - start
assert len(ranking.ranked) == count
print(took / 20 / count)
"""


def measured(program: str, *words: str) -> list[float]:
    ran = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={"PYTHONPATH": str(ROOT / "core")},
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(value) for value in ran.stdout.split()]


def pages(folder: Path) -> dict[str, float | str]:
    folder.mkdir()
    files = {
        n: reportlab(folder / f"{n}.pdf", [[f"Page {p}. {line}" for line in LINES * 6] for p in range(n)])
        for n in (30, 300, 1000)
    }
    bare, ours = measured(BARE, str(files[1000])), measured(OURS, str(files[1000]))
    small, large = measured(OURS, str(files[30])), measured(OURS, str(files[300]))
    return {
        "academic, text of 1,000 pages ÷ the bare reader": ours[1] / bare[0],
        "academic, look, text and 100 quotes in 1,000 pages ÷ the bare reader": ours[0] / bare[0],
        "academic, pages per second": f"{1000 / ours[0]:.0f} (the bare reader {1000 / bare[0]:.0f})",
        "academic, memory of 300 pages ÷ of 30": large[3] / small[3],
    }


def at_once(folder: Path, papers: int = 18, seconds: float = 1.0) -> float:
    """18 papers of a slow site, one by one ÷ four at once."""
    took: dict[int, float] = {}
    for cap in (4, 1):
        house = House(folder / f"cap-{cap}")
        file = house.folder / "config/packs/academic/orchestrators/academic.yaml"
        text = file.read_text()
        assert "pointer: /entries, key: id, cap: 4" in text
        file.write_text(text.replace("pointer: /entries, key: id, cap: 4", f"pointer: /entries, key: id, cap: {cap}"))
        with Library() as library:
            first = library.records[0]
            library.records = [
                first | {"name": f"night{n}", "doi": f"10.5555/strata.{n}", "title": f"{first['title']}, part {n}"}
                for n in range(papers)
            ]
            library.trouble["/pdf/"] = slow(seconds)
            scholars = Scholars()
            with scripted(scholars) as model:
                desk = Desk(house, library, scholars).configure(search={"max_iterations": 1}, databases=[{"name": "OpenAlex"}])
                env = model.environment(str(house.folder / "claude"))
                words = ("orchestrator", "academic", "--param", "run=run", "--until", "downloads")
                ran = house.json(*words, timeout=900, **env)
        assert ran.code in (0, 12) and desk.read("downloads/downloads.json")["success_count"] == papers, ran.stderr[-2000:]
        took[cap] = next(s["elapsed_seconds"] for s in ran.document["stages"] if s["name"] == "download")
    return took[1] / took[4]


def figures(folder: Path) -> dict[str, float | str]:
    scored = {n: measured(SCORE, str(n))[0] for n in (50, 500)}
    return {
        **pages(folder / "pages"),
        "academic, CPU per candidate scored at 500 ÷ at 50": scored[500] / scored[50],
        "academic, 18 papers: one by one ÷ four at once": at_once(folder / "papers"),
    }
