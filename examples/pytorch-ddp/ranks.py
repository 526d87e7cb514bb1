"""Prints what PyTorch reads of its processes, for a shell: eval "$(python3 ranks.py)".

MASTER_ADDR and its like are for init_process_group() without an address, and for whatever builds on it;
PET_MASTER_ADDR and its like for torchrun, which starts several processes in each replica."""
import json
import os


def main():
    if "TF_CONFIG" in os.environ:
        config = json.loads(os.environ["TF_CONFIG"])
        workers, rank = config["cluster"]["worker"], config["task"]["index"]
    else:  # one worker, which has nobody to know
        workers, rank = ["{DTRAIN_ADDRESS}:{DTRAIN_PORT}".format(**os.environ)], 0
    # Rank 0 meets the others at the port that was kept free for it.
    address, port = workers[0].rsplit(":", 1)
    address = address.strip("[]")
    variables = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": len(workers),
        "RANK": rank,
        "NODE_RANK": rank,  # what Lightning calls a node is a replica
        # A replica sees only its own GPUs, counted from 0, whoever else is on its host.
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NNODES": len(workers),
        "PET_NODE_RANK": rank,
    }
    print("export", *(f"{name}={value}" for name, value in variables.items()))


main()
