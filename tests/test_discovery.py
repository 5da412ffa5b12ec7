# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import yaml

from nemo_gym.discovery import merge_by_name, read_config_metadata
from nemo_gym.server_metadata import ServerMetadata, visit_agent_server, visit_resources_server

SHOP = """
shop:
  resources_servers:
    shop: {entrypoint: app.py, domain: agent, description: Buy things., value: 3, verified: true, verified_url: "x.org"}
shop_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      datasets:
      - {name: example, type: example, jsonl_fpath: a.jsonl}
      - {name: validation, type: validation, jsonl_fpath: b.jsonl, license: MIT}
      - {name: train, type: train, jsonl_fpath: c.jsonl, license: Apache 2.0}
      - {name: more, type: train, jsonl_fpath: d.jsonl, license: TBD}
"""


def test_the_earlier_of_two_namesakes_has_the_say():
    assert merge_by_name([{"a": 1}, {"a": 2, "b": 3}, {"b": 4}]) == {"a": 1, "b": 3}
    assert merge_by_name([]) == {}


def test_a_config_says_its_domain_and_what_it_is(tmp_path: Path):
    (tmp_path / "shop.yaml").write_text(SHOP)
    assert read_config_metadata(tmp_path / "shop.yaml") == ("agent", "Buy things.")


def test_a_config_is_what_it_includes_unless_it_says_otherwise(tmp_path: Path):
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "sale.yaml").write_text(
        "config_paths: [shop.yaml]\nshop: {resources_servers: {shop: {description: 7}}}\n"
    )
    assert read_config_metadata(str(tmp_path / "sale.yaml")) == ("agent", "7")


def test_a_config_that_is_silent_or_missing_says_nothing(tmp_path: Path):
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    for name in ("list.yaml", "broken.yaml", "missing.yaml"):
        assert read_config_metadata(tmp_path / name) == (None, None)


def test_a_resources_server_is_described_by_its_block():
    assert visit_resources_server(yaml.safe_load(SHOP)) == ServerMetadata(
        domain="agent", description="Buy things.", value="3", verified=True, verified_url="x.org"
    )
    assert visit_resources_server({}) == ServerMetadata()


def test_an_agent_is_described_by_its_datasets():
    found = visit_agent_server(yaml.safe_load(SHOP))
    assert (found.types, found.license) == (["example", "validation", "train"], "Apache 2.0")
    assert visit_agent_server({"shop": {"resources_servers": {}}}) == ServerMetadata()
