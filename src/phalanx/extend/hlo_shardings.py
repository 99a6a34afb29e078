"""XLA's shardings as serialized protocol buffers."""

from __future__ import annotations

from phalanx.engine import HloSharding, OpSharding


def get_op_sharding_from_serialized_proto(sharding: bytes) -> OpSharding:
    """Read an `OpSharding`.

    Args:
      sharding: its serialized protocol buffer.

    Returns:
      The sharding.
    """
    proto = OpSharding()
    proto.ParseFromString(sharding)
    return proto


def get_hlo_sharding_from_serialized_proto(sharding: bytes) -> HloSharding:
    """Read an `HloSharding`.

    Args:
      sharding: the serialized protocol buffer of its `OpSharding`.

    Returns:
      The sharding.

    Examples:
      >>> data = get_serialized_proto_from_hlo_sharding(HloSharding.replicate())
      >>> get_hlo_sharding_from_serialized_proto(data).is_replicated()
      True
    """
    return HloSharding.from_proto(get_op_sharding_from_serialized_proto(sharding))


def get_serialized_proto_from_hlo_sharding(sharding: HloSharding) -> bytes:
    """Serialize an `HloSharding`.

    Args:
      sharding: the sharding.

    Returns:
      The serialized protocol buffer of its `OpSharding`.
    """
    return sharding.to_proto().SerializeToString()
