"""Who decides on what `Manual` withholds: approvers, and the desk that keeps what is pending."""

from aeolus_sandbox.approvers.callback import CallbackApprover
from aeolus_sandbox.approvers.combined import AllOf, AnyOf
from aeolus_sandbox.approvers.console import ConsoleApprover
from aeolus_sandbox.approvers.desk import ApprovalDesk
from aeolus_sandbox.approvers.queue import QueueApprover

__all__ = ["AllOf", "AnyOf", "ApprovalDesk", "CallbackApprover", "ConsoleApprover", "QueueApprover"]
