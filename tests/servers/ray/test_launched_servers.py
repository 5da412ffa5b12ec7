# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

from omegaconf import OmegaConf

from nemo_gym._config.server_types import RayPlacementConfig
from nemo_gym._servers.launching.placement_plan import ServerPlan
from nemo_gym._servers.ray.launched_servers import ServerList, list_replica_specs
from nemo_gym._servers.ray.replica_calls import find_address_book
from nemo_gym._servers.ray.replica_placement import ReplicaPlace
from nemo_gym.config_types import BaseServerConfig

HEAD = BaseServerConfig(host="127.0.0.1", port=24_001)
CONFIG = OmegaConf.create({"head_server": {"host": HEAD.host, "port": HEAD.port}, "an_api_key": "swordfish"})
HERE = ServerPlan("model", "responses_api_models", "m", Path("/m"), "app.py", "127.0.0.1", 8000, "inline", "so")
ON_RAY = replace(HERE, name="counter", port=8001, placement="ray", ray=RayPlacementConfig(num_replicas=2))


def test_the_list_of_servers_says_where_each_replica_is_at_the_moment():
    published = []
    servers = ServerList([HERE, ON_RAY], HEAD, published.append)
    first, second = list_replica_specs(
        CONFIG, [HERE, ON_RAY], servers, {}, published.append, restart_timeout_s=1, sends_code=False
    )
    servers.note_place(first, ReplicaPlace("0-a", "10.0.0.2", 1234, 7, "10.0.0.2"))
    servers.note_place(second, ReplicaPlace("1-a", "10.0.0.3", 1235, 8, "10.0.0.3"))
    model, *replicas = servers.note_ready({})
    assert (model.url, model.replica, model.node) == ("http://127.0.0.1:8000", None, None)
    assert [(one.process_name, one.replica, one.url, one.node, one.pid) for one in replicas] == [
        ("counter", "0-a", "http://10.0.0.2:1234", "10.0.0.2", 7),
        ("counter", "1-a", "http://10.0.0.3:1235", "10.0.0.3", 8),
    ]
    servers.note_place(first, None)
    servers.note_place(second, None)
    assert [one["process_name"] for one in published[-1]] == ["model"]
    assert find_address_book(HEAD).list_replicas("counter") == []
    servers.forget()


def test_this_process_knows_of_replicas_without_asking_and_forgets_them_at_the_end():
    servers = ServerList([ON_RAY], HEAD, lambda listed: None)
    (first, _) = list_replica_specs(CONFIG, [ON_RAY], servers, {}, print, restart_timeout_s=1, sends_code=False)
    servers.note_place(first, ReplicaPlace("0-a", "10.0.0.2", 1234, 7, "10.0.0.2"))
    assert [replica.url for replica in find_address_book(HEAD).list_replicas("counter")] == ["http://10.0.0.2:1234"]
    servers.forget()
    assert find_address_book(HEAD).list_replicas("counter") == []
    servers.forget()


def test_only_servers_that_ray_places_have_replicas():
    servers = ServerList([HERE], HEAD, lambda listed: None)
    assert list_replica_specs(CONFIG, [HERE], servers, {}, print, restart_timeout_s=1, sends_code=False) == []


def test_replicas_are_told_who_must_be_reached_on_the_launching_machine():
    servers = ServerList([HERE, ON_RAY], HEAD, lambda listed: None)
    spec, _ = list_replica_specs(CONFIG, [HERE, ON_RAY], servers, {}, print, restart_timeout_s=1, sends_code=False)
    assert spec.task["launcher_hosts"] == {"model": "127.0.0.1"}
    assert "swordfish" in spec.task["config"]
    assert "swordfish" not in str(spec.actor_options())
