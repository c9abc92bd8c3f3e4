"""Small files that survive kill -9: written whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from uuid import uuid4


def write_whole(path: Path, content: bytes) -> None:
    """Replaces the file in one step; readers see the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid4().hex}")
    fresh.write_bytes(content)
    fresh.replace(path)


def create_once(path: Path, content: bytes) -> bool:
    """Creates the file whole unless it is there already; says whether it did."""
    fresh = path.with_name(f".{path.name}.{uuid4().hex}")
    fresh.write_bytes(content)
    try:
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True


def copy_tree(source: Path, target: Path) -> None:
    """A copy that shares files where the disk allows it: Spark replaces checkpoint files, and never edits them."""
    try:
        shutil.copytree(source, target, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
