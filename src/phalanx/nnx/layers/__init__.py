"""Layers: linear maps, convolutions, normalizations, attention, recurrent cells, dropout, low-rank adaptation, pooling.

Each layer is a `Module` whose constructor creates its parameters with keys from `rngs`. Names and arguments are the
same as in Flax NNX.
"""

from phalanx.nnx.layers.conv_layers import Conv as Conv, ConvTranspose as ConvTranspose
from phalanx.nnx.layers.dropout import Dropout as Dropout
from phalanx.nnx.layers.linear_layers import (
    Einsum as Einsum,
    Embed as Embed,
    Linear as Linear,
    LinearGeneral as LinearGeneral,
)
from phalanx.nnx.layers.lora import LoRA as LoRA, LoRALinear as LoRALinear
from phalanx.nnx.layers.multi_head_attention import (
    MultiHeadAttention as MultiHeadAttention,
    combine_masks as combine_masks,
    dot_product_attention as dot_product_attention,
    dot_product_attention_weights as dot_product_attention_weights,
    make_attention_mask as make_attention_mask,
    make_causal_mask as make_causal_mask,
)
from phalanx.nnx.layers.norm_layers import (
    BatchNorm as BatchNorm,
    GroupNorm as GroupNorm,
    InstanceNorm as InstanceNorm,
    LayerNorm as LayerNorm,
    RMSNorm as RMSNorm,
)
from phalanx.nnx.layers.parameter_init import promote_dtype as promote_dtype
from phalanx.nnx.layers.pooling import avg_pool as avg_pool, max_pool as max_pool, min_pool as min_pool, pool as pool
from phalanx.nnx.layers.rnn import (
    RNN as RNN,
    Bidirectional as Bidirectional,
    GRUCell as GRUCell,
    LSTMCell as LSTMCell,
    OptimizedLSTMCell as OptimizedLSTMCell,
    RNNCellBase as RNNCellBase,
    SimpleCell as SimpleCell,
    flip_sequences as flip_sequences,
)
from phalanx.nnx.layers.rope import RoPE as RoPE, dot_product_attention_with_rope as dot_product_attention_with_rope
from phalanx.nnx.layers.sequential import PReLU as PReLU, Sequential as Sequential
from phalanx.nnx.layers.weight_norm import SpectralNorm as SpectralNorm, WeightNorm as WeightNorm
