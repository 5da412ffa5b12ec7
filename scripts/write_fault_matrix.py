# SPDX-License-Identifier: Apache-2.0
"""Write the fault matrix of docs/concepts/trust.md from the `fault` markers of the tests in tests/adversary."""

import ast
import sys
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "adversary"
PAGE = ROOT / "docs" / "concepts" / "trust.md"
BEGIN = "<!-- fault matrix: written by scripts/write_fault_matrix.py -->\n"
END = "<!-- end of the fault matrix -->"


@dataclass(frozen=True, order=True)
class Fault:
    """What goes wrong, where, and how it must end."""

    place: str
    fault: str
    outcome: str
    test: str


def read_faults(folder: Path = TESTS) -> list[Fault]:
    """Return the faults that the tests in `folder` declare, sorted by place."""
    faults = []
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(), path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for marker in node.decorator_list:
                    if isinstance(marker, ast.Call) and ast.unparse(marker.func) == "pytest.mark.fault":
                        values = {word.arg: ast.literal_eval(word.value) for word in marker.keywords}
                        faults.append(Fault(test=f"{path.stem}::{node.name}", **values))
    return sorted(faults)


def render_matrix(faults: list[Fault]) -> str:
    """Return the faults as a Markdown table; a place is named in its first row only."""
    lines = ["| Place | Fault | Outcome | Shown by |", "|---|---|---|---|"]
    place = ""
    for fault in faults:
        first, *rest = astuple(fault)
        *said, test = rest
        lines.append(f"| {'' if first == place else first} | {' | '.join(said)} | `{test}` |")
        place = first
    return "\n".join(lines) + "\n"


def insert_matrix(page: str, matrix: str) -> str:
    """Return `page` with `matrix` between its two marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + matrix + END + rest.split(END)[1]


if __name__ == "__main__":
    faults = read_faults()
    PAGE.write_text(insert_matrix(PAGE.read_text(), render_matrix(faults)))
    print(f"{PAGE.relative_to(ROOT)}: {len(faults)} faults", file=sys.stderr)
