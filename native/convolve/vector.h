// Vectors of floats in the compiler's own notation, as wide as the instructions that a file is built for: 16 lanes with
// AVX-512, 8 with AVX2, otherwise 4 (SSE2, NEON). Everything here is inside a namespace of that name, so that the three
// builds of one source can be linked together.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PODIUM_INLINE [[gnu::always_inline]] static inline
#define PODIUM_INLINE_MEMBER [[gnu::always_inline]] inline
#define PODIUM_UNROLL _Pragma("GCC unroll 64")

namespace podium::PODIUM_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(kLanes * sizeof(float))));

PODIUM_INLINE Vec load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

PODIUM_INLINE void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }

// x − 0 is x, also for −0, and the compiler knows; x + 0 would be an addition.
PODIUM_INLINE Vec broadcast(float value) { return value - Vec{}; }

// The first `lanes` of a vector; the others are 0 when read, and left alone when written.
#if defined(__AVX512F__)
PODIUM_INLINE Vec load_part(const float* from, int lanes) {
  return (Vec)_mm512_maskz_loadu_ps((__mmask16)((1u << lanes) - 1), from);
}
PODIUM_INLINE void store_part(float* to, Vec v, int lanes) {
  _mm512_mask_storeu_ps(to, (__mmask16)((1u << lanes) - 1), (__m512)v);
}
#elif defined(__AVX2__)
PODIUM_INLINE __m256i part_mask(int lanes) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
PODIUM_INLINE Vec load_part(const float* from, int lanes) { return (Vec)_mm256_maskload_ps(from, part_mask(lanes)); }
PODIUM_INLINE void store_part(float* to, Vec v, int lanes) { _mm256_maskstore_ps(to, part_mask(lanes), (__m256)v); }
#else
PODIUM_INLINE Vec load_part(const float* from, int lanes) {
  Vec v{};
  for (int i = 0; i < lanes; ++i) v[i] = from[i];
  return v;
}
PODIUM_INLINE void store_part(float* to, Vec v, int lanes) {
  for (int i = 0; i < lanes; ++i) to[i] = v[i];
}
#endif

PODIUM_INLINE Vec load_lanes(const float* from, int lanes) {
  return lanes >= kLanes ? load(from) : load_part(from, lanes);
}
PODIUM_INLINE void store_lanes(float* to, Vec v, int lanes) {
  if (lanes >= kLanes)
    store(to, v);
  else
    store_part(to, v, lanes);
}

PODIUM_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }

}  // namespace podium::PODIUM_ISA
