"""What applications import: names of `goqueue`, and the modules that documents name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import goqueue


@pytest.mark.parametrize("name", goqueue.__all__)
def test_a_name_of_the_library_is_where_it_is_said_to_be(name: str) -> None:
    found = getattr(goqueue, name)

    assert getattr(found, "__name__", name) == name


@pytest.mark.parametrize("used", ["errors.PublishFailed", "tracing.processing", "wire", "archive"])
def test_a_public_module_needs_no_import_of_its_own(used: str) -> None:
    program = f"import goqueue; assert goqueue.{used}"

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_modules_that_documents_name_keep_their_names() -> None:
    named = "archive.arrow_store archive.layout archive.manifest errors tracing wire.batch"
    program = "import " + ", ".join(f"goqueue.{name}" for name in named.split())

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Broken'"):
        _ = goqueue.Broken  # type: ignore[attr-defined]
