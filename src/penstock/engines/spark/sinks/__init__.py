"""Writers that store each batch of a query exactly once."""
