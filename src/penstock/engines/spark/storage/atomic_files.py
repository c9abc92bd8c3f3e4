"""Small files that survive kill -9: each is written completely or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from uuid import uuid4


def write_atomically(path: Path, content: bytes) -> None:
    """Create or replace a file in one step. Readers see the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid4().hex}")
    fresh.write_bytes(content)
    fresh.replace(path)


def create_exclusively(path: Path, content: bytes) -> bool:
    """Create a complete file unless it exists already. Return whether it was created."""
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
    """Copy a folder with hard links where the disk allows it. Spark replaces checkpoint files and never edits them."""
    try:
        shutil.copytree(source, target, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
