"""Where a plan runs. ports.py is the contract; each engine is a folder."""
