// Built three times, for AVX-512, AVX2 and any processor (PODIUM_ISA names the namespace). No part of the standard
// library that is instantiated may be used here: the linker would keep one build's instance for all.
#include <ctime>

#include "direct.h"
#include "norm.h"
#include "pool.h"
#include "windows.h"
#include "winograd.h"
#include "winograd_kernel.h"

namespace podium::PODIUM_ISA {
namespace {

// By timings of single layers: 36 products instead of 144 pay where the transforms are small beside them, and where the
// transformed kernel is not read for a handful of tiles only.
bool use_winograd(const Convolution& p) {
  if (p.kh != 3 || p.kw != 3 || p.stride != 1 || p.top > 2 || p.left > 2) return false;
  const int64_t tiles = p.n * ((p.oh + 3) / 4) * ((p.ow + 3) / 4);
  return p.c >= 16 && p.k >= 16 && tiles >= 64 && (tiles >= 128 || p.c * p.k < 300 * 300);
}

// The gradient to x is a convolution of dy with the kernel turned around.
Convolution turned(const Convolution& p) {
  return {p.n, p.oh, p.ow, p.k, p.kh, p.kw, p.c, p.h, p.w, 1, p.kh - 1 - p.top, p.kw - 1 - p.left};
}

void forward(const Convolution& p, const float* x, const float* w, float* y, Tasks& tasks) {
  if (!use_winograd(p)) return direct_forward(p, x, w, y, tasks);
  float* packed = memory(Memory::kCall, kPlaces * Packed::floats(p.c, p.k));
  winograd_apply(p, x, winograd_pack(p, w, false, packed, tasks), y, tasks);
}

void data_gradient(const Convolution& p, const float* dy, const float* w, float* dx, Tasks& tasks) {
  if (!use_winograd(p)) return direct_data_gradient(p, dy, w, dx, tasks);
  float* packed = memory(Memory::kCall, kPlaces * Packed::floats(p.k, p.c));
  winograd_apply(turned(p), dy, winograd_pack(p, w, true, packed, tasks), dx, tasks);
}

void weight_gradient(const Convolution& p, const float* x, const float* dy, float* dw, Tasks& tasks) {
  if (!use_winograd(p)) {
    const bool few = fits_windows(forward_grid(p));
    return few ? windows_weight_gradient(p, x, dy, dw, tasks) : direct_weight_gradient(p, x, dy, dw, tasks);
  }
  winograd_weight_gradient(p, x, dy, dw, tasks);
}

double peak(double seconds) {
  constexpr int kChains = 12, kTurns = 100000;  // more chains than a multiplier has stages
  Vec chains[kChains];
  PODIUM_UNROLL for (int i = 0; i < kChains; ++i) chains[i] = broadcast(1.0f + i);
  const Vec factor = broadcast(0.999f);
  double best = 0, total = 0;
  while (total < seconds) {
    timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int turn = 0; turn < kTurns; ++turn) {
      PODIUM_UNROLL for (int i = 0; i < kChains; ++i) chains[i] = chains[i] * factor + factor;
    }
    PODIUM_UNROLL for (int i = 0; i < kChains; ++i) asm volatile("" : "+m"(chains[i]));
    clock_gettime(CLOCK_MONOTONIC, &ended);
    const double took = (ended.tv_sec - began.tv_sec) + 1e-9 * (ended.tv_nsec - began.tv_nsec);
    const double rate = (double)kTurns * kChains * kLanes / took;
    if (rate > best) best = rate;
    total += took;
  }
  return best;
}

}  // namespace

#define PODIUM_NAME_(isa) #isa
#define PODIUM_NAME(isa) PODIUM_NAME_(isa)
extern const Kernels table;
const Kernels table{
    PODIUM_NAME(PODIUM_ISA), peak,          forward, data_gradient,  weight_gradient, norm_sums,        norm_apply,
    norm_gradient_sums,      norm_gradient, halve,   halve_gradient, max_pool,        max_pool_gradient};

}  // namespace podium::PODIUM_ISA
