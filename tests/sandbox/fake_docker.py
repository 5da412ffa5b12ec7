# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the `docker` program: it speaks the part of its language that we use and runs commands for real.

As with the real one, ending the client does not end what it started "inside". Containers are files in a folder; their
processes bear the container's name in their environment. It refuses flags that it does not know.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

HOME = pathlib.Path(__file__).resolve().parent
RUN_VALUES = {
    "--name", "--label", "-w", "--env", "--cpus", "--memory", "--memory-swap", "--gpus", "--network", "--cap-drop",
    "--security-opt", "--pids-limit", "--publish", "-v", "--shm-size", "--user", "--pull", "--entrypoint",
}  # fmt: skip
EXEC_VALUES = {"-w", "--user", "--env"}


def fail(message: str, code: int) -> None:
    sys.stderr.write(message + "\n")
    sys.exit(code)


def parse(args: list[str], values: set[str], switches: set[str]) -> tuple[dict[str, list[str]], list[str]]:
    flags: dict[str, list[str]] = {}
    rest = list(args)
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag not in values | switches:
            fail(f"unknown flag: {flag}", 125)
        flags.setdefault(flag, []).append(rest.pop(0) if flag in values else "")
    return flags, rest


def environment(flags: dict[str, list[str]]) -> dict[str, str]:
    named = (entry.partition("=") for entry in flags.get("--env", []))
    return {name: value if given else os.environ[name] for name, given, value in named}


def container(name: str) -> dict:
    path = HOME / f"{name}.json"
    if not path.exists():
        fail(f"Error response from daemon: No such container: {name}", 1)
    return json.loads(path.read_text())


def kill_all(name: str) -> None:
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"FAKE_CONTAINER={name}".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            pass


def run(args: list[str]) -> None:
    flags, (image, *command) = parse(args, RUN_VALUES, {"-d", "--rm", "--init", "--read-only"})
    if "no-such-image" in image:
        fail("Unable to find image locally\ndocker: Error response from daemon: pull access denied", 125)
    (name,) = flags["--name"]
    if "slow" in image:
        (HOME / f"{name}.pulling").touch()
        time.sleep(600)
    workdir = flags.get("-w", [str(HOME)])[0]
    pathlib.Path(workdir).mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ["PATH"], "FAKE_CONTAINER": name, **environment(flags)}
    main = subprocess.Popen(
        [*flags["--entrypoint"], *command], cwd=workdir, env=env, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    record = {
        "workdir": workdir,
        "env": env,
        "main": main.pid,
        "ports": flags.get("--publish", []),
        "oom": "oom" in image,
    }
    (HOME / f"{name}.json").write_text(json.dumps(record))
    print("0123456789abcdef")


def execute(args: list[str]) -> None:
    flags, (name, *command) = parse(args, EXEC_VALUES, {"-i", "-t", "--privileged"})
    record = container(name)
    stdin = None if "-i" in flags else subprocess.DEVNULL
    cwd = flags.get("-w", [record["workdir"]])[0]
    env = {**record["env"], **environment(flags)}
    code = subprocess.Popen(command, stdin=stdin, cwd=cwd, env=env, start_new_session=True).wait()
    sys.exit(128 - code if code < 0 else code)


def inspect(args: list[str]) -> None:
    flags, (name,) = parse(args, {"--type", "--format"}, set())
    if not (HOME / f"{name}.json").exists():
        fail(f"Error response from daemon: No such container: {name}", 1)
    record = container(name)
    main = pathlib.Path(f"/proc/{record['main']}/cmdline")
    alive = main.exists() and main.read_bytes() != b""  # one that has ended but was not collected has none
    facts = {"{{.State.Status}}": "running" if alive else "exited", "{{.State.OOMKilled}}": str(record["oom"]).lower()}
    print(facts[flags["--format"][0]])


def port(args: list[str]) -> None:
    name, wanted = args
    published = [entry.split(":")[-1] for entry in container(name)["ports"]]
    if wanted not in published:
        fail(f"Error: No public port '{wanted}' published for {name}", 1)
    host = container(name)["ports"][0].partition("::")[0]
    print(f"{host}:{49000 + published.index(wanted)}")


def remove(args: list[str]) -> None:
    _, (name,) = parse(args, set(), {"--force", "--volumes"})
    container(name)
    (HOME / f"{name}.json").unlink()
    kill_all(name)


if __name__ == "__main__":
    with (HOME / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    if (HOME / "daemon-is-down").exists():
        fail("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", 1)
    verbs = {"run": run, "exec": execute, "inspect": inspect, "port": port, "rm": remove}
    verbs[sys.argv[1]](sys.argv[2:])
