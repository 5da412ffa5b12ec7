# SPDX-License-Identifier: Apache-2.0
"""A row is played in the office that it belongs to, whose tables can be a folder; one that does not fit is refused."""

import csv
import http.server
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, build_server, reply, running, tool_call
from resources_servers.workplace_assistant import fetch_workbench, generate_data, offices
from resources_servers.workplace_assistant.app import WorkplaceAssistantResourcesServer
from resources_servers.workplace_assistant.offices import OfficeError, read_office

SERVER = "workplace_assistant"
OLGA, LUIS = "olga.petrova@atlas.com", "luis.ortiz@atlas.com"
TABLES = {
    "emails.csv": [["00000007", "inbox", LUIS, "Budget, again", "2023-10-01 09:15:02", r"Sam,\n\nPlease check."]],
    "calendar_events.csv": [["00000013", "sync up", LUIS, "2023-08-01 09:00:00", "90"]],
    "analytics_data.csv": [["2023-10-22", "0860", "8", "4", "referral", "False"]],
    "project_tasks.csv": [["00000149", "Add animation", OLGA, "Backlog", "2023-11-27", "Front end"]],
    "customer_relationship_manager_data.csv": [
        ["00000189", LUIS, "Taylor", "taylor@nanolabs", "", "2023-11-30", "Consulting", "Lost", "2023-12-22", ""]
    ],
}
REPLY = ("email_reply_email", {"email_id": "00000007", "body": "Done."})
ASSIGN = "project_management_update_task"


def write_office(folder: Path, layout: str = "flat") -> Path:
    for name, rows in TABLES.items():
        path = folder / ("processed" if layout == "parts" else "") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([offices.COLUMNS[name].split(","), *rows])
    path = folder / ("raw" if layout == "parts" else "") / "email_addresses.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{LUIS}\n{OLGA}")
    return folder


@pytest.fixture(autouse=True)
def no_tables_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(offices, "WORKBENCH_DIR", tmp_path / "nothing")
    yield
    read_office.cache_clear()


async def post(path: str, *said: Any, ground_truth: list[Any], config: Any = None, **row: Any) -> tuple[int, Any]:
    calls = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in ground_truth]
    body = {"responses_create_params": asked("?"), "response": reply(*said), "ground_truth": calls, "id": 5, **row}
    async with running(**{SERVER: build_server(WorkplaceAssistantResourcesServer, **(config or {}))}) as client:
        answer = await client.post(SERVER, path, json=body)
        return answer.status, await get_response_json(answer)


async def reward(*said: Any, **row: Any) -> float:
    status, answer = await post("/verify", *said, **row)
    assert status == 200, answer
    return float(answer["reward"])


# --- the tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["flat", "parts"])
def test_an_office_is_read_from_a_folder(tmp_path, layout):
    office = read_office(write_office(tmp_path, layout))
    assert office.addresses == (LUIS, OLGA)
    assert office.emails[0]["subject"] == "Budget, again"
    assert office.tasks[0]["assigned_to_email"] == OLGA
    assert office.customers[0]["follow_up_by"] == "2023-12-22 23:59:00"


def test_a_table_that_is_missing_is_named(tmp_path):
    (write_office(tmp_path) / "emails.csv").unlink()
    with pytest.raises(OfficeError, match=r"no 'emails\.csv'"):
        read_office(tmp_path)


def test_a_table_with_other_columns_is_refused(tmp_path):
    (write_office(tmp_path) / "emails.csv").write_text("id,text\n1,x\n")
    with pytest.raises(OfficeError, match="found: id,text"):
        read_office(tmp_path)


def test_a_row_that_is_cut_off_is_refused(tmp_path):
    with (write_office(tmp_path) / "project_tasks.csv").open("a") as file:
        file.write("00000150,Half a")
    with pytest.raises(OfficeError, match="row 2"):
        read_office(tmp_path)


async def test_tables_that_are_named_but_not_there_are_reported_at_the_start(tmp_path):
    with pytest.raises(OfficeError, match="no such folder"):
        build_server(WorkplaceAssistantResourcesServer, world_dir=tmp_path / "none").setup_webserver()


# --- which office -----------------------------------------------------------------------------------------------------


async def test_rows_of_nemo_gym_are_played_in_its_office(tmp_path):
    sent = {"recipient": LUIS, "subject": "RE: Budget, again", "body": "Done."}
    said = tool_call("email_send_email", sent)
    config = {"world_dir": write_office(tmp_path)}
    assert await reward(said, ground_truth=[REPLY], config=config) == 1.0
    assert await reward("Done.", ground_truth=[REPLY], config=config) == 0.0
    assert await reward(said, ground_truth=[("email_send_email", sent)], config=config) == 1.0


async def test_our_rows_stay_in_our_office_though_the_tables_of_another_are_at_hand(tmp_path):
    row = generate_data.rows()[0]
    assert row["world"] == "harborlight"
    calls = [turn for turn in generate_data.solution(row) if not isinstance(turn, str)]
    said = [tool_call(*call) for call in calls]
    config = {"world_dir": write_office(tmp_path)}
    assert await reward(*said, ground_truth=calls, world="harborlight", config=config) == 1.0
    assert await reward(*said, ground_truth=calls, config=config) == 1.0, "its addresses are ours"


async def test_a_row_that_says_nothing_is_played_in_our_office():
    delete = ("email_delete_email", {"email_id": "00000042"})
    assert await reward(tool_call(*delete), ground_truth=[delete]) == 1.0


async def test_the_config_can_name_the_office_of_all_rows(tmp_path):
    config = {"world_dir": write_office(tmp_path), "world": "harborlight"}
    move = (ASSIGN, {"task_id": "00000149", "field": "assigned_to_email", "new_value": OLGA})
    status, refused = await post("/verify", "x", ground_truth=[move], config=config)
    assert status == 422
    assert "'harborlight'" in refused["detail"]


async def test_tools_of_a_session_work_in_the_office_of_its_row(tmp_path):
    server = build_server(WorkplaceAssistantResourcesServer, world_dir=write_office(tmp_path))
    call = {"name": "email_delete_email", "arguments": '{"email_id": "00000007"}'}
    async with running(**{SERVER: server}) as client:
        cookies = (await client.post(SERVER, "/seed_session", json={"ground_truth": [call]})).cookies
        for tool, arguments, found in (
            ("company_directory_find_email_address", {"name": "olga"}, OLGA),
            ("analytics_get_visitor_information_by_id", {"visitor_id": "0860"}, "referral"),
            ("email_search_emails", {"query": "budget"}, "Budget, again"),
        ):
            answer = await client.post(SERVER, f"/{tool}", json=arguments, cookies=cookies)
            assert found in str(await get_response_json(answer))


# --- rows that do not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/seed_session", "/verify"])
async def test_a_row_of_an_office_whose_tables_are_missing_is_refused(path):
    move = (ASSIGN, {"task_id": "00000149", "field": "assigned_to_email", "new_value": OLGA})
    status, refused = await post(path, "Done.", ground_truth=[move])
    assert status == 422
    assert "task 5" in refused["detail"]
    assert "fetch_workbench" in refused["detail"]
    assert "world_dir" in refused["detail"]


@pytest.mark.parametrize("path", ["/seed_session", "/verify"])
async def test_a_row_whose_own_calls_fail_is_refused_and_never_worth_one_for_doing_nothing(path):
    delete = ("email_delete_email", {"email_id": "99999999"})
    status, refused = await post(path, "Done.", ground_truth=[delete])
    assert status == 422
    assert "email_delete_email: Email not found." in refused["detail"]


async def test_calls_of_a_row_that_fail_in_the_office_of_nemo_gym_are_skipped_as_there(tmp_path, caplog):
    config = {"world_dir": write_office(tmp_path)}
    move = (ASSIGN, {"task_id": "00000149", "field": "assigned_to_email", "new_value": "nobody@atlas.com"})
    assert await reward("Done.", ground_truth=[move], config=config) == 1.0
    assert "task 5" in caplog.text
    status, _ = await post("/verify", "x", ground_truth=[move], config={**config, "failing_ground_truth": "refuse"})
    assert status == 422


async def test_calls_that_fail_can_be_skipped_in_any_office():
    delete = ("email_delete_email", {"email_id": "99999999"})
    assert await reward("Done.", ground_truth=[delete], config={"failing_ground_truth": "skip"}) == 1.0


# --- what differs from NeMo Gym ---------------------------------------------------------------------------------------


async def test_deleting_and_sending_in_another_order_leads_to_the_same_end(tmp_path):
    delete = ("email_delete_email", {"email_id": "00000042"})
    send = ("email_send_email", {"recipient": "a@b.c", "subject": "x", "body": "y"})
    assert await reward(tool_call(*send), tool_call(*delete), ground_truth=[delete, send]) == 1.0


async def test_numbers_are_compared_by_their_value():
    def event(duration: Any) -> tuple[str, Any]:
        start = "2023-12-01 09:00:00"
        named = {"event_name": "x", "participant_email": "a@b.c", "event_start": start, "duration": duration}
        return "calendar_create_event", named

    assert await reward(tool_call(*event(30)), ground_truth=[event("30")]) == 1.0
    assert await reward(tool_call(*event(30)), ground_truth=[event(60)]) == 0.0


async def test_a_ground_truth_that_is_a_plain_text_is_refused():
    async with running(**{SERVER: WorkplaceAssistantResourcesServer}) as client:
        body = {"responses_create_params": asked("?"), "response": reply("x"), "ground_truth": "delete it"}
        assert (await client.post(SERVER, "/verify", json=body)).status == 422


# --- fetching ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a web server like WorkBench's, and its folder."""
    folder = tmp_path / "web"
    write_office(folder / "data", "parts")
    (folder / "LICENSE").write_text("MIT License")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


def test_the_tables_are_fetched_with_their_license(source, tmp_path):
    folder = fetch_workbench.fetch(tmp_path / "data" / "workbench", source[0])
    assert read_office(folder).tasks[0]["assigned_to_email"] == OLGA
    assert (folder / "LICENSE").read_text() == "MIT License"
    assert sorted(path.name for path in folder.iterdir()) == sorted([*TABLES, "LICENSE", "email_addresses.csv"])
    assert fetch_workbench.fetch(folder, source[0]) == folder, "again, over those that are there"


@pytest.mark.parametrize("broken", ["missing", "changed"])
def test_tables_that_cannot_be_fetched_whole_leave_none_behind(source, tmp_path, broken):
    address, web = source
    table = web / "data" / "processed" / "emails.csv"
    if broken == "missing":
        table.unlink()
    else:
        table.write_text("<html>")
    with pytest.raises(OfficeError):
        fetch_workbench.fetch(tmp_path / "new", address)
    assert not (tmp_path / "new").exists()
