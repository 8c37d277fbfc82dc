"""The program's models in, the generated parts of README.md out; a test fails when they are stale."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from twopass.settings import MEGABYTE, Settings

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- settings -->\n", "<!-- /settings -->"


def main() -> None:
    README.write_text(with_settings(README.read_text()))


def with_settings(text: str) -> str:
    """The README's text with its settings table made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{settings_table()}{END}{after}"


def settings_table() -> str:
    rows = ["| environment | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        rows.append(f"| `{name.upper()}` | {shown(field.default)} | {field.description} |")
    return "\n".join(rows) + "\n"


def shown(default: object) -> str:
    """A default as a reader writes it; megabytes in full would hide the number."""
    if default is None or isinstance(default, SecretStr):
        return "–"
    if isinstance(default, int) and not isinstance(default, bool) and default >= MEGABYTE and default % MEGABYTE == 0:
        return f"{default // MEGABYTE} MiB"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    main()
