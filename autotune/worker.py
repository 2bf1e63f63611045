"""A worker process: it compiles candidates, runs and times them, and answers in lines of JSON.

    python -m autotune.worker

The first line is its `Setup`, and answered by {"ready": true}; each line after it is a request, {"do": ..., "seconds":
...}, and answered by one line. A request that takes more than its seconds ends the process by SIGALRM; the end of the
input ends it, too. Nothing comes in but text, and files of the compile cache in the folder of the setup.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any, TextIO

from autotune.bench import Bench, Reply, Setup
from tensorc.errors import TensorcError


def answer(bench: Bench, request: dict[str, Any]) -> Reply:
    """Do what a request asks for; what goes wrong on the way is a reply, too."""
    try:
        match request["do"]:
            case "compile":
                return bench.compile(request["key"], request["text"])
            case "prepare":
                return bench.prepare()
            case "measure":
                return bench.measure(request["key"], request["best"])
            case "compare":
                return bench.compare(request["keys"])
            case other:
                return {"status": "refused", "reason": f"a worker does not {other}"}
    except TensorcError as error:
        return {"status": "refused", "reason": str(error)}
    except MemoryError as error:
        return {"status": "memory", "reason": f"it needs more memory than there is{str(error) and ': '}{error}"}
    except Exception as error:
        return {"status": "refused", "reason": f"{type(error).__name__}: {error}"}


def serve(requests: TextIO, replies: TextIO) -> None:
    """Answer requests until there are no more."""
    setup = Setup.read(requests.readline())
    _limit(setup)
    bench = Bench(setup)
    print('{"ready": true}', file=replies, flush=True)
    for line in requests:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        reply = answer(bench, request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), file=replies, flush=True)


def _limit(setup: Setup) -> None:
    if setup.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, setup.cores)
    if setup.memory is not None:
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        least = setup.memory if most == resource.RLIM_INFINITY else min(setup.memory, most)
        resource.setrlimit(resource.RLIMIT_AS, (least, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything else prints is no reply
    serve(sys.stdin, replies)
    os._exit(0)


if __name__ == "__main__":
    main()
