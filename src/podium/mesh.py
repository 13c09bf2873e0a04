"""Maps devices onto a 2-D torus whose mesh axes are named once, here. A batch-norm tile (`recipe.torus`) is a block of
sub-axes, so every collective in Podium names axes and none needs index groups. Only `find_devices` touches JAX's
runtime.
"""

import contextlib
import importlib
import math
import os
import pkgutil
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podium.errors import UserError
from podium.host.accelerators import accelerator_files
from podium.processes.join import process_count
from podium.recipe.schema import Recipe
from podium.recipe.torus import Shape, Torus, lay_out, most_square, parse_torus

# (tile_row, row) runs down the torus, (tile_col, col) along it and (tile_lane, lane) over the devices of one place;
# (row, col, lane) is the inside of one tile. In this order the devices of a tile are neighbours in the batch as well,
# so a batch-norm group is always a contiguous run of the global batch, and the same run at every device count.
AXES = ("tile_row", "tile_col", "tile_lane", "row", "col", "lane")
Y_AXES = ("tile_row", "row")
X_AXES = ("tile_col", "col")
LANE_AXES = ("tile_lane", "lane")
TILE_AXES = ("row", "col", "lane")


def build_mesh(torus: Torus, devices: Sequence[jax.Device]) -> Mesh:
    """The mesh over `devices`, which are listed row by row, the lanes of a place together: neighbours in the list are
    neighbours on the wire."""
    if len(devices) != torus.chips:
        raise UserError(
            f"torus {torus} needs {torus.chips} devices and {len(devices)} are there; "
            f"use --set torus=1x{len(devices)} or add devices"
        )
    cut = [part for whole, tile in zip(torus.shape, torus.tile, strict=True) for part in (whole // tile, tile)]
    grid = np.asarray(devices, dtype=object).reshape(cut)
    return Mesh(grid.transpose(0, 2, 4, 1, 3, 5), AXES, axis_types=(jax.sharding.AxisType.Auto,) * len(AXES))


def recipe_mesh(recipe: Recipe) -> Mesh:
    """The mesh of `recipe.torus` over this program's devices, in which a batch-norm span is a tile of neighbours.

    >>> from podium import load_recipe, recipe_mesh
    >>> recipe_mesh(load_recipe("demo", ["torus=1x2"])).devices.size
    2
    """
    shape, devices = find_devices(recipe.torus)
    return build_mesh(lay_out(shape, recipe.batch_global, recipe.model.norm_span), devices)


def pass_over_compilers() -> None:
    """Where there is no accelerator, libtpu and the CUDA plugin are there for `podium plan`: JAX would have them look
    for devices, complain and leave log files. Plugins of other makers are left alone."""
    plugins, chosen = _plugins(), os.environ.get("JAX_PLATFORMS", "")
    for_cuda = {name for name in plugins if "cuda" in name}
    if not (accelerator_files() or chosen or plugins - for_cuda):
        jax.config.update("jax_platforms", "cpu")
    if not ("cuda" in chosen or "gpu" in chosen) and (chosen or not accelerator_files()):
        for name in for_cuda:  # JAX starts every plugin, also those of platforms that it was told to leave out
            importlib.import_module(name).__dict__["initialize"] = lambda: None


def _plugins() -> set[str]:
    """The modules of JAX's plugins, found where JAX looks for them."""
    spec = find_spec("jax_plugins")
    places = spec.submodule_search_locations if spec else None
    found = {module.name for module in pkgutil.iter_modules(places or [], "jax_plugins.")}
    return found | {point.value for point in metadata.entry_points(group="jax_plugins")}


def find_devices(torus_text: str) -> tuple[Shape, Sequence[jax.Device]]:
    """The shape and devices for a recipe's `torus`. Where JAX finds only a CPU, it poses as the chips asked for."""
    pass_over_compilers()
    if torus_text != "auto":
        shape = parse_torus(torus_text)
        with contextlib.suppress(RuntimeError):  # JAX has started already: what it has then is what there is
            jax.config.update(
                "jax_num_cpu_devices", max(1, shape.chips // process_count())
            )  # each process brings its share
    devices = jax.devices()
    if torus_text == "auto":
        shape = natural_shape(devices)
    if shape.chips > len(devices):
        raise UserError(
            f"torus={torus_text} needs {shape.chips} devices and {len(devices)} are there "
            f"({devices[0].platform}); use --set torus={natural_shape(devices)}"
        )
    if shape.chips < len(devices) and jax.process_count() > 1:
        raise UserError(
            f"torus={torus_text} has {shape.chips} chips and {jax.process_count()} processes bring {len(devices)} "
            f"devices; use --set torus={natural_shape(devices)}, so that each process has work"
        )
    return shape, in_wire_order(devices)[: shape.chips]


def natural_shape(devices: Sequence[jax.Device]) -> Shape:
    """The shape for `torus = auto`: TPU chips where they are on the pod, with their cores as lanes; GPU hosts in a row,
    with their GPUs as lanes; other hosts in a square with their devices as lanes, or those of a single one in a square.
    """
    if devices[0].platform == "tpu":
        x, y, *z = (len(set(places)) for places in zip(*(device.coords for device in devices), strict=True))
        places = Shape(y * math.prod(z), x)
    elif devices[0].platform == "gpu":
        of_hosts = Counter(_gpu_hosts(devices))
        places = Shape(1, len(of_hosts) if len(set(of_hosts.values())) == 1 else len(devices))
    else:
        hosts = len({device.process_index for device in devices})
        places = Shape(*most_square(hosts if hosts > 1 and len(devices) % hosts == 0 else len(devices)))
    lanes = len(devices) // places.chips
    return Shape(*places[:2], lanes) if lanes * places.chips == len(devices) else Shape(*most_square(len(devices)))


def in_wire_order(devices: Sequence[jax.Device]) -> Sequence[jax.Device]:
    """TPUs row by row; GPUs host by host, so that those joined by NVLink are neighbours; others as JAX lists them,
    process by process."""
    if devices[0].platform == "tpu":
        return sorted(devices, key=lambda d: (*reversed(d.coords), getattr(d, "core_on_chip", 0)))
    if devices[0].platform == "gpu":
        by_process = sorted(devices, key=lambda device: (device.process_index, device.id))
        hosts = _gpu_hosts(by_process)
        order = {host: k for k, host in enumerate(dict.fromkeys(hosts))}  # by the first process on each
        return [device for _, device in sorted(zip(hosts, by_process, strict=True), key=lambda pair: order[pair[0]])]
    return devices


def _gpu_hosts(devices: Sequence[jax.Device]) -> list[Any]:
    """The host of each GPU. JAX numbers hosts, by their boot id, as partitions. Where it sees only one (a rack whose
    nodes are all joined by NVLink, or a single host), processes with several GPUs stand for hosts."""
    partitions = [_partition(device) for device in devices]
    processes = [device.process_index for device in devices]
    one_each = len(set(processes)) == len(devices)
    return partitions if len(set(partitions)) > 1 or one_each else processes


def _partition(gpu: jax.Device) -> int:
    # A described GPU has coords = (partition, process in it, GPU in that), and 0 for its slice, whatever it is.
    return gpu.coords[0] if hasattr(gpu, "coords") else getattr(gpu, "slice_index", 0)


def is_cpu(mesh: Mesh) -> bool:
    return mesh.devices.flat[0].platform == "cpu"


def is_gpu(mesh: Mesh) -> bool:
    return mesh.devices.flat[0].platform == "gpu"


def is_tpu(mesh: Mesh) -> bool:
    return mesh.devices.flat[0].platform == "tpu"


def batch_sharding(mesh: Mesh, leading: int = 0) -> NamedSharding:
    """Examples over all chips; `leading` dimensions before them (the steps of a dispatch) are not split."""
    return NamedSharding(mesh, PartitionSpec(*(None,) * leading, AXES))


def replicated_sharding(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())
