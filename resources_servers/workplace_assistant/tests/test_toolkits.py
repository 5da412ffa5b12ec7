# SPDX-License-Identifier: Apache-2.0
"""Each of the 27 tools: what it gives back, what it changes, and what it says when it cannot."""

import inspect
from typing import Any

import pytest

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, build_server, running
from resources_servers.workplace_assistant.app import WorkplaceAssistantResourcesServer
from resources_servers.workplace_assistant.company import company
from resources_servers.workplace_assistant.toolkits import TOOLKITS, TOOLS, ToolError, call, run
from resources_servers.workplace_assistant.world import NOW, TABLES, World

HIRO, MEI = "hiro.tanaka@harborlight.example", "mei.zhang@harborlight.example"
PM, CRM = "project_management", "customer_relationship_manager"


def used(tool: str, world: World | None = None, /, **arguments: Any) -> Any:
    """What a tool gives back, in a fresh world if none is given."""
    return run(world or World(), tool, arguments)


def changed_tables(world: World) -> list[str]:
    fresh = World()
    return [name for name in TABLES if getattr(world, name) is not getattr(fresh, name)]


# --- what all have in common ------------------------------------------------------------------------------------------


def test_there_are_27_tools_in_six_kits():
    assert len(TOOLS) == 27
    assert [len(tools) for tools in TOOLKITS.values()] == [1, 6, 5, 6, 5, 4]
    assert all(tool.name.startswith(f"{kit}_") for kit, tools in TOOLKITS.items() for tool in tools)


def test_the_schemas_are_those_of_the_responses_api():
    tools = [tool.schema for tool in TOOLS.values()]
    assert len(asked("x", tools=tools).tools) == 27
    assert all(set(one) == {"type", "name", "description", "parameters", "strict"} for one in tools)
    for tool, schema in zip(TOOLS.values(), tools, strict=True):
        _, *parameters = inspect.signature(tool.function).parameters
        assert list(schema["parameters"]["properties"]) == parameters
        assert schema["parameters"]["additionalProperties"] is False


@pytest.mark.parametrize("name", TOOLS)
def test_an_argument_that_a_tool_does_not_have_is_refused(name):
    assert used(name, nonsense="x").startswith(f"{name} has no argument 'nonsense'. Its arguments: ")


@pytest.mark.parametrize("name", [name for name, tool in TOOLS.items() if tool.required])
@pytest.mark.parametrize("nothing", [{}, None, ""])
def test_a_missing_argument_is_named(name, nothing):
    first = TOOLS[name].required[0]
    given = {} if nothing == {} else {first: nothing}
    spoken = first.replace("_", " ").capitalize()
    assert used(name, **given) == f"{spoken.removesuffix(' id')}{' ID' * spoken.endswith(' id')} not provided."


@pytest.mark.parametrize("value", [True, ["x"], {"a": 1}])
def test_an_argument_that_is_no_text_is_refused(value):
    assert used("company_directory_find_email_address", name=value) == "Name must be a string."


def test_a_number_is_taken_as_a_text():
    world = World()
    event = {"event_name": "x", "participant_email": HIRO, "event_start": "2023-12-01 09:00:00", "duration": 30}
    used("calendar_create_event", world, **event)
    assert world.events[-1]["duration"] == "30"


@pytest.mark.parametrize("value", [10**5000, "\ud800"], ids=["long", "surrogate"])
def test_an_argument_that_cannot_be_written_is_refused(value):
    assert used("email_delete_email", email_id=value) == "Email ID cannot be written as a text."


@pytest.mark.parametrize("name", [name for name, tool in TOOLS.items() if not tool.writes])
def test_a_tool_that_reads_changes_nothing(name):
    world = World()
    run(world, name, dict.fromkeys(TOOLS[name].arguments, "1"))
    run(world, name, {})
    assert changed_tables(world) == []


def test_a_call_that_fails_raises_where_it_is_not_turned_into_text():
    with pytest.raises(ToolError, match="Email not found"):
        call(World(), "email_delete_email", {"email_id": "x"})


# --- pages ------------------------------------------------------------------------------------------------------------

SEARCHES = {
    "email_search_emails": ("emails", {}, 500),
    "calendar_search_events": ("events", {}, 300),
    f"{PM}_search_tasks": ("tasks", {"assigned_to_email": "example"}, 300),
    f"{CRM}_search_customers": ("customers", {"customer_email": "example"}, 200),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_comes_in_pages(name):
    what, wanted, total = SEARCHES[name]
    first = used(name, **wanted)
    assert len(first[what]) == 5
    assert first["pagination"] == {f"total_{what}": total, "page": 1, "page_size": 5, "total_pages": total // 5}

    third = used(name, **wanted, page=3, page_size="7")
    everything = used(name, **wanted, page_size=1000)[what]
    assert len(everything) == total
    assert third[what] == everything[14:21]
    assert third["pagination"]["total_pages"] == -(-total // 7)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_page_after_the_last_is_empty(name):
    what, wanted, total = SEARCHES[name]
    beyond = used(name, **wanted, page=total)
    assert beyond[what] == []
    assert beyond["pagination"][f"total_{what}"] == total


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("page", [0, -1, "two", 1.5, True, "²", "9" * 5000])
def test_a_page_is_a_whole_number_from_one(name, page):
    assert used(name, page=page) == "Page must be a whole number from 1."
    assert used(name, page_size=page) == "Page size must be a whole number from 1."


@pytest.mark.parametrize(
    ("name", "wanted", "text"),
    [
        ("email_search_emails", {"query": "unicorn"}, "No emails found."),
        ("calendar_search_events", {"query": "unicorn"}, "No events found."),
        (f"{PM}_search_tasks", {"task_name": "unicorn"}, "No tasks found."),
        (f"{CRM}_search_customers", {"customer_name": "unicorn"}, "No customers found."),
    ],
)
def test_a_search_without_a_result_says_so(name, wanted, text):
    assert used(name, **wanted) == text


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("email_search_emails", "date_min"),
        ("calendar_search_events", "time_max"),
        ("analytics_total_visits_count", "time_min"),
        (f"{CRM}_search_customers", "follow_up_by_max"),
    ],
)
def test_a_bound_that_is_no_date_is_named(name, argument):
    text = used(name, **{argument: "someday"})
    assert text == f"{argument.replace('_', ' ').capitalize()} 'someday' is not a date like '2023-11-30'."


# --- company directory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Hiro", "tanaka", "Hiro Tanaka", "hiro.tanaka"])
def test_an_address_is_found_by_any_part_of_a_name(name):
    assert used("company_directory_find_email_address", name=name) == [HIRO]


def test_several_addresses_may_fit_and_none_is_said():
    assert len(used("company_directory_find_email_address", name="a")) > 5
    assert used("company_directory_find_email_address", name="Zorro") == "No email addresses found."
    assert used("company_directory_find_email_address", name="harborlight") == "No email addresses found."
    assert used("company_directory_find_email_address", name="...") == "No email addresses found."


# --- email ------------------------------------------------------------------------------------------------------------


def test_an_email_is_read_field_by_field():
    email = company().emails[42]
    for field, value in email.items():
        assert used("email_get_email_information_by_id", email_id="00000042", field=field) == {field: value}
    assert used("email_get_email_information_by_id", email_id="x", field="body") == "Email not found."
    text = used("email_get_email_information_by_id", email_id="00000042", field="colour")
    assert text.startswith("Column not found. Please choose from: 'email_id', 'inbox/outbox'")


def test_emails_are_found_by_all_words_newest_first():
    found = used("email_search_emails", query="HIRO budget", page_size=100)["emails"]
    assert found
    assert all("hiro" in str(email).lower() and "budget" in str(email).lower() for email in found)
    times = [email["sent_datetime"] for email in used("email_search_emails", query="hiro", page_size=100)["emails"]]
    assert times == sorted(times, reverse=True)


def test_of_emails_of_the_same_time_the_last_is_the_newest():
    world = World()
    for subject in ("one", "two"):
        used("email_send_email", world, recipient=MEI, subject=subject, body="unicorn")
    found = used("email_search_emails", world, query="unicorn")["emails"]
    assert [email["subject"] for email in found] == ["two", "one"]


def test_emails_are_found_by_day():
    found = used("email_search_emails", date_min="2023-11-01", date_max="2023-11-02", page_size=100)["emails"]
    assert {email["sent_datetime"][:10] for email in found} == {"2023-11-01", "2023-11-02"}


def test_an_email_is_sent_to_the_end_of_the_table():
    world = World()
    sent = used("email_send_email", world, recipient="HIRO.Tanaka@harborlight.example", subject="Hi", body="You")
    assert sent == "Email sent successfully."
    assert world.emails[-1] == {
        "email_id": "500",
        "inbox/outbox": "outbox",
        "sender/recipient": HIRO,
        "subject": "Hi",
        "sent_datetime": NOW,
        "body": "You",
    }
    assert changed_tables(world) == ["emails"]


@pytest.mark.parametrize("recipient", ["hiro", "hiro@home", "hiro.home"])
def test_an_email_needs_an_address(recipient):
    world = World()
    answer = used("email_send_email", world, recipient=recipient, subject="Hi", body="You")
    assert answer == "Invalid recipient email address."
    assert changed_tables(world) == []


def test_an_email_is_deleted():
    world = World()
    assert used("email_delete_email", world, email_id="00000042") == "Email deleted successfully."
    assert world.emails == company().emails[:42] + company().emails[43:]
    assert used("email_delete_email", world, email_id="00000042") == "Email not found."


def test_an_email_is_forwarded_and_answered():
    world, email = World(), company().emails[42]
    assert used("email_forward_email", world, email_id="00000042", recipient=MEI) == "Email forwarded successfully."
    assert used("email_reply_email", world, email_id="00000042", body="Fine.") == "Email replied successfully."
    forwarded, answered = world.emails[-2:]
    assert (forwarded["email_id"], answered["email_id"]) == ("500", "501")
    assert (forwarded["sender/recipient"], forwarded["subject"]) == (MEI, f"FW: {email['subject']}")
    assert forwarded["body"] == email["body"]
    assert (answered["sender/recipient"], answered["subject"]) == (email["sender/recipient"], f"RE: {email['subject']}")
    assert answered["body"] == "Fine."
    assert used("email_forward_email", email_id="x", recipient=MEI) == "Email not found."
    assert used("email_forward_email", email_id="00000042", recipient="mei") == "Invalid recipient email address."
    assert used("email_reply_email", email_id="x", body="y") == "Email not found."


# --- calendar ---------------------------------------------------------------------------------------------------------


def test_an_event_is_read_field_by_field():
    for field, value in company().events[7].items():
        assert used("calendar_get_event_information_by_id", event_id="00000007", field=field) == {field: value}
    assert used("calendar_get_event_information_by_id", event_id="x", field="duration") == "Event not found."
    text = used("calendar_get_event_information_by_id", event_id="00000007", field="colour")
    assert text.startswith("Column not found. Please choose from: 'event_id'")


def test_events_are_found_by_words_and_time_in_order():
    found = used("calendar_search_events", query=HIRO, time_min=NOW, page_size=100)["events"]
    starts = [event["event_start"] for event in found]
    assert starts == sorted(starts)
    assert starts[0] > NOW
    assert {event["participant_email"] for event in found} == {HIRO}
    day = used("calendar_search_events", time_min=starts[0][:10], time_max=starts[0][:10], page_size=100)["events"]
    assert {event["event_start"][:10] for event in day} == {starts[0][:10]}, "a day as the last bound counts in full"


def test_an_event_is_created_changed_and_deleted():
    world = World()
    event = {"event_name": "Tea", "participant_email": "Mei.Zhang@harborlight.example", "duration": "30"}
    made = used("calendar_create_event", world, **event, event_start="2023-12-01 10:00:00")
    assert made == "00000300"
    assert world.events[-1] == {
        "event_id": made,
        "event_name": "Tea",
        "participant_email": MEI,
        "event_start": "2023-12-01 10:00:00",
        "duration": "30",
    }
    for field, value in (("event_name", "Cake"), ("participant_email", HIRO), ("duration", "60")):
        answer = used("calendar_update_event", world, event_id=made, field=field, new_value=value)
        assert (answer, world.events[-1][field]) == ("Event updated successfully.", value)
    assert used("calendar_delete_event", world, event_id=made) == "Event deleted successfully."
    assert world.is_like(World())


@pytest.mark.parametrize(
    "start", ["2023-12-01 10:00", "2023-12-01T10:00:00", "12/01/2023 10:00 AM", "December 1, 2023"]
)
def test_a_start_is_kept_as_it_is_written(start):
    world = World()
    used("calendar_create_event", world, event_name="x", participant_email="Mei", event_start=start, duration="30")
    assert (world.events[-1]["event_start"], world.events[-1]["participant_email"]) == (start, "mei")


def test_the_calendar_says_what_is_wrong():
    event = {"event_name": "Tea", "event_start": "2023-12-01 10:00:00", "duration": "30"}
    minutes = "Duration must be a positive whole number of minutes, as in '30'."
    for duration in ("0", "-30", "half an hour"):
        given = {**event, "participant_email": MEI, "duration": duration}
        assert used("calendar_create_event", **given) == minutes
        assert used("calendar_update_event", event_id="00000007", field="duration", new_value=duration) == minutes
    given = {**event, "participant_email": MEI, "event_start": "soon"}
    moment = "Event start 'soon' is not a date like '2023-11-30'."
    assert used("calendar_create_event", **given) == moment
    assert used("calendar_update_event", event_id="00000007", field="event_start", new_value="soon") == moment
    assert used("calendar_delete_event", event_id="x") == "Event not found."
    assert used("calendar_update_event", event_id="x", field="duration", new_value="1") == "Event not found."
    assert used("calendar_update_event", event_id="00000007", field="event_id", new_value="1") == (
        "Field not valid. Please choose from: 'event_name', 'participant_email', 'event_start', 'duration'."
    )


# --- analytics --------------------------------------------------------------------------------------------------------

SPAN = {"time_min": "2023-10-01", "time_max": "2023-10-07"}
WEEK = [visit for visit in company().visits if "2023-10-01" <= visit["date_of_visit"] <= "2023-10-07"]


def by_day(visits: list[Any]) -> dict[str, list[Any]]:
    days: dict[str, list[Any]] = {visit["date_of_visit"]: [] for visit in WEEK}
    for visit in visits:
        days[visit["date_of_visit"]].append(visit)
    return days


def test_a_visitor_has_visits():
    visitor = company().visits[0]["visitor_id"]
    found = used("analytics_get_visitor_information_by_id", visitor_id=visitor)
    assert company().visits[0] in found
    assert {visit["visitor_id"] for visit in found} == {visitor}
    assert used("analytics_get_visitor_information_by_id", visitor_id="x") == "Visitor not found."


def test_visits_are_counted_by_day():
    expected = {day: len(visits) for day, visits in by_day(WEEK).items()}
    assert used("analytics_total_visits_count", **SPAN) == expected
    assert sum(used("analytics_total_visits_count").values()) == 1000


def test_engaged_users_are_counted_by_day():
    engaged = [visit for visit in WEEK if visit["user_engaged"] == "True"]
    expected = {day: len(visits) for day, visits in by_day(engaged).items()}
    assert used("analytics_engaged_users_count", **SPAN) == expected


def test_the_average_duration_is_given_by_day():
    expected = {
        day: round(sum(int(visit["session_duration_seconds"]) for visit in visits) / len(visits), 2)
        for day, visits in by_day(WEEK).items()
    }
    assert used("analytics_get_average_session_duration", **SPAN) == expected


def test_a_source_is_counted_by_day():
    social = [visit for visit in WEEK if visit["traffic_source"] == "social media"]
    expected = {day: len(visits) for day, visits in by_day(social).items()}
    assert used("analytics_traffic_source_count", **SPAN, traffic_source="social media") == expected
    assert used("analytics_traffic_source_count", **SPAN) == used("analytics_total_visits_count", **SPAN)
    assert used("analytics_traffic_source_count", **SPAN, traffic_source="radio") == (
        "Traffic source not valid. Please choose from: 'direct', 'referral', 'search engine', 'social media'."
    )


def test_a_plot_is_a_file_by_name():
    world = World()
    path = used("analytics_create_plot", world, **SPAN, value_to_plot="user_engaged", plot_type="scatter")
    assert path == "plots/2023-10-01_2023-10-07_user_engaged_scatter.png"
    assert world.plots == ({"file_path": path},)
    assert changed_tables(world) == ["plots"]
    assert used("analytics_create_plot", **SPAN, value_to_plot="rain", plot_type="bar").startswith(
        "Value to plot not valid. Please choose from: 'total_visits'"
    )
    assert used("analytics_create_plot", **SPAN, value_to_plot="total_visits", plot_type="pie") == (
        "Plot type not valid. Please choose from: 'bar', 'line', 'scatter', 'histogram'."
    )


# --- project management -----------------------------------------------------------------------------------------------

TASK = {
    "task_name": "Paint the fence",
    "assigned_to_email": HIRO,
    "list_name": "Backlog",
    "due_date": "2023-12-05",
    "board": "Design",
}


def test_a_task_is_read_field_by_field():
    for field, value in company().tasks[9].items():
        assert used(f"{PM}_get_task_information_by_id", task_id="00000009", field=field) == {field: value}
    assert used(f"{PM}_get_task_information_by_id", task_id="x", field="board") == "Task not found."
    text = used(f"{PM}_get_task_information_by_id", task_id="00000009", field="colour")
    assert text.startswith("Column not found. Please choose from: 'task_id'")


@pytest.mark.parametrize("column", ["task_name", "assigned_to_email", "list_name", "due_date", "board"])
def test_tasks_are_found_by_each_of_their_fields(column):
    value = company().tasks[9][column]
    expected = [task for task in company().tasks if value in task[column]]
    assert used(f"{PM}_search_tasks", **{column: value.upper()}, page_size=1000)["tasks"] == expected


def test_a_search_for_tasks_needs_something_to_look_for():
    assert used(f"{PM}_search_tasks") == (
        "No search parameters provided. Please provide at least one of: "
        "task_name, assigned_to_email, list_name, due_date, board."
    )


def test_a_task_is_created_changed_and_deleted():
    world = World()
    made = used(f"{PM}_create_task", world, **{**TASK, "assigned_to_email": HIRO.upper()})
    assert made == "00000300"
    assert world.tasks[-1] == {"task_id": made, **TASK}
    changes = {"task_name": "Paint", "assigned_to_email": MEI, "list_name": "In Review", "board": "Back end"}
    for field, value in {**changes, "due_date": "2024-01-01"}.items():
        answer = used(f"{PM}_update_task", world, task_id=made, field=field, new_value=value)
        assert (answer, world.tasks[-1][field]) == ("Task updated successfully.", value)
    assert used(f"{PM}_delete_task", world, task_id=made) == "Task deleted successfully."
    assert world.is_like(World())


ASSIGNEE = "Assignee email not valid. Please choose the email address of a colleague."
LIST = "List not valid. Please choose from: 'Backlog', 'In Progress', 'In Review', 'Completed'."
BOARD = "Board not valid. Please choose from: 'Back end', 'Front end', 'Design'."


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [("assigned_to_email", "me@home.example", ASSIGNEE), ("list_name", "backlog", LIST), ("board", "Sales", BOARD)],
)
def test_a_task_keeps_to_the_values_that_there_are(field, value, text):
    world = World()
    assert used(f"{PM}_create_task", world, **{**TASK, field: value}) == text
    assert used(f"{PM}_update_task", world, task_id="00000009", field=field, new_value=value) == text
    assert changed_tables(world) == []


def test_a_task_that_is_not_there_cannot_be_changed():
    assert used(f"{PM}_delete_task", task_id="x") == "Task not found."
    assert used(f"{PM}_update_task", task_id="x", field="board", new_value="Design") == "Task not found."
    assert used(f"{PM}_update_task", task_id="00000009", field="color", new_value="1").startswith("Field not valid.")


def test_a_task_goes_only_to_someone_who_has_one():
    world = World()
    for task in world.tasks:
        if task["assigned_to_email"] == HIRO:
            used(f"{PM}_delete_task", world, task_id=task["task_id"])
    assert used(f"{PM}_create_task", world, **TASK) == ASSIGNEE


def test_ids_of_tasks_and_customers_can_be_changed():
    world = World()
    update = {"task_id": "00000009", "field": "task_id", "new_value": "nine"}
    assert used(f"{PM}_update_task", world, **update) == "Task updated successfully."
    assert used(f"{PM}_create_task", world, **TASK) == "There is no next ID after 'nine'."
    update = {"customer_id": "00000009", "field": "customer_id", "new_value": "1"}
    assert used(f"{CRM}_update_customer", world, **update) == "Customer updated successfully."


# --- customers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column", ["customer_name", "customer_email", "product_interest", "status", "assigned_to_email"]
)
def test_customers_are_found_by_text(column):
    value = company().customers[9][column]
    expected = [one for one in company().customers if value.lower() in one[column].lower()]
    assert used(f"{CRM}_search_customers", **{column: value.lower()}, page_size=1000)["customers"] == expected


@pytest.mark.parametrize("column", ["last_contact_date", "follow_up_by"])
def test_customers_are_found_by_date(column):
    day = company().customers[9][column]
    bounds = {f"{column}_min": day, f"{column}_max": day}
    expected = [one for one in company().customers if one[column] == day]
    assert used(f"{CRM}_search_customers", **bounds, page_size=1000)["customers"] == expected


def test_a_search_for_customers_needs_something_to_look_for():
    text = used(f"{CRM}_search_customers")
    assert text.startswith("No search parameters provided. Please provide at least one of: customer_name, ")
    assert text.endswith("follow_up_by_min, follow_up_by_max.")


def test_a_customer_is_added_changed_and_deleted():
    world = World()
    made = used(f"{CRM}_add_customer", world, customer_name="Ann Lee", assigned_to_email=HIRO, status="Lead")
    assert made == "00000200"
    assert list(world.customers[-1]) == list(company().customers[0])
    assert {field: value for field, value in world.customers[-1].items() if value} == {
        "customer_id": made,
        "customer_name": "Ann Lee",
        "assigned_to_email": HIRO,
        "status": "Lead",
    }
    for field in list(world.customers[-1])[1:]:
        value = {"assigned_to_email": MEI, "status": "Won", "product_interest": "Training"}.get(field, "x")
        answer = used(f"{CRM}_update_customer", world, customer_id=made, field=field, new_value=value)
        assert (answer, world.customers[-1][field]) == ("Customer updated successfully.", value)
    assert used(f"{CRM}_delete_customer", world, customer_id=made) == "Customer deleted successfully."
    assert world.is_like(World())


STATUS = "Status not valid. Please choose from: 'Qualified', 'Won', 'Lost', 'Lead', 'Proposal'."
PRODUCT = (
    "Product interest not valid. Please choose from: 'Software', 'Hardware', 'Services', 'Consulting', 'Training'."
)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("status", "won", STATUS),
        ("product_interest", "Shoes", PRODUCT),
    ],
)
def test_a_change_of_a_customer_keeps_to_the_values_that_there_are(field, value, text):
    world = World()
    assert used(f"{CRM}_update_customer", world, customer_id="00000009", field=field, new_value=value) == text
    assert changed_tables(world) == []


def test_anyone_may_look_after_a_customer():
    world = World()
    update = {"customer_id": "00000009", "field": "assigned_to_email", "new_value": "Me@Home.example"}
    assert used(f"{CRM}_update_customer", world, **update) == "Customer updated successfully."
    assert world.customers[9]["assigned_to_email"] == "me@home.example"


def test_what_is_said_of_a_new_customer_is_taken_as_it_is():
    said = {"assigned_to_email": "me@home.example", "status": "Curious", "product_interest": "Shoes"}
    world = World()
    used(f"{CRM}_add_customer", world, customer_name="Ann Lee", **said)
    assert world.customers[-1].items() >= said.items()


def test_a_customer_who_is_not_there_cannot_be_changed():
    assert used(f"{CRM}_delete_customer", customer_id="x") == "Customer not found."
    assert used(f"{CRM}_update_customer", customer_id="x", field="notes", new_value="y") == "Customer not found."
    text = used(f"{CRM}_update_customer", customer_id="00000009", field="color", new_value="1")
    assert text.startswith("Field not valid. Please choose from: 'customer_id'")


# --- over MCP ---------------------------------------------------------------------------------------------------------


async def test_all_tools_are_offered_and_run_over_mcp():
    server = build_server(WorkplaceAssistantResourcesServer, name="office", expose_tools_over_mcp=True)
    async with running(office=server) as client:
        seeded = await get_response_json(await client.post("office", "/seed_session", json={}))
        headers = {"Accept": "application/json, text/event-stream", **seeded["mcp"]["headers"]}

        async def rpc(method: str, **params: Any) -> Any:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return (await get_response_json(await client.post("office", "/mcp", json=message, headers=headers)))[
                "result"
            ]

        assert [tool["name"] for tool in (await rpc("tools/list"))["tools"]] == list(TOOLS)
        found = await rpc("tools/call", name="company_directory_find_email_address", arguments={"name": "Hiro"})
        assert HIRO in str(found)
