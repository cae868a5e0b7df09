"""Pack the fedfuse that runs here as a wheel, so that every machine of a federation installs the same."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import fedfuse
from fedfuse.types import FedfuseError

TAG = "py3-none-any"
METADATA = ("METADATA", "entry_points.txt")


def pack_wheel(folder: Path) -> Path:
    """Write `fedfuse-<version>-py3-none-any.whl` to `folder`. It needs no network and no build tools."""
    own = distribution("fedfuse")
    name = f"fedfuse-{own.version}"
    package = Path(fedfuse.__file__).parent
    files = {
        str(Path("fedfuse") / file.relative_to(package)): file.read_bytes()
        for file in sorted(package.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    for part in METADATA:
        text = own.read_text(part)
        if text is None:
            raise FedfuseError(f"the installed fedfuse has no {part}: install it again with pip")
        files[f"{name}.dist-info/{part}"] = text.encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: fedfuse\nRoot-Is-Purelib: true\nTag: {TAG}\n"
    files[f"{name}.dist-info/WHEEL"] = wheel.encode()
    record = "".join(f"{path},{_hash(content)},{len(content)}\n" for path, content in files.items())
    files[f"{name}.dist-info/RECORD"] = f"{record}{name}.dist-info/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}-{TAG}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return target


def _hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
