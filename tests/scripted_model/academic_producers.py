"""PDFs of many producers, with the same five sentences in each: programs of this machine, and libraries that are had by name."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas

Maker = Callable[[Path], Path]

LINES = [
    "We followed four hundred pages of a company wiki over four years.",
    "A page without an owner was wrong after fourteen months on the average.",
    "Reviews on a fixed date kept pages correct longer than reviews on demand.",
    "Where two teams shared a page, nobody felt responsible for its mistakes.",
    "Deleting a page was rarer than any other change, and more useful than most.",
]


def reportlab(path: Path, pages: list[list[str]]) -> Path:
    drawn = canvas.Canvas(str(path), pagesize=A4)
    for lines in pages:
        for number, line in enumerate(lines):
            drawn.drawString(60, 780 - 18 * number, line)
        drawn.showPage()
    drawn.save()
    return path


def latex(path: Path) -> Path:
    """Two columns, ligatures, hyphens, a footnote."""
    source = path.with_suffix(".tex")
    body = "The official office found difficult affairs in the configuration of a firefighting organisation. " + " ".join(LINES)
    source.write_text(
        r"\documentclass[twocolumn]{article}\usepackage[T1]{fontenc}\begin{document}\title{On owners}\maketitle "
        + body
        + r"\footnote{Measured on the first of each month, in all of the offices.} "
        + " ".join([body] * 3)
        + r"\end{document}"
    )
    subprocess.run(["pdflatex", "-interaction=batchmode", source.name], cwd=path.parent, check=True, capture_output=True)
    return path


def chromium(path: Path) -> Path:
    page = path.with_suffix(".html")
    page.write_text("<h1>On owners</h1>" + "".join(f"<p>{line}</p>" for line in LINES))
    words = [
        "chromium",
        "--headless",
        "--no-sandbox",
        f"--user-data-dir={path.parent}/profile",
        f"--print-to-pdf={path}",
        str(page),
    ]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    return path


def ghostscript(path: Path) -> Path:
    source = path.with_suffix(".ps")
    shown = "".join(f"72 {700 - 20 * n} moveto ({line}) show\n" for n, line in enumerate(LINES))
    source.write_text(f"%!PS\n/Helvetica findfont 11 scalefont setfont\n{shown}showpage\n")
    subprocess.run(["gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=pdfwrite", f"-sOutputFile={path}", str(source)], check=True)
    return path


def libreoffice(path: Path) -> Path:
    source = path.with_suffix(".txt")
    source.write_text("\n\n".join(LINES))
    home = f"-env:UserInstallation=file://{path.parent}/office"
    words = ["soffice", home, "--headless", "--convert-to", "pdf", "--outdir", str(path.parent), str(source)]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    return path


def groff(path: Path) -> Path:
    source = path.with_suffix(".ms")
    source.write_text(".PP\n" + "\n.PP\n".join(LINES) + "\n")
    with path.open("wb") as made:
        subprocess.run(["groff", "-ms", "-Tpdf", str(source)], check=True, stdout=made, stderr=subprocess.DEVNULL)
    return path


PROGRAMS: dict[str, Maker] = {"pdflatex": latex, "chromium": chromium, "gs": ghostscript, "soffice": libreoffice, "groff": groff}


# Libraries, each with a program that writes the sentences of argv[2] into the file argv[1].
LIBRARIES = {
    "fpdf2": "from fpdf import FPDF\npdf = FPDF()\npdf.add_page()\npdf.set_font('Helvetica', size=11)\n"
    "[pdf.multi_cell(0, 8, line, new_x='LMARGIN', new_y='NEXT') for line in lines]\npdf.output(path)",
    "weasyprint": "from weasyprint import HTML\nHTML(string=''.join(f'<p>{line}</p>' for line in lines)).write_pdf(path)",
    "matplotlib": "import matplotlib\nmatplotlib.use('pdf')\nfrom matplotlib import pyplot\nfigure = pyplot.figure(figsize=(9, 6))\n"
    "[figure.text(0.05, 0.9 - 0.1 * n, line, fontsize=9) for n, line in enumerate(lines)]\nfigure.savefig(path)",
    "typst": "import typst\nfrom pathlib import Path\nsource = Path(path).with_suffix('.typ')\nsource.write_text('\\n\\n'.join(lines))\n"
    "typst.compile(str(source), output=path)",
    "borb": "from borb.pdf import Document, Page, Paragraph, PDF, SingleColumnLayout\ndocument = Document()\npage = Page()\n"
    "document.append_page(page)\nlayout = SingleColumnLayout(page)\n[layout.append_layout_element(Paragraph(line)) for line in lines]\n"
    "PDF.write(what=document, where_to=path)",
}


def library(name: str, path: Path) -> Path | None:
    """None where the library cannot be had here."""
    program = f"import json, sys\npath, lines = sys.argv[1], json.loads(sys.argv[2])\n{LIBRARIES[name]}"
    words = ["uv", "run", "--no-project", "--with", name, "python", "-c", program, str(path), json.dumps(LINES)]
    ran = subprocess.run(words, capture_output=True, timeout=300, check=False)
    return path if ran.returncode == 0 and path.is_file() else None


def program(name: str, path: Path) -> Path | None:
    return PROGRAMS[name](path) if shutil.which(name) else None
