"""Several approvers as one: any of them may decide, or all of them must agree."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Approver, Decision, Deny, Edit
from aeolus_sandbox.streaming.clipping import clip_text

_logger = logging.getLogger(__name__)

_MAX_EDITS: Final = 5
"""After how many edits of one text those who must agree are taken to disagree."""
_PREVIEW_CHARACTERS: Final = 500


class AnyOf:
    """Asks all members that play one of the request's roles at once: the first who lets it pass decides.

    It is denied when all have denied. The members are named by role, such as `role:admin`.
    """

    def __init__(self, members: Mapping[str, Approver]) -> None:
        self._members = dict(members)

    async def decide(self, request: ApprovalRequest) -> Decision:
        """Return the first approval or edit, else the denials as one; see `Approver.decide`."""
        roles = [role for role in _roles(request) if role in self._members]
        if not roles:
            return _nobody_plays(_roles(request))
        denials: list[Deny] = []
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_ask(role, self._members[role], request)) for role in roles]
            for answering in asyncio.as_completed(asked):
                decision = await answering
                if isinstance(decision, Deny):
                    denials.append(decision)
                    continue
                for each in asked:
                    each.cancel()
                return decision
        return _as_one(denials)


class AllOf:
    """Asks the members that play the request's roles one after the other: all of them must let it pass.

    What one of them edits must be approved, as edited, by all others. A role that nobody plays denies: whoever
    must agree and is not there has not agreed.
    """

    def __init__(self, members: Mapping[str, Approver]) -> None:
        self._members = dict(members)

    async def decide(self, request: ApprovalRequest) -> Decision:
        """Return what all agree on, else the first denial; see `Approver.decide`."""
        roles = _roles(request)
        if missing := [role for role in roles if role not in self._members]:
            return _nobody_plays(missing)
        agreed: dict[str, str] = {}
        current, edits = request, 0
        while waiting := [role for role in roles if role not in agreed]:
            decision = await _ask(waiting[0], self._members[waiting[0]], current)
            if isinstance(decision, Deny):
                return decision
            if isinstance(decision, Edit) and (decision.text != current.text or current.beyond_text):
                current, edits = _edited(current, decision.text), edits + 1
                agreed.clear()
            if edits > _MAX_EDITS:
                reason = f"no agreement after {_MAX_EDITS} edits"
                return Deny(by=decision.by, reason=reason, answered=False)
            agreed[waiting[0]] = decision.by
        by = ", ".join(agreed[role] for role in roles)
        return Approve(by=by) if current is request else Edit(by=by, text=current.text)


def _roles(request: ApprovalRequest) -> list[str]:
    return list(dict.fromkeys(request.approvers))


async def _ask(role: str, member: Approver, request: ApprovalRequest) -> Decision:
    """Return a member's decision, made in the name of its role."""
    try:
        decision = await member.decide(request)
        by = f"{role} ({decision.by})"
        return decision.model_copy(update={"by": by})
    except Exception as error:  # noqa: BLE001 - no answer, whatever it is; what it says may hold the text
        _logger.warning("the approver of the role %r failed: %s", role, type(error).__name__)
        return Deny(by=role, reason=f"the approver failed ({type(error).__name__})", answered=False)


def _nobody_plays(roles: Sequence[str]) -> Deny:
    # Boundary: who is not there cannot approve.
    return Deny(by="nobody", reason=f"nobody plays {', '.join(map(repr, roles))}", answered=False)


def _as_one(denials: Sequence[Deny]) -> Deny:
    """Return several denials as one: those who said no, else those who could not answer."""
    telling = [each for each in denials if each.answered] or denials
    if len(telling) == 1:
        return telling[0]
    return Deny(
        by=", ".join(each.by for each in telling),
        reason="; ".join(f"{each.by}: {each.reason}" for each in telling if each.reason),
        answered=telling[0].answered,
    )


def _edited(request: ApprovalRequest, text: str) -> ApprovalRequest:
    preview = clip_text(text, max(len(request.preview), _PREVIEW_CHARACTERS))
    return request.model_copy(update={"text": text, "preview": preview, "beyond_text": ""})
