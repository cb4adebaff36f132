"""Programs that do a peer's part of a benchmark, each run by the Python of that peer's own environment.

They import nothing of ours but `protocol`, which needs the standard library alone.
"""
