# SPDX-License-Identifier: Apache-2.0
"""Overrides that nothing reads are found; whatever might be read by somebody is left alone."""

from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._config.server_code import ServerCode, check_types
from nemo_gym._config.unread_keys import check_command_line

SHOP = """
shop:
  resources_servers:
    shop: {entrypoint: app.py, prices: "${prices}", extra: 1}
prices: 3
written_in_the_file: 1
"""
FIELDS = {"prices": ["int | None"], "names": ["list[str]"], "odd": ["Odd"], "either": ["int", "str"]}


@pytest.fixture
def shop(write, parse):
    """Resolves overrides beside a config with one server."""
    paths = write(shop=SHOP)
    return lambda *tokens: parse(*tokens, paths=paths)


class Code(ServerCode):
    """Code that declares `fields` and mentions some keys."""

    def __init__(self, fields, mentioned=()):
        self.fields, self.mentioned = fields, mentioned

    def find_fields(self, kind, impl, entrypoint):
        return self.fields

    def mentions(self, kind, impl, key):
        return key in self.mentioned


def unread(resolved, fields=FIELDS, mentioned=(), settings=("mine_too",)) -> list[str]:
    found = check_command_line(resolved, (), lambda: settings, Code(fields, mentioned)).pairs()
    return [text.split(" ")[0] for _, text in found]


def test_a_setting_that_has_a_flag_is_known_without_loading_what_other_commands_read(shop):
    def load_all():
        raise AssertionError("not needed")

    assert check_command_line(shop("+with_a_flag=3"), {"with_a_flag"}, load_all, Code(FIELDS)).pairs() == []


@pytest.mark.parametrize(
    "token",
    [
        "+limit=3",
        "+mine_too=3",
        "++prices=4",
        "++written_in_the_file=2",
        "++shop.resources_servers.shop.prices=1",
        "++shop.resources_servers.shop.extra=2",
        "++shop.resources_servers.shop.num_workers=1",
        "+_mine=1",
        "+hf_home=x",
        "+another={resources_servers: {shop: {entrypoint: app.py}}}",
    ],
)
def test_what_somebody_reads_or_a_file_has_too_is_left_alone(shop, token):
    assert unread(shop(token)) == []


@pytest.mark.parametrize(
    "token",
    ["+limt=3", "+shop.resources_servers.shop.price=1", "+shop.price=1", "+shp.resources_servers.shop.prices=1"],
)
def test_what_nobody_reads_is_found(shop, token):
    assert unread(shop(token)) == [token.lstrip("+").partition("=")[0] if "shp" not in token else "shp"]


def test_a_key_that_an_override_interpolates_is_read(shop):
    assert unread(shop("+depth=3", "++shop.resources_servers.shop.prices=${depth}")) == []


def test_a_key_that_the_code_of_a_server_speaks_of_is_read(shop):
    resolved = shop("+mine=1", "+shop.resources_servers.shop.hidden=1")
    assert unread(resolved) == ["mine", "shop.resources_servers.shop.hidden"]
    assert unread(resolved, mentioned=("mine", "hidden")) == []


def test_a_server_that_takes_any_field_has_no_unknown_ones(shop):
    assert unread(shop("+shop.resources_servers.shop.hidden=1"), fields=None) == []


def test_a_driver_may_read_what_it_likes_but_for_slips(shop):
    driver = "+rollout_collection_driver=mine"
    assert unread(shop(driver, "+frobnicate=1", "+num_repeat=1")) == ["num_repeat"]


def test_servers_that_run_already_have_another_config(shop):
    assert unread(shop("+no_serve=true", "+elsewhere.resources_servers.x.y=1")) == []


@pytest.mark.parametrize(
    ("token", "wrong"),
    [
        ("++shop.resources_servers.shop.prices=abc", ["must be a whole number, not 'abc'"]),
        ("++shop.resources_servers.shop.prices=null", []),
        ("++shop.resources_servers.shop.names=[a,1]", ["must be text, not 1"]),
        ("++shop.resources_servers.shop.odd=abc", []),
        ("++shop.resources_servers.shop.either=abc", []),
        ("++shop.resources_servers.shop.either=[]", ["must be a whole number, not []"]),
        ("++prices=abc", ["must be a whole number, not 'abc'"]),
    ],
)
def test_a_value_must_have_a_type_that_its_field_declares(shop, token, wrong):
    resolved = shop(token)
    found = check_types(resolved.servers, resolved.provenance, Code(FIELDS)).pairs()
    assert [text.partition("): ")[2] for _, text in found] == wrong


def test_a_server_on_the_base_of_an_adapter_has_the_settings_of_that_base(tmp_path):
    folder = tmp_path / "resources_servers" / "game"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("from nemo_gym.adapters import TextStepServer\nclass Game(TextStepServer): ...\n")
    fields = ServerCode([tmp_path, Path(PARENT_DIR)]).find_fields("resources_servers", "game", "app.py")
    assert fields["step_timeout_s"] == ["PositiveFloat"]
    assert "no_such_setting" not in fields
