# SPDX-License-Identifier: Apache-2.0
"""Datasets: read, check, measure and collate them. `nemo_gym._config.dataset_types` declares them."""
