// A convolution, a remainder of one, or a weight's gradient: outputs that each see a window of a source.
#pragma once

#include "product.h"

namespace podium::PODIUM_ISA {

// A grid of gh × gw outputs per image; output (i, j) sees taps_h × taps_w places of the source from
// (i · step − top, j · step − left) on, and stands at (i · spread + down, j · spread + across) in the result.
struct Grid {
  int64_t n, h, w, c;  // the source
  int64_t gh, gw, taps_h, taps_w, step, top, left;
  int64_t rh, rw, k, spread, down, across;  // the result
  int64_t depth() const { return taps_h * taps_w * c; }
  int64_t count() const { return n * gh * gw; }
  bool plain() const { return taps_h == 1 && taps_w == 1 && step == 1 && top == 0 && left == 0 && gh == h && gw == w; }
};

PODIUM_INLINE Grid forward_grid(const Convolution& p) {
  return {p.n, p.h, p.w, p.c, p.oh, p.ow, p.kh, p.kw, p.stride, p.top, p.left, p.oh, p.ow, p.k, 1, 0, 0};
}

// Sums that were cut into parts, added in order.
inline void add_parts(const float* sums, int64_t parts, int64_t size, float* to, Tasks& tasks) {
  constexpr int64_t kSome = 4096;
  tasks.run((size + kSome - 1) / kSome, [=](int64_t task) {
    const int64_t until = size < (task + 1) * kSome ? size : (task + 1) * kSome;
    for (int64_t i = task * kSome; i < until; ++i) {
      float sum = sums[i];
      for (int64_t part = 1; part < parts; ++part) sum += sums[part * size + i];
      to[i] = sum;
    }
  });
}

}  // namespace podium::PODIUM_ISA
