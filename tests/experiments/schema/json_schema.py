# SPDX-License-Identifier: Apache-2.0
"""Checks JSON against a schema (JSON Schema, draft 2020-12). Supports only the keywords that
experiments/schema uses.

    errors = Schema.load(folder / "summary.schema.json").errors(value)

An unknown keyword is an error of the schema, so that no keyword is skipped silently. With `closed`, the check
also reports members that the schema does not list. The check is for files that this project writes; a reader must
accept files of other versions."""
import json
import pathlib

ANNOTATIONS = {"$schema", "$id", "$defs", "title", "description"}
KEYWORDS = ANNOTATIONS | {"$ref", "type", "const", "enum", "anyOf", "properties", "required",
                          "additionalProperties", "items", "minimum", "minItems"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_of(value, name):
    if name in ("number", "integer"):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and (name == "number" or value == int(value))
    return isinstance(value, TYPES[name])


class Schema:
    def __init__(self, content, folder):
        self.content, self.folder, self.others = content, folder, {}

    @classmethod
    def load(cls, path):
        path = pathlib.Path(path)
        return cls(json.loads(path.read_text()), path.parent)

    def errors(self, value, closed=False):
        return list(self._errors(value, self.content, "$", closed))

    def unknown_keywords(self):
        return sorted(set(self._keywords(self.content)) - KEYWORDS)

    def _keywords(self, schema):
        if not isinstance(schema, dict):
            return
        for key, inside in schema.items():
            yield key
            if key in ("properties", "$defs"):
                for one in inside.values():
                    yield from self._keywords(one)
            elif key in ("items", "additionalProperties"):
                yield from self._keywords(inside)
            elif key == "anyOf":
                for one in inside:
                    yield from self._keywords(one)

    def _target(self, reference):
        """Returns the schema to which a reference leads ('#/$defs/load', 'env.schema.json'), and the Schema object
        that contains it."""
        file, _, path = reference.partition("#")
        home = self
        if file:
            if file not in self.others:
                self.others[file] = Schema.load(self.folder / file)
            home = self.others[file]
        found = home.content
        for name in filter(None, path.split("/")):
            found = found[name]
        return home, found

    def _errors(self, value, schema, place, closed):
        if isinstance(schema, bool):
            if not schema:
                yield f"{place}: not allowed"
            return
        unknown = set(schema) - KEYWORDS
        if unknown:
            yield f"{place}: the schema has keywords that this check does not know: {sorted(unknown)}"
        if "$ref" in schema:
            home, target = self._target(schema["$ref"])
            yield from home._errors(value, target, place, closed)
        if "type" in schema:
            names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
            if not any(is_of(value, name) for name in names):
                yield f"{place}: expected {' or '.join(names)}, got {json.dumps(value)[:60]}"
                return
        if "const" in schema and value != schema["const"]:
            yield f"{place}: expected {schema['const']!r}, got {value!r}"
        if "enum" in schema and value not in schema["enum"]:
            yield f"{place}: expected one of {schema['enum']}, got {value!r}"
        if "anyOf" in schema:
            found = [list(self._errors(value, one, place, closed)) for one in schema["anyOf"]]
            if all(found):
                yield min(found, key=len)[0]
        if "minimum" in schema and is_of(value, "number") and value < schema["minimum"]:
            yield f"{place}: expected at least {schema['minimum']}, got {value}"
        if isinstance(value, list):
            if len(value) < schema.get("minItems", 0):
                yield f"{place}: expected at least {schema['minItems']} items, got {len(value)}"
            for i, one in enumerate(value):
                yield from self._errors(one, schema.get("items", True), f"{place}[{i}]", closed)
        if isinstance(value, dict):
            yield from self._member_errors(value, schema, place, closed)

    def _member_errors(self, value, schema, place, closed):
        known = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                yield f"{place}: expected the member {name!r}"
        others = schema.get("additionalProperties", not (closed and known))
        for name, one in value.items():
            if name in known:
                yield from self._errors(one, known[name], f"{place}.{name}", closed)
            elif others is False:
                yield f"{place}: the schema has no member {name!r}"
            else:
                yield from self._errors(one, others, f"{place}.{name}", closed)
