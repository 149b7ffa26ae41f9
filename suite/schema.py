"""JSON schemas of the configuration files, for editors: `python -m suite.schema DIR`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from suite.data_spec import DataSpec
from suite.described import Described
from suite.spec import CaseSpec
from suite.vendor_spec import MachineSpec, VendorCaseConfig, VendorSpec

SCHEMAS: Mapping[str, type[BaseModel]] = {
    "case": CaseSpec,
    "vendor": VendorSpec,
    "machine": MachineSpec,
    "config": VendorCaseConfig,
    "data": DataSpec,
}
"""Name of the schema file -> what it describes."""


def schema(name: str) -> dict[str, object]:
    """The JSON schema of one kind of file."""
    made = SCHEMAS[name].model_json_schema(schema_generator=Described)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def main(arguments: Sequence[str]) -> int:
    """Write `<name>.schema.json` for every kind into the folder named."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m suite.schema DIR", file=sys.stderr)
        return 4
    folder = Path(arguments[0])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in SCHEMAS:
            path = folder / f"{name}.schema.json"
            path.write_text(json.dumps(schema(name), indent=2) + "\n", encoding="utf-8")
            print(path)
    except OSError as error:
        print(f"{folder}: cannot be written: {error.strerror or error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
