#!/usr/bin/env bash
# Podium under Open MPI (4 or 5): one process per host, which drives all the host's devices.
#
#   HOSTS=node1,node2,node3,node4 cluster/mpirun.sh doctor --recipe resnet50-4096 --data /shared/imagenet
#   HOSTS=node1,node2,node3,node4 cluster/mpirun.sh train  --recipe … --data … --run /shared/runs/one
#
# Run it on the first of the hosts: process 0 is looked for where mpirun is. mpirun ends all processes when one dies; this
# starts them again from the last checkpoint, up to RESTARTS times. MPIRUN_FLAGS are passed on. docs/cluster.md explains.

if [[ $1 == train && " $* " != *" --run"* ]]; then
    echo "give --run, so that a restart finds the run again" >&2
    exit 2
fi

hosts=${HOSTS:-localhost}
commas=${hosts//[^,]/}
for ((left = ${RESTARTS:-10}; ; left--)); do
    # Bound, a process would have one core to decode on.
    # shellcheck disable=SC2086  # flags are several words
    mpirun --host "$hosts" -n $((${#commas} + 1)) --bind-to none ${MPIRUN_FLAGS:-} "${PODIUM:-podium}" "$@"
    code=$?
    # 0: done. 2: a mistake in the command, which would be made again.
    if [[ $1 != train ]] || ((code == 0 || code == 2 || left == 0)); then
        exit $code
    fi
    echo "podium ended with $code; started again, $((left - 1)) restarts left" >&2
done
