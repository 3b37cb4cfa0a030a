"""What a machine has, for tests/gpu/run.

    python3 tests/gpu/machine.py peers        the versions of PyTorch, CuPy and cuDNN
    python3 tests/gpu/machine.py libraries    the folders of NVRTC and cuBLAS, separated by colons
    python3 tests/gpu/machine.py unpack FOLDER
"""

import glob
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from importlib import metadata


def peers():
    """By what is installed, since to import them takes many seconds."""
    found = {}
    for own in metadata.distributions():
        name = (own.metadata["Name"] or "").lower()
        start = next((start for start in ("torch", "cupy", "nvidia-cudnn") if name == start or name.startswith(start + "-cu")), None)
        if start:
            found[start] = f"{own.version} ({name})"
    if "nvidia-cudnn" not in found:
        # Outside of Python's packages.
        folders = ("/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/lib64")
        files = [path for folder in folders for path in glob.glob(f"{folder}/libcudnn.so.*.*")]
        found.update({"nvidia-cudnn": os.path.basename(path) for path in files[:1]})
    named = {"torch": "torch", "cupy": "CuPy", "nvidia-cudnn": "cuDNN"}
    return ", ".join(f"{text} {found.get(start, 'none')}" for start, text in named.items())


def libraries():
    """The toolkit comes first, because it alone has the name without a version, which is tried first, and NVRTC loads the
    first of its other halves that it finds here. Then NVIDIA's packages for Python, and PyTorch's own folder."""
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    places.add(site.getusersitepackages())
    places.update(entry for entry in os.environ.get("PYTHONPATH", "").split(":") if entry)
    patterns = []
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            patterns.append(os.environ[variable] + "/lib64")
    patterns += ["/usr/local/cuda/lib64", "/usr/local/cuda-1[23]*/lib64", "/usr/local/cuda/targets/*/lib"]
    patterns += [f"{place}/nvidia/*/lib" for place in sorted(places)]
    patterns += [f"{place}/torch/lib" for place in sorted(places)]
    folders = []
    for pattern in patterns:
        for folder in sorted(glob.glob(pattern)):
            has = any(glob.glob(f"{folder}/{name}") for name in ("libnvrtc.so*", "libcublas.so*"))
            if has and folder not in folders:
                folders.append(folder)
    return ":".join(folders)


def unpack(folder):
    """Unpacks the binaries by Python's module, or by xz if this Python was built without it."""
    packed = sorted(glob.glob(f"{folder}/*/*.xz"))
    try:
        import lzma
    except ImportError:
        return subprocess.run(["xz", "--decompress", "--force", *packed]).returncode if packed else 0
    for path in packed:
        whole = path.removesuffix(".xz")
        with lzma.open(path) as source, open(whole, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        shutil.copymode(path, whole)
        os.remove(path)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["unpack"] and len(sys.argv) == 3:
        sys.exit(unpack(sys.argv[2]))
    asked = {"peers": peers, "libraries": libraries}.get(sys.argv[1] if len(sys.argv) == 2 else "")
    sys.exit(__doc__) if asked is None else print(asked())
