"""The command line: `python -m tensorc info` tells what tensorc knows of this machine."""

from __future__ import annotations

import argparse

from tensorc.runtime import Cache, compiler_version, default_threads
from tensorc.target import Target
from tensorc.version import __version__


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tensorc", description=__doc__)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("info", help="versions, the target, threads and the cache").set_defaults(run=info)
    options = parser.parse_args()
    options.run()


def info() -> None:
    """Print one fact a line."""
    target = Target.host()
    facts = {
        "tensorc": __version__,
        "compiler": compiler_version(),
        "processor": f"{target.mcpu} ({target.triple})",
        "vectors": f"{target.vector_registers} registers of {target.vector_bytes} bytes",
        "caches": f"{target.l1 >> 10} KiB, {target.l2 >> 10} KiB, {target.l3 >> 10} KiB",
        "threads": default_threads(),
        "cache": getattr(Cache.default(), "folder", None) or "off",
    }
    for name, value in facts.items():
        print(f"{name:10} {value}")


if __name__ == "__main__":
    main()
