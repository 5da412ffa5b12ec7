# SPDX-License-Identifier: Apache-2.0
"""A pool of sandboxes that all tests of a module share, since they leave it as good as new."""

import pytest_asyncio

from nemo_gym.code_execution import CodePool, Limits


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pool():
    # To use all of the memory that is allowed by default takes seconds.
    async with CodePool(workers=2, timeout_s=120, limits=Limits(memory_mib=256)) as shared:
        yield shared
