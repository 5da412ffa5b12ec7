# SPDX-License-Identifier: Apache-2.0
"""Metrics files: the dataset as its config describes it, then its metrics; and whether an older file still holds.

Only metrics are compared: a dataset whose licence was corrected or whose prompt was moved is still the same data.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._config.dataset_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym.errors import GymError

AnyDataset = DatasetConfig | BenchmarkDatasetConfig

_FIELDS_LEFT_OUT_IF_UNSET = ("start_idx", "end_idx", "prepare_script")
_PARTS = "datasets"
_HEADER_FIELDS = frozenset({*DatasetConfig.model_fields, *BenchmarkDatasetConfig.model_fields, _PARTS})
_NOTHING = object()


class MetricsFileError(GymError, ValueError):
    """An existing metrics file cannot be read, so nothing can be compared with it."""


def encode_metrics(dataset: AnyDataset, metrics: Mapping[str, Any]) -> str:
    """Return the text of the metrics file of one dataset."""
    return _encode({**_describe_dataset(dataset), **metrics})


def encode_collated_metrics(datasets: Sequence[AnyDataset], metrics: Mapping[str, Any]) -> str:
    """Return the text of the metrics file of several datasets together; fields that they do not share are null."""
    headers = [_describe_dataset(dataset) for dataset in datasets]
    if len(headers) == 1:
        return _encode({**headers[0], **metrics})
    names = dict.fromkeys(name for header in headers for name in header)
    shared = {name: headers[0].get(name) if _is_shared(headers, name) else None for name in names}
    return _encode({**shared, _PARTS: headers, **metrics})


def read_metrics_file(path: Path) -> dict[str, Any] | None:
    """Return the content of a metrics file, None if there is no such file."""
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (orjson.JSONDecodeError, OSError) as error:
        raise MetricsFileError(f"{path} cannot be read as a metrics file: {error}\nhint: delete it") from error
    if not isinstance(content, dict):
        raise MetricsFileError(f"{path} is not a metrics file: it holds no JSON object\nhint: delete it")
    return content


def find_differences(before: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """Say where the metrics in an existing file do not match `metrics`; keys that the file does not have are fine."""
    found: list[str] = []
    for name, old in before.items():
        if name in metrics:
            # A row may have a field that is called like one of the config, such as `source`: either may stand there.
            if name not in _HEADER_FIELDS or (isinstance(old, Mapping) and old.keys() == metrics[name].keys()):
                found += _compare(name, old, metrics[name])
        elif name not in _HEADER_FIELDS:
            found.append(f"{name}: was {_quote(old)}, is not there any more")
    return found


def _compare(place: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, value in old.items():
            if name in new:
                yield from _compare(f"{place} / {name}", value, new[name])
            else:
                yield f"{place} / {name}: was {_quote(value)}, is not there any more"
    elif not _is_equal(old, new):
        yield f"{place}: was {_quote(old)}, is {_quote(new)}"


def _is_equal(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return Counter(map(_encode_sorted, old)) == Counter(map(_encode_sorted, new))
    if _is_number(old) and _is_number(new) and (isinstance(old, float) or isinstance(new, float)):
        return bool(abs(old - new) <= (5e-3 if abs(old) >= 1 else 5e-4))
    return type(old) is type(new) and bool(old == new)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _encode_sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _describe_dataset(dataset: AnyDataset) -> dict[str, Any]:
    described = dataset.model_dump(mode="json")
    for name in _FIELDS_LEFT_OUT_IF_UNSET:
        if described.get(name) is None:
            described.pop(name, None)
    return described


def _is_shared(headers: Sequence[Mapping[str, Any]], name: str) -> bool:
    return all(header.get(name, _NOTHING) == headers[0].get(name, _NOTHING) for header in headers)


def _encode(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=4) + "\n"
