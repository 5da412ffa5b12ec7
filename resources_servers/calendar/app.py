# SPDX-License-Identifier: Apache-2.0
"""A chat about one day's calendar: the next reply must hold a calendar that meets everything said so far.

The reward is 1 or 0. There is often more than one right calendar, and they all count the same.
"""

from typing import Self

from pydantic import BaseModel, PositiveInt, model_validator

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer
from resources_servers.calendar import schedule


class ExpectedEvent(BaseModel):
    """What the chat says about an event."""

    duration: PositiveInt
    """In minutes."""
    constraint: str | None = None
    """`before T`, `after T`, `between A and B` or `at T`."""
    min_time: str
    """When the day begins."""
    max_time: str
    """When the day ends."""

    @model_validator(mode="after")
    def _is_understood(self) -> Self:
        self.wish("")
        return self

    def wish(self, event_id: str) -> schedule.Wish:
        """Return the event as it is checked."""
        return schedule.wish(event_id, self.duration, self.constraint, self.min_time, self.max_time)


class CalendarVerifyRequest(BaseVerifyRequest):
    """A chat and the events that must be in the calendar after it."""

    exp_cal_state: dict[str, ExpectedEvent]
    """The events by their ids."""


class CalendarResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that reads a calendar."""

    REVERIFY_MODE = ReverifyMode.STATELESS

    async def verify(self, body: CalendarVerifyRequest) -> BaseVerifyResponse:  # type: ignore[override]
        """Give 1 if the calendar in the reply meets everything."""
        wishes = [event.wish(event_id) for event_id, event in body.exp_cal_state.items()]
        is_right = schedule.is_fulfilled(grading.last_item_text(body.response), wishes)
        return BaseVerifyResponse(**dict(body), reward=float(is_right))


if __name__ == "__main__":
    CalendarResourcesServer.run_webserver()
