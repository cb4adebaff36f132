"""What survives the host process: checkpoints and approvals, in one SQLite file."""
