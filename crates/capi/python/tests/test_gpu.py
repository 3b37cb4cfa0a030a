"""The entry points of PyTorch and CuPy, on the emulated CUDA driver.

``CACHESCOPE_EMULATOR`` names the program ``cuda-emulator``, which loads the driver before Python.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("gpu_program.py")


def test_pytorch_and_cupy_allocate_from_the_scope_of_the_process():
    emulator = os.environ.get("CACHESCOPE_EMULATOR")
    if not emulator:
        pytest.skip("CACHESCOPE_EMULATOR does not name the emulator")
    command = [emulator, sys.executable, "-X", "faulthandler", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if "g++" in done.stderr and done.returncode:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok\n"), done.stdout
