"""Functions of neural networks: activations, the softmax family, attention, and initializers.

Builds on `lax`, `numpy` and `random`; models and `nnx` build on it.
"""

from phalanx.engine.frames import guard as _guard
from phalanx.nn import initializers as initializers
from phalanx.nn.activations import celu as celu
from phalanx.nn.activations import elu as elu
from phalanx.nn.activations import gelu as gelu
from phalanx.nn.activations import glu as glu
from phalanx.nn.activations import hard_sigmoid as hard_sigmoid
from phalanx.nn.activations import hard_silu as hard_silu
from phalanx.nn.activations import hard_swish as hard_swish
from phalanx.nn.activations import hard_tanh as hard_tanh
from phalanx.nn.activations import identity as identity
from phalanx.nn.activations import leaky_relu as leaky_relu
from phalanx.nn.activations import log1mexp as log1mexp
from phalanx.nn.activations import log_sigmoid as log_sigmoid
from phalanx.nn.activations import mish as mish
from phalanx.nn.activations import relu as relu
from phalanx.nn.activations import relu6 as relu6
from phalanx.nn.activations import selu as selu
from phalanx.nn.activations import sigmoid as sigmoid
from phalanx.nn.activations import silu as silu
from phalanx.nn.activations import soft_sign as soft_sign
from phalanx.nn.activations import softplus as softplus
from phalanx.nn.activations import sparse_plus as sparse_plus
from phalanx.nn.activations import sparse_sigmoid as sparse_sigmoid
from phalanx.nn.activations import squareplus as squareplus
from phalanx.nn.activations import swish as swish
from phalanx.nn.activations import tanh as tanh
from phalanx.nn.attention import dot_product_attention as dot_product_attention
from phalanx.nn.scaled import get_scaled_dot_general_config as get_scaled_dot_general_config
from phalanx.nn.scaled import scaled_dot_general as scaled_dot_general
from phalanx.nn.scaled import scaled_matmul as scaled_matmul
from phalanx.nn.softmax import log_softmax as log_softmax
from phalanx.nn.softmax import logmeanexp as logmeanexp
from phalanx.nn.softmax import logsumexp as logsumexp
from phalanx.nn.softmax import one_hot as one_hot
from phalanx.nn.softmax import softmax as softmax
from phalanx.nn.softmax import standardize as standardize

_guard(globals())
