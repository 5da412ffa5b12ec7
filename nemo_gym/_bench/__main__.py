# SPDX-License-Identifier: Apache-2.0
"""`python -m nemo_gym._bench`: the same as `gym bench`, for a clone whose scripts are not on the path."""

import sys

from nemo_gym.cli.main import main

if __name__ == "__main__":
    main(["bench", *sys.argv[1:]])
