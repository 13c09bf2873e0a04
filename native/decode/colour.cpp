// YCbCr to RGB as libjpeg does it, to the bit:
//
//   R = Y + 1.402 Cr,  G = Y − 0.34414 Cb − 0.71414 Cr,  B = Y + 1.772 Cb     (Cb and Cr less 128)
//
// with each of the three terms added to Y rounded to a whole number, in 1/65536.
#include <algorithm>
#include <cstring>

#include "kernels.h"

#if PODIUM_X86
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

#if PODIUM_X86

namespace {

using V = __m256i;

// 32 samples as words: in each half of a vector the first eight and the last eight, which pack() puts together again.
struct Words {
  V low, high;
};

PODIUM_TARGET_AVX2 PODIUM_INLINE Words unpack(const uint8_t* p) {
  const V bytes = _mm256_loadu_si256(reinterpret_cast<const V*>(p)), zero = _mm256_setzero_si256();
  return {_mm256_unpacklo_epi8(bytes, zero), _mm256_unpackhi_epi8(bytes, zero)};
}

PODIUM_TARGET_AVX2 PODIUM_INLINE V pack(const Words& words) { return _mm256_packus_epi16(words.low, words.high); }

// round(a × factor / 65536): the product's high word of 2 a, halved with rounding.
PODIUM_TARGET_AVX2 PODIUM_INLINE V rounded(V a, int factor) {
  const V high = _mm256_mulhi_epi16(_mm256_add_epi16(a, a), _mm256_set1_epi16(static_cast<int16_t>(factor)));
  return _mm256_srai_epi16(_mm256_add_epi16(high, _mm256_set1_epi16(1)), 1);
}

PODIUM_TARGET_AVX2 PODIUM_INLINE V green(V blue, V red) {
  const V factors = _mm256_set1_epi32(static_cast<int>(18734u << 16 | (static_cast<uint32_t>(-22554) & 0xFFFF)));
  const V rounding = _mm256_set1_epi32(half);
  const V low = _mm256_madd_epi16(_mm256_unpacklo_epi16(blue, red), factors);
  const V high = _mm256_madd_epi16(_mm256_unpackhi_epi16(blue, red), factors);
  const V sum = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, rounding), 16),
                                   _mm256_srai_epi32(_mm256_add_epi32(high, rounding), 16));
  return _mm256_sub_epi16(sum, red);
}

struct Rgb {
  V red, green, blue;
};

PODIUM_TARGET_AVX2 PODIUM_INLINE Rgb converted(V luma, V blue, V red) {
  const V center = _mm256_set1_epi16(128);
  blue = _mm256_sub_epi16(blue, center);
  red = _mm256_sub_epi16(red, center);
  return {_mm256_add_epi16(_mm256_add_epi16(luma, red), rounded(red, 26345)), _mm256_add_epi16(luma, green(blue, red)),
          _mm256_add_epi16(_mm256_add_epi16(luma, _mm256_add_epi16(blue, blue)), rounded(blue, -14942))};
}

// One of the three vectors that 16 pixels fill: where its bytes come from in R, G and B; x is "not from here".
constexpr char x = -1;
alignas(16) constexpr char from[3][3][16] = {{{0, x, x, 1, x, x, 2, x, x, 3, x, x, 4, x, x, 5},
                                              {x, 0, x, x, 1, x, x, 2, x, x, 3, x, x, 4, x, x},
                                              {x, x, 0, x, x, 1, x, x, 2, x, x, 3, x, x, 4, x}},
                                             {{x, x, 6, x, x, 7, x, x, 8, x, x, 9, x, x, 10, x},
                                              {5, x, x, 6, x, x, 7, x, x, 8, x, x, 9, x, x, 10},
                                              {x, 5, x, x, 6, x, x, 7, x, x, 8, x, x, 9, x, x}},
                                             {{x, 11, x, x, 12, x, x, 13, x, x, 14, x, x, 15, x, x},
                                              {x, x, 11, x, x, 12, x, x, 13, x, x, 14, x, x, 15, x},
                                              {10, x, x, 11, x, x, 12, x, x, 13, x, x, 14, x, x, 15}}};

PODIUM_TARGET_AVX2 PODIUM_INLINE V chosen(V bytes, const char (&places)[16]) {
  return _mm256_shuffle_epi8(bytes,
                             _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(places))));
}

PODIUM_TARGET_AVX2 PODIUM_INLINE V third(const Rgb& rgb, const char (&places)[3][16]) {
  return _mm256_or_si256(_mm256_or_si256(chosen(rgb.red, places[0]), chosen(rgb.green, places[1])),
                         chosen(rgb.blue, places[2]));
}

// 32 pixels to 96 bytes: of each third, the low half belongs to the first 16 pixels and the high half to the others.
PODIUM_TARGET_AVX2 PODIUM_INLINE void store(const Rgb& rgb, uint8_t* to) {
  const V a = third(rgb, from[0]), b = third(rgb, from[1]), c = third(rgb, from[2]);
  auto* out = reinterpret_cast<V*>(to);
  _mm256_storeu_si256(out, _mm256_permute2x128_si256(a, b, 0x20));
  _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(c, a, 0x30));
  _mm256_storeu_si256(out + 2, _mm256_permute2x128_si256(b, c, 0x31));
}

PODIUM_TARGET_AVX2 PODIUM_INLINE void convert_32(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* to) {
  const Words luma = unpack(y), blue = unpack(cb), red = unpack(cr);
  const Rgb low = converted(luma.low, blue.low, red.low), high = converted(luma.high, blue.high, red.high);
  store({pack({low.red, high.red}), pack({low.green, high.green}), pack({low.blue, high.blue})}, to);
}

PODIUM_TARGET_AVX2 PODIUM_INLINE void convert_32_grey(const uint8_t* y, uint8_t* to) {
  const V grey = _mm256_loadu_si256(reinterpret_cast<const V*>(y));
  store({grey, grey, grey}, to);
}

}  // namespace

// The last pixels of a row go through a buffer, as `rgb` may end with them.
PODIUM_TARGET_AVX2 void rgb_from_ycc_avx2(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int n, uint8_t* rgb) {
  int i = 0;
  for (; i + 32 <= n; i += 32) convert_32(y + i, cb + i, cr + i, rgb + 3 * i);
  if (i == n) return;
  uint8_t last[96];
  convert_32(y + i, cb + i, cr + i, last);
  std::memcpy(rgb + 3 * i, last, static_cast<size_t>(n - i) * 3);
}

PODIUM_TARGET_AVX2 void rgb_from_grey_avx2(const uint8_t* y, int n, uint8_t* rgb) {
  int i = 0;
  for (; i + 32 <= n; i += 32) convert_32_grey(y + i, rgb + 3 * i);
  if (i == n) return;
  uint8_t last[96];
  convert_32_grey(y + i, last);
  std::memcpy(rgb + 3 * i, last, static_cast<size_t>(n - i) * 3);
}

#endif

}  // namespace podium
