// Files and indexes changed at random, the same way each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace podium_fuzz {

using Bytes = std::vector<uint8_t>;

// SplitMix64: small, and the same on every platform.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
};

// Up to six changes of the kinds that break parsers: bits, bytes, stretches, markers, sizes, ends.
Bytes mutated(Bytes file, const std::vector<Bytes>& seeds, Random& random);

}  // namespace podium_fuzz
