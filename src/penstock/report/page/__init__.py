"""The page of a run: one HTML file with everything in it, no script, and nothing to be fetched."""

from penstock.report.page.render import rendered

__all__ = ["rendered"]
