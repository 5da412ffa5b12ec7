# SPDX-License-Identifier: Apache-2.0
"""The catalog of `gym import reasoning_gym:ID`: every generator, at any level of its curriculum, and mixtures.

The options of a generator are its settings and `level`: a level of its curriculum, or a list of levels for the rows to
climb. The options of `composite` are `weights` and `configs` (settings), both by generator, and `level`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from nemo_gym.errors import GymError
from resources_servers.reasoning_gym.generate_data import (
    MIXTURE,
    Row,
    list_tasks_by_category,
    make_row,
    refuse_unknown,
)


class RefusedSettings(GymError):
    """The library does not accept the options."""


def list_environments() -> list[dict[str, str]]:
    """Return all generators, ordered by category, and the mixture."""
    tasks = [
        {"id": name, "description": f"{category}; {_describe_levels(name)}"}
        for category, names in list_tasks_by_category().items()
        for name in names
    ]
    about = 'a mixture of generators: --option \'weights={"chain_sum": 2, "gcd": 1}\''
    return [*tasks, {"id": MIXTURE, "description": about}]


def make_rows(environment_id: str, rows: int, seed: int, options: Mapping[str, Any]) -> list[Row]:
    """Return rows of a generator or mixture; rows with a level name it."""
    if environment_id != MIXTURE:
        refuse_unknown([environment_id])
    settings = {key: value for key, value in options.items() if key != "level"}
    level = options.get("level")
    if level is None:
        return _generate(environment_id, range(rows), rows, seed, settings, None)
    levels = level if isinstance(level, list) else [level]
    if not levels or not all(type(one) is int and one >= 0 for one in levels):
        raise RefusedSettings(f"level={level!r} is neither a level nor a list of levels.\nhint: level=2, level=[0,1,2]")
    bounds = [rows * number // len(levels) for number in range(len(levels) + 1)]
    parts = zip(levels, bounds, bounds[1:], strict=False)
    return [
        {**row, "level": one}
        for one, first, end in parts
        for row in _generate(environment_id, range(first, end), rows, seed, settings, one)
    ]


def _generate(
    name: str, indices: Sequence[int], size: int, seed: int, settings: Mapping[str, Any], level: int | None
) -> list[Row]:
    """Return the rows at these indices of a dataset."""
    from reasoning_gym import create_dataset

    try:
        own = _read_mixture(settings, level) if name == MIXTURE else {**_read_level(name, level), **settings}
        dataset = create_dataset(name, **{**own, "size": size, "seed": seed})
        return [make_row(dataset[index]) for index in indices]
    except (TypeError, ValueError, AssertionError) as error:
        where = "" if level is None else f" at level {level}"
        raise RefusedSettings(
            f"reasoning-gym cannot make {name!r}{where} with {dict(settings)}: {error}\n"
            "hint: options are the generator's settings and `level`; some levels of the library do not work"
        ) from error


def _read_mixture(settings: Mapping[str, Any], level: int | None) -> dict[str, Any]:
    from reasoning_gym.composite import DatasetSpec

    weights = settings.get("weights")
    configs = settings.get("configs") or {}
    if not isinstance(weights, dict) or not weights or not isinstance(configs, dict) or set(configs) - set(weights):
        raise RefusedSettings(
            "a mixture needs `weights` for its generators, and `configs` may only have settings for those.\n"
            'hint: --option \'weights={"chain_sum": 2, "gcd": 1}\' --option \'configs={"gcd": {"min_numbers": 3}}\''
        )
    if unknown := set(settings) - {"weights", "configs"}:
        raise RefusedSettings(
            f"{MIXTURE} has no option {', '.join(map(repr, sorted(unknown)))}.\nhint: options: weights, configs, level"
        )
    refuse_unknown(weights)
    specs = [
        DatasetSpec(name=name, weight=weight, config={**_read_level(name, level), **configs.get(name, {})})
        for name, weight in weights.items()
    ]
    return {"datasets": specs}


def _read_level(name: str, level: int | None) -> dict[str, Any]:
    """Return a generator's settings at a level of its curriculum; none if `level` is None."""
    from reasoning_gym.factory import create_curriculum

    if level is None:
        return {}
    if level >= (count := _count_levels(name)):
        has = f"has levels 0 to {count - 1}" if count else "has no curriculum"
        raise RefusedSettings(f"{name!r} {has}, so it cannot be made at level {level}.\nhint: choose another level")
    curriculum = create_curriculum(name)
    curriculum.set_global_level(level)
    config = curriculum.generate_configuration()
    # A mixture sets the size and seed of its generators itself.
    return {field.name: getattr(config, field.name) for field in fields(config) if field.name not in ("size", "seed")}


def _count_levels(name: str) -> int:
    from reasoning_gym.factory import create_curriculum, has_curriculum

    if not has_curriculum(name):
        return 0
    return max(len(attribute.levels) for attribute in create_curriculum(name).attributes.values())


def _describe_levels(name: str) -> str:
    count = _count_levels(name)
    return f"levels 0 to {count - 1}" if count else "no levels"
