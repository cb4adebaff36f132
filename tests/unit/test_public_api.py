"""The public door: complete, sorted, light, and true to what type checkers see."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import aeolus_sandbox
from aeolus_sandbox import errors

SOURCE = Path(aeolus_sandbox.__file__)


def test_every_public_name_can_be_imported() -> None:
    names = list(aeolus_sandbox.__all__)
    assert len(names) == len(set(names))
    assert set(names) == {"__version__", *aeolus_sandbox._HOMES}
    for name in names:
        assert getattr(aeolus_sandbox, name) is not None
    assert dir(aeolus_sandbox) == sorted(names)


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse(SOURCE.read_text("utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.name: node.module.removeprefix("aeolus_sandbox.")
        for node in guarded.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }
    assert declared == aeolus_sandbox._HOMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        aeolus_sandbox.Nonsense  # noqa: B018


def test_importing_the_package_loads_no_heavy_library() -> None:
    heavy = "anthropic docker typer click rich mcp jupyter_client ipykernel zmq aiohttp aiodocker pydantic tree_sitter"
    code = f"import sys, aeolus_sandbox; print(sorted(set({heavy.split()!r}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"


def test_the_manager_loads_neither_the_image_builder_nor_the_command_line() -> None:
    heavy = "anthropic docker typer click rich mcp jupyter_client ipykernel zmq"
    code = (
        f"import sys; from aeolus_sandbox import *; print(sorted(set({heavy.split()!r}) & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)
    ]
    codes = [kind.code for kind in kinds if issubclass(kind, errors.AeolusError)]
    assert len(codes) == len(kinds) == len(set(codes))


def test_the_tree_at_the_top_of_errors_names_every_error() -> None:
    assert errors.__doc__ is not None
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.AeolusError):
            assert name in errors.__doc__


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(errors.CapabilityDenied, PermissionError)
    assert issubclass(errors.ConfigurationError, ValueError)
    assert issubclass(errors.EngineUnavailable, ConnectionError)
    assert issubclass(errors.EngineTimeout, TimeoutError)
    assert issubclass(errors.ImageNotFound, LookupError)
