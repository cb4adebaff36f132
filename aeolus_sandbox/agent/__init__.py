"""The agent half: a language model that uses the sandboxed tools, streamed to consumers."""
