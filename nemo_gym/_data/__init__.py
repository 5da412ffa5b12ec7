# SPDX-License-Identifier: Apache-2.0
"""Datasets: read, check, measure and collate them. Where they are declared is `nemo_gym._config.dataset_types`."""
