"""`podium doctor`'s judgement of what the processes of a run have observed: for each point green, yellow (it will run,
but worse than it could) or red (it will fail, or train something else), and what to do. Pure functions of facts.
"""

import ipaddress
import statistics
from collections.abc import Callable, Sequence

from podium.doctor.finding import Finding, Level
from podium.doctor.judge_gpus import judge_gpus, judge_links
from podium.doctor.observe import ALL_REDUCE_BYTES, Host, Work

_CLOCKS_APART_SECONDS = 2.0
_CLOCKS_FAR_SECONDS = 60.0  # Munge and TLS start to refuse
_SLOW_COMPUTE = 1.5
_CHECKPOINTS = 3  # two are kept while the third is written


def judge_hosts(hosts: Sequence[Host], clock_seconds: Sequence[float], run_is_seen: Sequence[bool]) -> list[Finding]:
    """The findings without devices. Lists are in the order of ranks; clocks are relative to process 0's."""
    return [
        _versions(hosts),
        _same(hosts, "recipe", lambda h: h.recipe, advice="start every process with the same --recipe and --set"),
        _data(hosts),
        _names(hosts),
        _clocks(hosts, clock_seconds),
        _run_folder(hosts, run_is_seen),
        _decoder(hosts),
        *judge_gpus(hosts),
    ]


def judge_work(
    hosts: Sequence[Host], works: Sequence[Work], *, torus: str, batch_global: int, need_images_per_second: float
) -> list[Finding]:
    """The findings that need devices. `need_images_per_second` is the whole run's; 0 if unknown."""
    with_data = [_share(hosts, works), _memory(hosts, works), _decoding(hosts, works, need_images_per_second)]
    return [
        _devices(hosts, works, torus=torus, batch_global=batch_global),
        _disk(hosts, works),
        *(with_data if works[0].images else []),
        _compute(hosts, works),
        _all_reduce(works),
    ]


def worst(findings: Sequence[Finding]) -> Level:
    levels: tuple[Level, ...] = ("red", "yellow", "green")
    return next(level for level in levels if level == "green" or any(f.level == level for f in findings))


def _who(process: int, hosts: Sequence[Host]) -> str:
    return f"process {process} on {hosts[process].host}"


def _all(hosts: Sequence[Host]) -> str:
    count = len({h.host for h in hosts})
    return f"{len(hosts)} process{'es' * (len(hosts) > 1)} on {count} host{'s' * (count > 1)}"


def _same(hosts: Sequence[Host], point: str, of: Callable[[Host], str], *, advice: str) -> Finding:
    for process, host in enumerate(hosts):
        if of(host) != of(hosts[0]):
            return Finding(point, "red", f"{_who(process, hosts)} has a different one from {_who(0, hosts)}", advice)
    return Finding(point, "green", f"sha256 {of(hosts[0])[:12]}…, in {_all(hosts)}")


def _versions(hosts: Sequence[Host]) -> Finding:
    first = hosts[0].versions
    for process, host in enumerate(hosts):
        for package in sorted({*first, *host.versions}):
            here, there = host.versions.get(package), first.get(package)
            if here != there:
                found = f"{_who(process, hosts)} has {package} {here}, process 0 has {there}"
                return Finding("versions", "red", found, "install the same versions everywhere")
    return Finding("versions", "green", f"podium {first['podium']}, jax {first['jax']}, in {_all(hosts)}")


def _data(hosts: Sequence[Host]) -> Finding:
    for process, host in enumerate(hosts):
        if host.data_problem:
            return Finding(
                "data", "red", f"{_who(process, hosts)}: {host.data_problem}", "every host needs the prepared directory"
            )
    if not any(host.data for host in hosts):
        return Finding("data", "yellow", "not looked at", "give --data, a prepared directory")
    return _same(hosts, "data", lambda h: h.data, advice="copy the same prepared directory to every host")


def _names(hosts: Sequence[Host]) -> Finding:
    if len(hosts) == 1:
        return Finding("names", "green", "one process: nobody to be found")
    several = len({h.host for h in hosts}) > 1
    for process, host in enumerate(hosts):
        who, name = _who(process, hosts), host.coordinator.rpartition(":")[0]
        if not host.coordinator_address:
            return Finding("names", "red", f"{who} does not know the name {name}", "add it to DNS or /etc/hosts")
        if host.host != hosts[0].host and _is_loopback(host.coordinator_address):
            found = f"for {who} the coordinator {name} is {host.coordinator_address}, itself"
            return Finding("names", "red", found, "give --coordinator an address that all hosts reach")
        if several and (not host.own_address or _is_loopback(host.own_address)):
            found = f"for {who} its own name is {host.own_address or 'unknown'}, where no other host reaches it"
            advice = "let /etc/hosts or DNS give the host's name its network address"
            # Only collectives between CPUs listen there.
            return Finding("names", "yellow" if host.accelerator_files else "red", found, advice)
    where = "" if several else " (all on this host)"
    return Finding("names", "green", f"coordinator {hosts[0].coordinator}, known to all{where}")


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _clocks(hosts: Sequence[Host], seconds: Sequence[float]) -> Finding:
    furthest = max(range(len(seconds)), key=lambda process: abs(seconds[process]))
    apart = abs(seconds[furthest])
    if apart <= _CLOCKS_APART_SECONDS:
        return Finding("clocks", "green", f"within {max(apart, 0.1):.1f} s" if len(hosts) > 1 else "one process")
    ahead = "ahead of" if seconds[furthest] > 0 else "behind"
    found = f"{_who(furthest, hosts)} is {apart:.0f} s {ahead} process 0"
    return Finding("clocks", "red" if apart > _CLOCKS_FAR_SECONDS else "yellow", found, "start chrony or ntpd there")


def _run_folder(hosts: Sequence[Host], is_seen: Sequence[bool]) -> Finding:
    if not is_seen[0]:
        return Finding("run directory", "red", f"{_who(0, hosts)} cannot write there", "choose another --run")
    for process, seen in enumerate(is_seen):
        if not seen:
            found = f"{_who(process, hosts)} does not see what process 0 writes there"
            return Finding("run directory", "red", found, "choose a --run on a file system that all hosts share")
    return Finding("run directory", "green", "writable" + (" and shared by all" if len(hosts) > 1 else ""))


def _decoder(hosts: Sequence[Host]) -> Finding:
    for process, host in enumerate(hosts):
        if not host.decoder_is_native:
            advice = "install a C++ compiler and libjpeg-turbo's header, then Podium again"
            return Finding("decoder", "yellow", f"{_who(process, hosts)}: {host.decoder}", advice)
    return Finding("decoder", "green", hosts[0].decoder)


def _devices(hosts: Sequence[Host], works: Sequence[Work], *, torus: str, batch_global: int) -> Finding:
    platform, per_process = works[0].platform, works[0].devices
    for process, (host, work) in enumerate(zip(hosts, works, strict=True)):
        if work.platform == "cpu" and host.accelerator_files:
            found = f"{_who(process, hosts)} computes on the CPU, though {host.accelerator_files[0]} is there"
            return Finding(
                "devices", "yellow", found, "install JAX for it: make install EXTRAS=cuda12 (or cuda13, tpu)"
            )
    chips = per_process * len(works)
    kind = "simulated chips" if platform == "cpu" else f"{platform.upper()}s"
    batch = f"{batch_global / chips:g} images each"
    return Finding("devices", "green", f"torus {torus}: {len(works)} × {per_process} {kind}, {batch}")


def _disk(hosts: Sequence[Host], works: Sequence[Work]) -> Finding:
    need, free = works[0].checkpoint_bytes * _CHECKPOINTS, hosts[0].disk_free_bytes
    found = f"{_gb(free)} free, {_CHECKPOINTS} checkpoints need {_gb(need)}"
    if free < need:
        return Finding("disk", "red", found, "make room or choose another --run")
    return Finding("disk", "green", found)


def _share(hosts: Sequence[Host], works: Sequence[Work]) -> Finding:
    for process, work in enumerate(works):
        if work.decode_problem:
            found = f"{_who(process, hosts)}: {work.decode_problem}"
            return Finding("share of the data", "red", found, "prepare the data again, or copy it again to that host")
    least, most = min(w.images for w in works), max(w.images for w in works)
    each = f"{least:,}" if least == most else f"{least:,}–{most:,}"
    return Finding("share of the data", "green", f"{each} images per process, the first of them read and decoded")


def _memory(hosts: Sequence[Host], works: Sequence[Work]) -> Finding:
    for name in dict.fromkeys(h.host for h in hosts):
        here = [process for process, host in enumerate(hosts) if host.host == name]
        need, free = sum(works[p].cache_bytes for p in here), min(hosts[p].memory_free_bytes for p in here)
        if need > free:
            found = f"{name}: the cache of {works[here[0]].cache} needs {_gb(need)}, {_gb(free)} are free"
            return Finding("memory", "red", found, "use --set data.cache=auto, or more hosts")
    none = [process for process, work in enumerate(works) if work.cache == "none"]
    if none:
        found = f"{_who(none[0], hosts)} keeps nothing of its share in memory and reads the files every epoch"
        return Finding("memory", "yellow", found, "free memory, raise data.cache_gb, or use more hosts")
    need = max(w.cache_bytes for w in works)
    return Finding("memory", "green", f"cache of {works[0].cache}: up to {_gb(need)} per process")


def _decoding(hosts: Sequence[Host], works: Sequence[Work], need: float) -> Finding:
    slowest = min(range(len(works)), key=lambda process: works[process].decode_images_per_second)
    work = works[slowest]
    rate, threads = work.decode_images_per_second, work.decode_threads
    found = f"{rate:,.0f} images/s on {threads} threads ({rate / threads:,.0f} each) by {_who(slowest, hosts)}"
    if not need:
        return Finding("decoding", "green", f"{found}, the slowest; give --images-per-second to compare with a need")
    found += f"; {need / len(works):,.0f} needed"
    if rate >= need / len(works):
        return Finding("decoding", "green", found)
    if work.cache == "pixels":
        return Finding(
            "decoding", "yellow", found, "the first epoch will wait for input; later ones come from the cache"
        )
    return Finding(
        "decoding", "yellow", found, "the run will wait for input: more hosts or cores, or more memory to cache"
    )


def _compute(hosts: Sequence[Host], works: Sequence[Work]) -> Finding:
    usual = statistics.median(w.compute_seconds for w in works)
    slowest = max(range(len(works)), key=lambda process: works[process].compute_seconds)
    times = works[slowest].compute_seconds / usual
    if times >= _SLOW_COMPUTE:
        found = f"{_who(slowest, hosts)} is {times:.1f}× slower than the median process"
        return Finding(
            "compute", "yellow", found, "see what else runs there, its clock and its cooling, or leave it out"
        )
    return Finding("compute", "green", f"all within {times:.2f}× of the median process")


def _all_reduce(works: Sequence[Work]) -> Finding:
    megabytes, seconds = ALL_REDUCE_BYTES >> 20, works[0].all_reduce_seconds
    if not all(w.all_reduce_is_right for w in works):
        return Finding("all-reduce", "red", f"a sum of {megabytes} MB over the torus is wrong", "do not train on this")
    if slow := judge_links(works):
        return slow
    return Finding("all-reduce", "green", f"{megabytes} MB over the torus in {seconds * 1e3:.1f} ms")


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
