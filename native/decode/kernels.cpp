#include "kernels.h"

namespace podium {

#define PODIUM_DECLARE(twin)                                                                            \
  size_t unstuff_##twin(const uint8_t*, size_t, uint8_t*);                                              \
  bool decode_run_##twin(Stream&);                                                                      \
  bool decode_two_runs_##twin(Stream&, Stream&);                                                        \
  void transform_pair_##twin(int16_t*, const int16_t*, uint8_t*, size_t);                               \
  void upsample_h2v1_##twin(const uint8_t*, int, uint8_t*);                                             \
  void upsample_h1v2_##twin(const uint8_t*, const uint8_t*, int, int, uint8_t*);                        \
  void upsample_h2v2_##twin(const uint8_t*, const uint8_t*, int, uint8_t*);                             \
  void rgb_from_ycc_##twin(const uint8_t*, const uint8_t*, const uint8_t*, int, uint8_t*);              \
  void rgb_from_grey_##twin(const uint8_t*, int, uint8_t*);                                             \
  constexpr Kernels twin##_kernels{unstuff_##twin,        decode_run_##twin,    decode_two_runs_##twin, \
                                   transform_pair_##twin, upsample_h2v1_##twin, upsample_h1v2_##twin,   \
                                   upsample_h2v2_##twin,  rgb_from_ycc_##twin,  rgb_from_grey_##twin};

PODIUM_DECLARE(plain)

#if PODIUM_AVX2
PODIUM_DECLARE(avx2)

namespace {
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}
}  // namespace

const Kernels& kernels(bool plain) {
  static const bool avx2 = has_avx2();
  return avx2 && !plain ? avx2_kernels : plain_kernels;
}
#else
const Kernels& kernels(bool) { return plain_kernels; }
#endif

}  // namespace podium
