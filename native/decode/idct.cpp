// Dequantization and the inverse DCT of libjpeg's ISLOW, to the bit. The reference is what libjpeg-turbo's vector code
// does, also where coefficients are so large that it wraps or saturates at 16 bits:
//
//   coefficient × quantizer, in0 ± in4, in7 + in3 and in5 + in1 wrap;
//   both passes saturate their results to 16 bits, and the samples saturate to 8;
//   a block whose rows 1 … 7 are zero skips the first pass, and wraps where it would saturate.
#include <algorithm>
#include <cstring>

#include "kernels.h"

#if PODIUM_X86
#include <immintrin.h>
#endif

namespace podium {
namespace {

// In 1/8192: the constants of jidctint.c, summed up for products of two at a time.
constexpr int c_0541 = 4433, c_0899 = 7373, c_1175 = 9633, c_2562 = 20995;
constexpr int even[2][2] = {{c_0541 + 6270, c_0541}, {c_0541, c_0541 - 15137}};      // of in2, in6
constexpr int cross[2][2] = {{c_1175 - 16069, c_1175}, {c_1175, c_1175 - 3196}};     // of z3, z4
constexpr int odd71[2][2] = {{2446 - c_0899, -c_0899}, {-c_0899, 12299 - c_0899}};   // of in7, in1
constexpr int odd53[2][2] = {{16819 - c_2562, -c_2562}, {-c_2562, 25172 - c_2562}};  // of in5, in3
constexpr int shift_1 = 11, shift_2 = 18;

int16_t wrapped(int value) { return static_cast<int16_t>(static_cast<uint16_t>(value)); }

int product(const int (&c)[2], int a, int b) { return c[0] * a + c[1] * b; }

int16_t scaled(int value, int shift) {
  return static_cast<int16_t>(std::clamp((value + (1 << (shift - 1))) >> shift, -32768, 32767));
}

// Eight values, `stride` apart. No sum passes 2.12e9, so int holds them all.
void transform_line(int16_t* line, int stride, int shift) {
  const auto in = [&](int i) { return static_cast<int>(line[i * stride]); };
  const int sum = wrapped(in(0) + in(4)) * 8192, difference = wrapped(in(0) - in(4)) * 8192;
  const int e3 = product(even[0], in(2), in(6)), e2 = product(even[1], in(2), in(6));
  const int z3 = wrapped(in(7) + in(3)), z4 = wrapped(in(5) + in(1));
  const int x3 = product(cross[0], z3, z4), x4 = product(cross[1], z3, z4);
  const int o0 = product(odd71[0], in(7), in(1)) + x3, o3 = product(odd71[1], in(7), in(1)) + x4;
  const int o1 = product(odd53[0], in(5), in(3)) + x4, o2 = product(odd53[1], in(5), in(3)) + x3;
  const int inner[4] = {sum + e3, difference + e2, difference - e2, sum - e3}, outer[4] = {o3, o2, o1, o0};
  for (int i = 0; i < 4; ++i) {
    line[i * stride] = scaled(inner[i] + outer[i], shift);
    line[(7 - i) * stride] = scaled(inner[i] - outer[i], shift);
  }
}

void transform_block(int16_t* block, const int16_t* quant, uint8_t* to, size_t stride) {
  const bool flat = std::all_of(block + 8, block + 64, [](int16_t c) { return c == 0; });
  int16_t work[64];
  for (int i = 0; i < 64; ++i) work[i] = wrapped(block[i] * quant[i]);
  std::memset(block, 0, 64 * sizeof *block);
  for (int c = 0; c < 8; ++c) {
    if (!flat) {
      transform_line(work + c, 8, shift_1);
    } else {
      for (int r = 7; r >= 0; --r) work[r * 8 + c] = wrapped(work[c] * 4);
    }
  }
  for (int r = 0; r < 8; ++r) {
    transform_line(work + r * 8, 1, shift_2);
    for (int c = 0; c < 8; ++c) to[c] = static_cast<uint8_t>(std::clamp<int>(work[r * 8 + c], -128, 127) + 128);
    to += stride;
  }
}

}  // namespace

void transform_pair_plain(int16_t* blocks, const int16_t* quant, uint8_t* to, size_t stride) {
  transform_block(blocks, quant, to, stride);
  transform_block(blocks + 64, quant, to + 8, stride);
}

#if PODIUM_X86

namespace {

// A vector holds a row (or column) of the first block in its low half, of the second in its high half.
using V = __m256i;

PODIUM_TARGET_AVX2 PODIUM_INLINE V pair(const int (&c)[2]) {
  return _mm256_set1_epi32(
      static_cast<int>(static_cast<uint32_t>(c[1]) << 16 | (static_cast<uint32_t>(c[0]) & 0xFFFF)));
}

// 32-bit numbers of a row: its first and its last four columns.
struct Wide {
  V low, high;
  PODIUM_TARGET_AVX2 PODIUM_INLINE Wide operator+(const Wide& o) const {
    return {_mm256_add_epi32(low, o.low), _mm256_add_epi32(high, o.high)};
  }
  PODIUM_TARGET_AVX2 PODIUM_INLINE Wide operator-(const Wide& o) const {
    return {_mm256_sub_epi32(low, o.low), _mm256_sub_epi32(high, o.high)};
  }
};

PODIUM_TARGET_AVX2 PODIUM_INLINE Wide interleave(V a, V b) {
  return {_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)};
}

PODIUM_TARGET_AVX2 PODIUM_INLINE Wide product(const int (&c)[2], const Wide& ab) {
  return {_mm256_madd_epi16(ab.low, pair(c)), _mm256_madd_epi16(ab.high, pair(c))};
}

// a × 8192, and the half that rounds the shift to come.
template <int shift>
PODIUM_TARGET_AVX2 PODIUM_INLINE Wide center_term(V a) {
  const Wide top = interleave(_mm256_setzero_si256(), a);
  const V half = _mm256_set1_epi32(1 << (shift - 1));
  return Wide{_mm256_srai_epi32(top.low, 3), _mm256_srai_epi32(top.high, 3)} + Wide{half, half};
}

template <int shift>
PODIUM_TARGET_AVX2 PODIUM_INLINE V shifted(const Wide& a) {
  return _mm256_packs_epi32(_mm256_srai_epi32(a.low, shift), _mm256_srai_epi32(a.high, shift));
}

template <int shift>
PODIUM_TARGET_AVX2 PODIUM_INLINE void transform_lines(V (&in)[8]) {
  const Wide in26 = interleave(in[2], in[6]), in71 = interleave(in[7], in[1]), in53 = interleave(in[5], in[3]);
  const Wide z34 = interleave(_mm256_add_epi16(in[7], in[3]), _mm256_add_epi16(in[5], in[1]));
  const Wide sum = center_term<shift>(_mm256_add_epi16(in[0], in[4]));
  const Wide difference = center_term<shift>(_mm256_sub_epi16(in[0], in[4]));
  const Wide e3 = product(even[0], in26), e2 = product(even[1], in26);
  const Wide x3 = product(cross[0], z34), x4 = product(cross[1], z34);
  const Wide o0 = product(odd71[0], in71) + x3, o3 = product(odd71[1], in71) + x4;
  const Wide o1 = product(odd53[0], in53) + x4, o2 = product(odd53[1], in53) + x3;
  in[0] = shifted<shift>(sum + e3 + o3);
  in[7] = shifted<shift>(sum + e3 - o3);
  in[1] = shifted<shift>(difference + e2 + o2);
  in[6] = shifted<shift>(difference + e2 - o2);
  in[2] = shifted<shift>(difference - e2 + o1);
  in[5] = shifted<shift>(difference - e2 - o1);
  in[3] = shifted<shift>(sum - e3 + o0);
  in[4] = shifted<shift>(sum - e3 - o0);
}

PODIUM_TARGET_AVX2 PODIUM_INLINE void transpose(V (&r)[8]) {
  V a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_unpacklo_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm256_unpackhi_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm256_unpacklo_epi32(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm256_unpackhi_epi32(a[4 * i + 1], a[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    r[2 * i] = _mm256_unpacklo_epi64(b[i], b[4 + i]);
    r[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[4 + i]);
  }
}

// Columns of samples − 128 to 16 × 8 bytes.
PODIUM_TARGET_AVX2 PODIUM_INLINE void store_columns(const V (&c)[8], uint8_t* to, size_t stride) {
  const V a = _mm256_packs_epi16(c[0], c[2]), b = _mm256_packs_epi16(c[1], c[3]);
  const V d = _mm256_packs_epi16(c[4], c[6]), e = _mm256_packs_epi16(c[5], c[7]);
  const V c01 = _mm256_unpacklo_epi8(a, b), c23 = _mm256_unpackhi_epi8(a, b);
  const V c45 = _mm256_unpacklo_epi8(d, e), c67 = _mm256_unpackhi_epi8(d, e);
  const V upper_left = _mm256_unpacklo_epi16(c01, c23), lower_left = _mm256_unpackhi_epi16(c01, c23);
  const V upper_right = _mm256_unpacklo_epi16(c45, c67), lower_right = _mm256_unpackhi_epi16(c45, c67);
  const V rows[4] = {_mm256_unpacklo_epi32(upper_left, upper_right), _mm256_unpackhi_epi32(upper_left, upper_right),
                     _mm256_unpacklo_epi32(lower_left, lower_right), _mm256_unpackhi_epi32(lower_left, lower_right)};
  const V center = _mm256_set1_epi8(-128);
  for (const V& two : rows) {
    const V side_by_side = _mm256_permute4x64_epi64(_mm256_xor_si256(two, center), 0xD8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(side_by_side));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + stride), _mm256_extracti128_si256(side_by_side, 1));
    to += 2 * stride;
  }
}

PODIUM_TARGET_AVX2 PODIUM_INLINE void transform_pair(int16_t* blocks, const int16_t* quant, uint8_t* to,
                                                     size_t stride) {
  V in[8];
  for (int r = 0; r < 8; ++r) {
    const auto* low = reinterpret_cast<const __m128i*>(blocks + 8 * r);
    const auto* high = reinterpret_cast<const __m128i*>(blocks + 64 + 8 * r);
    const auto* by = reinterpret_cast<const __m128i*>(quant + 8 * r);
    const V both = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
    in[r] = _mm256_mullo_epi16(both, _mm256_broadcastsi128_si256(_mm_loadu_si128(by)));
  }
  // Where 4 × row 0 leaves 16 bits, it matters whether the rest is zero. No sound image goes there.
  const V extreme = _mm256_xor_si256(_mm256_srai_epi16(in[0], 13), _mm256_srai_epi16(in[0], 15));
  if (__builtin_expect(!_mm256_testz_si256(extreme, extreme), 0)) {
    return transform_pair_plain(blocks, quant, to, stride);
  }
  for (int i = 0; i < 8; ++i) {
    _mm256_storeu_si256(reinterpret_cast<V*>(blocks + 16 * i), _mm256_setzero_si256());
  }
  transform_lines<shift_1>(in);
  transpose(in);
  transform_lines<shift_2>(in);
  store_columns(in, to, stride);
}

}  // namespace

PODIUM_TARGET_AVX2 void transform_pair_avx2(int16_t* blocks, const int16_t* quant, uint8_t* to, size_t stride) {
  transform_pair(blocks, quant, to, stride);
}

// The same operations, on 32 registers: a third less time than with 16, which spill.
PODIUM_TARGET_AVX512 void transform_pair_avx512(int16_t* blocks, const int16_t* quant, uint8_t* to, size_t stride) {
  transform_pair(blocks, quant, to, stride);
}

#endif

}  // namespace podium
