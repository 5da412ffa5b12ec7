# SPDX-License-Identifier: Apache-2.0
"""The task boards: look at tasks, search, create, change and delete them."""

from typing import Any

from resources_servers.workplace_assistant.company import BOARDS, LISTS
from resources_servers.workplace_assistant.toolkits.tool import (
    PAGE_SIZE,
    PAGING,
    ToolError,
    find_row,
    get_field,
    make_id,
    reads,
    require_choice,
    take_page,
    writes,
)
from resources_servers.workplace_assistant.world import World, change_row, remove_row

KEY = "task_id"
_ID = "8-digit ID of the task."
_FIELDS = "'task_name', 'assigned_to_email', 'list_name', 'due_date', 'board'"
_LIST = f"One of {', '.join(map(repr, LISTS))}."
_BOARD = f"One of {', '.join(map(repr, BOARDS))}."
_ASSIGNEE = "Email address of the colleague who has the task."


@reads(task_id=_ID, field=f"One of 'task_id', {_FIELDS}.")
def get_task_information_by_id(world: World, task_id: str, field: str) -> dict[str, str]:
    """Gets one field of a task."""
    return get_field(world.tasks[find_row(world.tasks, KEY, task_id, "Task")], field)


@reads(
    task_name="Name of the task, or a part of it.",
    assigned_to_email=_ASSIGNEE,
    list_name=_LIST,
    due_date="Day on which it is due, as 'YYYY-MM-DD'.",
    board=_BOARD,
    **PAGING,
)
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
    """Searches for tasks whose fields contain what is given; at least one field is needed."""
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
    return take_page(hits, "tasks", page, page_size)


@writes(
    task_name="Name of the task.",
    assigned_to_email=_ASSIGNEE,
    list_name=_LIST,
    due_date="Day on which it is due, as 'YYYY-MM-DD'.",
    board=_BOARD,
)
def create_task(world: World, task_name: str, assigned_to_email: str, list_name: str, due_date: str, board: str) -> str:
    """Creates a task and returns its ID."""
    task = {
        KEY: make_id(world.tasks, KEY),
        "task_name": task_name,
        "assigned_to_email": _require_assignee(world, assigned_to_email),
        "list_name": require_choice(list_name, LISTS, "List"),
        "due_date": due_date,
        "board": require_choice(board, BOARDS, "Board"),
    }
    world.tasks = (*world.tasks, task)
    return task[KEY]


@writes(task_id=_ID)
def delete_task(world: World, task_id: str) -> str:
    """Deletes a task."""
    world.tasks = remove_row(world.tasks, find_row(world.tasks, KEY, task_id, "Task"))
    return "Task deleted successfully."


@writes(task_id=_ID, field=f"One of {_FIELDS}.", new_value="What the field is to be.")
def update_task(world: World, task_id: str, field: str, new_value: str) -> str:
    """Changes one field of a task."""
    place = find_row(world.tasks, KEY, task_id, "Task")
    require_choice(field, list(world.tasks[place]), "Field")
    if field == "assigned_to_email":
        new_value = _require_assignee(world, new_value)
    elif field == "list_name":
        require_choice(new_value, LISTS, "List")
    elif field == "board":
        require_choice(new_value, BOARDS, "Board")
    world.tasks = change_row(world.tasks, place, field, new_value)
    return "Task updated successfully."


def _require_assignee(world: World, address: str) -> str:
    """Return the address of someone who has a task already."""
    if all(task["assigned_to_email"] != address.lower() for task in world.tasks):
        raise ToolError("Assignee email not valid. Please choose the email address of a colleague.")
    return address.lower()
