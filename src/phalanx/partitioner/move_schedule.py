"""Schedules of permutes for operations that only move elements along a dimension that is split unevenly.

Reversal, slices, padding, concatenation and reshapes take each element of the result from an element of an operand. An
operation is a list of `Run`s. `find_pieces` cuts them at the ends of shards, and `schedule_rounds` arranges the pieces
that change device in rounds of one collective permute each.

In a round each device sends one buffer and receives one. So the widths of the rounds add up to at least the number of
elements that some device must send or receive, `most_moved`, and that many suffice: the pieces are the edges of a
bipartite multigraph from senders to receivers, whose edges fall into as many matchings as its largest degree (Kőnig
1916). `_match_busiest` finds one matching after the other.

Called by `phalanx.partitioner.move_lowering`; `docs/decisions/0018-bytes-of-uneven-programs.md` has the bounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from phalanx.engine import memoize

# Each round waits for the slowest device, so beyond some number fewer bytes do not make up for it; and the search for
# the rounds of many devices would take longer than to compile the program.
_MOST_ROUNDS, _MOST_PARTS = 16, 64


class Run(NamedTuple):
    """Consecutive elements of the result.

    Args:
      start: the position of the first one.
      length: their number.
      operand: the number of the operand that they are taken from.
      source: the position of the first one's source; the sources of the others follow at the stride of the move.
    """

    start: int
    length: int
    operand: int
    source: int


class Piece(NamedTuple):
    """Elements that one shard of the result takes from one shard of an operand.

    Args:
      sender, receiver: the numbers of these shards.
      operand: the number of the operand.
      source, target: the positions of the first element in the two shards.
      length: the number of elements.
    """

    sender: int
    receiver: int
    operand: int
    source: int
    target: int
    length: int

    def split(self, count: int, stride: int) -> tuple[Piece, Piece]:
        """The first elements, and the rest."""
        rest = self._replace(
            source=self.source + stride * count, target=self.target + count, length=self.length - count
        )
        return self._replace(length=count), rest


class Round(NamedTuple):
    """Pieces that one collective permute moves; all senders differ, and all receivers.

    Args:
      width: the number of elements in the buffer.
      pieces: of at most that many elements each.
    """

    width: int
    pieces: list[Piece]


def find_pieces(runs: Sequence[Run], stride: int, blocks: Sequence[int | None], block: int, parts: int) -> list[Piece]:
    """Cut runs at the ends of shards.

    Args:
      runs: the move.
      stride: the distance of the sources of consecutive elements; negative if they are reversed.
      blocks: for each operand the size of its shards; None if each device holds it whole.
      block: the size of the shards of the result.
      parts: the number of shards.
    """
    found = []
    for start, count, operand, source in runs:
        width = blocks[operand]
        for receiver in range(start // block, min((start + count - 1) // block, parts - 1) + 1):
            first, end = max(start, receiver * block), min(start + count, (receiver + 1) * block)
            while first < end:
                at = source + stride * (first - start)
                sender, local = (receiver, at) if width is None else divmod(at, width)
                # The elements from `at` to the end of the shard, in the direction of the stride.
                held = (
                    end - first
                    if width is None
                    else (-(-(width - local) // stride) if stride > 0 else local // -stride + 1)
                )
                taken = min(held, end - first)
                found.append(Piece(sender, receiver, operand, local, first - receiver * block, taken))
                first += taken
    return found


def most_moved(pieces: Sequence[Piece]) -> int:
    """The largest number of elements that one device must send, or receive."""
    sent, received = Counter[int](), Counter[int]()
    for piece in pieces:
        if piece.sender != piece.receiver:
            sent[piece.sender] += piece.length
            received[piece.receiver] += piece.length
    return max([0, *sent.values(), *received.values()])


@memoize("partitioner.move_rounds", 1024)
def schedule_rounds(pieces: tuple[Piece, ...], stride: int, parts: int) -> list[Round]:
    """Arrange the pieces that change device in rounds whose widths add up to `most_moved`, except on very many devices.

    Args:
      pieces: found by `find_pieces`.
      stride: as there.
      parts: the number of shards.
    """
    moved = [piece for piece in pieces if piece.sender != piece.receiver]
    # Whole pieces, the largest first, often do: shifts and reversals take one or two rounds so.
    rounds: list[Round] = []
    for piece in sorted(moved, key=lambda piece: -piece.length):
        taken = lambda r, piece=piece: any(piece.sender == p.sender or piece.receiver == p.receiver for p in r.pieces)
        free = next((r for r in rounds if not taken(r)), None)
        if free is None:
            rounds.append(free := Round(piece.length, []))
        free.pieces.append(piece)
    if sum(r.width for r in rounds) == most_moved(moved):
        return rounds
    return rounds if parts > _MOST_PARTS else list(split_into_rounds(moved, stride, parts))


def is_worthwhile(rounds: Sequence[Round], pieces: Sequence[Piece]) -> bool:
    """Whether rounds send as little as they can, and are few."""
    return len(rounds) <= _MOST_ROUNDS and sum(r.width for r in rounds) == most_moved(pieces)


def split_into_rounds(pieces: Sequence[Piece], stride: int, parts: int) -> Iterator[Round]:
    """Arrange pieces in rounds whose widths add up to the most that a device sends or receives, itself included."""
    queues: dict[tuple[int, int], list[Piece]] = defaultdict(list)
    for piece in pieces:
        queues[piece.sender, piece.receiver].append(piece)
    while queues:
        # Devices without enough to do get idle pairs, so that all have equally much: vertices `parts + i` idle. A
        # perfect matching then has an edge at each of the busiest devices.
        left = Counter({pair: sum(p.length for p in queue) for pair, queue in queues.items()})
        sent, received = Counter[int](), Counter[int]()
        for (sender, receiver), count in left.items():
            sent[sender] += count
            received[receiver] += count
        most = max(*sent.values(), *received.values())
        edges = dict(left)
        for i in range(parts):
            edges[i, parts + i], edges[parts + i, i] = most - sent[i], most - received[i]
        edges |= {(parts + receiver, parts + sender): count for (sender, receiver), count in left.items()}
        match = _match_busiest(edges, 2 * parts)
        chosen = [pair for pair in queues if match[pair[1]] == pair[0]]
        width = min(edges[sender, receiver] for receiver, sender in match.items())
        width = min([width, *(queues[pair][0].length for pair in chosen)])
        taken = []
        for pair in chosen:
            head, rest = queues[pair][0].split(width, stride)
            taken.append(head)
            queues[pair][:1] = [rest] if rest.length else []
            if not queues[pair]:
                del queues[pair]
        yield Round(width, taken)


def _match_busiest(edges: dict[tuple[int, int], int], size: int) -> dict[int, int]:
    """The perfect matching whose lightest edge is heaviest, so that few rounds remain: receivers to senders."""
    low, found = sorted({count for count in edges.values() if count}), {}
    first, last = 0, len(low) - 1
    while first <= last:  # a perfect matching exists at the lightest edge
        middle = (first + last) // 2
        if (match := _match(edges, size, low[middle])) is not None:
            found, first = match, middle + 1
        else:
            last = middle - 1
    return found


def _match(edges: dict[tuple[int, int], int], size: int, least: int) -> dict[int, int] | None:
    """A perfect matching of edges of at least some weight, by augmenting paths; None if there is none."""
    receivers: dict[int, list[int]] = defaultdict(list)
    for (sender, receiver), count in edges.items():
        if count >= least:
            receivers[sender].append(receiver)
    match: dict[int, int] = {}

    def augment(sender: int, visited: set[int]) -> bool:
        for receiver in receivers[sender]:
            if receiver not in visited:
                visited.add(receiver)
                if receiver not in match or augment(match[receiver], visited):
                    match[receiver] = sender
                    return True
        return False

    return match if all(augment(sender, set()) for sender in range(size)) else None
