// YCbCr to RGB as libjpeg does it, to the bit:
//
//   R = Y + 1.402 Cr,  G = Y − 0.34414 Cb − 0.71414 Cr,  B = Y + 1.772 Cb     (Cb and Cr less 128)
//
// with each of the three terms added to Y rounded to a whole number, in 1/65536.
#include <algorithm>
#include <cstring>

#include "kernels.h"

#if PODIUM_AVX2
#include <immintrin.h>
#endif

namespace podium {
namespace {

constexpr int half = 1 << 15;

uint8_t level(int v) { return static_cast<uint8_t>(std::clamp(v, 0, 255)); }

}  // namespace

void rgb_from_ycc_plain(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, uint8_t* rgb) {
  for (int i = 0; i < n; ++i, rgb += 3) {
    const int blue = cb[i] - 128, red = cr[i] - 128;
    rgb[0] = level(y[i] + ((91881 * red + half) >> 16));
    rgb[1] = level(y[i] + ((-22554 * blue - 46802 * red + half) >> 16));
    rgb[2] = level(y[i] + ((116130 * blue + half) >> 16));
  }
}

void rgb_from_grey_plain(const uint8_t* y, int n, uint8_t* rgb) {
  for (int i = 0; i < n; ++i, rgb += 3) rgb[0] = rgb[1] = rgb[2] = y[i];
}

#if PODIUM_AVX2

namespace {

PODIUM_TARGET_AVX2 PODIUM_INLINE __m256i words(const uint8_t* p) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

PODIUM_TARGET_AVX2 PODIUM_INLINE __m128i bytes(__m256i words) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x08);
  return _mm256_castsi256_si128(packed);
}

// round(a × factor / 65536): the product's high word of 2 a, halved with rounding.
PODIUM_TARGET_AVX2 PODIUM_INLINE __m256i rounded(__m256i a, int factor) {
  const __m256i high = _mm256_mulhi_epi16(_mm256_add_epi16(a, a), _mm256_set1_epi16(static_cast<int16_t>(factor)));
  return _mm256_srai_epi16(_mm256_add_epi16(high, _mm256_set1_epi16(1)), 1);
}

PODIUM_TARGET_AVX2 PODIUM_INLINE __m256i green(__m256i blue, __m256i red) {
  const __m256i factors = _mm256_set1_epi32(static_cast<int>(18734u << 16 | (static_cast<uint32_t>(-22554) & 0xFFFF)));
  const __m256i rounding = _mm256_set1_epi32(half);
  const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(blue, red), factors);
  const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(blue, red), factors);
  const __m256i sum = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, rounding), 16),
                                         _mm256_srai_epi32(_mm256_add_epi32(high, rounding), 16));
  return _mm256_sub_epi16(sum, red);
}

// One of the three vectors that 16 pixels fill: where its bytes come from in R, G and B; x is "not from here".
constexpr char x = -1;
alignas(16) constexpr char from[3][3][16] = {
    {{0, x, x, 1, x, x, 2, x, x, 3, x, x, 4, x, x, 5},
     {x, 0, x, x, 1, x, x, 2, x, x, 3, x, x, 4, x, x},
     {x, x, 0, x, x, 1, x, x, 2, x, x, 3, x, x, 4, x}},
    {{x, x, 6, x, x, 7, x, x, 8, x, x, 9, x, x, 10, x},
     {5, x, x, 6, x, x, 7, x, x, 8, x, x, 9, x, x, 10},
     {x, 5, x, x, 6, x, x, 7, x, x, 8, x, x, 9, x, x}},
    {{x, 11, x, x, 12, x, x, 13, x, x, 14, x, x, 15, x, x},
     {x, x, 11, x, x, 12, x, x, 13, x, x, 14, x, x, 15, x},
     {10, x, x, 11, x, x, 12, x, x, 13, x, x, 14, x, x, 15}}};

PODIUM_TARGET_AVX2 PODIUM_INLINE __m128i chosen(__m128i bytes, const char (&places)[16]) {
  return _mm_shuffle_epi8(bytes, _mm_load_si128(reinterpret_cast<const __m128i*>(places)));
}

PODIUM_TARGET_AVX2 PODIUM_INLINE void store_rgb(__m128i r, __m128i g, __m128i b, uint8_t* to) {
  for (int i = 0; i < 3; ++i) {
    const __m128i red_green = _mm_or_si128(chosen(r, from[i][0]), chosen(g, from[i][1]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + i, _mm_or_si128(red_green, chosen(b, from[i][2])));
  }
}

PODIUM_TARGET_AVX2 PODIUM_INLINE void sixteen_ycc(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* to) {
  const __m256i center = _mm256_set1_epi16(128), luma = words(y);
  const __m256i blue = _mm256_sub_epi16(words(cb), center), red = _mm256_sub_epi16(words(cr), center);
  const __m256i r = _mm256_add_epi16(_mm256_add_epi16(luma, red), rounded(red, 26345));
  const __m256i g = _mm256_add_epi16(luma, green(blue, red));
  const __m256i b = _mm256_add_epi16(_mm256_add_epi16(luma, _mm256_add_epi16(blue, blue)), rounded(blue, -14942));
  store_rgb(bytes(r), bytes(g), bytes(b), to);
}

PODIUM_TARGET_AVX2 PODIUM_INLINE void sixteen_grey(const uint8_t* y, uint8_t* to) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(y));
  store_rgb(v, v, v, to);
}

}  // namespace

// The last pixels of a row go through a buffer, as `rgb` may end with them.
PODIUM_TARGET_AVX2 void rgb_from_ycc_avx2(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, uint8_t* rgb) {
  int i = 0;
  for (; i + 16 <= n; i += 16) sixteen_ycc(y + i, cb + i, cr + i, rgb + 3 * i);
  if (i == n) return;
  uint8_t last[48];
  sixteen_ycc(y + i, cb + i, cr + i, last);
  std::memcpy(rgb + 3 * i, last, static_cast<size_t>(n - i) * 3);
}

PODIUM_TARGET_AVX2 void rgb_from_grey_avx2(const uint8_t* y, int n, uint8_t* rgb) {
  int i = 0;
  for (; i + 16 <= n; i += 16) sixteen_grey(y + i, rgb + 3 * i);
  if (i == n) return;
  uint8_t last[48];
  sixteen_grey(y + i, last);
  std::memcpy(rgb + 3 * i, last, static_cast<size_t>(n - i) * 3);
}

#endif

}  // namespace podium
