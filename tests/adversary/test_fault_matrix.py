# SPDX-License-Identifier: Apache-2.0
"""The fault matrix in the documents says what the tests of this folder show, no more and no less."""

from scripts.write_fault_matrix import PAGE, Fault, insert_matrix, read_faults, render_matrix


def test_the_page_holds_the_matrix_of_these_tests():
    page = PAGE.read_text()
    assert page == insert_matrix(page, render_matrix(read_faults())), "run `python scripts/write_fault_matrix.py`"


def test_a_marker_becomes_a_row(tmp_path):
    (tmp_path / "test_doors.py").write_text(
        '@pytest.mark.fault(place="A door", fault="A knock", outcome="It stays shut.")\nasync def test_shut(): ...\n'
        "def test_unmarked(): ...\n"
    )
    faults = read_faults(tmp_path)
    assert faults == [Fault("A door", "A knock", "It stays shut.", "test_doors::test_shut")]
    assert "| A door | A knock | It stays shut. | `test_doors::test_shut` |" in render_matrix(faults)
