#include "bits.h"

#if PODIUM_X86
#include <immintrin.h>
#endif

namespace podium {

// Entropy-coded data hold FF as FF 00; FF and anything else is a marker, where they end.
size_t unstuff_plain(const uint8_t* from, size_t bytes, uint8_t* to) {
  const uint8_t *const end = from + bytes, *const begin = to;
  while (from < end) {
    const auto left = static_cast<size_t>(end - from);
    const auto* found = static_cast<const uint8_t*>(std::memchr(from, 0xFF, left));
    const size_t upto = found ? static_cast<size_t>(found - from) + 1 : left;  // with the FF itself
    std::memcpy(to, from, upto);
    from += upto;
    to += upto;
    if (found && from < end && *from++ != 0) return static_cast<size_t>(to - 1 - begin);
  }
  return static_cast<size_t>(to - begin);
}

#if PODIUM_X86

// Writes up to 32 bytes more than it returns.
PODIUM_TARGET_AVX2 size_t unstuff_avx2(const uint8_t* from, size_t bytes, uint8_t* to) {
  const uint8_t *const end = from + bytes, *const begin = to;
  const __m256i ones = _mm256_set1_epi8(-1);
  while (end - from > 32) {
    const __m256i vector = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), vector);
    const auto found = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(vector, ones)));
    if (found == 0) {
      from += 32;
      to += 32;
      continue;
    }
    const int upto = __builtin_ctz(found) + 1;  // the FF itself is stored
    from += upto;
    to += upto;
    if (*from++ != 0) return static_cast<size_t>(to - 1 - begin);
  }
  return static_cast<size_t>(to - begin) + unstuff_plain(from, static_cast<size_t>(end - from), to);
}

#endif

}  // namespace podium
