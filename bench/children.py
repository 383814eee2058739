"""Contenders in processes of their own: commands and answers as JSON lines, one at a time.

A child calls `serve` with its commands. The parent makes a `Child` and asks it; what goes wrong in the child, its end
included, is a ChildError in the parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Answer = dict[str, Any]


class ChildError(Exception):
    """A child that answered with an error, ended, or took too long."""


def serve(commands: Mapping[str, Callable[..., Answer | None]]) -> None:
    """Carry out the commands that come on standard input until it ends or says `quit`.

    Answers go to what was standard output; whatever the libraries print goes to standard error.
    """
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    for line in sys.stdin:
        message = json.loads(line)
        name = message.pop("do")
        if name == "quit":
            break
        try:
            answer = commands[name](**message) or {}
        except Exception as err:
            traceback.print_exc()
            text = str(err).strip()
            answer = {"error": f"{type(err).__name__}: {text}" if text else type(err).__name__}
        channel.write(json.dumps(answer) + "\n")
        channel.flush()


class Child:
    """A process that serves; its standard error is ours."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def send(self, do: str, **arguments: Any) -> None:
        """Start a command; `receive` gives its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError as err:
            raise ChildError(f"{self.name}: {err}{self._end()}") from None

    def receive(self, timeout: float = 300.0) -> Answer:
        """The answer to the command that was sent; after `timeout` seconds the child is given up."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=0.5)
                break
            except queue.Empty:
                # A process that the child has left behind may hold the pipe open: its end is asked for.
                if self._process.poll() is not None and self._lines.empty():
                    raise ChildError(f"{self.name} ended{self._end()}") from None
                if time.monotonic() > deadline:
                    self._process.kill()
                    raise ChildError(f"{self.name} did not answer within {timeout:g} s") from None
        answer = json.loads(line)
        if "error" in answer:
            raise ChildError(f"{self.name}: {answer['error']}")
        return answer

    def ask(self, do: str, timeout: float = 300.0, **arguments: Any) -> Answer:
        """Send a command and wait for the answer."""
        self.send(do, **arguments)
        return self.receive(timeout)

    def _end(self) -> str:
        code = self._process.poll()
        return "" if code is None else f" (exit code {code})"

    def close(self, timeout: float = 15.0) -> None:
        """End the process, by force if it does not end by itself."""
        with contextlib.suppress(ChildError):
            self.send("quit")
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)
        if not self._reader.is_alive() and self._process.stdout is not None:
            self._process.stdout.close()
