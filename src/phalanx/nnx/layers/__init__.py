"""The layers of `nnx`: linear maps, convolutions, normalisations, attention, recurrence, dropout, adaptation, pooling.

Each layer is a `Module` whose constructor makes its parameters from `rngs`; names and arguments are those of Flax NNX.
Builds on `phalanx.nn` and the modules of the folder above.
"""

from phalanx.nnx.layers.adaptation import LoRA as LoRA
from phalanx.nnx.layers.adaptation import LoRALinear as LoRALinear
from phalanx.nnx.layers.attention import MultiHeadAttention as MultiHeadAttention
from phalanx.nnx.layers.attention import combine_masks as combine_masks
from phalanx.nnx.layers.attention import dot_product_attention as dot_product_attention
from phalanx.nnx.layers.attention import dot_product_attention_weights as dot_product_attention_weights
from phalanx.nnx.layers.attention import make_attention_mask as make_attention_mask
from phalanx.nnx.layers.attention import make_causal_mask as make_causal_mask
from phalanx.nnx.layers.containers import PReLU as PReLU
from phalanx.nnx.layers.containers import Sequential as Sequential
from phalanx.nnx.layers.convolution import Conv as Conv
from phalanx.nnx.layers.convolution import ConvTranspose as ConvTranspose
from phalanx.nnx.layers.linear import Einsum as Einsum
from phalanx.nnx.layers.linear import Embed as Embed
from phalanx.nnx.layers.linear import Linear as Linear
from phalanx.nnx.layers.linear import LinearGeneral as LinearGeneral
from phalanx.nnx.layers.normalization import BatchNorm as BatchNorm
from phalanx.nnx.layers.normalization import GroupNorm as GroupNorm
from phalanx.nnx.layers.normalization import InstanceNorm as InstanceNorm
from phalanx.nnx.layers.normalization import LayerNorm as LayerNorm
from phalanx.nnx.layers.normalization import RMSNorm as RMSNorm
from phalanx.nnx.layers.parameters import promote_dtype as promote_dtype
from phalanx.nnx.layers.pooling import avg_pool as avg_pool
from phalanx.nnx.layers.pooling import max_pool as max_pool
from phalanx.nnx.layers.pooling import min_pool as min_pool
from phalanx.nnx.layers.pooling import pool as pool
from phalanx.nnx.layers.recurrent import RNN as RNN
from phalanx.nnx.layers.recurrent import Bidirectional as Bidirectional
from phalanx.nnx.layers.recurrent import GRUCell as GRUCell
from phalanx.nnx.layers.recurrent import LSTMCell as LSTMCell
from phalanx.nnx.layers.recurrent import OptimizedLSTMCell as OptimizedLSTMCell
from phalanx.nnx.layers.recurrent import RNNCellBase as RNNCellBase
from phalanx.nnx.layers.recurrent import SimpleCell as SimpleCell
from phalanx.nnx.layers.recurrent import flip_sequences as flip_sequences
from phalanx.nnx.layers.reparametrization import SpectralNorm as SpectralNorm
from phalanx.nnx.layers.reparametrization import WeightNorm as WeightNorm
from phalanx.nnx.layers.rotary import RoPE as RoPE
from phalanx.nnx.layers.rotary import dot_product_attention_with_rope as dot_product_attention_with_rope
from phalanx.nnx.layers.stochastic import Dropout as Dropout
