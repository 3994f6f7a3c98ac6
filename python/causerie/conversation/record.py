"""A conversation as JSON: everything but what is evaluated. docs/saving.md describes the keys."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

from causerie.chat.messages import Message
from causerie.chat.options import SamplingOptions
from causerie.chat.plain_template import RolePrefix, TextTemplate
from causerie.chat.tools import Tool, ToolBox
from causerie.chat.whole_replies import Written
from causerie.conversation.constraint import constraint_from_json, constraint_to_json
from causerie.conversation.history import History
from causerie.conversation.overflow import as_overflow
from causerie.conversation.settings import Settings
from causerie.conversation.snapshot import OwnTemplate, Snapshot, TemplateText, check_model, encoder_for
from causerie.conversation.tool_offer import ToolOffer
from causerie.conversation.transform_names import transform_name, transform_named
from causerie.engine import Adapter
from causerie.errors import StateError, TemplateError, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from causerie.chat.prompt import PromptEncoder
    from causerie.conversation.engine import Engine
    from causerie.conversation.history import Said

__all__ = ["from_record", "to_record"]

# What a saved conversation has of its settings; the encoder is made of the template. New fields are to be added here.
_SAVED = {
    "encoder", "sampling", "template_kwargs", "thinking", "overflow", "input_transforms", "output_transforms",
    "history_transform", "response_format", "offer", "replay_thinking", "tool_format",
}  # fmt: skip


@cache
def _version() -> str:
    return version("causerie")


# ---- out ----


def to_record(snapshot: Snapshot, *, drop_functions: bool) -> bytes:
    """JSON text, UTF-8.

    Args:
        snapshot: the conversation.
        drop_functions: leave out functions that have no registered name, instead of refusing.

    Raises:
        ValueError: a function has no registered name, so that it cannot be saved.
    """
    settings = snapshot.settings
    if unsaved := {field.name for field in fields(settings)} - _SAVED or settings.response_format is not None:
        raise AssertionError(f"these settings cannot be saved: {unsaved}")
    history = snapshot.history
    functions = _Functions(drop=drop_functions)
    data = {
        "causerie": _version(),
        "model": {"fingerprint": snapshot.model[0], "description": snapshot.model[1]},
        "name": snapshot.name,
        "messages": [message.to_dict() for message in history.messages],
        "generated": [_said(said) for said in history.generated],
        "head": history.head,
        "context_full": snapshot.context_full,
        "sampling": _sampling(settings.sampling, functions),
        "template": _template(snapshot.template),
        "template_kwargs": settings.template_kwargs,
        "thinking": settings.thinking,
        "replay_thinking": settings.replay_thinking,
        "overflow": _overflow(settings, functions),
        "tools": settings.offer.tools.to_list(),
        "tool_choice": settings.offer.choice,
        "parallel_tool_calls": settings.offer.parallel,
        "validate_calls": settings.offer.validate,
        "tool_format": settings.tool_format,
        "input_transforms": functions.names(settings.input_transforms, "input transform"),
        "output_transforms": functions.names(settings.output_transforms, "output transform"),
        "history_transform": functions.name(settings.history_transform, "history transform"),
    }
    if any(history.constraints):
        data["constraints"] = [constraint_to_json(constraint) for constraint in history.constraints]
    if snapshot.adapters:
        data["adapters"] = [_adapter_to_json(adapter) for adapter in snapshot.adapters]
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _adapter_to_json(adapter: Adapter) -> dict[str, Any]:
    path = adapter.path.encode("utf-8", "replace").decode()  # a name that is no UTF-8: it can be found by its content
    return {"path": path, "scale": adapter.scale, "fingerprint": adapter.fingerprint}


class _Functions:
    """Functions by their registered names."""

    def __init__(self, *, drop: bool) -> None:
        self._drop = drop

    def name(self, function: object, what: str) -> str | None:
        if function is None:
            return None
        name = transform_name(function)
        if name is None and not self._drop:
            raise ValueError(
                f"a function cannot be saved: give the {what} {function!r} a name with register_transform, or leave "
                "such out with drop_functions=True"
            )
        return name

    def names(self, given: Iterable[object], what: str) -> list[str]:
        return [name for name in (self.name(function, what) for function in given) if name is not None]


def _said(said: Said | None) -> Any:
    return said._asdict() if isinstance(said, Written) else said


def _sampling(options: SamplingOptions, functions: _Functions) -> dict[str, Any]:
    found = options.given()
    if "logit_bias" in found:  # JSON has no infinity: null bans the token
        bias = found["logit_bias"].items()
        found["logit_bias"] = [[token, None if value == float("-inf") else value] for token, value in bias]
    if "samplers" in found:
        found["samplers"] = functions.names(found["samplers"], "sampler")
    return found


def _overflow(settings: Settings, functions: _Functions) -> Any:
    if isinstance(settings.overflow, str):
        return settings.overflow
    name = functions.name(settings.overflow, "overflow policy")
    return "error" if name is None else {"registered": name}


def _template(template: OwnTemplate | None) -> Any:
    if template is None:
        return None
    if isinstance(template, TemplateText):
        return {"jinja": template.source, "bos_token": template.bos_token, "eos_token": template.eos_token}
    name = transform_name(template)
    if name is not None:
        return {"registered": name}
    if type(template) is RolePrefix:
        parts = {field.name: getattr(template, field.name) for field in fields(template)}
        return {"role_prefix": parts}
    raise ValueError(f"the text template {template!r} cannot be saved: give it a name with register_transform")


# ---- in ----


def from_record(text: bytes, engine: Engine, tools: Mapping[str, Tool]) -> Snapshot:
    """The conversation, with nothing evaluated, checked to the last value.

    Args:
        text: JSON.
        engine: what it is to live in.
        tools: functions for its tools, by their names.

    Raises:
        StateError: it is malformed, or of another model.
        TemplateError: the engine has no template for it.
        UnsupportedError: it needs what is not installed.
    """
    try:
        data = json.loads(text, parse_constant=_no_number)
        _require_keys(data)
        model = _exact(data["model"]["fingerprint"], str), _exact(data["model"]["description"], str)
        check_model(engine, model)
        template = _own_template(data["template"])
        return Snapshot(
            name=_exact(data["name"], str),
            model=model,
            history=_history(data, engine.model.n_vocab),
            settings=_settings(data, _encoder(engine, template), tools),
            template=template,
            context_full=_exact(data["context_full"], bool),
            adapters=tuple(_adapter(each) for each in _exact(data.get("adapters", []), list)),
        )
    except (StateError, _NoTemplateError):
        raise
    except (ToolError, TypeError, ValueError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise StateError(f"the saved conversation makes no sense: {error}") from error


def _encoder(engine: Engine, template: OwnTemplate | None) -> PromptEncoder:
    try:
        return encoder_for(engine, template)
    except TemplateError as error:
        if template is None:
            raise _NoTemplateError(str(error)) from None
        raise


class _NoTemplateError(TemplateError):
    """It is the engine that has none."""


_KEYS = {
    "causerie", "model", "name", "messages", "generated", "head", "context_full", "sampling", "template",
    "template_kwargs", "thinking", "replay_thinking", "overflow", "tools", "tool_choice", "parallel_tool_calls",
    "validate_calls", "tool_format", "input_transforms", "output_transforms", "history_transform",
}  # fmt: skip
_OPTIONAL_KEYS = {"constraints", "adapters"}


def _require_keys(data: Any) -> None:
    if not isinstance(data, dict):
        raise TypeError("it is no JSON object")
    if found := (set(data) ^ _KEYS) - _OPTIONAL_KEYS:
        writer = data.get("causerie")
        raise StateError(
            f"the saved conversation, written by causerie {writer}, has keys too many or too few: {sorted(found)}",
            expected=sorted(_KEYS),
            found=sorted(data),
        )


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"JSON has no number {text}")


def _exact(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value


def _history(data: Mapping[str, Any], n_vocab: int) -> History:
    given = _exact(data["messages"], list)
    history = History.of([Message.from_dict(message, unknown_parts="keep") for message in given])
    generated = tuple(_ids_of(said, n_vocab) for said in _exact(data["generated"], list))
    if len(generated) != len(history.messages):
        raise ValueError(f"there are {len(history.messages)} messages and {len(generated)} entries of generated ids")
    for message, said in zip(history.messages, generated, strict=True):
        if said is not None and message.role != "assistant":
            raise ValueError(f"a message by {message.role!r} cannot have been generated")
    constraints = tuple(constraint_from_json(each) for each in _exact(data.get("constraints", []), list))
    if len(constraints) > len(generated):
        raise ValueError(f"there are {len(generated)} messages and {len(constraints)} constraints")
    head = _exact(data["head"], int)
    if not 0 <= head <= len(generated):
        raise ValueError(f"the head cannot have {head} of {len(generated)} messages")
    return History(history.messages, generated, head, constraints)


def _ids_of(said: Any, n_vocab: int) -> Said | None:
    if said is None or isinstance(said, list):
        return _ids(said, n_vocab)
    if set(_exact(said, dict)) != set(Written._fields):
        raise ValueError("a generated reply is described in another way")
    text, follows = _exact(said["text"], str), _exact(said["follows"], str)
    return Written(_ids(said["ids"], n_vocab), _ids(said["whole"], n_vocab) or (), text, follows)


def _ids(value: Any, n_vocab: int) -> tuple[int, ...] | None:
    if value is None:
        return None
    for token in _exact(value, list):
        if not 0 <= _exact(token, int) < n_vocab:
            raise ValueError(f"there is no token {token}: the model has {n_vocab}")
    return tuple(value)


def _adapter(data: Any) -> Adapter:
    if set(_exact(data, dict)) != {"path", "scale", "fingerprint"}:
        raise ValueError("an adapter has a path, a scale and a fingerprint")
    fingerprint = _exact(data["fingerprint"], str)
    if not re.fullmatch("[0-9a-f]{32}", fingerprint):
        raise ValueError(f"an adapter cannot have the fingerprint {fingerprint!r}")
    return Adapter(_exact(data["path"], str), _exact(data["scale"], float), fingerprint)


def _settings(data: Mapping[str, Any], encoder: PromptEncoder, tools: Mapping[str, Tool]) -> Settings:
    sampling = dict(_exact(data["sampling"], dict))
    if "logit_bias" in sampling:
        bias = _exact(sampling["logit_bias"], list)
        sampling["logit_bias"] = {token: float("-inf") if value is None else value for token, value in bias}
    if "samplers" in sampling:
        sampling["samplers"] = _named(sampling["samplers"])
    saved = [Tool.from_schema(schema) for schema in _exact(data["tools"], list)]
    box = ToolBox(tools.get(tool.name, tool) for tool in saved)
    overflow, transform = data["overflow"], data["history_transform"]
    if isinstance(overflow, dict):
        (overflow,) = _named([overflow["registered"]])
    return Settings(
        encoder=encoder,
        sampling=SamplingOptions.of(sampling),
        template_kwargs=data["template_kwargs"],
        thinking=data["thinking"],
        replay_thinking=data["replay_thinking"],
        overflow=as_overflow(overflow),
        offer=ToolOffer(box, data["tool_choice"], data["parallel_tool_calls"], _exact(data["validate_calls"], bool)),
        tool_format=data["tool_format"],
        input_transforms=_named(data["input_transforms"]),
        output_transforms=_named(data["output_transforms"]),
        history_transform=None if transform is None else _named([transform])[0],
    )


def _named(names: Any) -> tuple[Any, ...]:
    found = tuple(transform_named(_exact(name, str)) for name in _exact(names, list))
    for function in found:
        if not callable(function):
            raise TypeError(f"{function!r} cannot be called")
    return found


def _own_template(data: Any) -> OwnTemplate | None:
    if data is None:
        return None
    ((kind, value), *more) = _exact(data, dict).items()
    if kind == "jinja":
        if set(data) != {"jinja", "bos_token", "eos_token"}:
            raise ValueError("a chat template has a source and two tokens")
        return TemplateText(*(_exact(data[key], str) for key in ("jinja", "bos_token", "eos_token")))
    if more:
        raise ValueError("a text template has one description")
    if kind == "role_prefix":
        return RolePrefix(**{name: _exact(text, str) for name, text in value.items()})
    found = transform_named(_exact(value, str)) if kind == "registered" else None
    if not isinstance(found, TextTemplate):
        raise TypeError(f"{found!r} is no text template")
    return found
