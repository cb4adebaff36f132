"""`aeolus doctor`: whether this machine can run sandboxes, and what to do where it cannot."""

import asyncio
import json
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from aeolus_sandbox.cli.diagnosis import Finding, about_containers, about_engine, about_images, unreachable
from aeolus_sandbox.cli.exits import Exit
from aeolus_sandbox.cli.running import run_orderly
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.engine.image_catalog import ImageCatalog, shipped_catalog
from aeolus_sandbox.engine.images import ImageBuilder, ImageState
from aeolus_sandbox.errors import AeolusError
from aeolus_sandbox.streaming.screen import harmless

_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    json_lines: Annotated[
        bool, typer.Option("--json", help="Write each finding as a JSON object on a line.")
    ] = False,
) -> None:
    """Look at the engine, its barriers, our images and leftovers: each line is ok, or says what to do."""
    raise typer.Exit(run_orderly(_doctor(json_lines=json_lines)))


async def _doctor(*, json_lines: bool) -> int:
    findings = await _examine()
    for finding in findings:
        if json_lines:
            typer.echo(json.dumps(finding.as_record()))
        else:
            _show(finding)
    return Exit.FAILED if any(finding.level == "fail" for finding in findings) else Exit.SUCCESS


async def _examine() -> list[Finding]:
    catalog = await asyncio.to_thread(shipped_catalog)
    try:
        async with DockerEngine() as engine:
            findings = about_engine(await engine.info())
            containers = await engine.list_containers({OWNER_LABEL: None})
        findings += await asyncio.to_thread(
            about_images, await asyncio.to_thread(_image_states, catalog), catalog
        )
    except AeolusError as error:
        return [unreachable(error)]
    return findings + await asyncio.to_thread(about_containers, containers)


def _image_states(catalog: ImageCatalog) -> list[ImageState]:
    with ImageBuilder(catalog=catalog) as builder:
        return builder.list()


def _show(finding: Finding) -> None:
    level = Text(f"{finding.level:<4}", style=_COLOURS[finding.level])
    advice = f": {finding.advice}" if finding.advice else ""
    Console().print(level, Text(harmless(f"{finding.subject}: {finding.text}{advice}")), soft_wrap=True)
