"""The code that runs inside containers, and the frames that it shares with the host.

Everything that runs here is untrusted once a container has started: the host checks each frame like any input.
"""
