"""What `import trc` gives: found by dir and help, and nothing imported before it is used."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import trc
import trc.session


@pytest.mark.parametrize("module", [trc, trc.session], ids=lambda m: m.__name__)
def test_names_are_listed(module) -> None:
    assert set(module.__all__) <= set(dir(module))
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_help_shows_the_interface() -> None:
    text = pydoc.plain(pydoc.render_doc(trc))
    for name in ("compile(model", "class BluePrint", "load(path", "fc("):
        assert name in text


def test_loading_a_bundle_imports_no_compiler(tmp_path: Path) -> None:
    net = trc.BluePrint(trc.seq(trc.fc(4), trc.relu(), trc.fc(3)), "net", (2, 2, 1))
    trc.compile(net, batch=2, num_classes=3).save(tmp_path / "net")
    code = (
        "import sys, trc; trc.load(sys.argv[1]); "
        "print(*[m for m in sys.modules if m.split('.')[0] in ('xdsl', 'lark')])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "net")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("path", [3, None, b"net"])
def test_load_takes_a_path(path) -> None:
    with pytest.raises(trc.CompileError, match=r"trc\.load takes the path of a bundle as text or a Path, not"):
        trc.load(path)
