"""All regular expressions of packages: those that their modules hold, and those that their functions call `re` with."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

_ANCHORED = {"match", "fullmatch"}
_METHODS = {"sub", "subn", "search", "match", "fullmatch", "findall", "finditer", "split"}


class Found(NamedTuple):
    """A pattern, where it stands, and whether it is only tried at given places of a text."""

    name: str
    pattern: re.Pattern[str]
    is_anchored: bool


def find_patterns(packages: Sequence[str]) -> list[Found]:
    found = [one for name in packages for module in _load_modules(name) for one in _find_in_module(module)]
    return list({(one.pattern.pattern, one.pattern.flags, one.is_anchored): one for one in found}.values())


def _load_modules(name: str) -> Iterator[ModuleType]:
    package = importlib.import_module(name)
    yield package
    for info in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
        yield importlib.import_module(info.name)


def _find_in_module(module: ModuleType) -> Iterator[Found]:
    source = inspect.getsource(module)
    for name, value in vars(module).items():
        used = set(re.findall(rf"\b{name}\.(\w+)\(", source)) & _METHODS
        for pattern in _unpack(value):
            yield Found(f"{module.__name__}.{name}", pattern, bool(used) and used <= _ANCHORED)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (method := _get_method(node)) and (text := _get_text(node.args[0])):
            flags = next((_get_flags(word.value) for word in node.keywords if word.arg == "flags"), 0)
            yield Found(f"{module.__name__}:{node.lineno}", re.compile(text, flags), method in _ANCHORED)


def _unpack(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _unpack(one)
    elif isinstance(value, dict):
        yield from _unpack(list(value.values()))


def _get_method(node: ast.Call) -> str | None:
    function = node.func
    is_re = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re"
    return function.attr if is_re and isinstance(function, ast.Attribute) and function.attr in _METHODS else None


def _get_text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _get_flags(node: ast.expr) -> int:
    return int(eval(compile(ast.Expression(node), "flags", "eval"), {"re": re}))
