# SPDX-License-Identifier: Apache-2.0
"""Tasks about the task boards: create, move, delete, reassign, postpone, and finish several at once."""

from resources_servers.workplace_assistant.company import BOARDS, LISTS, Draw
from resources_servers.workplace_assistant.tasks.script import (
    DAYS,
    PM,
    Make,
    Script,
    Unclear,
    draw_colleague,
    require_one,
)


def create_task(draw: Draw, do: Script) -> str:
    name = draw_colleague(draw)
    day = draw.pick(DAYS)
    where = draw.pick(LISTS[:2])
    board = draw.pick(BOARDS)
    title = draw.pick(("Prepare the spring release", "Clean up old feature flags", "Review the style guide"))
    do(
        f"{PM}_create_task",
        task_name=title,
        assigned_to_email=do.address(name),
        list_name=where,
        due_date=str(day.date),
        board=board,
    )
    return (
        f"Create a task '{title}' for {name} in the list '{where}' of the board '{board}'. It is due "
        f"{day.spoken.removeprefix('on ')}"
    )


def move_task(draw: Draw, do: Script) -> str:
    task = _task(draw, do)
    where = draw.pick(LISTS)
    if task["list_name"] == where:
        raise Unclear
    do(f"{PM}_update_task", task_id=task["task_id"], field="list_name", new_value=where)
    return f"Move the task '{task['task_name']}' to the list '{where}'"


def delete_task(draw: Draw, do: Script) -> str:
    task = _task(draw, do)
    do(f"{PM}_delete_task", task_id=task["task_id"])
    return f"Delete the task '{task['task_name']}'"


def reassign_task(draw: Draw, do: Script) -> str:
    task = _task(draw, do)
    name = draw_colleague(draw)
    address = do.address(name)
    if task["assigned_to_email"] == address:
        raise Unclear
    do(f"{PM}_update_task", task_id=task["task_id"], field="assigned_to_email", new_value=address)
    return f"Give the task '{task['task_name']}' to {name}"


def postpone_task(draw: Draw, do: Script) -> str:
    task = _task(draw, do)
    day = draw.pick(DAYS)
    if task["due_date"] == str(day.date):
        raise Unclear
    do(f"{PM}_update_task", task_id=task["task_id"], field="due_date", new_value=str(day.date))
    return f"The task '{task['task_name']}' is now due {day.spoken.removeprefix('on ')}. Change its due date"


def finish_tasks(draw: Draw, do: Script) -> str:
    name = draw_colleague(draw)
    board = draw.pick(BOARDS)
    found = do(f"{PM}_search_tasks", assigned_to_email=do.address(name), list_name="In Review", board=board)
    for task in found["tasks"]:
        do(f"{PM}_update_task", task_id=task["task_id"], field="list_name", new_value="Completed")
    return f"All tasks of {name} that are in review on the board '{board}' are done. Move them to 'Completed'"


def _task(draw: Draw, do: Script) -> dict[str, str]:
    name = draw.pick(do.world.tasks)["task_name"]
    return require_one(do(f"{PM}_search_tasks", task_name=name)["tasks"])


TASKS: tuple[Make, ...] = (create_task, move_task, delete_task, reassign_task, postpone_task, finish_tasks)
