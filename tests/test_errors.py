"""Every exception of the package: its builtin, its facts, and its way through pickle."""

from __future__ import annotations

import copy
import pickle

import pytest

import causerie
from causerie import errors

BUILTINS = {
    "BusyError": RuntimeError,
    "CacheFullError": RuntimeError,
    "ClosedError": RuntimeError,
    "ContextOverflowError": ValueError,
    "DecodeError": RuntimeError,
    "DeviceError": OSError,
    "GrammarError": ValueError,
    "HelperDiedError": RuntimeError,
    "ModelLoadError": OSError,
    "NativeError": RuntimeError,
    "OutOfMemoryError": MemoryError,
    "SchemaError": ValueError,
    "StateError": ValueError,
    "TemplateError": ValueError,
    "ToolError": RuntimeError,
    "UnsupportedError": NotImplementedError,
}
FACTS = {
    "ContextOverflowError": {"needed": 10, "available": 5, "kind": "full"},
    "DecodeError": {"code": 2},
    "DeviceError": {"device": "RPC[host:1]"},
    "HelperDiedError": {"exit_code": -9, "log": "said"},
    "ModelLoadError": {"path": "/a b.gguf", "size": 7, "reason": "bad magic"},
    "NativeError": {"aborted": True},
    "OutOfMemoryError": {"needed": 10, "available": None},
    "SchemaError": {"path": "$.a"},
    "StateError": {"path": "/a b.causerie", "expected": 1, "found": 2},
}
KINDS = [getattr(errors, name) for name in sorted(BUILTINS)]


def test_every_error_of_the_module_is_listed_here_and_at_the_top() -> None:
    assert set(errors.__all__) == {*BUILTINS, "CauserieError", "StateWarning"}
    assert all(getattr(causerie, name) is getattr(errors, name) for name in errors.__all__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
class TestEach:
    def test_has_the_root_and_the_builtin_that_fits(self, kind: type[errors.CauserieError]) -> None:
        assert issubclass(kind, errors.CauserieError)
        assert issubclass(kind, BUILTINS[kind.__name__])

    def test_carries_its_facts_as_attributes(self, kind: type[errors.CauserieError]) -> None:
        facts = FACTS.get(kind.__name__, {})
        error = kind("what happened", **facts)
        assert str(error) == "what happened"
        assert {name: getattr(error, name) for name in facts} == facts

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_survives_pickling(self, kind: type[errors.CauserieError], protocol: int) -> None:
        facts = FACTS.get(kind.__name__, {})
        error = pickle.loads(pickle.dumps(kind("what happened", **facts), protocol))
        assert type(error) is kind
        assert str(error) == "what happened"
        assert {name: getattr(error, name) for name in facts} == facts

    def test_survives_copying(self, kind: type[errors.CauserieError]) -> None:
        error = copy.deepcopy(kind("what happened", **FACTS.get(kind.__name__, {})))
        assert (type(error), str(error)) == (kind, "what happened")

    def test_can_be_caught_as_its_builtin(self, kind: type[errors.CauserieError]) -> None:
        with pytest.raises(BUILTINS[kind.__name__], match="what happened"):
            raise kind("what happened")

    def test_has_its_documented_facts_even_when_they_are_unknown(self, kind: type[errors.CauserieError]) -> None:
        assert all(hasattr(kind("what happened"), name) for name in FACTS.get(kind.__name__, {}))

    def test_says_what_it_documents(self, kind: type[errors.CauserieError]) -> None:
        assert kind.__doc__
        documented = {name for name in FACTS.get(kind.__name__, {}) if f"``{name}``" in kind.__doc__}
        assert documented == set(FACTS.get(kind.__name__, {}))


def test_a_note_and_a_cause_are_kept_by_the_exception_itself() -> None:
    cause = KeyError("x")
    with pytest.raises(errors.ToolError) as caught:
        raise errors.ToolError("failed") from cause
    assert caught.value.__cause__ is cause


def test_an_oserror_fact_stays_readable() -> None:
    error = errors.ModelLoadError("no", errno=2, path="x")
    assert (error.errno, str(error)) == (2, "no")
