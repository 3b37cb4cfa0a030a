"""Writes the wheel: the Python package and the C library, for every Python 3 of this platform.

Usage: build_wheel.py LIBRARY FOLDER. Prints the path of the wheel.
"""

import base64
import hashlib
import re
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent
METADATA = """\
Metadata-Version: 2.1
Name: cachescope
Version: {version}
Summary: Named caches under the memory of NumPy arrays
License: MIT OR Apache-2.0
Requires-Python: >=3.8
Requires-Dist: numpy>=1.22
Description-Content-Type: text/markdown

{readme}"""
WHEEL = """\
Wheel-Version: 1.0
Generator: cachescope
Root-Is-Purelib: false
Tag: {tag}
"""


def main(library: Path, folder: Path) -> None:
    source = (ROOT / "cachescope" / "_version.py").read_text()
    version = re.search(r'__version__ = "(.+)"', source).group(1)
    platform = re.sub(r"[^a-zA-Z0-9_]", "_", sysconfig.get_platform())
    tag = f"py3-none-{platform}"
    about = f"cachescope-{version}.dist-info"
    package = sorted((ROOT / "cachescope").glob("*.py")) + [ROOT / "cachescope" / "py.typed", library]
    files = {f"cachescope/{path.name}": path.read_bytes() for path in package}
    readme = (ROOT / "README.md").read_text()
    files[f"{about}/METADATA"] = METADATA.format(version=version, readme=readme).encode()
    files[f"{about}/WHEEL"] = WHEEL.format(tag=tag).encode()
    for license in sorted(ROOT.resolve().parents[2].glob("LICENSE-*")):
        files[f"{about}/licenses/{license.name}"] = license.read_bytes()
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()},{len(content)}"
        for name, content in files.items()
    ]
    record.append(f"{about}/RECORD,,")
    files[f"{about}/RECORD"] = "\n".join([*record, ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"cachescope-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    print(wheel)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
