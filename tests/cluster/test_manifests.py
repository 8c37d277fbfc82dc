"""The scripts and manifests of docs/cluster.md are valid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pymupdf
import pytest
import yaml

from tests.test_docs import find_blocks

PAGE = "docs/cluster.md"
(SLURM,) = find_blocks("bash", PAGE)
MANIFESTS = {block["kind"]: block for block in map(yaml.safe_load, find_blocks("yaml", PAGE))}


def test_the_job_is_valid_for_kubernetes() -> None:
    """The Job is valid against Kubernetes' schema, and no field is misspelt."""
    kubernetes_validate.validate(MANIFESTS["Job"], kubernetes_validate.latest_version(), strict=True)


def test_a_misspelt_field_is_found() -> None:
    """The validation fails for a field that Kubernetes does not know."""
    job = {**MANIFESTS["Job"], "spec": {**MANIFESTS["Job"]["spec"], "paralelism": 8}}

    with pytest.raises(kubernetes_validate.ValidationError, match="paralelism"):
        kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)


def test_the_slurm_script_reads_a_folder(tmp_path: Path) -> None:
    """With a stand-in for srun that runs its arguments, the script reads a folder into another one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (programs / "srun").chmod(0o755)
    (programs / "twopass").symlink_to(Path(sys.executable).with_name("twopass"))
    (tmp_path / "papers").mkdir()
    with pymupdf.open() as pdf:
        pdf.new_page().insert_text((72, 90), "A paper")
        pdf.save(tmp_path / "papers" / "paper.pdf")
    script = tmp_path / "twopass.sh"
    script.write_text(SLURM)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "ENGINE": "cpu", "SLURM_CPUS_PER_TASK": "2"}

    ran = subprocess.run(
        ["bash", str(script), str(tmp_path / "papers"), str(tmp_path / "read")],
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ran.returncode == 0, ran.stderr
    assert list((tmp_path / "read").glob("paper-*/manifest.json"))
