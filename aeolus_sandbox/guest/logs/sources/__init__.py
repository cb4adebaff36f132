"""Log files as they are found, followed, and read block by block."""
