"""The JSON schemas of what comes out, for readers that do not have this project."""

from __future__ import annotations

import json
from pathlib import Path

from reports.atomic import replace_file
from reports.json_report import SessionReport
from reports.records import RECORDS
from suite.described import Described
from suite.result import Result

FOLDER = Path(__file__).resolve().parents[1] / "suite" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, object]]:
    """File name -> JSON schema of result.json, session.json and the records of a journal."""
    made: dict[str, dict[str, object]] = {
        "result.schema.json": Result.model_json_schema(mode="serialization", schema_generator=Described),
        "session.schema.json": SessionReport.model_json_schema(mode="serialization", schema_generator=Described),
        "record.schema.json": RECORDS.json_schema(mode="validation", schema_generator=Described),
    }
    return {name: {"$schema": DRAFT, **schema} for name, schema in made.items()}


def write_schemas(folder: Path) -> tuple[Path, ...]:
    """Write every schema into `folder`; returns the files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        replace_file(folder / name, text.encode("utf-8"))
        written.append(folder / name)
    return tuple(written)
