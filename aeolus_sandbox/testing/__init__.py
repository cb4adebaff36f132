"""For the tests of whoever builds on this library: an engine without containers, and the suite that engines must pass.

Nothing of the library imports it.
"""
