"""`custom_partitioning` and the rules that it is given, where programs of the field import them from."""

from phalanx.spmd.custom_partitioning import custom_partitioning as custom_partitioning
from phalanx.spmd.sharding_rule import BATCHING as BATCHING
from phalanx.spmd.sharding_rule import ArrayMapping as ArrayMapping
from phalanx.spmd.sharding_rule import CompoundFactor as CompoundFactor
from phalanx.spmd.sharding_rule import SdyShardingRule as SdyShardingRule
