"""Functions of neural networks: activations, the softmax family, attention, and initializers.

Builds on `lax`, `numpy` and `random`; models and `nnx` build on it.
"""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.nn import initializers as initializers
from phalanx.nn.activations import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_swish as hard_swish,
    hard_tanh as hard_tanh,
    identity as identity,
    leaky_relu as leaky_relu,
    log1mexp as log1mexp,
    log_sigmoid as log_sigmoid,
    mish as mish,
    relu as relu,
    relu6 as relu6,
    selu as selu,
    sigmoid as sigmoid,
    silu as silu,
    soft_sign as soft_sign,
    softplus as softplus,
    sparse_plus as sparse_plus,
    sparse_sigmoid as sparse_sigmoid,
    squareplus as squareplus,
    swish as swish,
    tanh as tanh,
)
from phalanx.nn.softmax import (
    log_softmax as log_softmax,
    logmeanexp as logmeanexp,
    logsumexp as logsumexp,
    one_hot as one_hot,
    softmax as softmax,
    standardize as standardize,
)
from phalanx.numpy.function_stages import attach_stages as _attach_stages

TYPE_CHECKING = False  # type checkers take this name for typing.TYPE_CHECKING, whose import would cost time

if TYPE_CHECKING:
    from phalanx.nn.attention import dot_product_attention as dot_product_attention
    from phalanx.nn.block_scaled_matmul import (
        get_scaled_dot_general_config as get_scaled_dot_general_config,
        scaled_dot_general as scaled_dot_general,
        scaled_matmul as scaled_matmul,
    )

__getattr__, __dir__ = _publish(
    globals(),
    modules="initializers",
    lazy={
        "attention": "dot_product_attention",
        "block_scaled_matmul": "get_scaled_dot_general_config scaled_dot_general scaled_matmul",
    },
    prepare=_attach_stages,
)
