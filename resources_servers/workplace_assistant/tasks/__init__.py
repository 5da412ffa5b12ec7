# SPDX-License-Identifier: Apache-2.0
"""Tasks for the assistant: each is a wish in words and the calls that fulfil it, made by playing them.

A task draws people and things and plays the calls in a world of its own, so its ids and conditions are those of the
tables. `Unclear` is raised where the words would fit more than one thing, or nothing; whoever asked draws again.
"""

from collections.abc import Mapping

from resources_servers.workplace_assistant.tasks import (
    analytics,
    calendar,
    customer_relationship_manager,
    email,
    project_management,
)
from resources_servers.workplace_assistant.tasks.script import Make, Script as Script, Unclear as Unclear

TASKS: Mapping[str, tuple[Make, ...]] = {
    "email": email.TASKS,
    "calendar": calendar.TASKS,
    "analytics": analytics.TASKS,
    "project_management": project_management.TASKS,
    "customer_relationship_manager": customer_relationship_manager.TASKS,
}
