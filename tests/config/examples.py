# SPDX-License-Identifier: Apache-2.0
"""Config files that several tests use: a model, and a weather server with its agent."""

MODEL = """
policy_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_api_key: ${policy_api_key}
policy_api_key: sk-secret
"""
WEATHER = """
weather:
  resources_servers:
    weather:
      entrypoint: app.py
      domain: agent
weather_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: weather}
      model_server: {type: responses_api_models, name: policy_model}
"""
