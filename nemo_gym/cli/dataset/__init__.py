# SPDX-License-Identifier: Apache-2.0
"""`gym dataset` for programs and scripts: its commands by their older names, as functions without arguments.

The commands themselves are in the modules of this package.
"""

from nemo_gym.cli.legacy import entry_point

prepare_data = entry_point("prepare_data")
materialize_prompts_cli = entry_point("materialize_prompts")
upload_jsonl_dataset_cli = entry_point("upload_dataset_to_gitlab")
download_jsonl_dataset_cli = entry_point("download_dataset_from_gitlab")
delete_jsonl_dataset_from_gitlab_cli = entry_point("delete_dataset_from_gitlab")
upload_jsonl_dataset_to_hf_cli = entry_point("upload_dataset_to_hf")
upload_jsonl_dataset_to_hf_and_delete_gitlab_cli = entry_point("gitlab_to_hf_dataset")
download_jsonl_dataset_from_hf_cli = entry_point("download_dataset_from_hf")
