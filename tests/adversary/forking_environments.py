# SPDX-License-Identifier: Apache-2.0
"""Environments that fork, and whose children speak to the server in their place."""

import os
import pickle
import socket
import stat
import struct
import time
from typing import Any

import orjson

FORGED = {"observation": "forged", "reward": 1.0, "terminated": True, "truncated": False, "info": {}}


class Forking:
    """An environment whose every step is worth 0; `how` its children want more."""

    def __init__(self, how: str) -> None:
        self._how = how

    def reset(self) -> str:
        return "begin"

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        parent = os.getpid()
        if self._how == "returns twice" and os.fork() == 0:
            time.sleep(0.05)
            return "forged", 1.0, True, False, {}
        if self._how == "answers at once" and os.fork() == 0:
            speak(forge(b""))
            os._exit(0)
        if self._how == "answers all questions" and os.fork() == 0:
            os.setsid()
            while True:
                listen_and_speak()
        if self._how == "speaks ahead":
            speak(forge(b"") * 3)
        return f"by {parent}", 0.0, False, False, {}


def make_forking(task: dict[str, Any]) -> Forking:
    return Forking(task["how"])


def forge(number: bytes) -> bytes:
    answer = number + pickle.dumps((True, orjson.dumps(FORGED)))
    return struct.pack(">Q", len(answer)) + answer


def speak(message: bytes) -> None:
    for sock in find_sockets():
        sock.sendall(message)


def listen_and_speak() -> None:
    for sock in find_sockets():
        asked = sock.recv(2**20)
        sock.sendall(forge(asked[8:16]))


def find_sockets() -> list[socket.socket]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(socket.socket(fileno=os.dup(int(name))))
        except OSError:
            continue
    return found
