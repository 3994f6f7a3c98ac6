"""A template's file that whoever runs the program may not read."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Files are readable for root whatever their mode, so that the program becomes nobody first.
PROGRAM = """
import os
from causerie import TemplateError
from causerie.chat import ChatTemplate
ChatTemplate.from_file("readable.jinja")  # which imports what nobody may not read
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(ChatTemplate.from_file("readable.jinja").source)
try:
    ChatTemplate.from_file("mine.jinja")
except TemplateError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs users and modes of files")
def test_that_one_may_not_read_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name, mode in (("readable.jinja", 0o644), ("mine.jinja", 0)):
        (tmp_path / name).write_text("{{ messages[0].content }}", "utf-8")
        (tmp_path / name).chmod(mode)
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "{{ messages[0].content }}",
        "the chat template 'mine.jinja' cannot be read: Permission denied",
    ]
