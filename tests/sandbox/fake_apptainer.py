# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the `apptainer` program: it speaks the part of its language that we use and runs commands for real.

Instances are files in a folder. A command gets a clean environment but for the variables with Apptainer's prefix, and
it outlives the client that started it. It refuses flags that it does not know.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

HOME = pathlib.Path(__file__).resolve().parent
START_VALUES = {"--network", "--cpus", "--memory", "--bind", "--env-file", "--overlay"}
START_SWITCHES = {"--containall", "--writable-tmpfs", "--no-eval", "--net", "--nv"}


def fail(message: str) -> None:
    sys.stderr.write(f"FATAL:   {message}\n")
    sys.exit(255)


def parse(args: list[str], values: set[str], switches: set[str]) -> tuple[dict[str, str], list[str]]:
    flags: dict[str, str] = {}
    rest = list(args)
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag not in values | switches:
            fail(f"unknown flag: {flag}")
        flags[flag] = rest.pop(0) if flag in values else ""
    return flags, rest


def start(args: list[str]) -> None:
    flags, (image, name) = parse(args, START_VALUES, START_SWITCHES)
    if "no-such-image" in image:
        fail(f"While making image from oci registry: {image}: manifest unknown")
    given = pathlib.Path(flags["--env-file"]).read_text() if "--env-file" in flags else ""
    (HOME / f"{name}.instance").write_text(given)


def listing(args: list[str]) -> None:
    parse(args, set(), {"--json"})
    print(json.dumps({"instances": [{"instance": path.stem, "pid": 1} for path in HOME.glob("*.instance")]}))


def stop(args: list[str]) -> None:
    _, (name,) = parse(args, {"--signal"}, set())
    path = HOME / f"{name}.instance"
    if not path.exists():
        fail("no instance found")
    path.unlink()
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"FAKE_CONTAINER={name}".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            pass


def execute(args: list[str]) -> None:
    flags, (instance, *command) = parse(args, {"--pwd"}, {"--cleanenv", "--fakeroot", "--nv"})
    name = instance.removeprefix("instance://")
    if not (HOME / f"{name}.instance").exists():
        fail("no instance found")
    prefix = "APPTAINERENV_"
    passed = {key.removeprefix(prefix): value for key, value in os.environ.items() if key.startswith(prefix)}
    env = {"PATH": os.environ["PATH"], "FAKE_CONTAINER": name, **passed}
    code = subprocess.Popen(command, cwd=flags.get("--pwd", HOME), env=env, start_new_session=True).wait()
    sys.exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    with (HOME / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    if sys.argv[1] == "instance":
        {"start": start, "list": listing, "stop": stop}[sys.argv[2]](sys.argv[3:])
    else:
        execute(sys.argv[2:])
