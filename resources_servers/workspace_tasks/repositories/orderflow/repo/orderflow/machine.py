# SPDX-License-Identifier: Apache-2.0
"""A machine with states, and events that lead from one to another."""


class Machine:
    """Follows a table `{state: {event: next state}}`; the event `*` stands for any that a state does not name."""

    def __init__(self, table: dict[str, dict[str, str]], start: str) -> None:
        unknown = {state for moves in table.values() for state in moves.values()} | {start}
        if missing := sorted(unknown - table.keys()):
            raise ValueError(f"the table does not have the states {', '.join(missing)}")
        self.table, self.state = table, start
        self.history = [start]

    def can(self, event: str) -> bool:
        """Tell whether an event leads anywhere from here."""
        return event in self.table[self.state] or "*" in self.table[self.state]

    def send(self, event: str) -> str:
        """Follow an event and return the new state."""
        moves = self.table[self.state]
        if not self.can(event):
            raise ValueError(f"{event!r} means nothing in the state {self.state!r}")
        self.state = moves[event] if event in moves else moves["*"]
        self.history.append(self.state)
        return self.state

    def is_final(self) -> bool:
        """Tell whether no event leads away from here."""
        return not self.table[self.state]
