"""Sphinx configuration. `make docs` treats every warning, broken link and failing example as an error."""

import ast
import importlib
import inspect
import pkgutil
from importlib.metadata import version as installed_version

import penstock.api

project = "Penstock"
author = "The Penstock contributors"
project_copyright = "The Penstock contributors, Apache-2.0"
version = release = installed_version("penstock")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx_click",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "Penstock"
html_static_path = ["_static"]

default_role = "code"  # single backticks in docstrings

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
add_module_names = False
smartquotes = False  # two hyphens of an option stay two hyphens

# Classes of the standard library and of pandas, which this documentation does not contain.
nitpick_ignore_regex = [("py:class", r"(pathlib\.Path|collections\.abc\.\w+|pandas\.\S+|pd\.DataFrame|optional)")]

# Only the blocks that are marked as doctest run here. The test suite runs the doctests of the source code.
doctest_test_doctest_blocks = ""


def import_names_of_annotations() -> None:
    """Execute the imports that the API modules make for type checkers only, so that autodoc resolves annotations."""
    for info in pkgutil.iter_modules(penstock.api.__path__, "penstock.api."):
        module = importlib.import_module(info.name)
        for statement in ast.parse(inspect.getsource(module)).body:
            if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
                exec(compile(ast.Module(statement.body, []), info.name, "exec"), vars(module))


import_names_of_annotations()
