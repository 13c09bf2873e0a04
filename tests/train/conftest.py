"""Runs of one recipe compile once: this session's tests, and the processes they start, share a compilation cache."""

import os

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory):
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path_factory.mktemp("compiled"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    yield
    jax.config.update("jax_compilation_cache_dir", None)
    del os.environ["JAX_COMPILATION_CACHE_DIR"], os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"]
