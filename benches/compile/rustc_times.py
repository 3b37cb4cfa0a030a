#!/usr/bin/env python3
"""A wrapper of rustc for `RUSTC_WRAPPER`: appends the crate and its processor seconds to the file `RUSTC_TIMES`."""

import os
import resource
import subprocess
import sys


def main():
    arguments = sys.argv[1:]
    outcome = subprocess.run(arguments)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if "--crate-name" in arguments:
        name = arguments[arguments.index("--crate-name") + 1]
        with open(os.environ["RUSTC_TIMES"], "a", encoding="utf-8") as file:
            file.write(f"{name} {used.ru_utime + used.ru_stime:.3f}\n")
    sys.exit(outcome.returncode)


if __name__ == "__main__":
    main()
