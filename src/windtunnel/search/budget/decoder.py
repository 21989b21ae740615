"""A decoder of about a given number of parameters, by one rule.

The rule follows the Llama 3 family (arXiv 2407.21783, Table 3): SwiGLU of 3.5 times the width, heads of 128, 8 key-value heads, a
vocabulary of 128,256, and a width of about 128 times the number of layers. Width goes in steps of 1,024 (of 256 below 2,048), so
that heads divide by tensor parallelism; layers come from the parameters that are left.
"""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.spec import Model
from windtunnel.spec.loading.load import load_model
from windtunnel.workload import parameter_count

HEAD = 128
ASPECT = 128
VOCAB = 128_256
MAX_SEQ = 8192
WIDTHS = (256, 512, 768, 1024, 1280, 1536, 1792, *range(2048, 65_537, 1024))
MOST_LAYERS = 512


def decoder(parameters: float, overrides: tuple[str, ...] = ()) -> Model:
    """The model of the rule nearest to `parameters`; overrides change its fields, such as `vocab=50304`.

    SpecError for more parameters than the rule covers. Fewer than its smallest model give that.
    """
    models = [model for width in WIDTHS if (model := _of_width(width, parameters, overrides)) is not None]
    if not models or parameters > 1.2 * (largest := max(map(parameter_count, models))):
        most = largest if models else parameter_count(_build_decoder(WIDTHS[-1], MOST_LAYERS, overrides))
        raise SpecError("parameters", f"{parameters:.3g}", f"at most {most:.3g}, the largest that the rule of decoders builds")
    return min(models, key=lambda model: _distance_from_rule(model, parameters))


def _distance_from_rule(model: Model, parameters: float) -> float:
    """How far a model is from the number of parameters and from the aspect of the rule."""
    missing = abs(parameter_count(model) / parameters - 1.0)
    shape = model.hidden / model.layers / ASPECT
    return missing + 0.1 * abs(max(shape, 1.0 / shape) - 1.0)


def _of_width(width: int, parameters: float, overrides: tuple[str, ...]) -> Model | None:
    """The model of a width; None if its shape is more than three times off the rule's aspect."""
    empty, one = (parameter_count(_build_decoder(width, layers, overrides)) for layers in (1, 2))
    each = one - empty
    layers = max(2, round((parameters - (empty - each)) / each))
    if layers > 8:
        layers = max(8, 4 * round(layers / 4))  # pipelines of 2 and 4 stages divide it
    smallest = width == WIDTHS[0]
    if layers > MOST_LAYERS or not smallest and not ASPECT / 3 <= width / layers <= ASPECT * 3:
        return None
    return _build_decoder(width, layers, overrides)


def _build_decoder(width: int, layers: int, overrides: tuple[str, ...]) -> Model:
    heads = width // HEAD
    table = {
        "name": f"decoder-{width}x{layers}",
        "layers": layers,
        "hidden": width,
        "heads": heads,
        "kv_heads": min(8, heads) if heads % min(8, heads) == 0 else 2,
        "ffn": width * 7 // 2,
        "vocab": VOCAB,
        "max_seq": MAX_SEQ,
        "activation": "swiglu",
        "norm": "rmsnorm",
        "position": "rope",
        "tied_embeddings": width < 2048,
        "linear_bias": False,
    }
    return load_model(table, overrides)
