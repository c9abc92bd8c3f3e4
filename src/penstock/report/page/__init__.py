"""HTML pages: one self-contained file each, without scripts and without requests to the network."""

from penstock.report.page.arena_page import arena_page
from penstock.report.page.render import curves_page, elastic_page, mst_page, platforms_page, run_page, write_page

__all__ = ["arena_page", "curves_page", "elastic_page", "mst_page", "platforms_page", "run_page", "write_page"]
