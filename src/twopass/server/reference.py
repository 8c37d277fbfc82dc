"""The page at /docs: the API as OpenAPI describes it, as HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from twopass.formats.html.page import tag

_METHODS = ("get", "post", "put", "patch", "delete")
_MAX_DEPTH = 6  # of schemas within schemas; a section's children are sections


def write(description: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = description["info"]
    schemas = description.get("components", {}).get("schemas", {})
    operations = list(_list_operations(description))
    body = Markup("").join(
        [
            tag("h1", f"{info['title']} {info['version']}"),
            tag("p", info.get("description", "")),
            tag("p", Markup('For programs: <a href="/openapi.json">openapi.json</a>. The page: <a href="/">/</a>.')),
            tag("nav", tag("ol", Markup("").join(_write_entry(*operation) for operation in operations))),
            *(_write_operation(method, path, one, schemas) for method, path, one in operations),
        ]
    )
    head = Markup(
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="/docs.css">'
    )
    page = tag("html", tag("head", head + tag("title", info["title"])) + tag("body", tag("main", body)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _list_operations(description: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, item in description["paths"].items():
        for method in _METHODS:
            if method in item:
                yield method, path, item[method]


def _anchor(method: str, path: str) -> str:
    return f"{method}{path}".replace("/", "-").replace("{", "").replace("}", "")


def _write_entry(method: str, path: str, operation: Mapping[str, Any]) -> Markup:
    link = tag("a", tag("code", f"{method.upper()} {path}"), href=f"#{_anchor(method, path)}")
    return tag("li", link + f" {operation.get('summary', '')}")


def _write_operation(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Markup:
    parts = [tag("h2", tag("code", f"{method.upper()} {path}")), tag("p", operation.get("summary", ""))]
    if text := operation.get("description"):
        parts.append(tag("p", text))
    if parameters := operation.get("parameters"):
        rows = [(one["name"], one["in"], _describe(one.get("schema", {}), one)) for one in parameters]
        parts += [tag("h3", "Parameters"), _write_table(rows)]
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        parts += [tag("h3", f"Body: {media}"), _write_schema(content.get("schema", {}), schemas)]
    parts.append(tag("h3", "Answers"))
    for status, answer in operation.get("responses", {}).items():
        parts.append(tag("p", tag("code", status) + f" {answer.get('description', '')}"))
        for content in answer.get("content", {}).values():
            if status.startswith("2") and "schema" in content:
                parts.append(_write_schema(content["schema"], schemas))
    return tag("section", Markup("").join(parts), id=_anchor(method, path))


def _write_table(rows: list[tuple[str, str, str]]) -> Markup:
    written = (tag("tr", tag("td", tag("code", name)) + tag("td", kind) + tag("td", text)) for name, kind, text in rows)
    return tag("table", Markup("").join(written))


def _write_schema(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int = 0) -> Markup:
    """The fields of an object, and below them those of objects within it."""
    schema = _follow(schema, schemas)
    fields = schema.get("properties", {})
    if not fields:
        return tag("p", _describe(schema, schema))
    rows = [(name, _name_type(field), _describe(field, field)) for name, field in fields.items()]
    inner = [(name, _find_object(field, schemas)) for name, field in fields.items()]
    details = [
        tag("details", tag("summary", tag("code", name)) + _write_schema(found, schemas, depth + 1))
        for name, found in inner
        if found and depth < _MAX_DEPTH
    ]
    return _write_table(rows) + Markup("").join(details)


def _follow(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = schemas.get(name, schema)
    return found


def _find_object(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The object that a field holds, alone, in a list or optionally."""
    for candidate in (schema, schema.get("items", {}), *schema.get("anyOf", ())):
        found = _follow(candidate, schemas)
        if found.get("properties"):
            return found
    return None


def _name_type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_name_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_name_type(schema.get('items', {}))}"
    return str(schema.get("type", "any value"))


def _describe(schema: Mapping[str, Any], owner: Mapping[str, Any]) -> str:
    choices = ", ".join(map(str, schema.get("enum", ())))
    return "; ".join(filter(None, (owner.get("description", ""), choices)))
