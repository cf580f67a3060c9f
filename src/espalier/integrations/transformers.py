"""A LogitsProcessor for users of transformers' own `model.generate`: greedy, sampling, beams, assisted generation.

    processor = ConstraintLogitsProcessor(User, tokenizer=tokenizer)
    model.generate(**inputs, logits_processor=[processor])

It knows nothing about our engines: it sees ids and scores. One processor serves one call of `generate`, and another one
after `reset`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.joining.named import Constraint
from espalier.constraints.matching.rewinding import check_only_masks
from espalier.errors import DeadEnd, InputError, TokenRefused
from espalier.integrations.joined import joined
from espalier.optional import optional_imports
from espalier.sampling.presets.spec import Preset
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.wiring import build_app

with optional_imports("transformers"):
    import torch
    from transformers import LogitsProcessor


class ConstraintLogitsProcessor(LogitsProcessor):
    """Masks the scores of every row with the row's own matcher.

    constraint: a type, a schema, a Spec or a Compiled, which alone needs no `tokenizer`. json_schema, regex, choice,
    grammar, safety, preset: as in `espalier.generate`; all that are given hold together. Of a preset only the
    constraint and the bad words hold: its sampling is for `generate`'s own arguments. `notes` says what does not hold.
    Rows are recognised by the tokens generated so far, so beams may be reordered, dropped and duplicated between steps,
    drafts taken back, and groups of beams come one after the other. A finished row only gets EOS.

    Raises SpecError and its subclasses when made, InputError for a preset that bans tokens; DeadEnd if a row has no
    allowed token; InputError if it is used for a second `generate`; TokenRefused if a later processor unmasked a token
    and it was sampled.
    """

    def __init__(
        self,
        constraint: Constraint | Compiled = None,
        *,
        tokenizer: Any = None,
        width: int | None = None,
        json_schema: Any = None,
        regex: str | None = None,
        choice: Sequence[str] | None = None,
        grammar: Any = None,
        safety: Any = None,
        preset: Preset | str | None = None,
    ) -> None:
        self.notes: tuple[str, ...] = ()
        named = {"json_schema": json_schema, "regex": regex, "choice": choice, "grammar": grammar, "safety": safety}
        beside = [name for name, value in {**named, "preset": preset}.items() if value is not None]
        if isinstance(constraint, Compiled):
            if beside:
                raise InputError(
                    f"{beside[0]} cannot join a constraint that is compiled already",
                    hint="pass its Spec, and tokenizer=",
                    field=beside[0],
                )
            check_only_masks(constraint.spec, "a logits processor", field="constraint")
            self._compiled = constraint
        else:
            app = build_app()
            chosen = preset if preset is None or isinstance(preset, Preset) else app.presets.get(preset)
            spec, self.notes = joined(constraint=constraint, **named, preset=chosen)
            if tokenizer is None:
                raise InputError(
                    "a Spec needs tokenizer=", hint="or pass what espalier.compile gave", field="tokenizer"
                )
            self._compiled = app.compiler(Vocab.from_tokenizer(tokenizer, width=width)).compile(spec)
        self.reset()

    @property
    def compiled(self) -> Compiled:
        return self._compiled

    def reset(self) -> None:
        """Ready for another `generate`."""
        self._prompts: torch.Tensor | None = None  # (B, P) int64: the rows of the first call
        self._repeats_prompt = False  # whether a prompt came twice, as those of beams and of drafts do
        self._sees_logits = False  # beam search passes log probabilities, whose sum is 1 at most
        self._rows: OrderedDict[tuple[int, ...], Matcher | None] = OrderedDict()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """`input_ids` (B, T) int64, `scores` (B, V) float; returns new scores (B, V)."""
        generated = self._split_prompts(input_ids)
        self._sees_logits = self._sees_logits or bool((scores.float().exp().sum(dim=-1) > 1.001).any())
        out = scores.clone()  # (B, V)
        for row, tokens in enumerate(generated):
            matcher = self._follow(tokens)
            if matcher is None or matcher.is_finished:
                self._hold_inplace(out, row)
                continue
            flags = masks.unpack(matcher.mask(), int(scores.shape[1]))  # (V,) bool
            allowed = torch.from_numpy(flags).to(scores.device)
            out[row].masked_fill_(~allowed, -torch.inf)
            if not bool(flags.any()):
                raise DeadEnd(f"no token is allowed in row {row} after {len(tokens)} tokens")
        while len(self._rows) > 1024 + 4 * len(generated):  # drafts and beams go back a few dozen tokens at most
            self._rows.popitem(last=False)
        return out

    def _split_prompts(self, input_ids: torch.Tensor) -> list[tuple[int, ...]]:
        """The tokens generated so far in each row. The first call has the prompts alone."""
        if self._prompts is None:
            self._prompts = input_ids.clone()
            self._repeats_prompt = len(torch.unique(input_ids, dim=0)) < len(input_ids)
        elif input_ids.shape[1] == self._prompts.shape[1]:
            self._repeats_prompt = True
        length = self._prompts.shape[1]
        prompts = input_ids[:, :length]
        if not torch.equal(prompts, self._prompts):  # a group of beams is a part of the rows
            known = set(map(tuple, self._prompts.tolist()))
            if not known.issuperset(map(tuple, prompts.tolist())):
                raise self._foreign()
        return [tuple(row) for row in input_ids[:, length:].tolist()]

    def _follow(self, tokens: tuple[int, ...]) -> Matcher | None:
        """The matcher after these tokens: that of all but the last, advanced by it. A finished text stays finished
        (padding). None: the text broke the constraint in a beam of no probability, which beam search takes along where
        fewer tokens are allowed than it keeps."""
        if tokens in self._rows:
            self._rows.move_to_end(tokens)
            return self._rows[tokens]
        if not tokens:
            matcher: Matcher | None = self._compiled.matcher()
        elif tokens[:-1] in self._rows:
            matcher = self._rows[tokens[:-1]]
        else:
            raise self._foreign()
        if tokens and matcher is not None and not matcher.is_finished:
            matcher = self._advanced(matcher.fork(), tokens[-1])
        self._rows[tokens] = matcher
        return matcher

    def _advanced(self, matcher: Matcher, token: int) -> Matcher | None:
        try:
            matcher.advance(token)
        except TokenRefused as error:
            if self._repeats_prompt and not self._sees_logits:
                return None
            raise TokenRefused(
                f"a masked token was taken: {error.message}", hint="put the constraint last in the list of processors"
            ) from error
        return matcher

    def _foreign(self) -> InputError:
        return InputError(
            "a row continues none of this generation",
            hint="reset() the processor, or make a new one, before each call of generate; an assistant model must have "
            "the tokenizer of the model",
        )

    def _hold_inplace(self, scores: torch.Tensor, row: int) -> None:
        """A finished row can only emit EOS, at no cost to a beam's score."""
        scores[row] = -torch.inf
        scores[row, self._compiled.vocab.eos_ids[0]] = 0.0
