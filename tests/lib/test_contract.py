"""Ring 1: the table of exit codes is whole, and the only place that says what a code means."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from lib import contract, names
from lib.contract import MEANING, ExitCode

CORE = contract.CORE
SOURCES = [p for p in CORE.rglob("*.py") if p.name != "contract.py"]
# The seed's table, with what DESIGN adds for 3 and 21: what each layer does about a child that ended so.
SEED = {
    0: ("absorb", "absorb", "absorb"),
    1: ("retry", "again", "escalate"),
    2: ("raise", "raise", "raise"),
    3: ("raise", "raise", "ask"),
    10: ("raise", "answer", "answer"),
    11: ("raise", "raise", "escalate"),
    12: ("absorb", "again", "absorb"),
    20: ("raise", "raise", "raise"),
    21: ("once", "raise", "escalate"),
}


@pytest.mark.parametrize("code", list(ExitCode), ids=lambda code: code.name)
def test_every_code_has_a_row_and_it_is_the_seed_s(code: ExitCode) -> None:
    meaning = MEANING[code]
    assert (meaning.stage, meaning.phase, meaning.campaign) == SEED[int(code)]
    assert meaning.signal in ("success", "fail", "needs-refinement")
    assert len(meaning.mark) == 1


def test_the_order_of_gravity_is_total_and_2_and_20_are_never_absorbed() -> None:
    assert set(contract.GRAVEST_FIRST) == set(ExitCode)
    assert {2, 20} <= set(contract.NEVER_ABSORBED)
    assert set(contract.ALWAYS_RAISED) == {2, 20}
    assert contract.gravest([ExitCode.SUCCESS, ExitCode.PARTIAL_SUCCESS, ExitCode.INTERRUPTED]) == ExitCode.INTERRUPTED
    assert not set(contract.DONE) & set(contract.NEVER_ABSORBED)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_other_module_lists_codes(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            codes = [e for e in node.elts if re.fullmatch(r"ExitCode\.[A-Z_]+", ast.unparse(e))]
            assert len(codes) < 2, f"{path.name}:{node.lineno} {ast.unparse(node)} belongs in the table of contract.py"


def test_every_variable_is_named_once() -> None:
    known = [value for name, value in vars(names).items() if name.isupper()]
    assert len(set(known)) == len(known)
    for path in SOURCES:
        if path.name != "names.py":
            assert not re.search(r'"AGENTIC_[A-Z]', path.read_text()), path.name
