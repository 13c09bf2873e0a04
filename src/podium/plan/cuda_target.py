"""Describes a GPU to XLA's compiler, which then needs none: the text of a GpuTargetConfigProto, written from the
figures in `gpus.toml`. It knows nothing of clusters and starts no compiler.
"""

import tomllib
from importlib import resources
from typing import Any

# Numbers of XLA's types (xla_data.proto).
_TYPES = {"s8": 2, "u8": 6, "s32": 4, "u32": 8, "f16": 10, "f32": 11, "f64": 12, "bf16": 16}
CARDS: dict[str, dict[str, Any]] = tomllib.loads(resources.files("podium.plan").joinpath("gpus.toml").read_text())

# The same for every card since Volta.
_LIMITS = """
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  device_address_bits: 64
  ecc_enabled: true
  device_vendor: "NVIDIA Corporation"
  runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0"
  driver_version: "13.0.0"
  dnn_version: "9.10.0"
"""


def target_config(card: str, *, hopper: bool = False) -> str:
    """The proto's text for a card of `gpus.toml`; `hopper`: as if it were of that generation."""
    of = CARDS[card] | ({"capability": 9, "accelerated": True} if hopper else {})
    scalar = {name: (of["clock_ghz"], of["scalar_units"][name], ops) for name, ops in of["scalar_ops"].items()}
    scalar |= {name: (of["clock_ghz"], 64, 1) for name in ("s32", "u32")}
    matrix = {name: (of["matrix_clock_ghz"], 4, ops) for name, ops in of["matrix_ops"].items()}
    return f"""gpu_device_info {{{_LIMITS}
  core_count: {of["cores"]}
  fpus_per_core: {of["fpus_per_core"]}
  clock_rate_ghz: {of["clock_ghz"]}
  memory_bandwidth: {of["memory_bandwidth"]}
  device_memory_size: {of["memory_bytes"]}
  l2_cache_size: {of["l2_bytes"]}
  shared_memory_per_core: {of["shared_memory_per_core"]}
  shared_memory_per_block_optin: {of["shared_memory_per_block"]}
  cuda_compute_capability {{
    major: {of["capability"]}
    feature_extension: {"ACCELERATED_FEATURES" if of["accelerated"] else "NONE"}
  }}
  name: "{of["name"]}"
  scalar_unit_description {{{_rates(scalar)}}}
  matrix_unit_description {{{_rates(matrix)}}}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{of["name"]}"
"""


def _rates(units: dict[str, tuple[float, int, int]]) -> str:
    return "".join(
        f" rate_infos {{ key: {_TYPES[name]} value {{ clock_rate_ghz: {clock} units_per_core: {count} "
        f"ops_per_clock: {ops} }} }}"
        for name, (clock, count, ops) in units.items()
    )
