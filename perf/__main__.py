# SPDX-License-Identifier: Apache-2.0
"""`python -m perf [name ...] [--json] [--strict]`: run benchmarks and print what they found as one table."""

import argparse
import importlib
import sys

from perf.report import Row, as_json, as_table, is_over

_BENCHMARKS = {
    "imports": "what importing costs",
    "cli": "short commands, beside the libraries that a config takes",
    "startup": "from `gym env start` to three healthy servers",
    "demo": "from `gym demo` to its first scored rollout",
    "hops": "a call between two servers, in process and over HTTP",
    "schemas": "whether long conversations cost in proportion to their length",
    "bare_post": "the unit: the client's CPU for one plain POST",
    "local_model": "tokens per second of the local model, beside llama.cpp's own call",
    "rollouts": "a rollout from its row to its line in the journal, in bare POSTs",
    "results": "aggregating and profiling 100,000 rollouts",
    "datasets": "checking, measuring and collating 100,000 rows, in bare orjson",
    "environments": "verifications a second of every environment, beside bare computation for those that compute",
    "viewer": "a 1 GB rollouts file in the viewer, in a real browser; takes a minute",
    "eval_rollouts": "a rollout of `gym eval run`, all of it, in bare POSTs",
    "eval_run": "from `gym eval run` to its first model request, and from its last rollout to its exit",
}
_ON_REQUEST = {
    "scale": "16,000 rollouts in flight, and 200,000 in a row; takes a quarter of an hour",
}
_ALL = {**_BENCHMARKS, **_ON_REQUEST}


def main() -> int:
    given = _arguments()
    rows: list[Row] = []
    for name in given.names or _BENCHMARKS:
        print(f"{name}: {_ALL[name]} ...", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"perf.{name}").run()
    print(as_json(rows) if given.json else as_table(rows))
    return 1 if given.strict and is_over(rows) else 0


def _arguments() -> argparse.Namespace:
    listing, on_request = (
        "\n".join(f"  {name:13} {text}" for name, text in group.items()) for group in (_BENCHMARKS, _ON_REQUEST)
    )
    parser = argparse.ArgumentParser(
        prog="python -m perf",
        description=f"Run benchmarks; these unless some are named:\n{listing}\nonly when named:\n{on_request}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", choices=[*_ALL, []], help="which to run")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is exceeded")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
