"""The engine that people use: the token engine, with templates and conversations."""

from __future__ import annotations

import warnings
import weakref
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from causerie.chat.options import SamplingOptions
from causerie.conversation._pump import Pump
from causerie.conversation._templates import KnowsTemplates, TemplateLike
from causerie.conversation.conversation import Conversation
from causerie.conversation.history import History, examples_as_messages
from causerie.conversation.overflow import as_overflow
from causerie.conversation.settings import Settings
from causerie.conversation.tool_offer import ToolOffer, as_toolbox
from causerie.conversation.transforms import as_history_transform, as_input_transforms, as_output_transforms
from causerie.engine import as_adapters
from causerie.errors import CacheFullError, StateError, StateWarning

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from typing_extensions import Self

    from causerie.chat.choosing import ChooserRecipe
    from causerie.chat.messages import Message
    from causerie.chat.thinking_budget import ThinkingLimit
    from causerie.chat.tools import ToolLike
    from causerie.conversation.overflow import Overflow
    from causerie.conversation.saved_file import CacheUse
    from causerie.conversation.snapshot import Snapshot
    from causerie.conversation.transforms import HistoryTransform, InputTransform, OutputTransformLike
    from causerie.engine import AdaptersLike, Forcing, SequenceState
    from causerie.llama.model import Model
    from causerie.llama.step import Chooser

__all__ = ["Engine", "TemplateLike"]


class Engine(KnowsTemplates):
    """Serves any number of conversations with one model, from any thread or task.

    Args:
        model: an alias ("smollm2"), a path, "hf:owner/repo:file", or a loaded `llama.Model`.
        sampling: options for all conversations: `SamplingOptions`, or a mapping of their names.
        template: a chat template instead of the model's own: Jinja, a `pathlib.Path` to a file of it, or a
            `TextTemplate` such as `RolePrefix`.
        adapters: LoRA adapters of conversations that are given none.
        isolate: keep the model in a helper process. If that ends (llama.cpp aborts, a driver fails, it is killed), the
            replies it was working on end with `HelperDiedError`, and the next one starts another helper.
        **options: as for `TokenEngine`: n_ctx, max_resident, n_threads, devices, n_gpu_layers, rpc, strict, ...

    Raises:
        ModelLoadError, OutOfMemoryError, UnsupportedError, TypeError, ValueError: as `TokenEngine` and
            `SamplingOptions`.
        TemplateError: the template is malformed.
    """

    def __new__(cls, *_: Any, isolate: bool = False, **__: Any) -> Self:
        """An engine of the class that fits."""
        if isolate and cls is Engine:
            from causerie.conversation.isolated import IsolatedEngine

            cls = IsolatedEngine  # type: ignore[assignment]  # noqa: PLW0642
        return super().__new__(cls)

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        *,
        sampling: SamplingOptions | Mapping[str, Any] | None = None,
        template: TemplateLike | None = None,
        adapters: AdaptersLike = (),
        isolate: bool = False,  # noqa: ARG002 - chose the class
        **options: Any,
    ) -> None:
        given = as_adapters(adapters)
        self.sampling = SamplingOptions.of(sampling)
        super().__init__(model, template=template, **options)
        self._conversations = count(1)
        self._numbers_of_live = count()
        self._live: weakref.WeakValueDictionary[int, Conversation] = weakref.WeakValueDictionary()
        self.pump = Pump()
        try:
            self.adapters = self.load_adapters(given)
            if template is not None:
                self.encoder(None)
        except BaseException:
            self.close()
            raise

    def chooser(self, recipe: ChooserRecipe, ids: Sequence[int]) -> Chooser:
        """What `generate` is given to choose tokens behind a prompt, as `ChooserRecipe.make`; the caller owns it."""
        return recipe.make(self.model, ids)

    def forcing(self, limit: ThinkingLimit) -> Forcing:
        """What `generate` is given to end the thinking of a reply."""
        return limit.make(self.model)

    def conversation(
        self,
        system: str | None = None,
        *,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        examples: Iterable[tuple[str, str] | Message | Mapping[str, Any]] = (),
        sampling: SamplingOptions | Mapping[str, Any] | None = None,
        template: TemplateLike | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        thinking: bool | None = None,
        replay_thinking: bool = False,
        tools: Iterable[ToolLike] = (),
        tool_format: Literal["template", "generic"] = "template",
        max_tokens: int | None = None,
        overflow: Overflow = "error",
        input_transforms: str | InputTransform | Sequence[str | InputTransform] = (),
        output_transform: str | OutputTransformLike | Sequence[str | OutputTransformLike] | None = None,
        history_transform: str | HistoryTransform | None = None,
        adapters: AdaptersLike = None,
        name: str = "",
    ) -> Conversation:
        """A new conversation. Nothing is evaluated before it is needed.

        Args:
            system: what the model is told first.
            messages: what was said before: `Message` objects or dicts in the OpenAI shape; may begin with the system
                text.
            examples: pairs of what a user says and what the assistant answers, or messages; they follow the system
                text, and stay when turns are dropped.
            sampling: options for this conversation; what they do not set comes from the engine, then the model's file.
            template: a chat template instead of the engine's.
            template_kwargs: variables for the template.
            thinking: whether the model is to think first, where its template knows about it.
            replay_thinking: whether the model is shown what it thought in earlier turns, where its template does so.
                Otherwise it sees only what it thought since the last user message.
            tools: what the model may ask to be called: typed functions, `Tool`s or dicts in the OpenAI shape.
            tool_format: "template": tools are offered and called as the model's template has it; "generic": in plain
                text, for templates that take no tools.
            max_tokens: longest reply; short for the option of that name.
            overflow: what to do with a prompt that does not fit: "error", "trim" (drops the oldest turns), or a
                function that is given the conversation, the pending message included, and returns the messages to go
                on with.
            input_transforms: applied to what the user says, one after the other; the history has the result. A str here
                and below is the name of one that was registered (`register_transform`).
            output_transform: changes a reply's text on its way out: one that is supplied (`KeywordRemover`, for
                example), what makes an `OutputTransform` for each reply, or a generator function that is given chunks
                and gives others; or several, one behind the other. The history keeps what the model wrote.
            history_transform: what the model is shown instead of the history, which stays as it is.
            adapters: LoRA adapters that change the model: a GGUF file, several, pairs of file and scale, or a mapping
                of these; (): none; None: the engine's.
            name: for people, in `cache_map`.

        Raises:
            TemplateError: the model has no chat template, or it refuses the messages.
            TypeError, ValueError, ToolError: an argument or a message is wrong.
            UnsupportedError: the template takes no tools, or an adapter is an activated LoRA.
            ModelLoadError: an adapter's file is missing, damaged, no LoRA adapter, or made for another model.
        """
        head: list[Message | Mapping[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
        fixed = [*head, *examples_as_messages(examples)]
        given = list(messages)
        first = given[0] if given and not fixed else None
        if (first.get("role") if isinstance(first, dict) else getattr(first, "role", None)) == "system":
            fixed, given = given[:1], given[1:]
        history = History.of([*fixed, *given], head=len(fixed))
        own = SamplingOptions.of(sampling)
        if max_tokens is not None:
            own = SamplingOptions(max_tokens=max_tokens).over(own)
        settings = Settings(
            encoder=self.encoder(template),
            sampling=own,
            template_kwargs={} if template_kwargs is None else template_kwargs,
            thinking=thinking,
            overflow=as_overflow(overflow),
            input_transforms=as_input_transforms(input_transforms),
            output_transforms=as_output_transforms(output_transform),
            history_transform=as_history_transform(history_transform),
            offer=ToolOffer(as_toolbox(tools)),
            replay_thinking=replay_thinking,
            tool_format=tool_format,
        )
        settings.require_support()
        if history.messages:
            # What the template refuses is refused here; the history transform waits for something to reply to.
            replace(settings, history_transform=None).encode(history)
        number = next(self._conversations)
        chosen = self.adapters if adapters is None else adapters
        sequence = self.sequence(name or f"conversation {number}", chosen)
        return Conversation(self, sequence, settings, history)

    # ---- conversations that last ----

    @property
    def conversations(self) -> tuple[Conversation, ...]:
        """All that are open, the oldest first."""
        return tuple(chat for _, chat in sorted(self._live.items()) if not chat.closed)

    def remember(self, chat: Conversation) -> None:
        """Know a new conversation for as long as somebody uses it."""
        self._live[next(self._numbers_of_live)] = chat

    def restore(self, snapshot: Snapshot) -> Conversation:
        """A new conversation that is what another one was when the snapshot was taken, in any engine with its model.

        Where what is evaluated cannot be used (another context, no room), it is evaluated again, with a `StateWarning`.

        Raises:
            StateError: the engine has another model; `.expected` and `.found`.
            TemplateError: the conversation had the engine's template, and this engine has none.
            ModelLoadError: an adapter is neither loaded nor where it was.
            TypeError: this is no snapshot.
        """
        from causerie.conversation.snapshot import Snapshot

        if not isinstance(snapshot, Snapshot):
            raise TypeError(
                f"restore takes what Conversation.snapshot gave, not {type(snapshot).__name__}; load_conversation "
                "takes the path of a file"
            )
        return self._revived(snapshot, snapshot.state, require=False)

    def load_conversation(
        self,
        path: str | os.PathLike[str],
        *,
        tools: Iterable[ToolLike] = (),
        adapters: AdaptersLike = (),
        cache: CacheUse = "auto",
    ) -> Conversation:
        """A conversation from a file that `Conversation.save` has written, as it was; nothing is evaluated again.

        The file is checked as a whole before anything changes. What is evaluated goes from the mapped file into the
        context; where it cannot be used (another llama.cpp, another kind of cache, no room), it is evaluated again,
        with a `StateWarning`.

        Args:
            path: where from.
            tools: functions for the tools that were saved, found by their names; they bring their own schemas. Saved
                tools without a function are offered too, and wait for `add_tool_result`.
            adapters: files of LoRA adapters that are not where they were; found by their content.
            cache: "auto"; "require": a `StateError` instead of the warning; "ignore": do not look at what is evaluated.

        Raises:
            OSError: the file cannot be read.
            StateError: it is none, damaged, of another version, model or adapter; `.expected` and `.found`.
            ModelLoadError: an adapter is not where it was, or one of `adapters` cannot be loaded.
            TemplateError: the conversation had the engine's template, and this engine has none.
        """
        from causerie.conversation.saved_file import read_saved

        self.require_open()
        known = {tool.name: tool for tool in as_toolbox(tools)}
        self._know_adapters(adapters)
        with read_saved(path, self, known, cache) as (snapshot, state):
            return self._revived(snapshot, state, require=cache == "require")

    def _know_adapters(self, adapters: AdaptersLike) -> None:
        for adapter in as_adapters(adapters):
            self.load_adapters(adapter)

    def _revived(self, snapshot: Snapshot, state: SequenceState | None, *, require: bool) -> Conversation:
        settings = snapshot.settings_for(self)
        adapters = self.load_adapters(snapshot.adapters)
        sequence = None
        if state is not None:
            try:
                sequence = self.put_state(state, snapshot.name)
            except (StateError, CacheFullError) as error:
                if require:
                    raise error if isinstance(error, StateError) else StateError(str(error)) from error
                warnings.warn(f"{snapshot.name!r} has to be evaluated again: {error}", StateWarning, stacklevel=3)
        chat = Conversation(self, sequence or self.sequence(snapshot.name, adapters), settings, snapshot.history)
        chat.resume_at(snapshot)
        return chat

    def save_all(
        self,
        folder: str | os.PathLike[str],
        *,
        cache: bool = True,
        compress: bool = False,
        drop_functions: bool = False,
    ) -> list[Path]:
        """Save all `conversations`, each in a file of its own, for `load_all`.

        A conversation that was saved or loaded there before replaces its file; others get a new name, made of theirs.
        Nothing else in the folder is touched: files of conversations that were closed since stay. Of one that is
        generating a reply, the messages so far are saved. One that fails does not keep the others from being saved.

        Args:
            folder: where to; made if it is missing.
            cache: as for `Conversation.save`.
            compress: as for `Conversation.save`.
            drop_functions: as for `Conversation.save`.

        Returns:
            The files.

        Raises:
            OSError: the folder cannot be made.
            StateError: some could not be saved: `.failures` has (conversation, exception) for each, `.saved` the files
                of the others.
        """
        from causerie.conversation.saved_folder import save_all

        self.require_open()
        return save_all(folder, self.conversations, cache=cache, compress=compress, drop_functions=drop_functions)

    def load_all(
        self,
        folder: str | os.PathLike[str],
        *,
        tools: Iterable[ToolLike] = (),
        adapters: AdaptersLike = (),
        cache: CacheUse = "auto",
    ) -> list[Conversation]:
        """The conversations of all files in a folder that end in ".causerie", in the order of their names.

        A file that cannot be loaded is left out, with a `StateWarning`.

        Args:
            folder: where from.
            tools: as for `load_conversation`.
            adapters: as for `load_conversation`.
            cache: as for `load_conversation`.

        Raises:
            OSError: the folder cannot be read, or one of `adapters` cannot be loaded.
        """
        from causerie.conversation.saved_folder import load_all

        self.require_open()
        box = as_toolbox(tools)
        self._know_adapters(adapters)
        return load_all(folder, lambda path: self.load_conversation(path, tools=box, cache=cache))
