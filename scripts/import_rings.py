# SPDX-License-Identifier: Apache-2.0
"""An import-linter contract about the rings of the package, told by the names of its modules.

`nemo_gym._x` is inner: it imports inner packages and the errors, nothing else. `_app` and `_process` hold what is
ambient and ours, and may use what others import. A package that is added tomorrow is covered by its name.
"""

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class RingsContract(Contract):  # type: ignore[misc]
    """Inner packages import no module of another ring, but those that are `open` to all."""

    package = fields.StringField()
    ambient = fields.SetField(subfield=fields.StringField())
    open_to_all = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at every direct import of an inner package: what it imports is checked in the same way."""
        package: Any = self.package
        ambient: Any = self.ambient
        open_to_all: Any = self.open_to_all
        inner = {
            child
            for child in graph.find_children(package)
            if child.startswith(f"{package}._") and child.rpartition(".")[2] not in {*ambient, *open_to_all}
        }
        wrong = [
            f"{importer} -> {imported}"
            for child in sorted(inner)
            for importer in sorted({child, *graph.find_descendants(child)})
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported.split(".")[0] == package
            and ".".join(imported.split(".")[:2]) not in inner
            and imported.removeprefix(f"{package}.") not in open_to_all
        ]
        return ContractCheck(kept=bool(inner) and not wrong, metadata={"wrong": wrong, "inner": inner})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """List the imports that lead outwards."""
        if not check.metadata["inner"]:
            output.print_error(f"{self.package} has no inner package: the contract checks nothing.")
        for line in check.metadata["wrong"]:
            output.print_error(line)
