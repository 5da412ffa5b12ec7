# SPDX-License-Identifier: Apache-2.0
"""What authors of environments are helped with: finding, creating and checking servers, environments and benchmarks.

components, config_catalog, adapter_catalog, foreign_systems   what there is in the search roots, as `gym list` shows it
environment_manifest, scaffold_plans, templates                new servers and environments from templates
contract_checks, scripted_play, row_solutions, server_suites   whether an environment keeps to the contract

The catalog reads YAML as plain data and never builds a config: listing hundreds of folders takes a moment. Starting
servers and printing are left to the command line.
"""
