"""Policies: how what a tool streams becomes what its reader sees.

A policy is configuration (pure data); `view` gives its view over one session's spool.
Adding one means adding a module with both; nothing else knows which policies exist.
"""

from aeolus_sandbox.streaming.policies.base import ContextWindow, Policy, PolicyContext, PolicyView
from aeolus_sandbox.streaming.policies.buffer import Buffer
from aeolus_sandbox.streaming.policies.manual import Manual
from aeolus_sandbox.streaming.policies.summarise import Summarise
from aeolus_sandbox.streaming.policies.window import Window

__all__ = [
    "Buffer",
    "ContextWindow",
    "Manual",
    "Policy",
    "PolicyContext",
    "PolicyView",
    "Summarise",
    "Window",
]
