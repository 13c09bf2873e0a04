// Vertical pass first: each output row is a weighted sum of whole input rows, contiguous loads that run at full vector
// width, and one row of 16-bit intermediates stays in L1 for the horizontal pass. Arithmetic, in both passes:
//
//   x = 256 (v − 128)                      a sample as int16, eight bits of fraction
//   y = Σ_k (x_k w_k + 2^14) >> 15         one rounding multiply (pmulhrsw) and one saturating add a tap
//   v = ((y + 128) >> 8) + 128
//
// Weights sum to exactly 2^15. A tap's rounding is at most 1/512 of a level, so flat areas stay exactly flat below 128
// taps (a reduction by 64); far above, they may be a level off. Sums cannot pass the int16 range below 512 taps, and
// saturate above.
#include "resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define PODIUM_X86 1
#include <immintrin.h>
#endif

namespace podium {
namespace {

constexpr int one = 32768;

void build_axis(int in_size, int out_size, Axis& axis, std::vector<double>& exact) {
  const double scale = static_cast<double>(in_size) / out_size;
  const double support = std::max(scale, 1.0);
  axis.stride = static_cast<int>(std::min<double>(2 * std::ceil(support) + 1, in_size));
  axis.longest = 0;
  at_least(axis.first, out_size);
  at_least(axis.count, out_size);
  at_least(axis.weight, static_cast<size_t>(out_size) * axis.stride);
  at_least(exact, axis.stride);

  for (int o = 0; o < out_size; ++o) {
    const double center = (o + 0.5) * scale;
    const int begin = std::max(static_cast<int>(center - support + 0.5), 0);
    const int end = std::min(static_cast<int>(center + support + 0.5), in_size);
    const int count = end - begin;
    double total = 0;
    for (int k = 0; k < count; ++k) {
      exact[k] = std::max(1.0 - std::abs((begin + k + 0.5 - center) / support), 0.0);
      total += exact[k];
    }
    // Rounding the running sum, not each weight, makes the integers sum to `one` and keeps any stretch of a long
    // filter right, where single weights round to a few units.
    int16_t* weight = axis.weight.data() + static_cast<size_t>(o) * axis.stride;
    double running = 0;
    int given = 0;
    for (int k = 0; k < count; ++k) {
      running += exact[k];
      const int upto = static_cast<int>(running / total * one + 0.5);
      weight[k] = static_cast<int16_t>(std::min(upto - given, one - 1));  // 1.0 is one unit too large for int16
      given = upto;
    }
    axis.first[o] = begin;
    axis.count[o] = count;
    axis.longest = std::max(axis.longest, count);
  }
}

int16_t rounded_product(int16_t x, int16_t w) { return static_cast<int16_t>((x * w + (1 << 14)) >> 15); }

int16_t saturating_sum(int a, int b) { return static_cast<int16_t>(std::clamp(a + b, -32768, 32767)); }

int16_t sample(uint8_t v) { return static_cast<int16_t>((v - 128) * 256); }

uint8_t level(int16_t y) { return static_cast<uint8_t>((saturating_sum(y, 128) >> 8) + 128); }

void sum_rows_portable(const uint8_t* rows, size_t stride, const int16_t* weight, int count, int size, int16_t* sums) {
  std::fill_n(sums, size, int16_t{0});
  for (int k = 0; k < count; ++k, rows += stride) {
    for (int i = 0; i < size; ++i) {
      sums[i] = saturating_sum(sums[i], rounded_product(sample(rows[i]), weight[k]));
    }
  }
}

// Even and odd taps are summed apart and then together, as the vector kernel does: it matters where sums saturate.
void sum_columns_portable(const int16_t* row, const Axis& axis, bool flip, int out_size, uint8_t* out) {
  for (int o = 0; o < out_size; ++o, out += 3) {
    const int from = flip ? out_size - 1 - o : o;
    const int16_t* x = row + axis.first[from] * 3;
    const int16_t* weight = axis.weights(from);
    for (int c = 0; c < 3; ++c) {
      int16_t sums[2] = {0, 0};
      for (int k = 0; k < axis.count[from]; ++k) {
        sums[k & 1] = saturating_sum(sums[k & 1], rounded_product(x[k * 3 + c], weight[k]));
      }
      out[c] = level(saturating_sum(sums[0], sums[1]));
    }
  }
}

#if PODIUM_X86

[[gnu::target("avx2")]] inline void add_row_bytes(__m256i bytes, __m256i weight, __m256i& low, __m256i& high) {
  const __m256i zero = _mm256_setzero_si256();
  bytes = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));  // v − 128, then into the high byte: 256 (v − 128)
  low = _mm256_adds_epi16(low, _mm256_mulhrs_epi16(_mm256_unpacklo_epi8(zero, bytes), weight));
  high = _mm256_adds_epi16(high, _mm256_mulhrs_epi16(_mm256_unpackhi_epi8(zero, bytes), weight));
}

// Unpacking works within 128-bit halves; this puts the 32 sums back in order.
[[gnu::target("avx2")]] inline void store_sums(int16_t* sums, __m256i low, __m256i high) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 16), _mm256_permute2x128_si256(low, high, 0x31));
}

[[gnu::target("avx2")]] inline __m256i load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

[[gnu::target("avx2")]] void sum_rows_avx2(const uint8_t* rows, size_t stride, const int16_t* weight, int count,
                                           int size, int16_t* sums) {
  if (size < 32) return sum_rows_portable(rows, stride, weight, count, size, sums);
  int i = 0;
  for (; i + 64 <= size; i += 64) {
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    const uint8_t* p = rows + i;
    for (int k = 0; k < count; ++k, p += stride) {
      const __m256i w = _mm256_set1_epi16(weight[k]);
      add_row_bytes(load(p), w, a, b);
      add_row_bytes(load(p + 32), w, c, d);
    }
    store_sums(sums + i, a, b);
    store_sums(sums + i + 32, c, d);
  }
  while (i < size) {
    i = std::min(i, size - 32);  // the last vector overlaps the one before instead of reading past the row
    __m256i a = _mm256_setzero_si256(), b = a;
    const uint8_t* p = rows + i;
    for (int k = 0; k < count; ++k, p += stride) add_row_bytes(load(p), _mm256_set1_epi16(weight[k]), a, b);
    store_sums(sums + i, a, b);
    i += 32;
  }
}

int column_pairs(const ResizeScratch& scratch) { return (scratch.columns.longest + 1) / 2; }

// The vector kernel makes two outputs at once, one in each 128-bit half, and takes two taps at a time: a half holds
// R G B R G B of two neighbouring pixels (and two samples more, weighted zero).
void pack_columns(const Axis& axis, bool flip, int out_size, ResizeScratch& scratch) {
  const int pairs = (axis.longest + 1) / 2, outputs = (out_size + 3) / 4 * 4;
  const size_t packed_size = static_cast<size_t>(outputs) * pairs * 8;
  std::fill_n(at_least(scratch.packed, packed_size), packed_size, int16_t{0});
  at_least(scratch.offset, outputs);
  for (int o = 0; o < outputs; ++o) {
    const int clipped = std::min(o, out_size - 1);
    const int from = flip ? out_size - 1 - clipped : clipped;
    scratch.offset[o] = axis.first[from] * 3;
    const int16_t* weight = axis.weights(from);
    int16_t* packed = scratch.packed.data() + static_cast<size_t>(o / 2) * pairs * 16 + (o % 2) * 8;
    for (int k = 0; k < axis.count[from]; ++k) std::fill_n(packed + k / 2 * 16 + k % 2 * 3, 3, weight[k]);
  }
}

[[gnu::target("avx2"), gnu::always_inline]] inline __m256i sum_two_outputs(const int16_t* row, const int* offset,
                                                                           const int16_t* packed, int pairs) {
  const int16_t *first = row + offset[0], *second = row + offset[1];
  __m256i sums = _mm256_setzero_si256();
  for (int p = 0; p < pairs; ++p, first += 6, second += 6, packed += 16) {
    const __m256i x =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first))),
                                _mm_loadu_si128(reinterpret_cast<const __m128i*>(second)), 1);
    sums = _mm256_adds_epi16(sums, _mm256_mulhrs_epi16(x, load(packed)));
  }
  return _mm256_adds_epi16(sums, _mm256_srli_si256(sums, 6));  // even taps + odd taps
}

// `known` pairs of taps where it is not 0: the loop over them then unrolls, a quarter of the time of short filters.
template <int known>
[[gnu::target("avx2")]] void sum_columns_avx2(const int16_t* row, const ResizeScratch& scratch, int out_size,
                                              uint8_t* out) {
  const int pairs = known ? known : column_pairs(scratch);
  const __m256i half = _mm256_set1_epi16(128);
  const __m128i rgb = _mm_setr_epi8(0, 1, 2, 8, 9, 10, 4, 5, 6, 12, 13, 14, -1, -1, -1, -1);
  const int16_t* packed = scratch.packed.data();
  const int* offset = scratch.offset.data();
  for (int o = 0; o < out_size; o += 4, packed += pairs * 32, offset += 4, out += 12) {
    const __m256i a = sum_two_outputs(row, offset, packed, pairs);
    const __m256i b = sum_two_outputs(row, offset + 2, packed + pairs * 16, pairs);
    const __m256i sums = _mm256_unpacklo_epi64(a, b);  // outputs 0 2 | 1 3
    const __m256i levels = _mm256_srai_epi16(_mm256_adds_epi16(sums, half), 8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(levels), _mm256_extracti128_si256(levels, 1));
    bytes = _mm_xor_si128(bytes, _mm_set1_epi8(-128));
    // bytes are outputs 0 2 1 3, each R G B and one to drop
    bytes = _mm_shuffle_epi8(bytes, rgb);
    const int outputs = std::min(4, out_size - o);
    if (outputs == 4) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out), bytes);
      const int32_t rest = _mm_extract_epi32(bytes, 2);
      std::memcpy(out + 8, &rest, 4);
    } else {
      alignas(16) uint8_t last[16];
      _mm_store_si128(reinterpret_cast<__m128i*>(last), bytes);
      std::memcpy(out, last, static_cast<size_t>(outputs) * 3);
    }
  }
}

auto* columns_kernel(const ResizeScratch& scratch) {
  constexpr decltype(&sum_columns_avx2<0>) kernels[] = {sum_columns_avx2<0>, sum_columns_avx2<1>, sum_columns_avx2<2>,
                                                        sum_columns_avx2<3>, sum_columns_avx2<4>};
  const int pairs = column_pairs(scratch);
  return kernels[pairs <= 4 ? pairs : 0];
}

#endif

void build_axes(int w, int h, int out_size, ResizeScratch& scratch) {
  build_axis(h, out_size, scratch.rows, scratch.exact);
  build_axis(w, out_size, scratch.columns, scratch.exact);
  // The vector kernel reads up to a filter and a vector beyond the row, with weight zero.
  at_least(scratch.row, static_cast<size_t>(w + scratch.columns.longest) * 3 + 16);
}

}  // namespace

void resize_portable(const uint8_t* pixels, size_t stride, int w, int h, bool flip, int out_size, uint8_t* out,
                     ResizeScratch& scratch) {
  build_axes(w, h, out_size, scratch);
  const Axis& rows = scratch.rows;
  int16_t* row = scratch.row.data();
  for (int o = 0; o < out_size; ++o, out += static_cast<size_t>(out_size) * 3) {
    sum_rows_portable(pixels + rows.first[o] * stride, stride, rows.weights(o), rows.count[o], w * 3, row);
    sum_columns_portable(row, scratch.columns, flip, out_size, out);
  }
}

void resize(const uint8_t* pixels, size_t stride, int w, int h, bool flip, int out_size, uint8_t* out,
            ResizeScratch& scratch) {
#if PODIUM_X86
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) {
    build_axes(w, h, out_size, scratch);
    pack_columns(scratch.columns, flip, out_size, scratch);
    const Axis& rows = scratch.rows;
    int16_t* row = scratch.row.data();
    const auto sum_columns = columns_kernel(scratch);
    for (int o = 0; o < out_size; ++o, out += static_cast<size_t>(out_size) * 3) {
      sum_rows_avx2(pixels + rows.first[o] * stride, stride, rows.weights(o), rows.count[o], w * 3, row);
      sum_columns(row, scratch, out_size, out);
    }
    return;
  }
#endif
  resize_portable(pixels, stride, w, h, flip, out_size, out, scratch);
}

}  // namespace podium
