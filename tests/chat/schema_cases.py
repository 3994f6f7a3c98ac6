"""Keywords of JSON schema, and for each what must and what must not get through: the rows of docs/structured-output.md."""

from __future__ import annotations

from typing import Any, NamedTuple


class Case(NamedTuple):
    keyword: str
    schema: Any
    good: tuple[str, ...]
    bad: tuple[str, ...]


def case(keyword: str, schema: Any, good: str, bad: str) -> Case:
    """Texts are separated by two blanks."""
    return Case(keyword, schema, tuple(good.split("  ")), tuple(bad.split("  ")))


def obj(properties: dict[str, Any] | None = None, *required: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        **({"properties": properties} if properties else {}),
        **({"required": [*required]} if required else {}),
        **more,
    }


INT, TEXT = {"type": "integer"}, {"type": "string"}
LINKED = obj({"v": INT, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "v", "next")

ENFORCED = [
    case("type", INT, "1  -20  0", '1.5  true  null  "1"  01  [1]  {}'),
    case("type", {"type": ["string", "null"]}, 'null  "a"', "1  true"),
    case("type", {"type": "number"}, "1  -0.5  1e5  2.25E-3", '"1"  .5  1.  +1  1e999'),
    case("type", {"type": "boolean"}, "true  false", "True  1"),
    case("type", {"type": "array"}, '[]  [1, "a"]', "{}  1  [,]  [1,]"),
    case("type", {"type": "object"}, '{}  {"a": [1]}', '[]  {1:2}  {"a"}'),
    case("enum", {"enum": ["a", 1, None, {"x": [1]}]}, '"a"  1  null  {"x":[1]}', '"b"  2  true  {"x":[2]}'),
    case("enum", {"enum": ["a", "abc", 3], "type": "string", "minLength": 2}, '"abc"', '"a"  3'),
    case("const", {"const": 'say "hi"\\\n'}, r'"say \"hi\"\\\n"', '"say"'),
    case("anyOf", {"anyOf": [INT, {"type": "boolean"}]}, "1  true", '1.5  "1"  null'),
    case("anyOf", {"anyOf": [{"minimum": 3}, {"maximum": -3}], "type": "integer"}, "3  -3  44", "2  0  -1"),
    case("oneOf", {"oneOf": [INT, TEXT]}, '1  "a"', "true  1.5"),
    case(
        "oneOf",
        {"oneOf": [obj({"k": {"const": "a"}, "x": INT}, "k", "x"), obj({"k": {"const": "b"}, "y": TEXT}, "k")]},
        '{"k": "a", "x": 1}  {"k": "b"}  {"k":"b","y":"z"}',
        '{"k": "a"}  {"k": "b", "x": 1}  {"k": "c"}  {}',
    ),
    case("allOf", {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 9}]}, "3  9", "2  10  4.5"),
    case(
        "allOf",
        {"allOf": [obj({"a": INT}, "a"), obj({"b": INT, "a": {"minimum": 5}}, "b")]},
        '{"a": 5, "b": 1}',
        '{"a": 4, "b": 1}  {"a": 5}  {"b": 1}',
    ),
    case("$ref", {"$ref": "#/$defs/a", "$defs": {"a": INT}}, "1", '"1"'),
    case("$ref", {"$ref": "#/$defs/a~1b%20c", "minimum": 2, "$defs": {"a/b c": INT}}, "2", '"1"  1'),
    case("$ref", {"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "null"}}}, "null", "1"),
    case(
        "$ref",
        {"$ref": "#/$defs/node", "$defs": {"node": LINKED}},
        '{"v": 1, "next": null}  {"v": 1, "next": {"v": 2, "next": null}}',
        '{"v": 1}  {"v": 1, "next": 1}  {"v": 1, "next": {"v": 2}}',
    ),
    case("properties", obj({"a": INT, "b": TEXT}), '{}  {"a": 1}  {"b": "x"}  {"a": 1, "b": "x"}', '{"a": "x"}  {"b":1}'),
    case("properties", obj({'é"\\\n': INT}, 'é"\\\n'), r'{"é\"\\\n": 1}', "{}"),
    case("required", obj({"a": INT, "b": INT, "c": INT}, "b"), '{"b": 1}  {"a":1,"b":2,"c":3}', '{}  {"a": 1, "c": 2}'),
    case("required", obj(None, "z"), '{"z": [1]}', "{}"),
    case("additionalProperties", obj({"a": INT}, additionalProperties=False), '{}  {"a":1}', '{"b": 1}  {"a":1,"b":1}'),
    case(
        "additionalProperties",
        obj({"ab": INT}, additionalProperties=TEXT),
        '{"ab": 1, "b": "x"}  {"a": "x"}  {"abc": "x"}  {"": "x"}',
        '{"b": 1}  {"ab": "x"}  {"a\\u0062": "x"}  {"ab":1,"ab":"x"}',
    ),
    case(
        "patternProperties",
        obj(None, patternProperties={"^n": INT, "x$": {"minimum": 3}}, additionalProperties=False),
        '{"n": 1}  {"ax": 3.5}  {"nx": 3}',
        '{"n": "a"}  {"ax": 2}  {"nx": 2}  {"nx": 3.5}  {"b": 1}',
    ),
    case("patternProperties", obj(None, patternProperties={".": INT}, additionalProperties=True), '{"a": 1}', '{"\u2028": "a"}  {"a": "a"}'),
    case("propertyNames", obj(None, propertyNames={"pattern": "^[a-z]+$"}), '{"a": 1}', '{"A": 1}  {"": 1}'),
    case("propertyNames", obj(None, propertyNames={"minLength": 1, "maxLength": 2}), '{"ab": 1}', '{"abc": 1}  {"": 1}'),
    case("dependentRequired", obj({"a": INT, "b": INT}, dependentRequired={"a": ["b"]}), '{"b": 1}  {"a":1,"b":1}', '{"a": 1}'),
    case(
        "dependentSchemas",
        obj({"a": INT, "b": INT}, dependentSchemas={"a": {"required": ["b"], "properties": {"b": {"minimum": 9}}}}),
        '{"b": 1}  {"a": 1, "b": 9}',
        '{"a": 1, "b": 8}  {"a": 1}',
    ),
    case(
        "unevaluatedProperties",
        {"allOf": [obj({"a": INT})], "properties": {"b": INT}, "unevaluatedProperties": False},
        '{"b": 1, "a": 1}  {"b": 1}',
        '{"c": 1}',
    ),
    case("items", {"type": "array", "items": INT}, "[]  [1]  [1, 2,3]", '["a"]  [1, 2.5]'),
    case("items", {"type": "array", "items": False}, "[]", "[1]"),
    case("prefixItems", {"type": "array", "prefixItems": [INT, TEXT]}, '[1, "a"]', '["a", 1]  [1, "a", 2]  [1]'),
    case("prefixItems", {"prefixItems": [INT], "items": TEXT, "minItems": 0}, '[]  [1]  [1, "a", "b"]', '["a"]  [1, 2]'),
    case("minItems", {"type": "array", "items": INT, "minItems": 2}, "[1,2]  [1,2,3]", "[]  [1]"),
    case("maxItems", {"type": "array", "items": INT, "maxItems": 2}, "[]  [1,2]", "[1,2,3]"),
    case("unevaluatedItems", {"prefixItems": [INT], "unevaluatedItems": False}, "[1]", "[1, 2]"),
    case("minLength", {"type": "string", "minLength": 2}, r'"ab"  "éé"  "\u00e9\n"  "\ud83d\ude00x"', r'""  "a"  "\u00e9"  "\ud83d\ude00"'),
    case("maxLength", {"type": "string", "maxLength": 2}, r'""  "ab"  "😀😀"  "\\\""', '"abc"'),
    case("maxLength", {"type": "string", "minLength": 2001, "maxLength": 2003}, f'"{"a" * 2001}"  "{"a" * 2003}"', f'"{"a" * 2000}"  "{"a" * 2004}"'),
    case("pattern", {"type": "string", "pattern": "^[a-z]+[0-9]$"}, '"ab1"', '"1"  "ab"  "AB1"  "ab1x"'),
    case("pattern", {"type": "string", "pattern": "b"}, '"b"  "abc"', '"ac"  ""'),
    case("pattern", {"type": "string", "pattern": r'^"\\\n.$'}, r'"\"\\\nx"', r'"\"\\nx"'),
    case("pattern", {"pattern": "a", "minLength": 2, "maxLength": 3, "type": "string"}, '"xa"  "xax"', '"a"  "xx"  "xxxa"'),
    case("format", {"type": "string", "format": "date"}, '"2024-02-28"  "1999-12-31"', '"2024-13-01"  "2023-02-30"  "24-1-1"'),
    case("format", {"type": "string", "format": "date-time"}, '"2024-02-28T12:00:00Z"  "2024-02-28T23:59:59.5+02:00"', '"2024-02-28"  "2024-02-28T24:00:00Z"'),
    case("format", {"type": "string", "format": "uuid"}, '"123e4567-e89b-12d3-a456-426614174000"', '"123e4567"'),
    case("format", {"type": "string", "format": "email"}, '"a.b@example.org"', '"a@b"  "a b@example.org"'),
    case("format", {"type": "string", "format": "ipv4"}, '"192.168.0.1"', '"256.1.1.1"  "1.2.3"'),
    case("format", {"type": "string", "format": "ipv6"}, '"2001:db8:0:0:0:0:0:1"', '"1:2"'),
    case("format", {"type": "string", "format": "uri"}, '"https://example.org/a?b=c"', '"example"'),
    case("format", {"type": "string", "format": "hostname"}, '"example.org"', '"-a"  "a..b"'),
    case("format", {"type": "string", "format": "time"}, '"12:30:00Z"', '"12:30"'),
    case("format", {"type": "string", "format": "duration"}, '"P3D"  "PT5M"  "P1Y2M3DT4H"', '"3D"  "P"'),
    case("format", {"type": "integer", "format": "int32"}, "2147483647  -2147483648", "2147483648"),
    case("minimum", {"type": "integer", "minimum": -12}, "-12  0  99999", "-13  -100"),
    case("minimum", {"type": "number", "minimum": 0.5}, "0.5  0.51  7", "0.4  -1  0  0.49999"),
    case("maximum", {"type": "integer", "maximum": 105}, "105  99  -3000", "106  200  1000"),
    case("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 0}, "0.001  1", "0  0.0  -0.1  -0"),
    case("exclusiveMaximum", {"type": "number", "exclusiveMaximum": 1.5}, "1.49999  1  -9", "1.5  1.50  2"),
    case("multipleOf", {"type": "integer", "multipleOf": 7}, "0  14  -21  700", "1  13"),
    case("multipleOf", {"type": "number", "multipleOf": 0.01}, "0.25  3  1.5", "0.255"),
]  # fmt: skip

# Validated after generation: the grammar lets the bad ones through.
CHECKED = [
    case("uniqueItems", {"type": "array", "items": INT, "uniqueItems": True}, "[1, 2]", "[1, 1]"),
    case("contains", {"type": "array", "items": INT, "contains": {"const": 3}}, "[1, 3]", "[1]"),
    case("minContains", {"type": "array", "items": INT, "contains": {"const": 3}, "minContains": 2}, "[3, 3]", "[3]"),
    case("maxContains", {"type": "array", "items": INT, "contains": {"const": 3}, "maxContains": 1}, "[3]", "[3, 3]"),
    case("not", {"type": "integer", "not": {"const": 3}}, "4", "3"),
    case("if", obj({"a": INT, "b": INT}, **{"if": {"required": ["a"]}, "then": {"required": ["b"]}}), '{"b": 1}', '{"a": 1}'),
    case("minProperties", obj({"a": INT, "b": INT}, minProperties=1), '{"a": 1}', "{}"),
    case("maxProperties", obj({"a": INT, "b": INT}, maxProperties=1), '{"a": 1}', '{"a": 1, "b": 2}'),
    case(
        "unevaluatedProperties",
        obj({"a": INT}, allOf=[{"properties": {"b": INT}, "unevaluatedProperties": False}]),
        '{"b": 1}',
        '{"a": 1}',
    ),
    case("oneOf", {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]}, "2  7", "4"),
]  # fmt: skip

# Schema, and the path that the error names.
REFUSED = [
    ({"type": "strin"}, "$.type"),
    ({"type": []}, "$.type"),
    ({"minLenght": 3}, "$.minLenght"),
    ({"properties": {"a b": {"minimum": "3"}}}, "$.properties['a b'].minimum"),
    ({"exclusiveMinimum": True, "minimum": 3}, "$.exclusiveMinimum"),
    ({"type": "array", "items": [{"type": "integer"}]}, "$.items"),
    ({"additionalItems": False}, "$.additionalItems"),
    ({"$ref": "https://example.org/a.json"}, "$.$ref"),
    ({"$ref": "#/$defs/none"}, "$.$ref"),
    ({"$dynamicRef": "#a"}, "$.$dynamicRef"),
    ({"allOf": [{"$id": "x"}]}, "$.allOf[0].$id"),
    ({"type": "string", "format": "regex"}, "$.format"),
    ({"type": "integer", "format": "uint8"}, "$.format"),
    ({"type": "string", "contentEncoding": "base64"}, "$.contentEncoding"),
    ({"type": "string", "pattern": "(?=a)b"}, "$.pattern"),
    ({"type": "string", "pattern": r"(a)\1"}, "$.pattern"),
    ({"type": "string", "pattern": r"(a|b)*a(a|b){15}"}, "$.pattern"),
    ({"type": "string", "minLength": 10**9}, "$.minLength"),
    ({"type": "number", "multipleOf": 0.3}, "$.multipleOf"),
    ({"propertyNames": {"enum": ["a"]}, "type": "object"}, "$.propertyNames"),
    ({"patternProperties": {"(": True}}, "$.patternProperties['(']"),
    ({"enum": []}, "$.enum"),
    ({"not": {"format": "date"}}, "$.not.format"),
    ({"type": "string", "enum": [1]}, "$"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "$"),
    (obj({"a": False}, "a"), "$"),
    ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "$.$defs.a"),
    ({"$defs": {"a": obj({"b": {"$ref": "#/$defs/a"}}, "b")}, "$ref": "#/$defs/a"}, "$"),
    ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, INT], "minimum": 2}}, "$ref": "#/$defs/a"}, "$.$defs.a"),
    ({"const": {1, 2}}, "$"),
    ({"const": "\ud800"}, "$"),
    ({"const": float("nan")}, "$"),
    (3, "$"),
    ({"allOf": [{"anyOf": [{"minimum": i} for i in range(9)]} for _ in range(4)]}, "$"),
]  # fmt: skip
