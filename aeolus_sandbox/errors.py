"""Every error that this library raises, in one tree.

::

    AeolusError                         code, retryable
     + ConfigurationError   ValueError        a wrong input, spec or limit: found before any I/O
     |  . CommandRefused                      the command check refused a command
     |  . CodeRefused                         the analysis of code refused a piece of code
     + CapabilityDenied     PermissionError   the grants do not cover what the tool requires
     |  . LogPathRefused                      a path leads out of what the grants let be read
     + QuotaExceeded        retryable         too many sessions at once
     + EngineError
     |  . EngineUnavailable ConnectionError   retryable: no engine answers
     |  . EngineTimeout     TimeoutError      retryable: the engine did not answer in time
     |  . ImageNotFound     LookupError       the image is not on the engine
     |  . RuntimeMissing    LookupError       the engine has no runtime of this name (gVisor's, say)
     |  . ImageBuildFailed                    a step of an image build failed
     |  . LaunchFailed                        the engine refused or broke the launch
     |     - ShellMissing                     the image has no `sh` to park in
     + SessionError
     |  . SessionClosed                       you closed it
     |  . SessionBroken                       something outside broke it
     |  . SessionBusy                         two readers at once
     |  . NotInteractive                      the tool takes no stdin
     |  . ArtifactError                       a file of the workspace cannot be fetched
     + ApprovalError
     |  . ApprovalDenied    PermissionError   what waited for a decision was denied, or nobody could answer
     |  . ApprovalTimedOut  TimeoutError      nobody decided in time
     |  . ApprovalNotFound  LookupError       no such approval is pending
     + CheckpointError
     |  . CheckpointConflict                  the idempotency key belongs to another tool or input
     |  . CheckpointBusy    retryable         a run of the same key has not ended yet
     |  . RunInterrupted                      a run that must not be repeated began and never ended
     + StorageError                           the state file cannot be read or written
     |  . StorageFull                         no room on its disk
     |  . StorageBusy       retryable         another process holds it locked
     + ModelError                             the language model refused, or answered nonsense
     |  . ModelUnavailable  ConnectionError   retryable: overloaded, rate limited, or not reached
     + AgentError
     |  . TurnLimitReached                    the agent has used up its turns
     |  . ConversationNotFound LookupError    the history has no such conversation
     |  . ConversationConflict                another process has continued the conversation meanwhile
     |  . ConsumerError                       a consumer takes no more events: its channel is full or closed
     + GuestProtocolError                     the guest sent what no honest guest sends

What *untrusted code* does (a non-zero exit, running out of memory or time, a flood of output) is never an
exception: it is data, see `ExitStatus`.
`code` is stable and meant for programs; the message is meant for people and says what to do next.
"""

from typing import ClassVar


class AeolusError(Exception):
    """Base of every error of this library."""

    code: ClassVar[str] = "error"
    """Stable name of the kind of error."""
    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without a change by the caller."""


class ConfigurationError(AeolusError, ValueError):
    """An input, specification or limit is wrong; found before any I/O."""

    code = "configuration"


class CommandRefused(ConfigurationError):
    """The command check found a dangerous command and its policy says deny."""

    code = "command_refused"


class CodeRefused(ConfigurationError):
    """The analysis found dangerous code and its policy says deny."""

    code = "code_refused"


class CapabilityDenied(AeolusError, PermissionError):
    """The grants of the manager do not cover what the tool requires."""

    code = "capability_denied"


class LogPathRefused(CapabilityDenied):
    """A path is none of a log file below the folders that may be read, or leads out of them."""

    code = "log_path_refused"


class QuotaExceeded(AeolusError):
    """As many sessions as the limits allow are open already."""

    code = "quota_exceeded"
    retryable = True


class EngineError(AeolusError):
    """The container engine failed to do what was asked."""

    code = "engine"


class EngineUnavailable(EngineError, ConnectionError):
    """No engine answers at the address."""

    code = "engine_unavailable"
    retryable = True


class EngineTimeout(EngineError, TimeoutError):
    """The engine did not answer in time."""

    code = "engine_timeout"
    retryable = True


class ImageNotFound(EngineError, LookupError):
    """The image is not on the engine."""

    code = "image_not_found"


class RuntimeMissing(EngineError, LookupError):
    """The engine has no runtime of this name, so that the isolation that was asked for cannot be had."""

    code = "runtime_missing"


class ImageBuildFailed(EngineError):
    """A step of an image build failed."""

    code = "image_build_failed"


class LaunchFailed(EngineError):
    """The engine refused the launch, or the container ended before it was ready."""

    code = "launch_failed"


class ShellMissing(LaunchFailed):
    """The image has no `sh`, so that a container of it cannot be parked."""

    code = "shell_missing"


class SessionError(AeolusError):
    """A session cannot do what was asked of it."""

    code = "session"


class SessionClosed(SessionError):
    """The session was closed by its owner."""

    code = "session_closed"


class SessionBroken(SessionError):
    """Something outside broke the session: the engine went away, or the container was lost."""

    code = "session_broken"


class SessionBusy(SessionError):
    """Another task is reading from the session already."""

    code = "session_busy"


class NotInteractive(SessionError):
    """The tool takes no input while it runs."""

    code = "not_interactive"


class AgentError(AeolusError):
    """A run of an agent cannot go on."""

    code = "agent"
    session: object = None
    """The run's `AgentSession`, with all that it came to, where there was one."""


class TurnLimitReached(AgentError):
    """The model still called tools when the agent's turns were used up; the transcript is whole."""

    code = "turn_limit_reached"


class ConversationNotFound(AgentError, LookupError):
    """The history has no conversation of this id."""

    code = "conversation_not_found"


class ConversationConflict(AgentError):
    """The conversation was continued by somebody else since it was loaded; load it again."""

    code = "conversation_conflict"


class ConsumerError(AgentError):
    """A consumer takes no more events: its channel is full, or closed."""

    code = "consumer"


class GuestProtocolError(AeolusError):
    """The guest sent something that is not a well-formed frame, or broke a size limit."""

    code = "guest_protocol"


class ArtifactError(SessionError):
    """A file of the workspace cannot be fetched: it is not there, not a regular file, too large, or gone."""

    code = "artifact"


class ApprovalError(AeolusError):
    """What waits for a human decision did not pass."""

    code = "approval"


class ApprovalDenied(ApprovalError, PermissionError):
    """It was denied, or nobody could answer; the message tells the two apart."""

    code = "approval_denied"


class ApprovalTimedOut(ApprovalError, TimeoutError):
    """Nobody decided in time."""

    code = "approval_timed_out"


class ApprovalNotFound(ApprovalError, LookupError):
    """No approval of this id waits for a decision."""

    code = "approval_not_found"


class CheckpointError(AeolusError):
    """A run cannot be started under this idempotency key."""

    code = "checkpoint"


class CheckpointConflict(CheckpointError):
    """The idempotency key belongs to a run of another tool or with another input."""

    code = "checkpoint_conflict"


class CheckpointBusy(CheckpointError):
    """A run with the same idempotency key has not ended in the time that was given."""

    code = "checkpoint_busy"
    retryable = True


class RunInterrupted(CheckpointError):
    """A run of a tool that is not idempotent began under this key and never ended: nobody knows what it did."""

    code = "run_interrupted"


class StorageError(AeolusError):
    """The file that keeps checkpoints and approvals cannot be read or written."""

    code = "storage"


class StorageFull(StorageError):
    """There is no room on the disk of the state file; what was stored before is not touched."""

    code = "storage_full"


class StorageBusy(StorageError):
    """Another process holds the state file locked."""

    code = "storage_busy"
    retryable = True


class ModelError(AeolusError):
    """The language model refused the request, or its answer cannot be used."""

    code = "model"

    retry_after_s: float | None = None
    """How long the model's service asks to wait before the next try, in seconds."""
    session: object = None
    """The `AgentSession` of the run that ends with it, with all that it came to, where there was one."""


class ModelUnavailable(ModelError, ConnectionError):
    """The model's service is overloaded, limits the rate, or cannot be reached."""

    code = "model_unavailable"
    retryable = True
