# SPDX-License-Identifier: Apache-2.0
"""A setting declares its flag; help, parsing and completion follow from it."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, PositiveInt

from nemo_gym._config.command_flags import TABLE, Flag, read_flags, write_table
from nemo_gym.cli.command_table import VERSION, list_commands
from nemo_gym.cli.flags import SERVER_SETTINGS, load, to_overrides
from scripts.write_command_flags import make_table

EVERY = {**list_commands(), "--version": VERSION}


class Settings(BaseModel):
    fail_on_tool_error: Annotated[bool, Flag()] = Field(default=False, description="Count it as failed.")
    limit: Annotated[PositiveInt | None, Flag()] = Field(default=None, description="Run at most this many.")
    workers: Annotated[PositiveInt | Literal["auto"], Flag()] = Field(default=1, description="How many, or `auto`.")
    split: Annotated[Literal["train", "test"] | None, Flag()] = Field(default=None, description="Which one.")
    json_summary: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")
    output_fpath: Annotated[str, Flag("--output", short="-o")] = Field(description="Where it goes.")
    options: Annotated[list[str], Flag("--option")] = Field(default_factory=list, description="May be repeated.")
    reward_range: Annotated[tuple[float, float], Flag(count=2)] = Field(default=(0, 1), description="From, to.")
    is_open: Annotated[bool, Flag("--open"), Flag("--closed", constant="false", help="Close it.")] = Field(
        default=True, description="Open it."
    )
    without_a_flag: int = Field(default=0, description="Only a key.")


FLAGS = {flag.name: flag for flag in read_flags(Settings)}


def test_a_flag_is_called_what_its_key_is_called_unless_it_says_otherwise():
    expected = ["--fail-on-tool-error", "--limit", "--workers", "--split", "--json", "--output", "--option"]
    assert list(FLAGS) == [*expected, "--reward-range", "--open", "--closed"]
    assert FLAGS["--json"].key == "json"
    assert FLAGS["--output"].key == "output_fpath"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("--fail-on-tool-error", "switch"),
        ("--limit", "number"),
        ("--workers", "value"),
        ("--split", "value"),
        ("--output", "value"),
        ("--option", "value"),
        ("--reward-range", "number"),
    ],
)
def test_the_kind_of_a_flag_is_that_of_its_field(name, kind):
    assert FLAGS[name].kind == kind


def test_a_literal_limits_the_values_and_a_list_may_be_repeated():
    assert FLAGS["--split"].choices == ("train", "test")
    assert FLAGS["--workers"].choices == ()
    assert {name for name, flag in FLAGS.items() if flag.many} == {"--option"}


def test_two_flags_may_set_one_field():
    assert (FLAGS["--open"].help, FLAGS["--open"].constant) == ("Open it.", "true")
    assert (FLAGS["--closed"].help, FLAGS["--closed"].constant) == ("Close it.", "false")


def test_the_table_of_all_commands_is_what_their_settings_declare():
    assert TABLE.read_text() == make_table(), "run `make format`: it writes the table anew"


def test_a_field_that_is_added_changes_the_table():
    class Extended(Settings):
        retries: Annotated[int, Flag()] = Field(default=0, description="Try again this often.")

    line = '{"name": "--retries", "key": "retries", "help": "Try again this often.", "kind": "number"}'
    assert line not in write_table({"a:B": Settings})
    assert line in write_table({"a:B": Extended})


@pytest.mark.parametrize("name", EVERY)
def test_the_help_of_a_flag_is_the_description_of_its_field(name):
    fields = load(SERVER_SETTINGS).model_fields | load(EVERY[name].settings).model_fields
    about = {field.alias or key: field.description for key, field in fields.items()}
    for flag in EVERY[name].flags:
        sets_it_as_given = flag.kind in ("value", "number", "switch") and flag.constant == "true"
        if sets_it_as_given and set(flag.sets) & set(about):
            assert flag.help in {about.get(key) for key in flag.sets}, flag.name


@pytest.mark.parametrize("name", EVERY)
def test_no_two_flags_of_a_command_have_the_same_name(name):
    names = [spelled for flag in EVERY[name].flags for spelled in (flag.name, flag.short) if spelled]
    assert len(names) == len(set(names))


def test_a_switch_that_only_its_settings_declare_becomes_an_override():
    assert to_overrides(EVERY["eval run"], ["--fail-on-tool-error"]) == ["++fail_on_tool_error=true"]
