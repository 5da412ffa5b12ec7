# SPDX-License-Identifier: Apache-2.0
"""A process raises its own limit of open files, as far as it may."""

import resource

import pytest

from nemo_gym._util.open_file_limit import allow_open_files

NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "at_least", "then", "most"),
    [
        (1024, 4096, 2000, 2000, 4096),
        (1024, 4096, 9000, 4096, 4096),
        (1024, 4096, None, 4096, 4096),
        (3000, 4096, 2000, 3000, 4096),
        (1024, NO_LIMIT, 65535, 65535, None),
        (1024, NO_LIMIT, None, NO_LIMIT, None),
        (NO_LIMIT, NO_LIMIT, 65535, NO_LIMIT, None),
    ],
)
def test_the_limit_is_raised_as_far_as_is_wanted_and_allowed(soft, hard, at_least, then, most, monkeypatch):
    now = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: now.append(limits))
    assert allow_open_files(at_least) == most
    assert now[-1] == (then, hard)
