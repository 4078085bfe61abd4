"""Which variables of the environment a recording keeps."""

from __future__ import annotations

import pytest

from layerscope.model.secrets import kept_environment


@pytest.mark.parametrize(
    "name",
    ["OMP_NUM_THREADS", "ONEDNN_VERBOSE", "TORCH_LOGS", "MALLOC_ARENA_MAX", "XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS",
     "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "LD_PRELOAD"],
)  # fmt: skip
def test_what_changes_speed_or_names_a_rank_is_kept(name: str) -> None:
    assert kept_environment({name: "1"}) == {name: "1"}


@pytest.mark.parametrize(
    "name",
    ["TF_CLI_CONFIG_FILE", "TF_VAR_password", "TF_TOKEN_app", "TFOO", "JAXB_HOME", "MALLOCATOR", "PMIX_SECURITY_MODE",
     "TORCHSERVE_KEY", "CUDAX", "TORCH_TOKEN", "XLA_API_KEY", "SLURM_STEP_NODELIST", "HOME", "AWS_SECRET_ACCESS_KEY"],
)  # fmt: skip
def test_what_belongs_to_other_programs_or_is_secret_is_not(name: str) -> None:
    assert kept_environment({name: "1"}) == {}
