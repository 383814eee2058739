"""The layer from outside of trc: found through its entry points, as an installed package is, in processes of its own.

Nothing is installed: a folder with the package's metadata stands on the search path, beside its sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "custom_layer"


def metadata(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> Path:
    """A folder that looks as if a package were installed in it; only its entry points count."""
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"[{group}]\n" + "\n".join(f"{n} = {v}" for n, v in points.items()) for group, points in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where trc-gelu seems to be installed."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    return metadata(tmp_path / "site", project["name"], project["entry-points"])


def python(*args: str, site: Path | None = None, paths: tuple[Path, ...] = (ROOT, ROOT / "runtime")) -> str:
    """What a fresh interpreter prints; both streams, and the exit code in the last line."""
    found = (*paths, *((site, EXAMPLE / "src") if site else ()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, found)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *args]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    return f"{done.stdout}{done.stderr}\nexit {done.returncode}"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.bp"
    path.write_text("input(4, 4, 1);\nBluePrint net = seq(fc(8), gelu(), fc(3));\n")
    return path


def test_the_examples_own_tests(site: Path) -> None:
    # Values, gradients and fifty steps of training against PyTorch's GELU.
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "error"]
    config = ["-c", str(EXAMPLE / "pyproject.toml"), f"--rootdir={EXAMPLE}"]
    found = python("-m", "pytest", *options, *config, str(EXAMPLE / "tests"), site=site)
    assert found.endswith("exit 0"), found


def test_the_tools_know_it(site: Path, net: Path, tmp_path: Path) -> None:
    text = python("-m", "trc.tools.trc_compile", str(net), "--emit", "arch", site=site)
    assert '%2 = arch.gelu %1 layer "gelu1" : tensor<?x1x1x8xf32>' in text
    module = tmp_path / "net.mlir"
    found = python("-m", "trc.tools.trc_compile", str(net), "--compile-to", "atlas", "-o", str(module), site=site)
    assert found.endswith("exit 0"), found
    again = python("-m", "trc.tools.trc_opt", str(module), site=site)
    assert again == module.read_text() + "\nexit 0"
    # The nodes alone, without the operation that leads to the package.
    graphs = tmp_path / "graph.mlir"
    graphs.write_text("\n".join(line for line in module.read_text().splitlines() if "arch.gelu" not in line))
    assert "unknown kind" not in python("-m", "trc.tools.trc_opt", str(graphs), site=site)
    table = python("-m", "trc.tools.trc_opt", str(net), "-p", "arch-plan{num-classes=3}", site=site)
    assert "arch.gelu" in table
    run = python("-m", "trc.tools.trc_run", "bench", str(net), "--batch", "4", "--steps", "2", site=site)
    assert "step_ms_min=" in run


def test_a_bundle_runs_without_the_compiler(site: Path, net: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    found = python("-m", "trc.tools.trc_compile", str(net), "-o", str(bundle), "--batch", "4", site=site)
    assert found.endswith("exit 0"), found
    blocked = (
        "import sys; sys.modules.update({'trc': None, 'xdsl': None, 'trc_gelu.layer': None})\n"
        "from trc_runtime.__main__ import main\n"
        f"code = main([{str(bundle)!r}, 'train', '--data', 'synthetic', '--epochs', '1', '-q'])\n"
        "print('trc_gelu.kernels' in sys.modules, code)"
    )
    text = python("-c", blocked, site=site, paths=(ROOT / "runtime",))
    assert text.endswith("True 0\n\nexit 0"), text


def test_it_is_imported_when_needed_only(site: Path) -> None:
    code = (
        "import sys, trc\n"
        "trc.compile(trc.seq(trc.fc(4), trc.relu(), trc.fc(2)), input=(2, 2, 1), batch=2)\n"
        "print(sorted(n for n in sys.modules if n.startswith('trc_gelu')))\n"
        "trc.compile(trc.parse_blueprint('seq(fc(4), gelu(), fc(2))'), input=(2, 2, 1), batch=2)\n"
        "print(sorted(n for n in sys.modules if n.startswith('trc_gelu')))\n"
    )
    assert python("-c", code, site=site).splitlines() == [
        "[]",
        "['trc_gelu', 'trc_gelu.kernels', 'trc_gelu.layer']",
        "",
        "exit 0",
    ]


def test_without_the_package(net: Path, tmp_path: Path) -> None:
    text = python("-m", "trc.tools.trc_compile", str(net), "--emit", "arch")
    assert f"{net}:2:28: error: unknown layer 'gelu' (did you mean 'elu'?)" in text
    module = tmp_path / "net.mlir"
    module.write_text('arch.model @n(%x: tensor<?x1x1x4xf32>) {\n  %y = arch.gelu %x layer "a"\n  arch.output %y\n}\n')
    assert f"{module}:2:8: error: unknown operation arch.gelu" in python("-m", "trc.tools.trc_opt", str(module))


def broken(tmp_path: Path, group: str, source: str = "raise RuntimeError('no such drive')") -> Path:
    folder = metadata(tmp_path / "broken", "trc-bad", {group: {"bad": "trc_bad"}})
    (folder / "trc_bad.py").write_text(source + "\n")
    return folder


def test_a_broken_layer_package_is_named(net: Path, tmp_path: Path) -> None:
    folder = broken(tmp_path, "trc.layers")
    message = "the plug-in 'bad' of package trc-bad (trc_bad) cannot be loaded: RuntimeError: no such drive"
    paths = (ROOT, ROOT / "runtime", folder)
    text = python("-m", "trc.tools.trc_compile", str(net), "--emit", "arch", paths=paths)
    assert f"{net}:2:28: error: unknown layer 'gelu' (did you mean 'elu'?); {message}" in text
    assert "Traceback" not in text
    module = tmp_path / "net.mlir"
    module.write_text('arch.model @n(%x: tensor<?x1x1x4xf32>) {\n  %y = arch.gelu %x layer "a"\n  arch.output %y\n}\n')
    text = python("-m", "trc.tools.trc_opt", str(module), paths=paths)
    assert f"error: {message}" in text
    assert "Traceback" not in text
    # A network that needs no such package is not disturbed by it.
    plain = tmp_path / "plain.bp"
    plain.write_text("input(2, 2, 1);\nBluePrint p = seq(fc(2));\n")
    assert python("-m", "trc.tools.trc_compile", str(plain), "--emit", "arch", paths=paths).endswith("exit 0")
    clash = "from trc.dialects.arch import ReluOp\nfrom trc.dialects.plugins import register_op\n"
    other = broken(
        tmp_path / "other", "trc.layers", clash + "class Mine(ReluOp):\n    name = 'arch.relu'\nregister_op(Mine)"
    )
    text = python("-m", "trc.tools.trc_compile", str(net), "--emit", "arch", paths=(ROOT, ROOT / "runtime", other))
    assert "(trc_bad) cannot be loaded: ValueError: there is an operation 'arch.relu' already" in text


def test_a_broken_kernel_package_is_named(site: Path, net: Path, tmp_path: Path) -> None:
    folder = broken(tmp_path, "trc_runtime.kernels", "import nothing_of_that_name")
    paths = (ROOT, ROOT / "runtime", folder)
    message = "'bad' of package trc-bad (trc_bad) cannot be loaded: ModuleNotFoundError: No module named 'nothing_of"
    bundle = tmp_path / "bundle"
    # It does not matter while the kernels come from elsewhere.
    found = python("-m", "trc.tools.trc_compile", str(net), "-o", str(bundle), site=site, paths=paths)
    assert found.endswith("exit 0"), found
    layers = metadata(tmp_path / "layers", "trc-gelu", {"trc.layers": {"gelu": "trc_gelu.layer"}})
    for args in (
        ("-m", "trc.tools.trc_run", "bench", str(net)),
        ("-m", "trc_runtime", str(bundle), "eval", "--data", "synthetic"),
    ):
        text = python(*args, site=layers, paths=paths)
        assert message in text
        assert "Traceback" not in text
