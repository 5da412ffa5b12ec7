# SPDX-License-Identifier: Apache-2.0
"""Ray, only where something asks for it: join the cluster of the run, or start one on this machine."""

import logging
from typing import Any

from omegaconf import DictConfig, open_dict

from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
RAY_HEAD_NODE_ADDRESS_KEY_NAME = "ray_head_node_address"

_started_here = False


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise GymError("this server uses Ray, which is not installed.\nhint: pip install 'nemo-gym[ray]'") from error
    return ray


def join_or_start_cluster(global_config_dict: DictConfig) -> None:
    """Connect to `ray_head_node_address` or start a local cluster and store its address under that key."""
    global _started_here
    ray = _ray()
    if ray.is_initialized():
        return
    address = global_config_dict.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME)
    if address:
        LOG.info("joining the Ray cluster at %s", address)
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
        return
    LOG.info("starting a local Ray cluster")
    context = ray.init(ignore_reinit_error=True, log_to_driver=False)
    _started_here = True
    with open_dict(global_config_dict):
        global_config_dict[RAY_HEAD_NODE_ADDRESS_KEY_NAME] = context.address_info["gcs_address"]


def stop_own_cluster() -> None:
    """Shut down the cluster that this process started."""
    global _started_here
    if _started_here:
        _ray().shutdown()
        _started_here = False
