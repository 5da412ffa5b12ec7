# SPDX-License-Identifier: Apache-2.0
"""The offices in which rows can be played: our own, and one whose tables are a folder of CSV files.

Rows that were written for NeMo Gym belong to the office of the WorkBench benchmark. Its tables are not part of this
package; `fetch_workbench` downloads them. The folder may be flat, or have the parts `processed` and `raw`.
"""

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from nemo_gym.errors import GymError
from resources_servers.workplace_assistant import words
from resources_servers.workplace_assistant.company import Company, Rows, company

HARBORLIGHT = "harborlight"
WORKBENCH = "workbench"
WORKBENCH_DIR = Path(__file__).parent / "data" / "workbench"
WORKBENCH_DOMAIN = "atlas.com"
ADDRESSES = "email_addresses.csv"
COLUMNS = {
    "emails.csv": "email_id,inbox/outbox,sender/recipient,subject,sent_datetime,body",
    "calendar_events.csv": "event_id,event_name,participant_email,event_start,duration",
    "analytics_data.csv": "date_of_visit,visitor_id,page_views,session_duration_seconds,traffic_source,user_engaged",
    "project_tasks.csv": "task_id,task_name,assigned_to_email,list_name,due_date,board",
    "customer_relationship_manager_data.csv": (
        "customer_id,assigned_to_email,customer_name,customer_email,customer_phone,last_contact_date,"
        "product_interest,status,follow_up_by,notes"
    ),
}
_HINT = (
    "hint: `python -m resources_servers.workplace_assistant.fetch_workbench` downloads the tables of WorkBench, or set "
    "`world_dir` of this server to a folder of them"
)


class OfficeError(GymError):
    """The tables of an office are not there, or not what they should be."""


def name_office(arguments: Sequence[str], has_workbench: bool) -> str:
    """Return the office that a row belongs to, by the arguments of its calls.

    Rows of ours say where they belong. One that does not, and that mentions no address of either office, is taken for
    one of NeMo Gym's if the tables of that office are at hand.
    """
    text = " ".join(arguments).lower()
    if f"@{WORKBENCH_DOMAIN}" in text:
        return WORKBENCH
    if arguments and has_workbench and f"@{words.DOMAIN}" not in text:
        return WORKBENCH
    return HARBORLIGHT


def open_office(name: str, folder: Path) -> Company:
    """Return the office of this name; the tables of WorkBench are in `folder`."""
    return company() if name == HARBORLIGHT else read_office(folder)


@cache
def read_office(folder: Path) -> Company:
    """Return the office whose tables are in a folder."""
    if not folder.is_dir():
        raise OfficeError(
            f"the tables of WorkBench's office are not in {str(folder)!r}: there is no such folder.\n{_HINT}"
        )
    customers = tuple(
        {**customer, **{column: _add_time(customer[column]) for column in ("last_contact_date", "follow_up_by")}}
        for customer in _read_table(folder, "customer_relationship_manager_data.csv")
    )
    return Company(
        addresses=tuple(_find_file(folder, ADDRESSES).read_text(encoding="utf-8").split()),
        emails=_read_table(folder, "emails.csv"),
        events=_read_table(folder, "calendar_events.csv"),
        visits=_read_table(folder, "analytics_data.csv"),
        tasks=_read_table(folder, "project_tasks.csv"),
        customers=customers,
    )


def _read_table(folder: Path, name: str) -> Rows:
    with _find_file(folder, name).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        found = ",".join(reader.fieldnames or ())
        if found != COLUMNS[name]:
            raise OfficeError(
                f"{file.name!r} has other columns than expected.\nexpected: {COLUMNS[name]}\nfound: {found}\n{_HINT}"
            )
        rows = tuple(reader)
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise OfficeError(f"row {number} of {file.name!r} does not have one value for each column.\n{_HINT}")
    return rows


def _find_file(folder: Path, name: str) -> Path:
    part = "raw" if name == ADDRESSES else "processed"
    for path in (folder / name, folder / part / name):
        if path.is_file():
            return path
    raise OfficeError(f"the office in {str(folder)!r} has no {name!r}, neither there nor in {part!r}.\n{_HINT}")


def _add_time(date: str) -> str:
    # WorkBench keeps these as days; NeMo Gym's tools and rows have them with a time.
    return f"{date} 23:59:00" if len(date) == len("2023-11-30") else date
