# SPDX-License-Identifier: Apache-2.0
import unittest

from csvtable.reader import read_rows
from csvtable.table import join, parse, total


class TableTests(unittest.TestCase):
    def test_plain_fields(self):
        assert read_rows("a,b\n1,2\n") == [["a", "b"], ["1", "2"]]

    def test_commas_in_quotes(self):
        assert read_rows('"a,b",c') == [["a,b", "c"]]

    def test_parse(self):
        assert parse("n,m\n1,2\n") == [{"n": "1", "m": "2"}]

    def test_total(self):
        assert total([{"n": "1"}, {"n": "2.5"}], "n") == 3.5

    def test_join(self):
        assert join([{"k": "1", "a": "x"}], [{"k": "1", "b": "y"}], "k") == [{"k": "1", "a": "x", "b": "y"}]


if __name__ == "__main__":
    unittest.main()
