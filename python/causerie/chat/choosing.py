"""How the tokens of a reply are chosen, as plain data: what samplers are made of, in this process or another one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causerie.chat.options import SamplingOptions
from causerie.chat.sampling_chain import sampling_chain
from causerie.llama.step import Chooser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causerie.chat.reply_grammar import ReplyGrammar
    from causerie.llama.model import Model

__all__ = ["ChooserRecipe"]


@dataclass(frozen=True)
class ChooserRecipe:
    """What a reply's tokens are chosen by.

    Attributes:
        options: all options of the call.
        seed: for everything random; None: a random one.
        grammar: what the reply has to follow; None: nothing.
        begun: ids of its beginning that the grammar has to have seen.
    """

    options: SamplingOptions
    seed: int | None = None
    grammar: ReplyGrammar | None = None
    begun: tuple[int, ...] = ()

    def make(self, model: Model, ids: Sequence[int]) -> Chooser:
        """The samplers, which the caller owns.

        Args:
            model: whose vocabulary it is.
            ids: the prompt.

        Raises:
            GrammarError, TemplateError, ValueError, UnsupportedError: as `ReplyGrammar.sampler` and `sampling_chain`.
        """
        with ExitStack() as undo:
            grammar = None if self.grammar is None else self.grammar.sampler(model.vocab, self.begun)
            if grammar is not None:
                undo.callback(grammar.close)
            choice = sampling_chain(self.options, model, seed=self.seed, grammar=grammar)
            undo.callback(choice.close)
            choice.prime(ids)
            undo.pop_all()
        return Chooser(choice.chain, grammar=choice.grammar, preselect=choice.preselect, n_top=self.options.logprobs)

    def close(self) -> None:
        """Nothing: a recipe owns no samplers, as the chooser does that it stands for."""

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.options.given()
        if "logit_bias" in given:  # a read-only view cannot be pickled
            given["logit_bias"] = dict(given["logit_bias"])
        return _rebuilt, (given, self.seed, self.grammar, self.begun)


def _rebuilt(given: dict[str, Any], *rest: Any) -> ChooserRecipe:
    return ChooserRecipe(SamplingOptions.of(given), *rest)
