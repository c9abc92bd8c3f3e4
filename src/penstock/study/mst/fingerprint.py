"""What a study measures, as a fingerprint: trials of two programs make no curve."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.load import modules_by_value

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def fingerprint(flow: Dataflow) -> str:
    """Of the code of the flow's file and of the modules beside it that it has imported; what is installed is not looked
    at."""
    files = {Path(str(module.__file__)) for module in modules_by_value(flow)}
    each = sorted(hashlib.sha256(_code(file)).hexdigest() for file in files if file.is_file())  # not so in a zip
    return hashlib.sha256("".join(each).encode()).hexdigest()[:16]


def _code(file: Path) -> bytes:
    """As Python itself would write it: comments, docstrings and how it is laid out change no measurement."""
    content = file.read_bytes()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # no source, such as a compiled extension
        return content
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.unparse(tree).encode()
