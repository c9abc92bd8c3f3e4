"""Arguments in the name of a dataflow: `my.package:make_flow(rows=1000)`, as in the application names of gunicorn."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from penstock.dataflow.errors import PenstockError

_CALL = re.compile(r"(?P<name>.+:\w+)\((?P<arguments>.*)\)", re.DOTALL)


class ArgumentsError(PenstockError):
    """The arguments cannot be read."""


def split_arguments(spec: str) -> tuple[str, dict[str, Any]]:
    """Return the name without arguments, and the arguments: names with literal values.

    >>> split_arguments("nexmark:q5(rows=1000, output='out/q5')")
    ('nexmark:q5', {'rows': 1000, 'output': 'out/q5'})
    >>> split_arguments("wordcount.py:flow")
    ('wordcount.py:flow', {})
    """
    match = None if Path(spec).exists() else _CALL.fullmatch(spec)
    if match is None:
        return spec, {}
    try:
        call = ast.parse(f"call({match['arguments']})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError
        return match["name"], {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise ArgumentsError(
            f"The arguments in '{spec}' cannot be read; give names with literal values, such as "
            f"'{match['name']}(rows=1000)'."
        ) from None
