# SPDX-License-Identifier: Apache-2.0
"""A server that runs one program: `python server_of_one_program.py ISOLATION PROGRAM`. A script, for any user."""

import asyncio
import sys

from nemo_gym.code_execution import CodePool


async def main(isolation: str, program: str) -> None:
    async with CodePool(workers=1, isolation=isolation, timeout_s=600) as pool:
        await pool.run(program)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
