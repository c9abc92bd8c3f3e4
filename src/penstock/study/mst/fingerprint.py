"""A fingerprint of the measured program, so that trials of different programs are not mixed."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.load import modules_by_value

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def fingerprint(flow: Dataflow) -> str:
    """Return a hash of the code of the flow's file and of the modules next to it that it imports."""
    files = {Path(str(module.__file__)) for module in modules_by_value(flow)}
    hashes = sorted(
        hashlib.sha256(_code(file)).hexdigest() for file in files if file.is_file()
    )  # a module in a zip archive has no file
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]


def _code(file: Path) -> bytes:
    """Return the code without comments, docstrings and layout, which do not affect measurements."""
    content = file.read_bytes()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # no source, such as a compiled extension
        return content
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.unparse(tree).encode()
