# SPDX-License-Identifier: Apache-2.0
"""Rewrite image names, cap the threads of programs, and remove folders that untrusted code wrote to.

Pulling images is left to the engine.
"""

from collections.abc import Iterable, Mapping

from nemo_gym._isolation.inside.containment import remove_folder
from nemo_gym.sandbox.providers.base import SandboxConfigError

__all__ = ["CPU_CAP_ENV_VARS", "cpu_cap_env", "remove_folder", "rewrite_image"]

CPU_CAP_ENV_VARS = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "PYTHON_CPU_COUNT",
    "NUMBA_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
    "POLARS_MAX_THREADS",
    "PYTEST_XDIST_AUTO_NUM_WORKERS",
    "DJANGO_TEST_PROCESSES",
    "GOMAXPROCS",
    "CARGO_BUILD_JOBS",
    "RAYON_NUM_THREADS",
    "RUST_TEST_THREADS",
    "UV_THREADPOOL_SIZE",
    "CMAKE_BUILD_PARALLEL_LEVEL",
)
"""Where common libraries and build tools read how many threads they may start.

MAKEFLAGS is not one of them: make passes it on to recipes that do not expect it.
"""


def cpu_cap_env(cpu: float | None) -> dict[str, str]:
    """Return variables that keep programs to `cpu` cores, at least one; none at all without a limit.

    In a container, programs see the cores of the whole machine and start as many threads.
    """
    if cpu is None:
        return {}
    cores = str(max(1, int(cpu)))
    return dict.fromkeys(CPU_CAP_ENV_VARS, cores)


def rewrite_image(image: str | None, rules: Iterable[Mapping[str, str]] | None) -> str | None:
    """Replace the prefix of `image` by the first matching rule, e.g. to use a mirror.

    A rule is `{"from": "docker.io/", "to": "mirror/"}`. Without a match, the image is returned unchanged.
    """
    for rule in rules or ():
        if not isinstance(rule, Mapping) or not {"from", "to"} <= set(rule):
            raise SandboxConfigError(
                f"an image rule needs `from` and `to`, but this one is {rule!r}\n"
                "hint: e.g. {'from': 'docker.io/', 'to': 'mirror.example/'}"
            )
        if image is not None and image.startswith(rule["from"]):
            return rule["to"] + image.removeprefix(rule["from"])
    return image
