"""`[container]` of vendor.toml: what a sandbox needs to reach this vendor's chips."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from suite.record import Record
from suite.spec_types import Text

Framework = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]


class VendorContainer(Record):
    """How a container is made for this vendor. What goes beyond devices and environment needs the site's consent."""

    images: Mapping[Framework, Text] = {}
    """Framework -> a folder under images/ (`pytorch_1.13`), or an image that exists elsewhere (`NAME@sha256:…`);
    absent: the folder images/<framework>."""
    python: Text = "python3"
    """The framework's interpreter, inside."""
    options: tuple[Text, ...] = ()
    """Words of `docker run`, as fixtures.container_options reads them."""
    cdi: str = ""
    """Kind of the vendor's devices in the Container Device Interface, for an engine that cannot do `--gpus`."""
    health: tuple[Text, ...] = ()
    """A command that exits 0 inside if, and only if, the devices can be used."""
