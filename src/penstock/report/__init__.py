"""HTML and PNG from a store."""
