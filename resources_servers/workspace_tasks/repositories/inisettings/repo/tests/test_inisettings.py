# SPDX-License-Identifier: Apache-2.0
import unittest

from inisettings.layers import get, load
from inisettings.reader import read


class SettingsTests(unittest.TestCase):
    def test_sections(self):
        assert read("a = 1\n[s]\nb = 2\n") == {"main": {"a": "1"}, "s": {"b": "2"}}

    def test_comments(self):
        assert read("a = 1 # one\n# nothing\n") == {"main": {"a": "1"}}

    def test_later_files_win(self):
        assert get(load(["a = 1", "a = 2"]), "a") == "2"


if __name__ == "__main__":
    unittest.main()
