"""Sandboxes: containers that are parked, used once and removed, and what sees to it that none is left behind."""
