# SPDX-License-Identifier: Apache-2.0
"""The Ray actor around one replica of a server: it provides the code, starts the server as a process, and reports.

A node of a cluster has Ray and perhaps nothing else of ours. So this module is sent by value, and imports nothing but
the standard library and Ray. What it starts runs `nemo_gym._servers.ray.replica_host`, with the Python of the launching
process where the node has the same files at the same paths, else with an environment of its own, built here once.

The process that launched the servers tells the actor what to start after each (re)start, so that nothing of it, above
all no secret, is kept in the state of the cluster.
"""

import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

_LINES_KEPT = 2000
_STOP_GRACE_S = 10.0
_BUILD_TIMEOUT_S = 1800.0
# Facts about one machine, which the environment of another must not overrule.
_MACHINE_VARIABLES = ("CUDA_", "HOSTNAME", "LD_", "PYTHON", "RAY_", "SLURM_", "SSH_", "TMPDIR", "VIRTUAL_ENV", "XDG_")


class ReplicaActor:
    """One replica. Its methods run in threads, beside each other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._dropped = 0
        self._facts: dict[str, Any] = {}
        self._version = 0
        self._replica_id: str | None = None
        self._host: subprocess.Popen[bytes] | None = None

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        """Begin to start what `order` says (see `RayReplica`); return which replica runs, and on which node.

        A second order finds the replica of the first: whoever gives it could not know that the first one had arrived.
        """
        with self._changed:
            if self._replica_id is None:
                self._replica_id = order["replica_id"]
                threading.Thread(target=self._run, args=(order,), name="replica", daemon=True).start()
        return {"replica_id": self._replica_id, "node": find_node_address()}

    def report(self, version: int, seen_lines: int, wait_s: float) -> dict[str, Any]:
        """Return the facts, and the lines after those that were seen, once something is newer than `version`.

        After `wait_s` they are returned as they are. The facts are `host`, `port` and `pid` of a server that is ready,
        and `ended` once it has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version > version, wait_s)
            lines = self._lines[max(0, seen_lines - self._dropped) :]
            count = self._dropped + len(self._lines)
            return {"version": self._version, "seen_lines": count, "lines": lines, "facts": dict(self._facts)}

    def stop(self) -> None:
        """End the server: ask, then kill."""
        host = self._host
        if host is None or host.poll() is not None:
            return
        host.send_signal(signal.SIGINT)
        try:
            host.wait(_STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            host.kill()

    def leave(self) -> None:
        """End this process, so that Ray starts the actor again."""
        self.stop()
        os._exit(1)

    def _tell(self, line: str | None = None, **facts: Any) -> None:
        with self._changed:
            if line is not None:
                self._lines.append(line)
                if len(self._lines) > _LINES_KEPT:
                    del self._lines[0]
                    self._dropped += 1
            self._facts.update(facts)
            self._version += 1
            self._changed.notify_all()

    def _run(self, order: dict[str, Any]) -> None:
        self._tell(f"starting on node {find_node_address()}")
        try:
            python, roots, is_shared = provide_code(order, self._tell)
            self._run_host(order, python, roots, is_shared)
        except Exception as error:
            self._tell(ended=f"could not be started on {os.uname().nodename}: {error}")

    def _run_host(self, order: dict[str, Any], python: str, roots: list[str], is_shared: bool) -> None:
        """Run the process that runs the server, until it ends."""
        facts_read, facts_write = os.pipe()
        try:
            host = self._host = subprocess.Popen(
                [python, "-m", "nemo_gym._servers.ray.replica_host"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(facts_write,),
                env={**merge_environment(order["environment"]), "NEMO_GYM_EXTRA_ROOTS": os.pathsep.join(roots)},
                start_new_session=True,
            )
        finally:
            os.close(facts_write)
        assert host.stdin is not None
        assert host.stdout is not None
        # Its standard input stays open as long as this process lives, and tells it when it does not.
        more = {"facts_fd": facts_write, "is_shared": is_shared, "node": find_node_address()}
        task = {**order["task"], **more, "replica_id": order["replica_id"]}
        host.stdin.write(json.dumps(task).encode() + b"\n")
        host.stdin.flush()
        threading.Thread(target=self._read_facts, args=(facts_read,), daemon=True).start()
        with host.stdin, host.stdout:
            for raw in host.stdout:
                self._tell(raw.decode("utf-8", errors="replace").rstrip("\r\n"))
            code = host.wait()
        time.sleep(0.2)  # its last facts may still be on their way
        if "ended" not in self._facts:
            self._tell(ended=f"ended with exit code {code}")

    def _read_facts(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as stream:
            for line in stream:
                self._tell(**json.loads(line))


def find_node_address() -> str:
    """Return where this node can be reached."""
    import ray

    util: Any = ray.util  # untyped
    return str(util.get_node_ip_address())


# --- code and Python on this node -------------------------------------------------------------------------------------


def merge_environment(given: dict[str, str]) -> dict[str, str]:
    """Return this node's environment, with those of the launching process that the node does not have."""
    added = {name: value for name, value in given.items() if not name.startswith(_MACHINE_VARIABLES)}
    return {**added, **os.environ}


def provide_code(order: dict[str, Any], tell: Any) -> tuple[str, list[str], bool]:
    """Return a Python with nemo-gym in it, the search roots, and whether both are those of the launching process."""
    code = order["code"]
    if os.access(code["python"], os.X_OK) and fingerprint_roots(code["roots"]) == code["fingerprint"]:
        return code["python"], code["roots"], True
    if not order["bundle"]:
        raise RuntimeError(
            f"this node lacks the files of the launching process, such as {code['roots'][-1]}, and was sent none"
        )
    import ray

    cache = find_node_cache()
    content: bytes = ray.get(order["bundle"][0])
    place = unpack(content, cache / "code")
    uv = find_uv(cache, lambda: ray.get(order["uv"][0]))
    # The Python of this node's Ray will do: uv need not find, or download, another of its version.
    is_alike = code["python_version"].split(".")[:2] == platform.python_version().split(".")[:2]
    interpreter = sys.executable if is_alike else code["python_version"]
    python = build_python(uv, cache / "venvs", place, interpreter, code["requirements"], tell)
    return str(python), [str(place / name) for name in code["names"]], False


def find_node_cache() -> Path:
    """Return a folder of this node for what is built once."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo-gym" / "nodes"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(home, os.W_OK):
            return home
    except OSError:
        pass
    place = Path(tempfile.gettempdir()) / f"nemo-gym-nodes-{os.getuid()}"
    place.mkdir(exist_ok=True, mode=0o700)
    return place


def list_files(root: Path) -> list[Path]:
    """Return the files of a search root that servers need: the package and the folders of servers, in order."""
    found = []
    for top in ("nemo_gym", "resources_servers", "responses_api_agents", "responses_api_models"):
        for folder, folders, files in os.walk(root / top):
            folders[:] = sorted(name for name in folders if name[0] != "." and name not in ("__pycache__", "cache"))
            found += [Path(folder, name) for name in sorted(files) if name[0] != "."]
    return found


def fingerprint_roots(roots: list[str]) -> str:
    """Return a hash of the names, sizes and times of the files in `roots`; their content is not read."""
    digest = hashlib.sha256()
    for root in roots:
        for path in list_files(Path(root)):
            status = path.stat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def unpack(content: bytes, folder: Path) -> Path:
    """Return where the files of a zip archive are, unpacked once for each content."""
    place = folder / hashlib.sha256(content).hexdigest()[:20]
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=folder))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(draft)
        try:
            draft.rename(place)
        except OSError:  # another replica was faster
            shutil.rmtree(draft, ignore_errors=True)
    return place


def find_uv(cache: Path, fetch: Any) -> str:
    """Return uv: this node's own, else the one that `fetch` brings."""
    beside = Path(sys.executable).with_name("uv")
    own = str(beside) if beside.exists() else shutil.which("uv")
    if own:
        return own
    content: bytes = fetch()
    place = cache / f"uv-{hashlib.sha256(content).hexdigest()[:20]}"
    if not place.exists():
        draft = place.with_name(f"{place.name}.{os.getpid()}")
        draft.write_bytes(content)
        draft.chmod(0o755)
        draft.replace(place)
    return str(place)


def build_python(uv: str, store: Path, code: Path, interpreter: str, requirements: list[str], tell: Any) -> Path:
    """Return the Python of an environment with nemo-gym from `code` and `requirements`, built once for all replicas."""
    key = hashlib.sha256("\n".join([str(code), interpreter, *requirements]).encode()).hexdigest()[:20]
    venv = store / f"base-{key}"
    python = venv / "bin" / "python"
    mark = venv / "complete"
    store.mkdir(parents=True, exist_ok=True)
    with open(store / f"base-{key}.lock", "w") as lock:
        ends_at = time.monotonic() + _BUILD_TIMEOUT_S
        while not _try_lock(lock.fileno()):
            if time.monotonic() > ends_at:
                raise RuntimeError(f"another process has held {lock.name!r} for more than {_BUILD_TIMEOUT_S:g} s")
            time.sleep(0.2)
        if mark.exists():
            return python
        tell(f"building an environment for nemo-gym in {venv}")
        shutil.rmtree(venv, ignore_errors=True)
        _call_uv([uv, "venv", "--python", interpreter, str(venv)])
        listed = venv / "requirements.txt"
        listed.write_text("\n".join(requirements))
        _call_uv([uv, "pip", "install", "--python", str(python), "-r", str(listed)])
        packages = next((venv / "lib").glob("python*/site-packages"))
        (packages / "nemo_gym.pth").write_text(f"{code}\n")
        mark.touch()
    return python


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _call_uv(words: list[str]) -> None:
    ran = subprocess.run(words, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S)
    if ran.returncode:
        last = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-8:])
        raise RuntimeError(f"`uv {words[1]}` ended with exit code {ran.returncode}:\n{last}")
