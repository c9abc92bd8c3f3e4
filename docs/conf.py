"""Sphinx configuration. `make docs` treats every warning, broken link and failing example as an error."""

from importlib.metadata import version as installed_version

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

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_mock_imports: list[str] = []
add_module_names = False

# Only the blocks that are marked as doctest run here. The test suite runs the doctests of the source code.
doctest_test_doctest_blocks = ""
