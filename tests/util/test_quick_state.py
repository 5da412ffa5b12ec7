# SPDX-License-Identifier: Apache-2.0
"""Private attributes of a server behave as pydantic's own do."""

import copy
import pickle
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr

from nemo_gym._util.quick_state import QuickState


class Plain(BaseModel):
    name: str
    _made: list[int] = PrivateAttr(default_factory=list)
    _unset: int = PrivateAttr()


class Quick(QuickState):
    name: str
    _made: list[int] = PrivateAttr(default_factory=list)
    _unset: int = PrivateAttr()


class WithExtra(QuickState, extra="allow"):
    _made: int = 1


class OwnAttributes(QuickState):
    _made: int = 1

    def __getattr__(self, name: str) -> Any:
        return f"no {name}" if name.startswith("x") else super().__getattr__(name)


@pytest.mark.parametrize("kind", [Plain, Quick])
def test_an_attribute_is_there_once_it_is_set_and_can_be_changed_and_deleted(kind):
    server = kind(name="a")
    server._made.append(1)
    assert server._made == [1]
    with pytest.raises(AttributeError, match="_unset"):
        _ = server._unset
    server._unset = 3
    assert server._unset == 3
    del server._unset
    with pytest.raises(AttributeError, match="_unset"):
        _ = server._unset
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = server.nothing


@pytest.mark.parametrize("kind", [Plain, Quick])
def test_copies_and_pickles_carry_it(kind):
    server = kind(name="a")
    server._made.append(1)
    for twin in (copy.deepcopy(server), server.model_copy(), pickle.loads(pickle.dumps(server))):
        assert twin._made == [1]


def test_extra_fields_and_attributes_of_a_subclass_are_found():
    assert WithExtra(colour="red").colour == "red"
    assert WithExtra()._made == 1
    assert OwnAttributes().xylophone == "no xylophone"
    assert OwnAttributes()._made == 1
