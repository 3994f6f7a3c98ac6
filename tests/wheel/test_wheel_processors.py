"""The portable wheel on processors old and new: which variant is chosen, and that it computes the same."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from installed import Installed, greedy
from variants import VARIANTS, usable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not VARIANTS, reason="the variants of x86-64 are looked at under Linux"
)

PROMPT = [1, 5, 9, 17, 33, 21]


@pytest.fixture(scope="module")
def tiny(tiny_models: dict[str, Path]) -> Path:
    return tiny_models["llama-dense"]


@pytest.fixture(scope="module")
def old(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """With a numpy that starts on processors without SSE 4.2, as later ones do not."""
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("qemu-x86_64 is not installed: apt install qemu-user")
    return Installed(tmp_path_factory.mktemp("old"), sys.executable, wheel, "numpy<2.3")


def test_the_best_variant_that_this_processor_can_run_is_chosen(installed: Installed) -> None:
    facts = installed.facts()
    chosen = facts["cpu_variant"]
    assert set(facts["cpu_variants"]) == set(VARIANTS)
    assert chosen in usable()
    assert not [name for name in usable() if VARIANTS[name] > VARIANTS[chosen]]
    assert {p["variant"] for p in facts["plugins"] if p["backend"] == "cpu" and p["score"] > 0} == usable()
    told = installed.process("-m", "causerie.cli", "doctor").stdout
    assert any(line.split()[:3] == ["variant", f"{chosen},", "of"] for line in told.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processor", "variant"),
    [
        ("qemu64", "x64"),
        ("Nehalem", "sse42"),
        ("SandyBridge", "sandybridge"),
        ("IvyBridge", "ivybridge"),
        ("Opteron_G5", "piledriver"),
        ("Haswell", "haswell"),
    ],
)
def test_an_older_processor_runs_its_variant(
    old: Installed, tiny: Path, processor: str, variant: str, installed: Installed
) -> None:
    """qemu ends a program at an instruction that the processor does not have."""
    found = greedy(old.under("qemu-x86_64", "-cpu", processor), tiny, PROMPT, 8)
    assert found["variant"] == variant
    here = greedy(installed, tiny, PROMPT, 8)
    np.testing.assert_allclose(found["logits"], here["logits"], atol=1e-5)
    assert found["tokens"] == here["tokens"]


def test_qemu_ends_a_program_at_what_the_processor_lacks(tmp_path: Path) -> None:
    """Else the test above would say nothing."""
    compiler, qemu = shutil.which("cc"), shutil.which("qemu-x86_64")
    if compiler is None or qemu is None:
        pytest.skip("needs a C compiler, and qemu-x86_64: apt install qemu-user")
    (tmp_path / "avx.c").write_text('int main(void) { __asm__ volatile("vxorps %ymm0, %ymm0, %ymm0"); return 0; }')
    subprocess.run([compiler, "avx.c", "-o", "avx"], cwd=tmp_path, check=True)
    codes = [
        subprocess.run([qemu, "-cpu", processor, tmp_path / "avx"], capture_output=True, check=False).returncode
        for processor in ("Haswell", "Nehalem")
    ]
    assert codes == [0, -signal.SIGILL]
