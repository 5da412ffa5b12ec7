# SPDX-License-Identifier: Apache-2.0
"""What a document promises, and the tests that prove it.

Users of NeMo Gym learned it from five documents. Each has a file here with a table of all it says that can be true or
false: commands, parameters, YAML, files, outputs, behaviour. Opinions and advice are left out.
"""

from typing import NamedTuple


class Item(NamedTuple):
    """A statement of a document, in our own words."""

    says: str
    proofs: tuple[str, ...]
    """Tests: names in the file of the table, or node ids of others."""


def item(says: str, *proofs: str) -> Item:
    """State an item with one proof or more."""
    return Item(says, proofs)


DATASETS = [
    item(
        "a dataset has name, type and file",
        "tests/config/test_config_parser.py::test_datasets_as_the_documentation_shows_them_are_accepted",
    ),
    item("a type is train, validation or example", "tests/test_config_types.py::test_bad_dataset_fields_are_refused"),
    item(
        "train and validation need a licence, examples do not",
        "tests/test_config_types.py::test_training_and_validation_data_need_a_licence",
    ),
    item(
        "a licence may stand there twice",
        "tests/config/test_config_files.py::test_a_nested_key_repeated_with_the_same_value_is_accepted",
    ),
    item(
        "a GitLab identifier says where a dataset is",
        "tests/data/gitlab/test_datasets.py::test_a_dataset_of_a_config_is_fetched",
    ),
    item(
        "`start_idx` and `end_idx` take a part of a file",
        "tests/test_config_types.py::test_rows_can_be_sliced",
        "tests/data/test_collate.py::test_a_dataset_may_be_a_part_of_a_file",
    ),
]
"""The datasets of a config, as both README and FAQ describe them."""

PREPARING_DATA = [
    item(
        "`ng_prepare_data` reports missing datasets before anything is done",
        "tests/test_train_data_utils.py::test_missing_files_are_named_before_anything_is_done",
    ),
    item(
        "it names files and rows that are bad",
        "tests/data/test_collate.py::test_bad_rows_are_all_told_and_nothing_is_written",
    ),
    item(
        "a row needs `responses_create_params`, valid for the Responses API",
        "tests/data/test_dataset_rows.py::test_a_bad_row_is_told_by_reason_and_field",
    ),
    item(
        "it counts examples, tools and turns",
        "tests/data/test_dataset_metrics.py::test_tools_are_counted_where_they_are_given",
        "tests/data/test_dataset_metrics.py::test_turns_are_what_the_user_says",
    ),
    item(
        "it measures the input in OpenAI tokens",
        "tests/data/test_text_lengths.py::test_counts_are_those_that_openai_publishes",
        "tests/data/test_dataset_metrics.py::test_tokens_are_those_of_all_texts_that_a_model_reads",
    ),
    item(
        "it counts distinct create params",
        "tests/data/test_dataset_metrics.py::test_create_params_that_differ_only_in_the_order_of_keys_are_one",
    ),
    item(
        "it measures temperature and other sampling parameters",
        "tests/data/test_dataset_metrics.py::test_other_sampling_parameters_are_measured_where_they_are_given",
    ),
    item(
        "it counts distinct user messages",
        "tests/data/test_dataset_metrics.py::test_user_messages_that_say_the_same_are_one",
    ),
    item(
        "statistics are printed and kept beside each file",
        "tests/cli/dataset/test_collate.py::test_every_step_is_told_in_order",
        "tests/data/test_collate.py::test_every_file_is_written",
    ),
    item(
        "statistics that differ from those kept are a conflict",
        "tests/data/test_collate.py::test_other_data_is_a_conflict_that_names_both_files_and_what_differs",
    ),
    item(
        "train and validation files are written to `output_dirpath`",
        "tests/data/test_collate.py::test_every_file_is_written",
    ),
    item("their statistics are kept beside them", "tests/data/test_collate.py::test_every_file_is_written"),
    item(
        "rows are written as they are, without other processing",
        "tests/data/test_collate.py::test_rows_stay_what_they_were",
    ),
    item(
        "each mode is about its own datasets",
        "tests/test_train_data_utils.py::test_each_mode_is_about_its_own_datasets",
    ),
]
"""What `ng_prepare_data` does, as both describe it."""
