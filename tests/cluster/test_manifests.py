"""The scripts and manifests of deploy/ are valid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pymupdf
import pytest
import yaml
from typer.testing import CliRunner

from tests import ROOT
from twopass.cli.app import app

DEPLOY = ROOT / "deploy"
SLURM = (DEPLOY / "slurm.sh").read_text()
MANIFESTS = {block["kind"]: block for path in DEPLOY.glob("*.yaml") for block in [yaml.safe_load(path.read_text())]}


def test_the_job_is_valid_for_kubernetes() -> None:
    """The Job is valid against Kubernetes' schema, and no field is misspelt."""
    kubernetes_validate.validate(MANIFESTS["Job"], kubernetes_validate.latest_version(), strict=True)


def test_the_pod_templates_of_the_ray_job_are_valid_for_kubernetes() -> None:
    """Head and workers are pods that Kubernetes accepts. No package has the schema of KubeRay's own fields."""
    cluster = MANIFESTS["RayJob"]["spec"]["rayClusterSpec"]
    templates = [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]

    assert len(templates) == 2
    for template in templates:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}, **template}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


# Fields of KubeRay's own, from its Go types (release 1.6); pod templates and maps below them are not listed.
KUBERAY = {
    "": {"entrypoint", "shutdownAfterJobFinishes", "backoffLimit", "rayClusterSpec"},
    "rayClusterSpec": {
        *("rayVersion", "authOptions", "enableInTreeAutoscaling", "autoscalerOptions"),
        *("headGroupSpec", "workerGroupSpecs"),
    },
    "authOptions": {"mode", "secretName"},
    "autoscalerOptions": {"idleTimeoutSeconds", "upscalingMode", "resources"},
    "headGroupSpec": {"rayStartParams", "template"},
    "workerGroupSpecs": {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"},
}


def test_no_field_of_the_ray_job_is_misspelt() -> None:
    """Every field that is KubeRay's own is one that it knows, at its place."""

    def find_unknown(fields: Any, name: str) -> list[str]:
        if isinstance(fields, list):
            return [unknown for entry in fields for unknown in find_unknown(entry, name)]
        unknown = [f"{name}.{field}" for field in fields if field not in KUBERAY[name]]
        return unknown + [path for field in fields if field in KUBERAY for path in find_unknown(fields[field], field)]

    assert find_unknown(MANIFESTS["RayJob"]["spec"], "") == []


def test_the_ray_job_runs_a_command_that_exists() -> None:
    """Its entry point has options of `twopass submit`, and its version of Ray is the tested one."""
    job = MANIFESTS["RayJob"]["spec"]
    program, command, *arguments = job["entrypoint"].split()
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout

    assert program == "twopass"
    assert not [word for word in arguments if word.startswith("--") and f" {word} " not in shown]
    assert f"ray=={job['rayClusterSpec']['rayVersion']}\n" in (ROOT / "requirements" / "cluster.txt").read_text()
    assert f"ray[default]=={job['rayClusterSpec']['rayVersion']}" in (DEPLOY / "kuberay.Dockerfile").read_text()


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
