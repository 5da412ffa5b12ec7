# SPDX-License-Identifier: Apache-2.0
"""Five formats become plain values, schemas become strict, and what is made to blow up is refused."""

import datetime
import json

import pytest

from resources_servers.structured_outputs.checking import check_text
from resources_servers.structured_outputs.formats import ParseError, parse
from resources_servers.structured_outputs.schemas import find_problem, make_strict

PEOPLE = {
    "type": "array",
    "items": {"type": "object", "properties": {"n": {"type": "string"}, "a": {"type": "integer"}}},
}


def obj(**properties):
    return {"type": "object", "properties": properties}


FLAGGED = obj(n={"type": "string"}, ok={"type": "boolean"}, x={"type": ["number", "null"]})
TYPED = obj(r=obj(a={"type": "number"}, b={"type": "string"}, c={"type": "integer"}, d={"type": "boolean"}))
TREE = obj(a={}, more={"type": "array", "items": {"$ref": "#"}})
REFERRING = {**obj(a={"$ref": "#/$defs/d"}), "$defs": {"d": obj(b={})}}


@pytest.mark.parametrize(
    ("schema_type", "text", "schema", "value"),
    [
        ("yaml", "a: 2024-01-02\n1: yes", {}, {"a": datetime.date(2024, 1, 2), 1: True}),
        ("yaml", "a: &x [1]\nb: *x", {}, {"a": [1], "b": [1]}),
        ("yaml", "", {}, None),
        ("toml", "a = 2024-01-02\n[b]\nc = 1.5", {}, {"a": datetime.date(2024, 1, 2), "b": {"c": 1.5}}),
        ("csv", "n,a\nx,1\n\"y,z\",2\n", PEOPLE, [{"n": "x", "a": 1}, {"n": "y,z", "a": 2}]),
        ("csv", "n,a\r\n7,1\r\n", PEOPLE, [{"n": "7", "a": 1}]),
        ("csv", "n,a\n", PEOPLE, []),
        ("csv", "n,a\nx,1.0\n,", PEOPLE, [{"n": "x", "a": "1.0"}, {"n": "", "a": ""}]),
        ("csv", "n,a\nx", PEOPLE, [{"n": "x", "a": None}]),
        ("csv", "n, a\nx,1", PEOPLE, [{"n": "x", " a": "1"}]),
        ("csv", "n,a\nx,1", PEOPLE["items"], [{"n": "x", "a": 1}]),
        ("csv", "n,ok,x\na,TRUE,\n", {"items": FLAGGED}, [{"n": "a", "ok": True, "x": None}]),
        ("csv", "n,ok,x\na,0,null\n", {"items": FLAGGED}, [{"n": "a", "ok": False, "x": "null"}]),
        ("csv", "n,ok,x\na,yes,2\n", {"items": FLAGGED}, [{"n": "a", "ok": "yes", "x": 2.0}]),
        ("xml", "<r><a>1</a><b>1</b></r>", TYPED, {"r": {"a": 1.0, "b": "1"}}),
        ("xml", "<r><c>3.0</c><d>1</d></r>", TYPED, {"r": {"c": "3.0", "d": True}}),
        ("xml", "<r><p><n>x</n><a>1</a></p></r>", obj(r=obj(p=PEOPLE)), {"r": {"p": [{"n": "x", "a": 1}]}}),
        ("xml", "<r><p><i><n>x</n><a>1</a></i></p></r>", obj(r=obj(p=PEOPLE)), {"r": {"p": [{"n": "x", "a": 1}]}}),
        ("xml", "<r><p/></r>", obj(r=obj(p=PEOPLE)), {"r": {"p": []}}),
        ("xml", "<r><a>&lt;&amp;</a></r>", {}, {"r": {"a": "<&"}}),
        ("xml", "<r><a/></r>", obj(r=obj(a={"type": "string"})), {"r": {"a": ""}}),
        ("xml", "<r><a/></r>", obj(r=obj(a={"type": ["string", "null"]})), {"r": {"a": None}}),
        ("xml", "<r><a>1</a><a>2</a></r>", {}, {"r": {"a": ["1", "2"]}}),
        ("xml", '<r x="1">one <b/> two</r>', {}, {"r": {"@x": "1", "b": None, "#text": "one  two"}}),
        ("xml", "<!DOCTYPE r><r/>", {}, {"r": None}),
    ],
)  # fmt: skip
def test_a_text_becomes_a_value(schema_type, text, schema, value):
    assert parse(text, schema_type, schema) == value


def test_xml_may_stay_texts():
    assert parse("<r><a>1</a></r>", "xml", obj(r=obj(a={"type": "integer"})), coerces_xml=False) == {"r": {"a": "1"}}


@pytest.mark.parametrize(
    ("schema_type", "text", "schema"),
    [
        ("xml", "<r><n>x</n><a>1</a></r>", PEOPLE["items"]),
        ("csv", "n,a\nx,1,2", PEOPLE),
        ("csv", "n,a\nx", PEOPLE),
        ("csv", "n,a\nx,1", PEOPLE["items"]),
        ("yaml", "d: 2024-01-02", obj(d={"type": "string"})),
        ("toml", "d = 2024-01-02", obj(d={"type": "string"})),
        ("yaml", "1: a", {"patternProperties": {"a": {}}}),
    ],
)
def test_what_is_read_as_something_else_does_not_fit(schema_type, text, schema):
    assert check_text(text, schema_type, json.dumps(schema)).error_type == "validation_error"


BOMB = '<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><b>&b;</b>'
LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)
)


@pytest.mark.parametrize(
    ("schema_type", "text"),
    [
        ("xml", BOMB),
        ("xml", '<!DOCTYPE b [<!ENTITY a SYSTEM "file:///etc/passwd">]><b>&a;</b>'),
        ("xml", "<a><b></a>"),
        ("xml", "<a/><b/>"),
        ("yaml", LAUGHS),
        ("yaml", "a: &x [*x]"),
        ("yaml", "a: !!python/object/apply:os.system ['true']"),
        ("yaml", "a: 1\n---\nb: 2"),
        ("yaml", "? [1]\n: 2"),
        ("toml", "a = "),
        ("json", "[" * 100_000),
        ("yaml", "[" * 100_000),
        ("toml", "a = " + "[" * 100_000),
        ("xml", "<a>" * 100_000),
        ("json", "9" * 10_000),
    ],
)
def test_what_is_not_in_its_format_or_made_to_blow_up_is_refused(schema_type, text):
    with pytest.raises(ParseError):
        parse(text, schema_type, {})


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        (obj(a={}), {"a": 1}, [{}, {"a": 1, "b": 2}]),
        (obj(a=obj(b={})), {"a": {"b": 1}}, [{"a": {}}, {"a": {"b": 1, "c": 1}}]),
        ({**obj(a={}), "additionalProperties": True}, {"a": 1}, [{"a": 1, "b": 1}]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": 1, "y": 2}, [{"x": "1"}]),
        ({"type": "array", "items": obj(a={})}, [{"a": 1}], [[{}], [{"a": 1, "b": 1}]]),
        ({"anyOf": [obj(a={}), obj(b={})]}, {"z": 1}, []),
        (obj(v={"oneOf": [{"type": "string"}, obj(k={})]}), {"v": {"k": 1, "l": 2}}, [{}]),
        ({"allOf": [obj(a={}), obj(b={})]}, {"a": 1}, []),
        ({**obj(a={}), "allOf": [obj(b={})]}, {"a": 1}, [{"a": 1, "b": 1}]),
        (REFERRING, {"a": {"b": 1}}, [{"a": {}}, {"a": {"b": 1, "c": 1}}]),
        (TREE, {"a": 1, "more": [{"a": 2, "more": []}]}, [{"a": 1, "more": [{"a": 2}]}]),
        (obj(properties={"type": "string"}), {"properties": "x"}, [{}]),
        (obj(d={"const": {"properties": {}}}), {"d": {"properties": {}}}, [{"d": {}}]),
        (obj(d={"type": "string", "format": "date"}), {"d": "no date"}, [{"d": 1}]),
        (obj(d={"type": "string", "nullable": True}), {"d": ""}, [{"d": None}]),
        (obj(d={"type": "integer"}), {"d": 3.0}, [{"d": 3.5}, {"d": True}]),
        (True, {"any": 1}, []),
    ],
)  # fmt: skip
def test_a_schema_is_made_strict(schema, fits, does_not):
    strict = make_strict(json.dumps(schema))
    assert find_problem(fits, strict) is None
    for value in does_not:
        assert find_problem(value, strict) is not None, value


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]},
    ],
)
def test_a_schema_is_one_of_2020_whatever_draft_it_names(schema):
    assert check_text("[1]", "json", json.dumps(schema)).error_type == "validation_error"
