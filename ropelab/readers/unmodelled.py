"""Keys, model types and classes whose code was not read, so that no reader computes
them.

`check_modelled` raises NotModelledError for them before a reader is called. This error
is not a refusal: a runtime may well load the file, but nothing here knows what it
computes.
"""

from collections.abc import Collection

from ropelab.readers import families, mlx
from ropelab.readers.families import RELEASE, RELEASES
from ropelab.readers.reader import read_head_dim
from ropelab.readers.runtime import Runtime
from ropelab.readers.served import LISTED_NAMES, SERVED, list_architectures
from ropelab.readers.spec import NotModelledError, shorten_value
from ropelab.readers.trace import ABSENT, BLOCKS, MAXIMUM, Trace, find_value

# Keys of a rotated share or width that only some classes read.
SHARE_KEYS = ("rope_pct", "rotary_dim", "rotary_pct")


def check_modelled(runtime: Runtime, trace: Trace) -> None:
    """Raise NotModelledError unless the readers know what a runtime does with a file.

    A file can have several problems. The user reads the first, so that their order counts:
    what a table says of the model type explains most, and that a release lacks the type
    explains least.
    """
    check_keys(trace)
    check_read_by(runtime, trace)
    # A GGUF file was converted already, and has only the language model.
    is_gguf = "attention.head_count" in trace.language_part
    if not is_gguf:
        named = list_named_architectures(runtime, trace)
        check_language_part(runtime, trace, named)
        check_class(runtime, trace, named)
    check_release(runtime, trace)


def check_keys(trace: Trace) -> None:
    """Raise NotModelledError if the facts of a model type have an entry `unread`.

    The entry concerns every file of the type, or only files with certain keys.
    """
    family = trace.family
    usual_value = family.unread_usual
    if family.unread_usual_from_heads:
        # No key of a head's size is passed, so that this is the size that follows from
        # the other two keys: hidden_size / num_attention_heads.
        usual_value = read_head_dim(trace, ())

    if family.unread_keys:
        is_unread = any(
            trace.language_part.get(key) is not None for key in family.unread_keys
        )
    elif family.unread_key:
        is_unread = trace.get(family.unread_key) not in (None, usual_value)
    else:
        is_unread = True
    if family.unread and is_unread:
        raise NotModelledError(f"'{family.name}' has {family.unread}")


def check_read_by(runtime: Runtime, trace: Trace) -> None:
    """Raise NotModelledError for a model type whose code was read only in other
    runtimes.
    """
    family = trace.family
    if family.read_by and runtime.name not in family.read_by:
        raise NotModelledError(f"the code of '{family.name}' was not read there")


def list_named_architectures(runtime: Runtime, trace: Trace) -> list[str]:
    """Return the architectures that a runtime finds named in a file."""
    parts = [trace.whole]
    if runtime.name == "llama.cpp":
        # Its converter looks into the language part, too.
        parts.append(trace.language_part)

    architectures = []
    for part in parts:
        names = part.get("architectures")
        if isinstance(names, list):
            architectures += [name for name in names if isinstance(name, str)]
    return architectures


def list_types(trace: Trace) -> list[str]:
    """Return the model types that a file names: of the whole, then of the language part."""
    return [name for name in (trace.outer_type, trace.model_type) if name]


def check_language_part(runtime: Runtime, trace: Trace, named: list[str]) -> None:
    """Raise NotModelledError for a model of several parts without its language model.

    ``named``: the architectures that the file names.
    """
    outer_type = trace.outer_type
    is_known = outer_type in families.CLASSES["texts"]
    # The class of every type of transformers has its language part under one key.
    has_one_key = is_known or (outer_type in RELEASES[RELEASE] and bool(trace.prefix))
    if not has_one_key:
        return

    own_key = families.TEXT_KEYS.get(outer_type)
    if own_key:
        has_part = trace.prefix.startswith(own_key)
    elif trace.prefix:
        keys = {"text_config", families.OLDER_TEXT_KEYS.get(outer_type)}
        # A server's own configuration class may have the part under another key.
        for table in ("parts", "parts_with_fallback"):
            keys.add(SERVED.get(runtime.name, {}).get(table, {}).get(outer_type))
        # llama.cpp's converter goes by these keys, whatever the type.
        is_converted = runtime.name in ("llama.cpp", "ollama")
        has_part = is_converted or trace.prefix.split(".")[0] in keys
    else:
        # Some classes read the keys of the language model outside of a part, too.
        flat_architectures = families.FLAT_ARCHITECTURES.get(runtime.name, ())
        has_part = (
            trace.family.reads_text_keys
            or outer_type in families.CLASSES["flat"]
            or not set(named).isdisjoint(flat_architectures)
        )
    if not has_part:
        raise NotModelledError(
            f"'{outer_type}' has its language model in {own_key or 'text_config'}, which"
            " is missing"
        )


def check_class(runtime: Runtime, trace: Trace, named: list[str]) -> None:
    """Raise NotModelledError for a class that a runtime lacks, or that was not read.

    ``named``: the architectures that the file names.
    """
    check_known_rotation(runtime, trace)
    check_has_class(runtime, trace, named)
    if trace.served.unread:
        raise NotModelledError(trace.served.unread)

    # MLX-LM has a model file for each type. The files in its table were read.
    is_read_in_mlx = runtime.name == "mlx-lm" and mlx.name_file(trace) in mlx.ROWS
    if trace.family.name and not is_read_in_mlx:
        check_defaults(runtime, trace)
        check_share_keys(trace)


def check_known_rotation(runtime: Runtime, trace: Trace) -> None:
    """Raise NotModelledError for a type whose rotation no table describes."""
    family = trace.family
    name = shorten_value(family.name)
    has_row = family.name in families.FAMILIES
    # The types without rotary positions have none in transformers. The code that comes
    # with some weights of these types rotates all the same (Jina v3).
    if family.name in families.UNROTATED_TYPES:
        raise NotModelledError(
            f"'{name}' rotates in code of its own, which was not read"
        )
    if family.name in families.FIXED_TYPES and not has_row:
        raise NotModelledError(
            f"the class of '{name}' rotates by numbers in its code, and reads no"
            " rope_scaling"
        )

    has_read_file = runtime.name in SERVED and bool(trace.served.facts)
    is_described = family.has_known_defaults or has_row or has_read_file
    if family.name in families.TRANSFORMERS_TYPES and not is_described:
        raise NotModelledError(f"the class of '{name}' was not read")


def check_has_class(runtime: Runtime, trace: Trace, named: list[str]) -> None:
    """Raise NotModelledError for a model whose class a runtime does not have."""
    types = list_types(trace)
    if not types and not named:
        return
    if has_class(runtime.name, types[:1], named):
        return

    missing = [*types, *named][0]
    problem = f"'{shorten_value(missing)}' is not in that release"
    if runtime.falls_back:
        problem += "; where transformers has a class, that one runs"
    raise NotModelledError(problem)


def has_class(
    runtime: str, types: Collection[str], architectures: Collection[str] = ()
) -> bool:
    """Return True if a runtime has a class for a model, or its list is not known.

    Args:
        runtime: the name of the runtime.
        types: the model types that the file names.
        architectures: the architectures that it names.
    """
    if runtime not in LISTED_NAMES:
        return True

    # The class of a whole model has its language part as well.
    types_and_wholes = set(types)
    for model_type in types:
        types_and_wholes.update(families.list_wholes(model_type))

    names = set(architectures)
    if not names:
        # Every architecture of these types may be meant.
        names = set(list_architectures(types_and_wholes))
    return not LISTED_NAMES[runtime].isdisjoint(types_and_wholes | names)


def check_defaults(runtime: Runtime, trace: Trace) -> None:
    """Raise NotModelledError if a file leaves out a value whose default is in a class
    that was not read.

    The classes in transformers and the rows of families.toml are read with their
    defaults. Of other models, only a server's model file was read, which leaves the
    defaults to a configuration class.
    """
    name = shorten_value(trace.family.name)
    if trace.family.has_known_defaults or trace.family.name in families.FAMILIES:
        return
    if runtime.name not in SERVED:
        raise NotModelledError(f"the class of '{name}' was not read")

    for key in ("rope_theta", MAXIMUM):
        paths = [key, *(f"{block}.{key}" for block in BLOCKS)]
        values = [find_value(trace.language_part, path) for path in paths]
        if all(value in (None, ABSENT) for value in values):
            raise NotModelledError(
                f"the file has no {key}, and the default of the class of"
                f" '{name}' was not read"
            )


def check_share_keys(trace: Trace) -> None:
    """Raise NotModelledError for a key of a share that a class is not known to read."""
    family = trace.family
    if family.has_known_defaults:
        return

    read_keys = {family.width_key, *family.share_keys, *family.sglang_share_keys}
    for key in SHARE_KEYS:
        rotates_part = trace.language_part.get(key) not in (None, 1)
        if rotates_part and key not in read_keys:
            raise NotModelledError(
                f"'{shorten_value(family.name)}' has {key}, in code of its own"
            )


def check_release(runtime: Runtime, trace: Trace) -> None:
    """Raise NotModelledError for a model type that a release does not have yet."""
    # Where a type names this runtime in read_by, code that comes with the weights runs.
    if runtime.name in trace.family.read_by:
        return
    release = runtime.release if runtime.runs_transformers else runtime.version
    # Only releases of transformers have a list of their types.
    if release not in RELEASES:
        return

    for model_type in reversed(list_types(trace)):
        if model_type not in RELEASES[release]:
            raise NotModelledError(
                f"'{shorten_value(model_type)}' is not in that release; the model's own code was"
                " not read"
            )
