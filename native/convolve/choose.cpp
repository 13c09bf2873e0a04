#include <cstdlib>
#include <cstring>

#include "convolve.h"

namespace podium {

namespace plain {
extern const Kernels table;
}
#if PODIUM_X86
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

namespace {

const Kernels& choose() {
#if PODIUM_X86
  const char* wish = std::getenv("PODIUM_ISA");
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  if (wish && !std::strcmp(wish, "plain")) return plain::table;
  if (has_avx512 && !(wish && !std::strcmp(wish, "avx2"))) return avx512::table;
  if (has_avx2) return avx2::table;
#endif
  return plain::table;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace podium
