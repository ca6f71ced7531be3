"""Papers that nobody here wrote, and files of a dozen producers: poppler says what stands on a page, and the pack has to find it there.

Fetched by name: Debian's r-cran-sandwich, -lme4 and -zoo, and the source distribution of paper-qa. What cannot be had here is left out.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pikepdf
import pytest
from lib.contract import StrataError
from packs.academic import pdfs, quoting
from packs.academic.quoting import Paper
from scripted_model.academic_producers import LIBRARIES, LINES, PROGRAMS, library, program, reportlab

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
DEBIAN = ("r-cran-sandwich", "r-cran-lme4", "r-cran-zoo")
PER_PAPER = 60


def fetched(folder: Path) -> list[Path]:
    """Real papers, from where the machine gets its packages."""
    if shutil.which("apt-get"):
        subprocess.run(["apt-get", "download", *DEBIAN], cwd=folder, capture_output=True, check=False, timeout=300)
    for deb in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", deb.name, "debian"], cwd=folder, check=True, timeout=60)
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "paper-qa", "paper-qa"]
    uv = ["uv", "run", "--no-project", "--with", "pip", "python", *words[1:]]
    subprocess.run(uv, cwd=folder, capture_output=True, check=False, timeout=300)
    for source in folder.glob("paper_qa*.tar.gz"):
        with tarfile.open(source) as pack:
            pack.extractall(folder / "pypi", filter="data")
    return sorted(folder.rglob("*.pdf"))


def producer(path: Path) -> str:
    """Its name, without a version."""
    with pikepdf.open(path) as pdf:
        said = str(pdf.docinfo.get("/Producer") or pdf.docinfo.get("/Creator") or path.stem)
    return re.split(r"[^A-Za-z ]", said)[0].strip()


def passages(path: Path, page: int) -> list[str]:
    """As poppler reads them: lines of running text without formulas, less their first and last word, which may be half a word."""
    words = ["pdftotext", "-raw", "-f", str(page), "-l", str(page), str(path), "-"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    running = [line.split() for line in lines if re.fullmatch(r"[A-Za-z ,;:'.-]{40,}", line.strip())]
    return [" ".join(words[1:-1]) for words in running if len(words) >= 9]


def changed(line: str, random_: random.Random) -> str:
    words = line.split()
    at = random_.randrange(1, len(words) - 1)
    return " ".join([*words[:at], "hitherto", *words[at + 1 :]])


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="no poppler here")
def test_what_poppler_reads_on_a_page_of_a_real_paper_is_found_there_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    papers = fetched(tmp_path)
    if not papers:
        pytest.skip("neither Debian's packages nor PyPI can be reached")
    random_ = random.Random(18)
    asked = found = lied = believed = 0
    producers: set[str] = set()
    refused: dict[str, str] = {}
    for path in papers:
        try:
            looked = pdfs.look(path)
        except StrataError as error:
            refused[path.name] = error.code
            continue
        producers.add(producer(path))
        paper = Paper("C1", pdfs.text(path).pages)
        assert len(paper.pages) == looked.pages
        lines = [(page, line) for page in range(1, looked.pages + 1) for line in passages(path, page)]
        for page, line in random_.sample(lines, min(PER_PAPER, len(lines))):
            asked += 1
            found += not quoting.wrong(line, page, paper, "C1")
            lied += 2
            believed += not quoting.wrong(changed(line, random_), page, paper, "C1")
            believed += not quoting.wrong(line, looked.pages + 1, paper, "C1")
    with capsys.disabled():
        print(f"\n{len(papers)} real papers of {len(producers)} producers; refused: {refused or 'none'}")
        print(f"found: {found} of {asked} lines as poppler reads them; believed: {believed} of {lied} that are not there")
    assert believed == 0
    assert asked >= 300 and found >= 0.97 * asked
    assert len(refused) <= 1


def test_twelve_producers_and_every_sentence_is_found_in_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = {name: program(name, tmp_path / f"{name}.pdf") for name in PROGRAMS}
    made |= {name: library(name, tmp_path / f"{name}.pdf") for name in LIBRARIES}
    made["reportlab"] = reportlab(tmp_path / "reportlab.pdf", [LINES])
    there = {name: path for name, path in made.items() if path}
    for path in there.values():
        looked = pdfs.look(path)
        paper = Paper("C1", pdfs.text(path).pages)
        for line in LINES:
            assert any(not quoting.wrong(line, page, paper, "C1") for page in range(1, looked.pages + 1)), (
                path,
                line,
                paper.pages,
            )
            lie = line.replace(" a ", " the ", 1).replace(" page", " folder", 1)
            assert all(quoting.wrong(lie, page, paper, "C1") for page in range(1, looked.pages + 1))
    names = sorted({producer(path) for path in [*there.values(), *fetched(tmp_path)]})
    with capsys.disabled():
        print(f"\n{len(names)} producers: {', '.join(names)}; not to be had here: {sorted(set(made) - set(there)) or 'none'}")
    assert len(names) >= 12


def test_a_file_of_three_hundred_pages_is_read_page_by_page(tmp_path: Path) -> None:
    """Most of the memory is the reader's own: ten times the pages take no more than a fifth more."""
    program_ = "import resource, sys\nfrom pathlib import Path\nfrom packs.academic import pdfs\npath = Path(sys.argv[1])\n"
    program_ += "count = pdfs.look(path).pages\ntotal = sum(len(page) for page in pdfs.pages(path, 400))\n"
    program_ += "print(count, total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    took: dict[int, int] = {}
    for pages in (30, 300):
        path = reportlab(tmp_path / f"{pages}.pdf", [[f"Page {n}. {line}" for line in LINES * 8] for n in range(pages)])
        ran = subprocess.run(
            [sys.executable, "-c", program_, str(path)], capture_output=True, text=True, check=True, env={"PYTHONPATH": "core"}
        )
        count, _, took[pages] = (int(v) for v in ran.stdout.split())
        assert count == pages
    assert took[300] < 1.2 * took[30], took
