# SPDX-License-Identifier: Apache-2.0
import pytest

from nemo_gym._authoring.config_catalog import Configs, follow_references, iter_server_blocks
from tests.support.catalog import write_config


def blocks(root, path):
    configs = Configs([root])
    return {block.instance: block for block in iter_server_blocks(configs.merge(path))}, configs.warnings


def test_an_includer_overrides_what_it_includes(tmp_path):
    write_config(tmp_path, "base.yaml", "a: {resources_servers: {x: {domain: math, description: old}}}")
    path = write_config(
        tmp_path, "top.yaml", "config_paths: [base.yaml]\na: {resources_servers: {x: {description: new}}}"
    )
    found, warnings = blocks(tmp_path, path)
    assert (dict(found["a"].settings), warnings) == ({"domain": "math", "description": "new"}, [])


@pytest.mark.parametrize("directive", ["{_inherit_from: a}", "{_copy: a}", "'${inherit_from:a}'", "'${copy: a}'"])
def test_a_block_has_what_it_inherits(tmp_path, directive):
    path = write_config(tmp_path, "c.yaml", f"a: {{resources_servers: {{x: {{domain: math}}}}}}\nb: {directive}")
    assert blocks(tmp_path, path)[0]["b"].settings["domain"] == "math"


def test_blocks_that_inherit_from_each_other_end(tmp_path):
    path = write_config(tmp_path, "c.yaml", "a: {_inherit_from: b}\nb: {_inherit_from: a}")
    assert blocks(tmp_path, path) == ({}, [])


def test_files_that_include_each_other_are_read_once(tmp_path):
    write_config(tmp_path, "b.yaml", "config_paths: [a.yaml]")
    path = write_config(tmp_path, "a.yaml", "config_paths: [b.yaml]\ns: {resources_servers: {x: {domain: math}}}")
    assert list(blocks(tmp_path, path)[0]) == ["s"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("a: [", "cannot be read"), ("- a\n- b", "not a mapping"), ("config_paths: [gone.yaml]", "'gone.yaml'")],
)
def test_what_cannot_be_read_is_a_warning_that_names_the_file(tmp_path, text, complaint):
    path = write_config(tmp_path, "bad.yaml", text)
    found, warnings = blocks(tmp_path, path)
    assert found == {}
    assert len(warnings) == 1
    assert "bad.yaml" in warnings[0]
    assert complaint in warnings[0]


def test_a_file_is_looked_up_in_the_roots_before_its_own_folder(tmp_path):
    write_config(tmp_path, "base.yaml", "s: {resources_servers: {x: {domain: math}}}")
    write_config(tmp_path, "sub/base.yaml", "s: {resources_servers: {x: {domain: other}}}")
    path = write_config(tmp_path, "sub/top.yaml", "config_paths: [base.yaml]")
    assert blocks(tmp_path, path)[0]["s"].settings["domain"] == "math"


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("${repeats.many}", 8),
        ("${repeats.${choice}}", 8),
        ("${repeats.${choice}} times", "8 times"),
        ("${repeats.none}", "${repeats.none}"),
        ("${oc.env:HOME}", "${oc.env:HOME}"),
        ("${itself}", "${itself}"),
        (3, 3),
    ],
)
def test_a_reference_is_followed_to_a_plain_value(value, meant):
    values = {"choice": "many", "repeats": {"many": 8}, "itself": "${itself}"}
    assert follow_references(value, values) == meant
