"""The cells: which one runs, which wait, and which operation an output belongs to."""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.guest.frames import Execute
from aeolus_sandbox.guest.kernel_messages import ReplyContent

MAX_WAITING: Final = 1000
"""How many cells may wait."""
_OPS_REMEMBERED: Final = 1000


@dataclass(slots=True)
class Execution:
    """One cell on its way."""

    request: Execute
    message_id: str = ""
    begun: bool = False
    """The kernel has begun with it: from here on an interrupt reaches it."""
    interrupted: bool = False
    error_shown: bool = False
    questions: int = 0
    """How many lines of input it waits for."""
    question_announced: bool = False
    """The kernel has said on the output channel that it asks."""
    idle: bool = False
    """The kernel has said on the output channel that it is done."""
    reply: ReplyContent | None = None

    @property
    def op(self) -> int:
        """The operation that it belongs to."""
        return self.request.op

    @property
    def half_ended(self) -> bool:
        """Whether one of the two ends has come."""
        return self.idle or self.reply is not None

    @property
    def ended(self) -> bool:
        """Whether both ends have come."""
        return self.idle and self.reply is not None

    @property
    def status(self) -> str:
        """How it ended, in the words of `Done`."""
        if self.interrupted:
            return "interrupted"  # whatever the kernel says: an interrupted `!command` is `ok` to IPython
        status = self.reply.status if self.reply else "error"
        return {"ok": "ok", "aborted": "aborted", "abort": "aborted"}.get(status, "error")


class Executions:
    """A queue of cells that the kernel gets one at a time."""

    def __init__(self) -> None:
        self.current: Execution | None = None
        self.held = True
        """No kernel is there to run them."""
        self._waiting: deque[Execution] = deque()
        self._ops: OrderedDict[str, int] = OrderedDict()

    def add(self, request: Execute) -> bool:
        """Append a cell; False when too many wait."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append(Execution(request))
        return True

    def take_next(self) -> Execution | None:
        """Return the cell that is to run now and make it the current one, if there is any."""
        if self.held or self.current or not self._waiting:
            return None
        self.current = self._waiting.popleft()
        return self.current

    def sent(self, execution: Execution, message_id: str) -> None:
        """Note under which message the kernel has got the cell."""
        execution.message_id = message_id
        self._ops[message_id] = execution.op
        if len(self._ops) > _OPS_REMEMBERED:
            self._ops.popitem(last=False)

    def op_of(self, message_id: str) -> int:
        """Return the operation that output with this parent belongs to: 0 when it is unknown."""
        return self._ops.get(message_id, 0)

    def withdraw(self, op: int) -> bool:
        """Remove a cell that waits; False when none of that number does."""
        for execution in self._waiting:
            if execution.op == op:
                self._waiting.remove(execution)
                return True
        return False

    def withdraw_all(self) -> list[int]:
        """Remove all cells that wait, and return their operations."""
        ops = [execution.op for execution in self._waiting]
        self._waiting.clear()
        return ops
