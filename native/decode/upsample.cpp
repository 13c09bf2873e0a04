// libjpeg's "fancy" upsampling: a triangle filter, 3/4 of the nearer sample and 1/4 of the farther in each direction.
// Halves are rounded up and down in turn, which the odd biases do. At the image's edge a sample is its own neighbour,
// and with that the cases that libjpeg writes apart are the same formula.
#include "kernels.h"

namespace podium {
namespace {

PODIUM_INLINE void h2v1(const uint8_t* near, int n, uint8_t* to) {
  for (int i = 0; i < n; ++i) {
    to[2 * i] = static_cast<uint8_t>((3 * near[i] + near[i - 1] + 1) >> 2);
    to[2 * i + 1] = static_cast<uint8_t>((3 * near[i] + near[i + 1] + 2) >> 2);
  }
}

PODIUM_INLINE void h1v2(const uint8_t* near, const uint8_t* far, int n, int bias, uint8_t* to) {
  for (int i = 0; i < n; ++i) to[i] = static_cast<uint8_t>((3 * near[i] + far[i] + bias) >> 2);
}

PODIUM_INLINE void h2v2(const uint8_t* near, const uint8_t* far, int n, uint8_t* to) {
  const auto sum = [&](int i) { return 3 * near[i] + far[i]; };
  for (int i = 0; i < n; ++i) {
    to[2 * i] = static_cast<uint8_t>((3 * sum(i) + sum(i - 1) + 8) >> 4);
    to[2 * i + 1] = static_cast<uint8_t>((3 * sum(i) + sum(i + 1) + 7) >> 4);
  }
}

}  // namespace

void upsample_h2v1_plain(const uint8_t* near, int n, uint8_t* to) { h2v1(near, n, to); }
void upsample_h1v2_plain(const uint8_t* near, const uint8_t* far, int n, int bias, uint8_t* to) {
  h1v2(near, far, n, bias, to);
}
void upsample_h2v2_plain(const uint8_t* near, const uint8_t* far, int n, uint8_t* to) { h2v2(near, far, n, to); }

#if PODIUM_X86
// The compiler makes vectors of the same lines.
PODIUM_TARGET_AVX2 void upsample_h2v1_avx2(const uint8_t* near, int n, uint8_t* to) { h2v1(near, n, to); }
PODIUM_TARGET_AVX2 void upsample_h1v2_avx2(const uint8_t* near, const uint8_t* far, int n, int bias, uint8_t* to) {
  h1v2(near, far, n, bias, to);
}
PODIUM_TARGET_AVX2 void upsample_h2v2_avx2(const uint8_t* near, const uint8_t* far, int n, uint8_t* to) {
  h2v2(near, far, n, to);
}
#endif

}  // namespace podium
