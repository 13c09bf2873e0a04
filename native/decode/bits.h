// The bits of entropy-coded data, the next one on top of a 64-bit word. `unstuff` has removed the zero after every FF,
// so that a refill is one load without a branch:
//
//   word    the next bits: at least 56 after a refill
//   at      the first byte that is not wholly in the word
//   used    63 − the number of bits known; it grows as bits are taken
//
// A refill reads up to 8 bytes past the last one needed. A block of garbage takes at most 252 bytes before the place
// is compared with the end of the data, so `padding` zeros follow all data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels.h"

namespace podium {

constexpr size_t padding = 320;

PODIUM_INLINE uint64_t load_big_endian(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

PODIUM_INLINE void refill_bits(uint64_t& word, const uint8_t*& at, uint32_t& state) {
  const uint32_t used = state & 0xFF;
  word |= load_big_endian(at) >> (~used & 63);
  at += used >> 3;
  state &= ~uint32_t{0xF8};
}

struct Bits {
  uint64_t word;
  const uint8_t* at;
  uint32_t state;  // `used` in the low byte; a block's place in the next one (see huffman.h)

  void open(const uint8_t* data) {
    word = 0;
    at = data;
    state = 63;
    refill_bits(word, at, state);
  }
  void take(uint32_t bits) {
    word <<= bits;
    state += bits;
  }
  // Bits taken since open().
  size_t taken(const uint8_t* data) const { return static_cast<size_t>(at - data) * 8 + (state & 0xFF) - 63; }
};

}  // namespace podium
