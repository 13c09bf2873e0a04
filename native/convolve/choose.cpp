#include <atomic>
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

// The fastest first.
struct Choice {
  const Kernels* table;
  bool here;
};

const Kernels* find(const char* name) {
#if PODIUM_X86
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  const Choice choices[] = {{&avx512::table, has_avx512}, {&avx2::table, has_avx2}, {&plain::table, true}};
#else
  const Choice choices[] = {{&plain::table, true}};
#endif
  for (const Choice& choice : choices) {
    if (choice.here && (!name || !std::strcmp(name, choice.table->name))) return choice.table;
  }
  return nullptr;
}

std::atomic<const Kernels*> chosen{find(nullptr)};

}  // namespace

const Kernels& kernels() { return *chosen.load(std::memory_order_relaxed); }

bool use_kernels(const char* name) {
  const Kernels* found = find(name);
  if (found) chosen = found;
  return found;
}

}  // namespace podium
