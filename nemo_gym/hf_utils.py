# SPDX-License-Identifier: Apache-2.0
"""Upload datasets to, and download them from, the Hugging Face Hub.

`nemo_gym._data.hub_*` talks to the Hub through the `huggingface_hub` library (extra `data`). To use another endpoint,
set the library's environment variable `HF_ENDPOINT`.
"""

import logging
import tempfile
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._data import hub_download, hub_upload
from nemo_gym._data.hub import (
    Hub as Hub,
    HubError as HubError,
    find_domain,
    make_collection_name,
    make_repository_name,
    name_server,
)
from nemo_gym._data.hub_rows import iter_json_lines
from nemo_gym._data.hub_splits import is_data_file
from nemo_gym._data.hub_upload import Destination as Destination, Uploaded as Uploaded, check_rows as check_rows
from nemo_gym._util.jsonl_files import loads_line
from nemo_gym._util.nearest import did_you_mean
from nemo_gym.config_types import (
    BaseUploadJsonlDatasetHuggingFaceConfig,
    ConfigError,
    DownloadJsonlDatasetHuggingFaceConfig,
)

LOG = logging.getLogger(__name__)
Notice = Callable[[str], None]
Upload = hub_upload.HubUpload


def plan_upload(config: BaseUploadJsonlDatasetHuggingFaceConfig) -> Upload:
    """Plan an upload to `{organization}/{prefix}-{domain}-{dataset name or server}` and its collection."""
    path = _resolve_under_cwd_or_install(config.resource_config_path, validator=Path.is_file)
    if not path.is_file():
        raise ConfigError(
            f"resource_config_path {config.resource_config_path!r} does not exist.\n"
            "hint: give the config of a resources server, such as resources_servers/NAME/configs/NAME.yaml; its "
            "domain becomes part of the dataset's name"
        )
    source = _resolve_under_cwd_or_install(config.input_jsonl_fpath, validator=Path.is_file)
    if not source.is_file():
        raise ConfigError(f"input_jsonl_fpath {config.input_jsonl_fpath!r} does not exist; nothing was uploaded")
    name = plain_name(config)
    return Upload(
        path=source,
        repo_id=make_repository_name(config.hf_organization, config.hf_dataset_prefix, find_domain(path), name),
        collection=make_collection_name(config.hf_organization, config.hf_collection_name, config.hf_collection_slug),
        split=config.split,
        create_pr=config.create_pr,
        revision=config.revision,
        commit_message=config.commit_message,
        commit_description=config.commit_description,
    )


def plain_name(config: BaseUploadJsonlDatasetHuggingFaceConfig) -> str:
    """Return a dataset's name without the Hub's additions, as other registries know it."""
    return config.dataset_name or name_server(config.resource_config_path)


def look_before_upload(config: BaseUploadJsonlDatasetHuggingFaceConfig) -> Destination:
    """Return what an upload would find on the Hub; raise HubError if it cannot succeed. Nothing is changed."""
    return hub_upload.inspect(Hub(config.hf_token), plan_upload(config))


def upload_jsonl_dataset(
    config: BaseUploadJsonlDatasetHuggingFaceConfig,
    notice: Notice = LOG.info,
    *,
    show_progress: bool = False,
    read_back: bool = False,
) -> Uploaded:
    """Upload a file; with `read_back`, read all of it from the Hub afterwards and compare."""
    hub = Hub(config.hf_token)
    wanted = plan_upload(config)
    done = hub_upload.upload(hub, wanted, notice, show_progress=show_progress)
    if read_back:
        notice(f"reading {done.path_in_repo!r} of {done.repo_id!r} back")
        hub_upload.read_back(hub, done, wanted.path)
    return done


def download_jsonl_dataset(
    config: DownloadJsonlDatasetHuggingFaceConfig, notice: Notice = LOG.info, *, revision: str | None = None
) -> dict[Path, int | None]:
    """Download a raw file, a split or all splits; return the files, each with its row count if it was read."""
    hub = Hub(config.hf_token)
    if config.artifact_fpath:
        target = _target(config, PurePosixPath(config.artifact_fpath).name)
        return {hub_download.download_artifact(hub, config.repo_id, config.artifact_fpath, target, revision): None}
    if config.split:
        target = _target(config, f"{config.split}.jsonl")
        return {target: hub_download.download_split(hub, config.repo_id, config.split, target, revision)}
    return dict(hub_download.download_splits(hub, config.repo_id, Path(config.output_dirpath or ""), revision, notice))


def load_hub_rows(
    repo_id: str, files: str, *, token: str | None = None, revision: str | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a dataset's data files whose paths match the pattern `files`, ordered by path."""
    hub = Hub(token)
    found = hub.dataset(repo_id, revision)
    paths = sorted(sibling.rfilename for sibling in found.siblings or () if is_data_file(sibling.rfilename))
    wanted = [path for path in paths if fnmatchcase(path, files)]
    if not wanted:
        raise HubError(
            f"the dataset {repo_id!r} has no data file {files!r}. {did_you_mean(files, paths)}\n"
            "hint: its owners may have moved its files; an older `revision` may still have them"
        )
    rows = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        for path in wanted:
            target = Path(folder) / PurePosixPath(path).name
            local = hub_download.download_artifact(hub, repo_id, path, target, found.sha)
            rows += [
                loads_line(line, path, number) for number, line in enumerate(iter_json_lines(path, local), start=1)
            ]
    return rows


def _target(config: DownloadJsonlDatasetHuggingFaceConfig, name: str) -> Path:
    if config.output_fpath:
        return Path(config.output_fpath)
    return Path(config.output_dirpath or "") / name
