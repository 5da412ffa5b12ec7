# SPDX-License-Identifier: Apache-2.0
"""Datasets: what their rows look like in numbers. Where they are declared is in `nemo_gym._config.dataset_types`."""
