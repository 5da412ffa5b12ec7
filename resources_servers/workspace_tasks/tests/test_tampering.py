# SPDX-License-Identifier: Apache-2.0
"""Sources are inspected however many threads do so at once."""

import ast

import pytest

from resources_servers.workspace_tasks import tampering


def test_a_file_is_parsed_again_where_another_thread_disturbed_the_parser(monkeypatch):
    disturbances = iter([SystemError("AST constructor recursion depth mismatch (before=33, after=29)")] * 3)
    parse = ast.parse

    def parse_in_a_busy_process(text):
        for error in disturbances:
            raise error
        return parse(text)

    monkeypatch.setattr(tampering.ast, "parse", parse_in_a_busy_process)
    assert isinstance(tampering.parse_source("x = 1").body[0], ast.Assign)


def test_a_parser_that_never_works_is_an_error(monkeypatch):
    def fail(text):
        raise SystemError("broken")

    monkeypatch.setattr(tampering.ast, "parse", fail)
    with pytest.raises(SystemError, match="broken"):
        tampering.parse_source("x = 1")
