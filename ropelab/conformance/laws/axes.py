"""Laws of positions with several axes, as models of text and images have them (M-RoPE).

A position has a time, a height and a width, and each pair of features reads one of
them. In text the three numbers are equal, so that the model must compute the same as
with plain positions. After an image, positions of text must go on as the model's own
rule says.

Patches of images are tokens with random ids here: laws are about positions, and no
pixels are read.
"""

from functools import partial

import torch
from torch import Tensor

from ropelab.conformance.laws.caches import CannotAskError
from ropelab.conformance.laws.law import (
    TOKENS,
    Case,
    Comparison,
    Law,
    Statement,
    Trial,
    join_passes,
)
from ropelab.conformance.laws.rotation import STILL, recover_turns
from ropelab.conformance.laws.subject import Prompt, Tokens, TransformersSubject
from ropelab.conformance.pairs import pair_features
from ropelab.conformance.prompts import Counting, Segment, count_positions
from ropelab.readers import registry
from ropelab.readers.axes import PromptRule, read_prompt_rule
from ropelab.readers.spec import RopeSpec

# The tokens of a case are text, an image, and text. The number of tokens before the
# image.
TOKENS_BEFORE = 7
# The numbers of rows and columns of tokens of the image.
ROWS = 3
COLUMNS = 5
# The number of tokens after the image that are read together with it. All later tokens
# are read one by one.
READ_AT_ONCE = 4
# The number of positions by which a prompt is shifted along one axis.
PROMPT_SHIFT = 100
# A step along one axis from which rotations are recovered. It moves the slowest pairs
# by more than the error of the recovery.
PROBE_STEP = 509
# The number in `Prompt.kinds` for a patch of an image.
IMAGE_KIND = 1


def find_spec(case: Case) -> RopeSpec:
    """Return the rotation of the main layer type, with the axes of positions.

    CannotAskError: positions have a single axis, or their pairs are not known.
    """
    if not isinstance(case.subject, TransformersSubject):
        raise CannotAskError("its positions have one axis")
    text_config = case.subject.text_config
    reading = registry.read(
        registry.RUNTIMES[registry.REFERENCE], text_config.to_dict()
    )
    if reading.main_spec is not None and reading.main_spec.axes is not None:
        return reading.main_spec
    rope = getattr(text_config, "rope_parameters", None) or {}
    if rope.get("mrope_section"):
        raise CannotAskError("nobody looked at which pairs its axes have")
    raise CannotAskError("its positions have one axis")


def require_several_axes(case: Case) -> None:
    """Raise CannotAskError if positions have a single axis, or if the pairs of their
    axes are not known.
    """
    find_spec(case)


def find_rule(case: Case) -> PromptRule:
    """Return how the model counts the positions of images.

    CannotAskError: this is not known, or positions have a single axis.
    """
    require_several_axes(case)
    config = getattr(case.subject, "config", None)
    rule = read_prompt_rule(config.to_dict()) if config is not None else None
    if rule is None:
        raise CannotAskError("nobody looked at how it counts positions")
    return rule


def compare_equal_ids(case: Case) -> Comparison:
    """Compare equal positions on all axes with plain positions."""
    require_several_axes(case)
    positions = case.make_positions(0)
    got = case.subject.read(case.tokens, positions.expand(3, 1, -1))
    expected = case.subject.read(case.tokens, positions)
    return Comparison(got, expected, exact=True)


def compare_sections(case: Case) -> Statement:
    """Move one axis at a time, and compare the pairs that rotate with the sections."""
    spec = find_spec(case)
    axes = spec.axes
    assert axes is not None
    sections = [axes.pairs_of(axis).tolist() for axis in range(axes.count)]
    # A pair moves if its first feature does.
    first_features, _ = pair_features(spec.pairing, spec.rotary_dim, spec.place)

    # [axes, positions]: at position i, only axis i moves.
    steps = PROBE_STEP * torch.eye(axes.count, dtype=torch.long)
    for layer, turn in recover_turns(case, steps).items():
        if turn is None:
            continue
        # [axes, width, width]: the unit vectors, rotated by each of the steps.
        rotated_units = turn.rotated_units
        units = torch.eye(
            rotated_units.shape[-1],
            dtype=rotated_units.dtype,
            device=rotated_units.device,
        )
        moves = (rotated_units - units).abs().amax(dim=1) > STILL
        for axis, moves_of_pairs in enumerate(moves[:, first_features.tolist()]):
            pairs = moves_of_pairs.nonzero().flatten().tolist()
            if pairs != sections[axis]:
                says = (
                    f"layer {layer}: axis {axis} moves pairs {pairs}, not"
                    f" {sections[axis]}"
                )
                return Statement("broken", says, layer=layer)

    counts = [len(pairs) for pairs in sections]
    return Statement("holds", f"sections {counts}")


def list_segments(rule: PromptRule) -> list[Segment]:
    """Return text, an image and text, with as many tokens as a case has."""
    image = make_image(rule)
    tokens_behind = TOKENS - TOKENS_BEFORE - ROWS * COLUMNS
    return [
        Segment("text", tokens=TOKENS_BEFORE),
        image,
        Segment("text", tokens=tokens_behind),
    ]


def make_image(rule: PromptRule) -> Segment:
    """Return the image, whose size is given in patches before they are merged."""
    return Segment("image", rows=ROWS * rule.merged, columns=COLUMNS * rule.merged)


def make_prompt(rule: PromptRule) -> tuple[Prompt, Tensor]:
    """Return the kinds and grids that a model is told of a prompt, and the positions of
    its tokens [3, 1, tokens].
    """
    kinds = torch.zeros(1, TOKENS, dtype=torch.int)
    kinds[:, TOKENS_BEFORE : TOKENS_BEFORE + ROWS * COLUMNS] = IMAGE_KIND
    image = make_image(rule)
    grids = torch.tensor([[1, image.rows, image.columns]])
    positions = count_positions(Counting(rule), list_segments(rule))
    return Prompt(kinds, grids), torch.from_numpy(positions)[:, None]


def compare_axis_shifted(case: Case, axis: int) -> Comparison:
    """Compare a prompt with the same prompt shifted along one axis."""
    prompt, positions = make_prompt(find_rule(case))
    shifted = positions.clone()
    shifted[axis] += PROMPT_SHIFT
    got = case.subject.read_prompt(case.tokens, prompt, shifted)
    expected = case.subject.read_prompt(case.tokens, prompt, positions)
    return Comparison(got, expected, largest_position=PROMPT_SHIFT + TOKENS)


def compare_counted(case: Case) -> Comparison:
    """Read a prompt whose positions the model counts itself, and compare with the same
    prompt at the right positions.
    """
    prompt, positions = make_prompt(find_rule(case))
    try:
        got = case.subject.read_prompt(case.tokens, prompt)
    finally:
        case.subject.forget_images()
    expected = case.subject.read_prompt(case.tokens, prompt, positions)
    return Comparison(got, expected)


def compare_behind(case: Case) -> Comparison:
    """Read tokens behind an image one by one, as generation does."""
    prompt, positions = make_prompt(find_rule(case))
    start = TOKENS_BEFORE + ROWS * COLUMNS + READ_AT_ONCE
    beginning = Prompt(prompt.kinds[:, :start], prompt.grids)
    cache = case.subject.new_cache()
    try:
        case.subject.read_prompt(case.tokens[:, :start], beginning, cache=cache)
        got = read_one_by_one(case, case.tokens[:, start:], cache)
    finally:
        case.subject.forget_images()
    whole_stages = case.subject.read_prompt(case.tokens, prompt, positions)
    expected = [stage[:, start:] for stage in whole_stages]
    return Comparison(got, expected, range(start, TOKENS))


def compare_text_after_image(case: Case) -> Comparison:
    """Read a text with a new cache after a prompt with an image was read.

    The offset that the model remembers of the image must not move the text.
    """
    prompt, _ = make_prompt(find_rule(case))
    try:
        case.subject.read_prompt(case.tokens, prompt, cache=case.subject.new_cache())
        cache = case.subject.new_cache()
        case.subject.read(case.tokens[:, :TOKENS_BEFORE], cache=cache)
        got = read_one_by_one(case, case.tokens[:, TOKENS_BEFORE:], cache)
    finally:
        case.subject.forget_images()
    expected = [stage[:, TOKENS_BEFORE:] for stage in case.subject.read(case.tokens)]
    return Comparison(got, expected, range(TOKENS_BEFORE, TOKENS))


def read_one_by_one(case: Case, tokens: Tokens, cache: object) -> list[Tensor]:
    steps = []
    for token in tokens.split(1, dim=1):
        steps.append(case.subject.read(token, cache=cache))
    return join_passes(steps)


def compare_packed_images(case: Case) -> Comparison:
    """Read two prompts with an image each in one row, under a block mask."""
    prompt, positions = make_prompt(find_rule(case))
    two_prompts = Prompt(prompt.kinds.repeat(1, 2), prompt.grids.repeat(2, 1))
    tokens = case.tokens.repeat(1, 2)
    # The second prompt has the tokens in reverse order.
    tokens[:, TOKENS:] = case.tokens.flip(1)
    prompt_numbers = torch.ones_like(tokens)
    prompt_numbers[:, TOKENS:] = 2

    positions_of_both = positions.repeat(1, 1, 2)
    got = case.subject.read_prompt(
        tokens, two_prompts, positions_of_both, prompt_numbers
    )
    separate_stages = []
    for part in tokens.split(TOKENS, dim=1):
        separate_stages.append(case.subject.read_prompt(part, prompt, positions))
    return Comparison(
        got, join_passes(separate_stages), [*range(TOKENS), *range(TOKENS)]
    )


MROPE = Law(
    "M-RoPE",
    "Are equal ids plain RoPE, sections realised, and images counted as configured?",
    (
        Trial("equal ids", compare_equal_ids, once=True),
        Trial("sections", compare_sections, once=True),
        Trial("time shifted", partial(compare_axis_shifted, axis=0)),
        Trial("height shifted", partial(compare_axis_shifted, axis=1)),
        Trial("width shifted", partial(compare_axis_shifted, axis=2)),
        Trial("image counted", compare_counted),
        Trial("text behind an image", compare_behind),
        Trial("text after a prompt with an image", compare_text_after_image),
        Trial("two images packed", compare_packed_images),
    ),
)
