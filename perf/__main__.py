# SPDX-License-Identifier: Apache-2.0
"""`python -m perf [name ...] [--json] [--strict]`: run benchmarks and print what they found as one table."""

import argparse
import importlib
import sys

from perf.report import Row, as_json, as_table, is_over

_BENCHMARKS = {
    "imports": "what importing costs",
    "startup": "from `gym env start` to three healthy servers",
    "hops": "a call between two servers, in process and over HTTP",
    "schemas": "whether long conversations cost in proportion to their length",
    "bare_post": "the unit: the client's CPU for one plain POST",
    "rollouts": "a rollout from its row to its line in the journal, in bare POSTs",
}


def main() -> int:
    given = _arguments()
    rows: list[Row] = []
    for name in given.names or _BENCHMARKS:
        print(f"{name}: {_BENCHMARKS[name]} ...", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"perf.{name}").run()
    print(as_json(rows) if given.json else as_table(rows))
    return 1 if given.strict and is_over(rows) else 0


def _arguments() -> argparse.Namespace:
    listing = "\n".join(f"  {name:10} {text}" for name, text in _BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m perf",
        description=f"Run benchmarks; all of them unless some are named:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", choices=[*_BENCHMARKS, []], help="which to run")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is exceeded")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
