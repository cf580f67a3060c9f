"""A LogitsProcessor for users of transformers' own `model.generate`; batches and beams work.

    processor = ConstraintLogitsProcessor(JsonSchema(schema), tokenizer=tokenizer, safety="minimal")
    model.generate(**inputs, logits_processor=[processor])

It knows nothing about our engines: it sees ids and scores. One processor serves one call of `generate`, and another one
after `reset`.
"""

from __future__ import annotations

from typing import Any

from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.matching.rewinding import check_only_masks
from espalier.constraints.spec import Spec
from espalier.errors import DeadEnd, InputError, MissingDependency, TokenRefused
from espalier.integrations.joined import joined
from espalier.sampling.presets.spec import Preset
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.wiring import build_app

try:
    import torch
    from transformers import LogitsProcessor
except ImportError as error:  # on import of this module, with the pip line
    raise MissingDependency(error.name or "transformers", extra="transformers") from error


class ConstraintLogitsProcessor(LogitsProcessor):
    """Masks the scores of every row with the row's own matcher.

    constraint: a Spec (then `tokenizer` is needed) or a Compiled. grammar, json_schema, safety, preset: as in
    `espalier.generate`; all that are given hold together. Of a preset only the constraint and the bad words hold: its
    sampling is for `generate`'s own arguments. `notes` says what does not hold. Rows are recognised by the tokens
    generated so far, so beams may be reordered, dropped and duplicated between steps. A finished row only gets EOS.

    Raises SpecError and its subclasses when made, InputError for a preset that bans tokens; DeadEnd if a row has no
    allowed token; InputError if it is used for a second `generate`; TokenRefused if a later processor unmasked a token
    and it was sampled.
    """

    def __init__(
        self,
        constraint: Spec | Compiled | None = None,
        *,
        tokenizer: Any = None,
        width: int | None = None,
        grammar: Any = None,
        json_schema: Any = None,
        safety: Any = None,
        preset: Preset | str | None = None,
    ) -> None:
        self.notes: tuple[str, ...] = ()
        beside = {"grammar": grammar, "json_schema": json_schema, "safety": safety, "preset": preset}
        given = [name for name, value in beside.items() if value is not None]
        if given and constraint is not None and not isinstance(constraint, Spec):
            raise InputError(
                f"{given[0]} cannot join a constraint that is compiled already",
                hint="pass its Spec, and tokenizer=",
                field=given[0],
            )
        if isinstance(constraint, Spec) or given:
            if tokenizer is None:
                raise InputError(
                    "a Spec needs tokenizer=", hint="or pass what espalier.compile gave", field="tokenizer"
                )
            app = build_app()
            chosen = preset if preset is None or isinstance(preset, Preset) else app.presets.get(preset)
            own = constraint if isinstance(constraint, Spec) else None
            spec, self.notes = joined(own, grammar=grammar, json_schema=json_schema, safety=safety, preset=chosen)
            constraint = app.compiler(Vocab.from_tokenizer(tokenizer, width=width)).compile(spec)
        if not isinstance(constraint, Compiled):
            raise InputError(
                f"a constraint is a Spec or a Compiled, not {type(constraint).__name__}", field="constraint"
            )
        check_only_masks(constraint.spec, "a logits processor", field="constraint")
        self._compiled = constraint
        self._prompt_length: int | None = None
        self._steps = 0
        self._rows: dict[tuple[int, ...], Matcher] = {}  # generated tokens -> matcher, of the last step only

    @property
    def compiled(self) -> Compiled:
        return self._compiled

    def reset(self) -> None:
        """Ready for another `generate`."""
        self._prompt_length, self._steps, self._rows = None, 0, {}

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """`input_ids` (B, T) int64, `scores` (B, V) float; returns new scores (B, V)."""
        generated = self._split_prompt(input_ids)
        rows: dict[tuple[int, ...], Matcher] = {}
        out = scores.clone()  # (B, V)
        for place, tokens in enumerate(generated):
            if tokens not in rows:
                rows[tokens] = self._matcher(tokens)
            matcher = rows[tokens]
            if matcher.is_finished:
                self._hold_inplace(out, place)
                continue
            flags = masks.unpack(matcher.mask(), int(scores.shape[1]))  # (V,) bool
            allowed = torch.from_numpy(flags).to(scores.device)
            out[place].masked_fill_(~allowed, -torch.inf)
            if not bool(flags.any()):
                raise DeadEnd(f"no token is allowed in row {place} after {len(tokens)} tokens")
        self._rows = rows
        self._steps += 1
        return out

    def _split_prompt(self, input_ids: torch.Tensor) -> list[tuple[int, ...]]:
        length = int(input_ids.shape[1])
        if self._prompt_length is None:
            self._prompt_length = length
        if length != self._prompt_length + self._steps:
            raise InputError(
                "this processor has been used for another generation",
                hint="reset() it, or make a new ConstraintLogitsProcessor, before each call of generate",
            )
        return [tuple(row) for row in input_ids[:, self._prompt_length :].tolist()]

    def _matcher(self, tokens: tuple[int, ...]) -> Matcher:
        """The matcher of a row: its parent's, advanced by one token. A finished parent stays finished (padding)."""
        if not tokens:
            return self._compiled.matcher()
        parent = self._rows.get(tokens[:-1])
        if parent is None:
            raise InputError(
                "a row does not continue any row of the last step",
                hint="make a new ConstraintLogitsProcessor for each call of generate",
            )
        if parent.is_finished:
            return parent
        child = parent.fork()
        try:
            child.advance(tokens[-1])
        except TokenRefused as error:
            raise TokenRefused(
                f"a masked token was taken: {error.message}", hint="put the constraint last in the list of processors"
            ) from error
        return child

    def _hold_inplace(self, scores: torch.Tensor, row: int) -> None:
        """A finished row can only emit EOS, at no cost to a beam's score."""
        scores[row] = -torch.inf
        scores[row, self._compiled.vocab.eos_ids[0]] = 0.0
