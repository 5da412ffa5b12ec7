# SPDX-License-Identifier: Apache-2.0
"""Every item of a document is proved by a test that exists."""

import ast
import functools
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from nemo_gym import PARENT_DIR
from tests.seeds.pages import PAGES, list_pages

COUNTS = {
    "legacy_command_reference": 59,
    "unified_command_reference": 67,
    "project_readme": 94,
    "faq": 70,
    "rollout_guide": 29,
}
"""How many items each document has; an item that is dropped changes a number here."""


def table(document: str) -> ModuleType:
    return importlib.import_module(f"tests.seeds.test_{document}")


@functools.cache
def read_test_names(file: Path) -> set[str]:
    """The names of the tests of a file, those of a class as `Class::test`."""
    names = set[str]()
    for node in ast.parse(file.read_text()).body:
        inner, prefix = (node.body, f"{node.name}::") if isinstance(node, ast.ClassDef) else ([node], "")
        functions = [entry for entry in inner if isinstance(entry, ast.FunctionDef | ast.AsyncFunctionDef)]
        names |= {f"{prefix}{entry.name}" for entry in functions if entry.name.startswith("test_")}
    return names


def split_proof(document: str, proof: str) -> tuple[Path, str]:
    """The file of a proof and the name of the test in it."""
    if "/" not in proof:
        return Path(__file__).with_name(f"test_{document}.py"), proof
    file, _, name = proof.partition("::")
    return PARENT_DIR / file, name


def test_there_is_a_table_for_every_file_of_this_folder():
    files = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert files - {"tables"} == set(COUNTS)


@pytest.mark.parametrize("document", COUNTS)
def test_every_proof_exists(document):
    absent = []
    for entry in table(document).ITEMS:
        assert entry.proofs, f"nothing proves: {entry.says}"
        for proof in entry.proofs:
            file, name = split_proof(document, proof)
            if not file.is_file() or name not in read_test_names(file):
                absent.append(f"{entry.says}: {proof}")
    assert absent == []


@pytest.mark.parametrize("document", COUNTS)
def test_every_item_is_counted(document):
    said = [entry.says for entry in table(document).ITEMS]
    print(f"{document}: {len(said)} items")
    assert len(set(said)) == len(said) == COUNTS[document]


@pytest.mark.parametrize("document", COUNTS)
def test_every_test_of_a_document_proves_an_item_of_it(document):
    own = {proof for entry in table(document).ITEMS for proof in entry.proofs if "/" not in proof}
    assert read_test_names(Path(__file__).with_name(f"test_{document}.py")) <= own


def test_every_item_is_documented_on_a_page_of_ours():
    rows = list(list_pages())
    assert [(document, says) for document, says, page in rows if not page] == []
    assert len(rows) == sum(COUNTS.values()) == sum(len(items) for parts in PAGES.values() for items in parts.values())


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_documents_an_item_exists_with_its_heading(page):
    file, _, anchor = page.partition("#")
    text = (PARENT_DIR / "docs" / file).read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    # As the site makes anchors: letters and digits in lower case, hyphens for what is between them.
    anchors = {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
    assert not anchor or anchor in anchors, f"{file} has no heading #{anchor}"
