"""The model under test, as the laws (checks of its positions) ask it.

Token ids, positions and segments go in, hidden states and logits come out. A subject is a
model of transformers, or a callable from token ids, positions and a mask to logits.

A cache is passed on as a dictionary. Its `code_cache` is what the model's own code made
(caches.py).
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from copy import copy
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ropelab.conformance.laws import caches
from ropelab.conformance.laws.caches import CannotAskError, Entry
from ropelab.conformance.laws.kept import Float64, keep_tables, keep_weights
from ropelab.models.released.facts import list_layer_windows

# The output of each layer, and then the logits, each [rows, tokens, width].
Stages = list[Tensor]
Tokens = Int[Tensor, "rows tokens"]
# A position, or the number of a text, for each token. None: the model makes its own.
PerToken = Tokens | None


class Prompt(NamedTuple):
    """The information that a model gets about the images in the text of one row."""

    # [1, tokens]: 0 for text, 1 for a patch of an image.
    kinds: Tensor
    # [images, 3]: frames, rows and columns of patches before they are merged.
    grids: Tensor


class Subject(ABC):
    """A causal language model as the laws ask it.

    Args:
        name: the words that an answer begins with.
        vocabulary: the number of token ids.
        trained_length: the position at which the model's scaling may change.
        separates_restarts: True if the model keeps packed texts apart, without a mask,
            where their positions restart.
    """

    name: str
    # The object that is called.
    code: Any
    vocabulary: int
    trained_length: int | None = None
    separates_restarts = False
    # The id of the token that texts begin with.
    first_token = 0
    # The architecture and the rope types of the model.
    model_kinds: tuple[str, ...] = ()
    # The model's own number format.
    dtype: torch.dtype = torch.float32
    # True if the number format can be changed.
    convertible = True
    # True if somebody else has built the model and uses it afterwards.
    is_borrowed = True
    # Where the model computes.
    device: torch.device = torch.device("cpu")

    @abstractmethod
    def read(
        self,
        tokens: Tokens,
        positions: PerToken = None,
        segments: PerToken = None,
        cache: Any = None,
        visible: Tensor | None = None,
    ) -> Stages:
        """Read tokens that follow the tokens in a cache, and add them to the cache.

        Args:
            tokens: ids.
            positions: the position of each token.
            segments: the number of the text that each token belongs to, those in the
                cache first. Padding has 0. A token looks only at earlier tokens of its
                own segment. None: all is one segment.
            cache: what `new_cache` made; None: nothing is kept.
            visible: True [rows, queries, keys] where a query may look, in place of
                segments.
        """

    def read_prompt(
        self,
        tokens: Tokens,
        prompt: "Prompt",
        positions: Tensor | None = None,
        segments: PerToken = None,
        cache: Any = None,
    ) -> Stages:
        """Read a prompt with images, whose patches are tokens like all other tokens.

        Args:
            tokens: ids.
            prompt: the kinds of the tokens, and the sizes of the images.
            positions: [3, rows, tokens]; None: the model counts its own.
            segments: as in `read`.
            cache: as in `read`.
        """
        raise CannotAskError("it is not told where images are")

    def forget_images(self) -> None:
        """Delete what the model remembers of the last images."""
        return

    def new_cache(self) -> Any:
        """Return an empty cache."""
        raise CannotAskError("it keeps no cache")

    def entries(self, cache: Any) -> list[Entry]:
        """Return the keys and values of each layer [rows, heads, tokens, head_dim].

        None stands for a layer that keeps no keys.
        """
        raise CannotAskError("its keys cannot be seen")

    def set_entry(self, cache: Any, layer: int, entry: Entry) -> None:
        """Replace the keys and values of a layer."""
        raise CannotAskError("its keys cannot be changed")

    @property
    def evicts(self) -> bool:
        """True for code that drops keys of its cache itself."""
        return hasattr(self.code, "evict_keys")

    def evict(self, cache: Any, keep: Sequence[int]) -> None:
        """Let the model's own code drop all keys that are not in these slots.

        Its `evict_keys(cache, keep)` changes the cache, or returns another one.
        """
        if not self.evicts:
            raise CannotAskError("it has no evict_keys(cache, keep)")
        other = self.code.evict_keys(cache["code_cache"], list(keep))
        if other is not None:
            cache["code_cache"] = other

    def new_forgetting_cache(self) -> Any:
        """Return an empty cache that drops keys by itself."""
        raise CannotAskError("only a model of transformers is asked for such a cache")

    def join(self, first: Any, second: Any) -> Any:
        """Let the model's own code put the keys of one cache behind the keys of
        another.

        Its `join_caches(first, second)` changes the first cache, or returns a new one.
        """
        if not hasattr(self.code, "join_caches"):
            raise CannotAskError("it has no join_caches(first, second)")
        joined = self.code.join_caches(first["code_cache"], second["code_cache"])
        if joined is None:
            joined = first["code_cache"]
        return {**first, "code_cache": joined}

    def find_next_position(self, cache: Any) -> int | None:
        """Return the position that the model's code gives the next token.

        None: it has no `next_position(cache)`.
        """
        if not hasattr(self.code, "next_position"):
            return None
        return int(self.code.next_position(cache["code_cache"]))

    def generate(
        self,
        tokens: Tokens,
        segments: Tokens,
        new: int,
    ) -> tuple[Tensor, Tensor]:
        """Return new tokens [rows, new] of greedy decoding, and their logits."""
        raise CannotAskError("it does not generate")

    def compile(self) -> "Subject":
        """Return the same code behind torch.compile; its layers are not seen."""
        raise CannotAskError("it is not compiled")

    @contextmanager
    def computing(self, dtype: torch.dtype) -> Iterator[None]:
        """Compute in a number format in the block, if the code can be converted.

        Weights are converted in place. If somebody else has built the model, its
        weights are put back at the end: what float32 has lost cannot be converted back,
        and other objects may hold the memory of the weights. If the model was built
        here, no second copy of its weights is held. In float64 tables are converted,
        too; in smaller formats they stay as they are.
        """
        # Code that cannot be converted is not touched: an empty module is converted in
        # its place.
        module = self.code if self.convertible else nn.Module()
        keep = keep_weights(module) if self.is_borrowed else nullcontext()
        with keep_tables(module), keep:
            try:
                if dtype == torch.float64:
                    module.to(dtype)
                    with Float64():
                        yield
                else:
                    with keep_tables(module):
                        module.to(dtype)
                    yield
            finally:
                if not self.is_borrowed:
                    module.to(self.dtype)


class TransformersSubject(Subject):
    """A model with the interface of transformers' causal language models."""

    separates_restarts = True

    def __init__(self, model: Any, name: str = "", is_borrowed: bool = True) -> None:
        self.model = model
        self.code = model
        self.is_borrowed = is_borrowed
        self.config = model.config
        self.text_config = self.config.get_text_config(decoder=True)
        self.name = name or type(model).__name__
        self.vocabulary = int(self.text_config.vocab_size)
        begin = getattr(self.text_config, "bos_token_id", None)
        if isinstance(begin, int) and begin < self.vocabulary:
            self.first_token = begin
        first_weight = next(model.parameters())
        self.dtype = first_weight.dtype
        self.device = first_weight.device

        rope = getattr(self.text_config, "rope_parameters", None) or {}
        by_layer_type = [part for part in rope.values() if isinstance(part, dict)]
        all_parameters = by_layer_type or [rope]
        self.model_kinds = self._list_kinds(all_parameters)
        self.trained_length = self._find_trained_length(all_parameters)
        self.layers = self._find_layers()

    def _list_kinds(self, all_parameters: list[dict[str, Any]]) -> tuple[str, ...]:
        kinds = [self.text_config.model_type]
        for parameters in all_parameters:
            kinds.append(parameters.get("rope_type", ""))
        if list_layer_windows(self.text_config):
            kinds.append("window")
        return tuple(kinds)

    def _find_trained_length(
        self,
        all_parameters: list[dict[str, Any]],
    ) -> int | None:
        for parameters in all_parameters:
            original: int | None = parameters.get("original_max_position_embeddings")
            if original:
                return original
        return getattr(self.text_config, "max_position_embeddings", None)

    def _find_layers(self) -> list[nn.Module]:
        # Only the decoder is searched, since an encoder of images may have a list of as
        # many layers.
        decoder = self.model
        if hasattr(self.model, "get_decoder"):
            decoder = self.model.get_decoder()
        for module in decoder.modules():
            is_list = isinstance(module, nn.ModuleList)
            if is_list and len(module) == self.text_config.num_hidden_layers:
                return list(module)
        return []

    def read(
        self,
        tokens: Tokens,
        positions: PerToken = None,
        segments: PerToken = None,
        cache: Any = None,
        visible: Tensor | None = None,
    ) -> Stages:
        arguments: dict[str, Any] = {"input_ids": tokens.to(self.device)}
        if positions is not None:
            arguments["position_ids"] = positions.to(self.device)
        if visible is not None:
            arguments["attention_mask"] = self._make_bias(visible)
        elif segments is not None:
            arguments["attention_mask"] = self._make_mask(segments, tokens.shape[1])
        return self._call(arguments, cache)

    def read_prompt(
        self,
        tokens: Tokens,
        prompt: Prompt,
        positions: Tensor | None = None,
        segments: PerToken = None,
        cache: Any = None,
    ) -> Stages:
        if not self.counts_images:
            return super().read_prompt(tokens, prompt)
        arguments: dict[str, Any] = {"input_ids": tokens.to(self.device)}
        arguments["mm_token_type_ids"] = prompt.kinds.to(self.device)
        if positions is None:
            arguments["image_grid_thw"] = prompt.grids.to(self.device)
        else:
            arguments["position_ids"] = positions.to(self.device)
        if segments is not None:
            arguments["attention_mask"] = self._make_mask(segments, tokens.shape[1])
        return self._call(arguments, cache)

    @property
    def counts_images(self) -> bool:
        """True for a model that counts positions of several axes itself."""
        return hasattr(getattr(self.model, "model", None), "get_rope_index")

    def forget_images(self) -> None:
        for module in self.model.modules():
            if hasattr(module, "rope_deltas"):
                module.rope_deltas = None

    def _call(self, arguments: dict[str, Any], cache: Any) -> Stages:
        """Call the model with these arguments; return all stages."""
        if cache is not None:
            arguments["past_key_values"] = cache["code_cache"]
        stages: Stages = []

        def keep(_: Any, __: Any, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            stages.append(hidden.clone())

        with ExitStack() as hooks:
            for layer in self.layers:
                hooks.enter_context(layer.register_forward_hook(keep))
            output = self.model(
                **arguments, use_cache=cache is not None, return_dict=True
            )
        if cache is not None:
            cache["code_cache"] = output.get("past_key_values", cache["code_cache"])
        return [*stages, output.logits.clone()]

    def _make_mask(self, segments: Tokens, new: int) -> Tensor:
        """Return a mask of padding, or of all pairs if there are several segments."""
        segments = segments.to(self.device).long()
        if segments.max() <= 1:
            return segments
        return self._make_bias(make_mask(segments, new))

    def _make_bias(self, visible: Tensor) -> Tensor:
        """Return a bias [rows, 1, queries, keys] for scores: 0 where a query may look,
        else the least number.
        """
        may_look = visible.to(self.device)[:, None]
        # `self.dtype` is another format while the model is converted.
        dtype = next(self.model.parameters()).dtype
        bias = torch.zeros_like(may_look, dtype=dtype)
        return bias.masked_fill_(~may_look, torch.finfo(dtype).min)

    def new_cache(self) -> Any:
        from transformers import DynamicCache

        return {"code_cache": DynamicCache(config=self.text_config)}

    def new_forgetting_cache(self) -> Any:
        if not hasattr(self.model, "new_forgetting_cache"):
            raise CannotAskError("it has no new_forgetting_cache()")
        return {"code_cache": self.model.new_forgetting_cache()}

    def entries(self, cache: Any) -> list[Entry]:
        layers = getattr(cache["code_cache"], "layers", None)
        if not layers:
            raise CannotAskError("its cache holds no keys")
        entries: list[Entry] = []
        for layer in layers:
            keys = getattr(layer, "keys", None)
            if isinstance(keys, Tensor) and keys.ndim == 4 and keys.numel() > 0:
                entries.append((keys, layer.values))
            else:
                entries.append(None)
        return entries

    def set_entry(self, cache: Any, layer: int, entry: Entry) -> None:
        if entry is not None:
            layer_cache = cache["code_cache"].layers[layer]
            layer_cache.keys, layer_cache.values = entry

    def generate(
        self,
        tokens: Tokens,
        segments: Tokens,
        new: int,
    ) -> tuple[Tensor, Tensor]:
        if not hasattr(self.model, "generate"):
            return super().generate(tokens, segments, new)
        output = self.model.generate(
            input_ids=tokens.to(self.device),
            attention_mask=segments.long().to(self.device),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        )
        return output.sequences[:, -new:], torch.stack(output.logits, dim=1)

    def compile(self) -> Subject:
        same = copy(self)
        same.model = torch.compile(self.model)
        same.layers = []
        return same

    @contextmanager
    def computing(self, dtype: torch.dtype) -> Iterator[None]:
        experts = self.config._experts_implementation
        try:
            # Fused kernels of experts cannot compute in float64.
            if dtype == torch.float64 and experts:
                self.model.set_experts_implementation("eager")
            with super().computing(dtype):
                yield
        finally:
            if self.config._experts_implementation != experts:
                self.model.set_experts_implementation(experts)


class Function(Subject):
    """A callable from token ids, positions and a mask to logits.

    The mask is True [rows, queries, keys] where a query may look. Code with a cache has
    `new_cache()`, and takes what that makes as `cache`. It may have `shift_keys(cache, by)`
    to move the keys of a cache, and `evict_keys`, `join_caches` and `next_position` as
    `Subject` calls them.
    """

    def __init__(self, function: Any, name: str = "") -> None:
        self.function = function
        self.code = function
        type_name = type(function).__name__
        self.name = name or getattr(function, "__name__", type_name)
        self.vocabulary = int(getattr(function, "vocabulary", 64))
        self.cached = hasattr(function, "new_cache")
        # The axis of tokens in keys, once a cache of several tokens has shown it.
        self.layout: dict[str, int] = {}

        first_weight = None
        if isinstance(function, nn.Module):
            first_weight = next(function.parameters(), None)
        self.convertible = first_weight is not None
        self.dtype = torch.float32
        if first_weight is not None:
            self.dtype = first_weight.dtype

    def read(
        self,
        tokens: Tokens,
        positions: PerToken = None,
        segments: PerToken = None,
        cache: Any = None,
        visible: Tensor | None = None,
    ) -> Stages:
        rows, new = tokens.shape
        before = 0
        more = {}
        if cache is not None:
            before = cache["tokens_read"]
            more["cache"] = cache["code_cache"]

        after = before + new
        if segments is None:
            segments = torch.ones(rows, after, dtype=torch.long)
        if positions is None:
            positions = torch.arange(before, after).expand(rows, -1)
        mask = make_mask(segments, new) if visible is None else visible

        logits = self.function(tokens, positions, mask, **more)
        if not isinstance(logits, Tensor) or logits.shape[:2] != tokens.shape:
            raise CannotAskError(
                "its answer is no tensor of logits [rows, tokens, vocabulary]"
            )
        if cache is not None:
            cache["tokens_read"] += new
        # The code may return a buffer that its next call overwrites: logits are copied.
        return [logits.clone()]

    def new_cache(self) -> Any:
        if not self.cached:
            return super().new_cache()
        return {
            "code_cache": self.function.new_cache(),
            "tokens_read": 0,
            "layout": self.layout,
        }

    def entries(self, cache: Any) -> list[Entry]:
        return caches.list_entries(cache)

    def set_entry(self, cache: Any, layer: int, entry: Entry) -> None:
        if entry is not None:
            caches.set_entry(cache, layer, entry)
            cache["tokens_read"] = entry[0].shape[2]

    def evict(self, cache: Any, keep: Sequence[int]) -> None:
        super().evict(cache, keep)
        cache["tokens_read"] = len(keep)

    def join(self, first: Any, second: Any) -> Any:
        whole = super().join(first, second)
        whole["tokens_read"] = first["tokens_read"] + second["tokens_read"]
        return whole

    def compile(self) -> Subject:
        same = copy(self)
        same.function = torch.compile(self.function)
        return same


def make_mask(segments: Tokens, new: int) -> Tensor:
    """Return True [rows, queries, keys] where the last `new` tokens may look.

    ``segments``: the number of the text of each token, 0 for padding.
    """
    length = segments.shape[1]
    first = length - new
    places = torch.arange(length, device=segments.device)
    keys = places[None, :]
    queries = places[first:, None]
    segments_of_keys = segments[:, None, :]
    segments_of_queries = segments[:, first:, None]

    is_earlier = keys <= queries
    is_same_segment = segments_of_queries == segments_of_keys
    is_text = segments_of_keys > 0
    # Padding looks at itself, so that its softmax is defined.
    is_itself = keys == queries
    return (is_earlier & is_same_segment & is_text) | is_itself


def make_subject(made: Any, name: str = "") -> Subject:
    """Return what a factory made, a transformers model or a callable, as a subject."""
    if hasattr(getattr(made, "config", None), "get_text_config"):
        return TransformersSubject(made, name)
    if not callable(made):
        raise TypeError(f"a {type(made).__name__}, which cannot be called")
    try:
        inspect.signature(made).bind("token ids", "positions", "mask")
    except (TypeError, ValueError):
        raise TypeError("it must take token ids, positions and a mask") from None
    return Function(made, name)
