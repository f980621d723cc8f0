"""OneGroup: a group and the rows of a session, for a member that is tested alone."""

from __future__ import annotations

from statemachines.kernel import Answer, Request
from statemachines.persistent_sessions import group_member_record as m
from statemachines.persistent_sessions.shared_group import WAIT_FOR_END


class OneGroup:
    """The service "groups" of a member: it is ending when it is declared for the first time, and every third piece that
    is stored, and every third look, is answered in another way than those before."""

    name = m.GROUPS

    def initial(self) -> tuple[int, int, int]:
        """So often it was declared, looked at, and stored."""
        return (0, 0, 0)

    def apply(
        self, state: tuple[int, int, int], request: Request, now_ns: int
    ) -> tuple[tuple[int, int, int], tuple[Answer, ...]]:
        """What is asked is done at once."""
        declared, looked, stored = state
        match request:
            case m.DeclareMemberGroup():
                return (declared + 1, looked, stored), (m.MemberDeclared("" if declared else WAIT_FOR_END),)
            case m.JoinGroup():
                return state, (m.GroupJoined(),)
            case m.CountStored():
                return state, (m.StoredCounted(0),)
            case m.ReadTime():
                return state, (m.TimeRead(7),)
            case m.FindWaiter():
                return (declared, (looked + 1) % 3, stored), (m.WaiterFound(looked == 2),)
            case m.StorePiece():
                answer = m.PieceRefused() if stored == 2 else m.PieceStored(1, 1)
                return (declared, looked, (stored + 1) % 3), (answer,)
        return state, ()
