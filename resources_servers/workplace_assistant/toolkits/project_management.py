# SPDX-License-Identifier: Apache-2.0
"""The task boards: look at tasks, search, create, change and delete them."""

from typing import Any

from resources_servers.workplace_assistant.company import BOARDS, LISTS
from resources_servers.workplace_assistant.toolkits.tool import (
    PAGE_SIZE,
    PAGING,
    ToolError,
    colleague,
    found,
    information,
    one_of,
    paged,
    reads,
    writable,
    writes,
)
from resources_servers.workplace_assistant.world import World, changed, next_id, without

KEY = "task_id"


def get_task_information_by_id(world: World, task_id: str, field: str) -> dict[str, str]:
    """One field of a task."""
    return information(world.tasks[found(world.tasks, KEY, task_id, "Task")], field)


def search_tasks(
    world: World,
    task_name: str | None = None,
    assigned_to_email: str | None = None,
    list_name: str | None = None,
    due_date: str | None = None,
    board: str | None = None,
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Tasks whose fields contain what is given."""
    given = {
        "task_name": task_name,
        "assigned_to_email": assigned_to_email,
        "list_name": list_name,
        "due_date": due_date,
        "board": board,
    }
    wanted = {column: value.lower() for column, value in given.items() if value}
    if not wanted:
        raise ToolError(f"No search parameters provided. Please provide at least one of: {', '.join(given)}.")
    hits = [task for task in world.tasks if all(value in task[column].lower() for column, value in wanted.items())]
    return paged(hits, "tasks", page, page_size)


def create_task(world: World, task_name: str, assigned_to_email: str, list_name: str, due_date: str, board: str) -> str:
    """Add a task; its id."""
    task = {
        KEY: next_id(world.tasks, KEY),
        "task_name": task_name,
        "assigned_to_email": colleague(assigned_to_email),
        "list_name": one_of(list_name, LISTS, "List"),
        "due_date": due_date,
        "board": one_of(board, BOARDS, "Board"),
    }
    world.tasks = (*world.tasks, task)
    return task[KEY]


def delete_task(world: World, task_id: str) -> str:
    """Delete a task."""
    world.tasks = without(world.tasks, found(world.tasks, KEY, task_id, "Task"))
    return "Task deleted successfully."


def update_task(world: World, task_id: str, field: str, new_value: str) -> str:
    """Change one field of a task."""
    place = found(world.tasks, KEY, task_id, "Task")
    column = writable(world.tasks[place], field, KEY)
    if column == "assigned_to_email":
        new_value = colleague(new_value)
    elif column == "list_name":
        one_of(new_value, LISTS, "List")
    elif column == "board":
        one_of(new_value, BOARDS, "Board")
    world.tasks = changed(world.tasks, place, column, new_value)
    return "Task updated successfully."


_ID = "8-digit ID of the task."
_FIELDS = "'task_name', 'assigned_to_email', 'list_name', 'due_date', 'board'"
_LIST = f"One of {', '.join(map(repr, LISTS))}."
_BOARD = f"One of {', '.join(map(repr, BOARDS))}."
_ASSIGNEE = "Email address of the colleague who has the task."
TOOLS = (
    reads(
        get_task_information_by_id,
        "project_management_get_task_information_by_id",
        "Gets one field of a task.",
        task_id=_ID,
        field=f"One of 'task_id', {_FIELDS}.",
    ),
    reads(
        search_tasks,
        "project_management_search_tasks",
        "Searches for tasks whose fields contain what is given; at least one field is needed.",
        task_name="Name of the task, or a part of it.",
        assigned_to_email=_ASSIGNEE,
        list_name=_LIST,
        due_date="Day on which it is due, as 'YYYY-MM-DD'.",
        board=_BOARD,
        **PAGING,
    ),
    writes(
        create_task,
        "project_management_create_task",
        "Creates a task and returns its ID.",
        task_name="Name of the task.",
        assigned_to_email=_ASSIGNEE,
        list_name=_LIST,
        due_date="Day on which it is due, as 'YYYY-MM-DD'.",
        board=_BOARD,
    ),
    writes(delete_task, "project_management_delete_task", "Deletes a task.", task_id=_ID),
    writes(
        update_task,
        "project_management_update_task",
        "Changes one field of a task.",
        task_id=_ID,
        field=f"One of {_FIELDS}.",
        new_value="What the field is to be.",
    ),
)
