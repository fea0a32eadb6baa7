"""Train one model on a Ray cluster, with a rank in each of several actors.

    python ray_ring.py RANKS train lda '/data/shard-{rank}' '/data/run-{rank}' --topics 1000

Each rank has CORES processors of one machine. If a rank or a connection is lost, all ranks stop, and the actors are
started again, which continues the run from the newest state that all ranks have. A rank needs its shard and its run
directory on the machine where it is started: on a shared disk, or with one actor per machine in the same order.
"""

import os
import secrets
import socket
import sys
import tempfile

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import ooc.ring
from blocks import WorkFailed

CORES = int(os.environ.get("CORES", "1"))
ATTEMPTS = 4


@ray.remote(num_cpus=CORES)
class Rank:
    def address(self) -> str:
        """Return an address of this machine, with a free port."""
        with socket.socket() as free:
            free.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def run(self, command: list[str], rendezvous: str, key: str, rank: int, ranks: int) -> None:
        with tempfile.NamedTemporaryFile("w") as key_file:  # only its owner can read it
            key_file.write(key)
            key_file.flush()
            ooc.ring.run(command, rendezvous=rendezvous, key_file=key_file.name, rank=rank, ranks=ranks)


def attempt(ranks: int, command: list[str]) -> None:
    group = placement_group([{"CPU": CORES}] * ranks, strategy="SPREAD")
    try:
        ray.get(group.ready())
        places = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank) for rank in range(ranks)]
        actors = [Rank.options(scheduling_strategy=place).remote() for place in places]
        rendezvous, key = ray.get(actors[0].address.remote()), secrets.token_hex(32)
        ray.get([actor.run.remote(command, rendezvous, key, rank, ranks) for rank, actor in enumerate(actors)])
    finally:
        remove_placement_group(group)  # ends the actors, and so their ranks


def main(ranks: int, command: list[str]) -> None:
    ray.init()
    for left in reversed(range(ATTEMPTS)):
        try:
            attempt(ranks, [*command, f"--workers={CORES}", "--resume"])
            return
        except (ray.exceptions.RayActorError, WorkFailed) as error:
            if not left:
                raise
            print(f"{str(error).strip().splitlines()[-1]}; starting again", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
