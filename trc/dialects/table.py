"""What a module holds, found in one pass, so that checks across operations need no search."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

OpT = TypeVar("OpT", bound=Operation)

Finding = tuple[Operation, str]
"""A problem and the operation that it is reported at."""


class Table:
    """The operations of a module by class, and its symbols."""

    def __init__(self, module: ModuleOp, unsound: Collection[Operation] = ()) -> None:
        """Read a module of one block.

        Operations in `unsound` (their own verifier refused them) are symbols, but in no list, so that checks across
        operations may use accessors freely.
        """
        self.module = module
        self.unsound = unsound
        self.symbols: dict[str, Operation] = {}
        """The first operation of each name."""
        self.repeated: list[tuple[str, Operation]] = []
        """The later operations of a name that is taken."""
        self._lists: dict[type[Operation], list[Operation]] = {}
        for op in module.body.block.ops:
            name = op.properties.get("sym_name")
            if isinstance(name, StringAttr):
                if name.data in self.symbols:
                    self.repeated.append((name.data, op))
                else:
                    self.symbols[name.data] = op
            if op not in unsound:
                self._lists.setdefault(type(op), []).append(op)

    def all(self, cls: type[OpT]) -> list[OpT]:
        """The sound operations of exactly this class, in order."""
        return [op for op in self._lists.get(cls, ()) if isinstance(op, cls)]

    def get(self, name: str, cls: type[OpT]) -> OpT | None:
        """The operation of that name and class, or None."""
        op = self.symbols.get(name)
        return op if isinstance(op, cls) else None
