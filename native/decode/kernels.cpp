#include "kernels.h"

#include "podium_native.h"

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

#if PODIUM_X86
PODIUM_DECLARE(avx2)

void transform_pair_avx512(int16_t*, const int16_t*, uint8_t*, size_t);

namespace {

constexpr Kernels with_avx512() {
  Kernels kernels = avx2_kernels;
  kernels.transform_pair = transform_pair_avx512;
  return kernels;
}
constexpr Kernels avx512_kernels = with_avx512();

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

const Kernels& kernels(int32_t flags) {
  static const bool avx2 = has_avx2(), avx512 = has_avx512();
  if (!avx2 || flags & PODIUM_PLAIN) return plain_kernels;
  return avx512 && !(flags & PODIUM_AVX2) ? avx512_kernels : avx2_kernels;
}
#else
const Kernels& kernels(int32_t) { return plain_kernels; }
#endif

}  // namespace podium
