#!/usr/bin/env bash
# Podium on a Cloud TPU slice: the same command on every worker VM; JAX finds the slice's coordinator and ranks itself.
#
#   TPU=my-pod ZONE=us-central1-a cluster/tpu-vm.sh doctor --recipe resnet50-32k --data /mnt/data/imagenet
#   TPU=my-pod ZONE=us-central1-a cluster/tpu-vm.sh train  --recipe resnet50-32k --data … --run /mnt/shared/runs/one
#
# Needs gcloud here, and on every worker Podium with jax[tpu] (PODIUM names the command if it is not on the PATH), the
# data, and a --run that all workers share (Filestore, or a mounted bucket). If a worker is lost, all are started again
# from the last checkpoint, up to RESTARTS times. docs/cluster.md explains.

: "${TPU:?set TPU to the name of the TPU}" "${ZONE:?set ZONE to its zone}"
if [[ $1 == train && " $* " != *" --run"* ]]; then
    echo "give --run, so that a restart finds the run again" >&2
    exit 2
fi

printf -v command '%q ' "${PODIUM:-podium}" "$@"
for ((left = ${RESTARTS:-10}; ; left--)); do
    gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all --command="$command"
    code=$?
    # 0: done. 2: a mistake in the command, which would be made again.
    if [[ $1 != train ]] || ((code == 0 || code == 2 || left == 0)); then
        exit $code
    fi
    echo "podium ended with $code; started again, $((left - 1)) restarts left" >&2
done
