# SPDX-License-Identifier: Apache-2.0
"""Five formats become plain values, schemas become strict, and what is made to blow up is refused."""

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
TREE = obj(a={}, more={"type": "array", "items": {"$ref": "#"}})
REFERRING = {**obj(a={"$ref": "#/$defs/d"}), "$defs": {"d": obj(b={})}}


@pytest.mark.parametrize(
    ("schema_type", "text", "schema", "value"),
    [
        ("yaml", "a: 2024-01-02\n1: yes", {}, {"a": "2024-01-02", "1": True}),
        ("yaml", "a: &x [1]\nb: *x", {}, {"a": [1], "b": [1]}),
        ("yaml", "", {}, None),
        ("toml", "a = 2024-01-02T03:04:05Z\n[b]\nc = 1.5", {}, {"a": "2024-01-02T03:04:05+00:00", "b": {"c": 1.5}}),
        ("csv", "n,a\nx,1\n\"y,z\",2\n", PEOPLE, [{"n": "x", "a": 1}, {"n": "y,z", "a": 2}]),
        ("csv", "n,a\r\n7,1\r\n", PEOPLE, [{"n": "7", "a": 1}]),
        ("csv", "n,a\nx,1", obj(people=PEOPLE), {"people": [{"n": "x", "a": 1}]}),
        ("csv", "n,a\nx,1", PEOPLE["items"], {"n": "x", "a": 1}),
        ("csv", "n,ok,x\na,TRUE,\n", {"type": "array", "items": FLAGGED}, [{"n": "a", "ok": True, "x": None}]),
        ("xml", "<r><a>1</a><b>1</b></r>", obj(a={"type": "number"}, b={"type": "string"}), {"a": 1.0, "b": "1"}),
        ("xml", "<r><p><n>x</n><a>1</a></p></r>", obj(p=PEOPLE), {"p": [{"n": "x", "a": 1}]}),
        ("xml", "<r><p><i><n>x</n><a>1</a></i></p></r>", obj(p=PEOPLE), {"p": [{"n": "x", "a": 1}]}),
        ("xml", "<r><p/></r>", obj(p=PEOPLE), {"p": []}),
        ("xml", "<r><i><n>x</n><a>1</a></i></r>", PEOPLE, [{"n": "x", "a": 1}]),
        ("xml", "<r><a>&lt;&amp;</a></r>", obj(a={"type": "string"}), {"a": "<&"}),
        ("xml", "<r><a>1</a><a>2</a></r>", {}, {"a": ["1", "2"]}),
    ],
)  # fmt: skip
def test_a_text_becomes_a_value(schema_type, text, schema, value):
    assert parse(text, schema_type, schema) == value


BOMB = '<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><b>&b;</b>'
LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)
)


@pytest.mark.parametrize(
    ("schema_type", "text"),
    [
        ("xml", BOMB),
        ("xml", '<!DOCTYPE b SYSTEM "file:///etc/passwd"><b/>'),
        ("xml", "<a><b></a>"),
        ("xml", "<a/><b/>"),
        ("yaml", LAUGHS),
        ("yaml", "a: &x [*x]"),
        ("yaml", "a: !!python/object/apply:os.system ['true']"),
        ("yaml", "a: !!binary aGk="),
        ("yaml", "a: 1\n---\nb: 2"),
        ("yaml", "a: .nan"),
        ("yaml", "? [1]\n: 2"),
        ("toml", "a = "),
        ("toml", "a = inf"),
        ("csv", "a,b\n1\n"),
        ("csv", "a,b\n1,2,3\n"),
        ("csv", 'a,b\n"1,2'),
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
        ({"anyOf": [obj(a={}), obj(b={})]}, {"a": 1}, [{}, {"a": 1, "b": 1}]),
        ({"allOf": [obj(a={}), obj(b={})]}, {"a": 1, "b": 1}, [{"a": 1}, {"a": 1, "b": 1, "c": 1}]),
        ({**obj(a={}), "allOf": [obj(b={})]}, {"a": 1, "b": 1}, [{"a": 1}, {"a": 1, "b": 1, "c": 1}]),
        (REFERRING, {"a": {"b": 1}}, [{"a": {}}, {"a": {"b": 1, "c": 1}}]),
        (
            {"allOf": [{"$ref": "#/$defs/d"}, obj(a={})], "$defs": {"d": obj(b={})}},
            {"a": 1, "b": 1},
            [{"a": 1}, {"a": 1, "b": 1, "c": 1}],
        ),
        (TREE, {"a": 1, "more": [{"a": 2, "more": []}]}, [{"a": 1, "more": [{"a": 2}]}]),
        (obj(properties={"type": "string"}), {"properties": "x"}, [{}]),
        (True, {"any": 1}, []),
    ],
)  # fmt: skip
def test_a_schema_is_made_strict(schema, fits, does_not):
    strict = make_strict(json.dumps(schema))
    assert find_problem(fits, strict) is None
    for value in does_not:
        assert find_problem(value, strict) is not None, value


def test_an_older_draft_may_list_the_items():
    schema = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]})
    assert check_text("[1]", "json", schema).error_type is None
    assert check_text('["a"]', "json", schema).error_type == "validation_error"
