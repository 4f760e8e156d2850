#!/usr/bin/env bash
# Usage: ranks_on_one_gpu.sh RANKS SPMDRUN ARGUMENT... Runs several ranks of a program on the one
# device of this host, over NCCL itself. NCCL refuses two ranks with one device of one host, which
# it tells by a host id (checked in 2.28.9, init.cc): each rank is given an id of its own here, so
# the ranks talk over sockets of the loopback. The exit code is the highest of all ranks.
set -uo pipefail

ranks=$1
shift
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_NVLS_ENABLE=0
export NCCL_MAX_CTAS=2 # kernels of all ranks must be on the device together
export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1
export MASTER_PORT=$((10000 + RANDOM % 20000)) # below those that connections are given

running=()
for ((rank = ranks - 1; rank >= 0; --rank)); do
  RANK=$rank LOCAL_RANK=$rank NCCL_HOSTID=host-of-rank-$rank "$@" &
  running+=($!)
done
worst=0
for process in "${running[@]}"; do
  wait "$process"
  code=$?
  ((code <= worst)) || worst=$code
done
exit "$worst"
