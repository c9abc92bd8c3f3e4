"""The option --plot, shared by the commands that draw."""

from __future__ import annotations

import click

from penstock.cli.parameters import HtmlFile

PLOT = click.option("--plot", type=HtmlFile(), help="Write the plots to this HTML file.")
