#!/usr/bin/env python3
"""Stands between an SDK and the agent: passes both directions on as they are and keeps them, a line each."""

import json
import os
import subprocess
import sys
import threading

lock = threading.Lock()
# A question for the version goes straight through.
if sys.argv[1:] in (["-v"], ["--version"]):
    os.execv(os.environ["TEE_AGENT"], sys.argv)
record = open(os.environ["TEE_RECORD"], "w", encoding="utf-8")
agent = subprocess.Popen(
    [os.environ["TEE_AGENT"], *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)


def keep(direction, line):
    with lock:
        record.write(json.dumps({direction: line}) + "\n")
        record.flush()


def pump(direction, source, target):
    for line in source:
        keep(direction, line.decode())
        try:
            target.write(line)
            target.flush()
        except BrokenPipeError:
            break
    target.close()


threading.Thread(target=pump, args=("out", sys.stdin.buffer, agent.stdin), daemon=True).start()
pump("in", agent.stdout, sys.stdout.buffer)
code = agent.wait()
keep("exit", {"code": code if code >= 0 else None, "signal": -code if code < 0 else None})
os._exit(code if code >= 0 else 1)
