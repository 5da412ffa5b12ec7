# SPDX-License-Identifier: Apache-2.0
"""Import-linter contracts about the rooms of the package: who may know the contract, and which room stands on which.

`nemo_gym._x` is inner: it imports inner packages and the errors. Modules that are named as `ambient` may also use what
others import. A package that is added tomorrow is covered by its name.
"""

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def is_below(module: str, roots: set[str]) -> bool:
    """Return whether `module` is one of `roots` or inside one of them."""
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def list_imports(graph: ImportGraph, package: str) -> list[tuple[str, str]]:
    """Return every direct import between two modules of `package`."""
    modules = sorted({package, *graph.find_descendants(package)})
    return [
        (importer, imported)
        for importer in modules
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if is_below(imported, {package})
    ]


class _DirectImports(Contract):  # type: ignore[misc]
    """A contract that rejects single imports, each for a reason of its own."""

    package = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        wrong = self.find_wrong(graph)
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def find_wrong(self, graph: ImportGraph) -> list[str]:
        raise NotImplementedError

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["wrong"]:
            output.print_error(line)


class RingsContract(_DirectImports):
    """Inner modules import no module of another ring, but those that are `open_to_all`."""

    ambient = fields.SetField(subfield=fields.StringField())
    open_to_all = fields.SetField(subfield=fields.StringField())

    def find_wrong(self, graph: ImportGraph) -> list[str]:
        package: Any = self.package
        ambient: Any = {f"{package}.{name}" for name in self.ambient}  # type: ignore[attr-defined]
        open_to_all: Any = {f"{package}.{name}" for name in self.open_to_all}  # type: ignore[attr-defined]
        unknown = sorted(name for name in ambient if name not in graph.modules)
        if unknown:
            return [f"there is no module {name}, which is listed as ambient" for name in unknown]
        inner = {child for child in graph.find_children(package) if child.startswith(f"{package}._")} - open_to_all
        return [
            f"{importer} -> {imported}"
            for importer, imported in list_imports(graph, package)
            if is_below(importer, inner) and not is_below(importer, ambient)
            if not is_below(imported, inner | open_to_all)
        ]


class RoomsContract(_DirectImports):
    """A room imports itself and the rooms below it; rooms in one line, separated by `|`, do not know each other."""

    layers = fields.ListField(subfield=fields.StringField())

    def find_wrong(self, graph: ImportGraph) -> list[str]:
        package: Any = self.package
        layers: Any = self.layers
        level_of = {f"{package}.{room.strip()}": level for level, line in enumerate(layers) for room in line.split("|")}
        unknown = sorted(room for room in level_of if room not in graph.modules)
        if unknown:
            return [f"there is no room {room}" for room in unknown]
        inner = {child for child in graph.find_children(package) if child.startswith(f"{package}._")}
        homeless = sorted(
            child for child in inner if graph.find_children(child) and not any(is_below(r, {child}) for r in level_of)
        )
        if homeless:
            return [f"{room} has no place among the rooms" for room in homeless]
        by_length = sorted(level_of, key=len, reverse=True)

        def find_room(module: str) -> str | None:
            return next((room for room in by_length if is_below(module, {room})), None)

        wrong = []
        for importer, imported in list_imports(graph, package):
            from_room = find_room(importer)
            to_room = find_room(imported)
            if from_room is None or to_room is None or from_room == to_room:
                continue
            if level_of[from_room] >= level_of[to_room]:
                wrong.append(f"{importer} -> {imported}: {from_room} does not stand above {to_room}")
        return wrong


class NoCyclesContract(_DirectImports):
    """No module reaches itself through its imports."""

    def find_wrong(self, graph: ImportGraph) -> list[str]:
        package: Any = self.package
        wanted: dict[str, set[str]] = {}
        for importer, imported in list_imports(graph, package):
            wanted.setdefault(importer, set()).add(imported)
        # What imports nothing that is left is on no cycle: take it away until nothing changes.
        while leaves := {module for module, imports in wanted.items() if not imports & wanted.keys()}:
            for module in leaves:
                del wanted[module]
        return [f"{module} -> {', '.join(sorted(imports & wanted.keys()))}" for module, imports in wanted.items()]
