# SPDX-License-Identifier: Apache-2.0
"""The name of sandboxes in AWS ECS with Fargate; see `services`."""

from nemo_gym.sandbox.providers.services import ServiceProvider


class EcsFargateProvider(ServiceProvider):
    """Reads configs for AWS ECS with Fargate."""

    name = "ecs_fargate"
    service = "AWS ECS with Fargate"
    client = "`pip install boto3`"
