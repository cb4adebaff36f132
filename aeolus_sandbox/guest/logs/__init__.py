"""The guest program that reads log files: what runs in the log tailer's container, and its frames."""
