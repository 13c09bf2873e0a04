// All other convolutions, as one product: the places that an output sees, side by side in a row (im2col), times the
// kernel. Rows are gathered for a block of outputs at a time, which stays in the cache; a 1×1 of stride 1 reads x
// itself.
#pragma once

#include "product.h"
#include "winograd_kernel.h"

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

// What one output sees, to `row`.
inline void gather_row(const Grid& g, const float* source, int64_t output, float* row) {
  const int64_t j = output % g.gw, i = output / g.gw % g.gh, image = output / (g.gw * g.gh);
  const int64_t left = j * g.step - g.left, run = g.taps_w * g.c;
  const int64_t skip = left < 0 ? (-left < g.taps_w ? -left : g.taps_w) : 0;
  const int64_t end = g.w - left < g.taps_w ? (g.w > left ? g.w - left : 0) : g.taps_w;
  for (int64_t a = 0; a < g.taps_h; ++a, row += run) {
    const int64_t y = i * g.step - g.top + a;
    if (y < 0 || y >= g.h || skip >= end) {
      std::memset(row, 0, run * sizeof(float));
      continue;
    }
    const float* from = source + ((image * g.h + y) * g.w + left) * g.c;
    for (int64_t q = 0; q < skip * g.c; ++q) row[q] = 0;
    std::memcpy(row + skip * g.c, from + skip * g.c, (end - skip) * g.c * sizeof(float));
    for (int64_t q = end * g.c; q < run; ++q) row[q] = 0;
  }
}

PODIUM_INLINE float* result_row(const Grid& g, float* result, int64_t output) {
  const int64_t j = output % g.gw, i = output / g.gw % g.gh, image = output / (g.gw * g.gh);
  return result + ((image * g.rh + i * g.spread + g.down) * g.rw + j * g.spread + g.across) * g.k;
}

inline void direct_apply(const Grid& g, const float* source, const float* packed, float* result, Tasks& tasks) {
  const int64_t depth = g.depth(), count = g.count(), stride = round_up(depth, 16) + 16;
  int64_t some = ((int64_t)400000 / (4 * (depth + g.k))) / kRows * kRows;
  if (some < 4 * kRows) some = 4 * kRows;
  while (some > kRows && (count + some - 1) / some < 4 * tasks.threads()) some -= kRows;
  const bool plain = g.plain(), dense = g.spread == 1;
  tasks.run((count + some - 1) / some, [=](int64_t task) {
    const int64_t first = task * some, rows = count - first < some ? count - first : some;
    float* gathered = memory(Memory::kTask, some * (stride + g.k));
    float* aside = gathered + some * stride;
    for (int64_t r = 0; !plain && r < rows; ++r) gather_row(g, source, first + r, gathered + r * stride);
    const Matrix a = plain ? Matrix{source + first * depth, depth} : Matrix{gathered, stride};
    multiply(a, packed, dense ? result + first * g.k : aside, g.k, rows, depth, g.k);
    for (int64_t r = 0; !dense && r < rows; ++r) {
      std::memcpy(result_row(g, result, first + r), aside + r * g.k, g.k * sizeof(float));
    }
  });
}

inline void direct_forward(const Convolution& p, const float* x, const float* w, float* y, Tasks& tasks) {
  const Grid g = forward_grid(p);
  const int64_t depth = g.depth();
  float* packed = memory(Memory::kCall, Packed::floats(depth, p.k));
  tasks.run((depth + 63) / 64, [=](int64_t task) {
    for (int64_t k = task * 64; k < depth && k < task * 64 + 64; ++k)
      Packed(depth, p.k, packed).put_row(k, w + k * p.k, p.k);
  });
  direct_apply(g, x, packed, y, tasks);
}

// dx at places that leave the same remainder by the stride sees the same taps: each remainder is a convolution of dy,
// with stride 1, with those taps from last to first.
inline Grid remainder_grid(const Convolution& p, int64_t down, int64_t across) {
  const auto taps = [&](int64_t at, int64_t size) { return at < size ? (size - at + p.stride - 1) / p.stride : 0; };
  const int64_t first_h = (down + p.top) % p.stride, first_w = (across + p.left) % p.stride;
  const int64_t taps_h = taps(first_h, p.kh), taps_w = taps(first_w, p.kw);
  const int64_t top = taps_h - 1 - (down + p.top - first_h) / p.stride;
  const int64_t left = taps_w - 1 - (across + p.left - first_w) / p.stride;
  const int64_t gh = (p.h - down + p.stride - 1) / p.stride, gw = (p.w - across + p.stride - 1) / p.stride;
  return {p.n, p.oh, p.ow, p.k, gh, gw, taps_h, taps_w, 1, top, left, p.h, p.w, p.c, p.stride, down, across};
}

inline void pack_remainder(const Convolution& p, const Grid& g, const float* w, float* packed, Tasks& tasks) {
  const int64_t first_h = (g.down + p.top) % p.stride, first_w = (g.across + p.left) % p.stride, depth = g.depth();
  constexpr int64_t kSome = 16;
  const int64_t pieces = (p.k + kSome - 1) / kSome, width = round_up(p.c, 16);
  tasks.run(g.taps_h * g.taps_w * pieces, [=](int64_t task) {
    const int64_t piece = task % pieces, b = task / pieces % g.taps_w, a = task / pieces / g.taps_w;
    const int64_t kh = first_h + (g.taps_h - 1 - a) * p.stride, kw = first_w + (g.taps_w - 1 - b) * p.stride;
    const int64_t first = piece * kSome, some = p.k - first < kSome ? p.k - first : kSome;
    float* rows = memory(Memory::kTask, kSome * width);
    transpose(w + (kh * p.kw + kw) * p.c * p.k + first, p.c, some, p.k, rows, width);
    for (int64_t r = 0; r < some; ++r) {
      Packed(depth, p.c, packed).put_row((a * g.taps_w + b) * p.k + first + r, rows + r * width, p.c);
    }
  });
}

inline void direct_data_gradient(const Convolution& p, const float* dy, const float* w, float* dx, Tasks& tasks) {
  const bool holes = p.stride > p.kh || p.stride > p.kw;
  const int64_t image = p.h * p.w * p.c;
  if (holes) tasks.run(p.n, [=](int64_t n) { std::memset(dx + n * image, 0, image * sizeof(float)); });
  float* packed = memory(Memory::kCall, Packed::floats(p.kh * p.kw * p.k, p.c));
  for (int64_t down = 0; down < p.stride && down < p.h; ++down) {
    for (int64_t across = 0; across < p.stride && across < p.w; ++across) {
      const Grid g = remainder_grid(p, down, across);
      if (g.taps_h == 0 || g.taps_w == 0) continue;
      pack_remainder(p, g, w, packed, tasks);
      direct_apply(g, dy, packed, dx, tasks);
    }
  }
}

// dw [depth, k] = rowsᵀ · dy: blocks of dw's rows, and parts of the sum that are as long on any machine.
inline void direct_weight_gradient(const Convolution& p, const float* x, const float* dy, float* dw, Tasks& tasks) {
  const Grid g = forward_grid(p);
  const int64_t depth = g.depth(), count = g.count(), width = Panels(p.k).width();
  constexpr int64_t kSome = 192, kBlock = 256;  // outputs at a time, and rows of dw
  const int64_t whole = g.taps_h * g.taps_w > 1 ? round_up(depth, kBlock) : kBlock;  // gathered rows are not cut
  (void)whole;
  const int64_t blocks = (depth + kBlock - 1) / kBlock;
  int64_t parts = 16 / blocks;
  if (parts > count / 512) parts = count / 512;
  if (parts < 1) parts = 1;
  const int64_t per_part = (count + parts - 1) / parts;
  float* sums = parts > 1 ? memory(Memory::kCall, parts * depth * p.k) : dw;
  const bool plain = g.plain();
  tasks.run(blocks * parts, [=](int64_t task) {
    const int64_t block = task % blocks, part = task / blocks, from = block * kBlock;
    const int64_t rows = depth - from < kBlock ? depth - from : kBlock;
    const int64_t a_stride = plain ? kBlock + 16 : round_up(depth, 16) + 16, b_stride = spaced(width);
    float* a = memory(Memory::kTask, kSome * (a_stride + b_stride));
    float* b = a + kSome * a_stride;
    float* sum = sums + part * depth * p.k + from * p.k;
    const int64_t begin = part * per_part, end = count < begin + per_part ? count : begin + per_part;
    for (int64_t first = begin; first < end; first += kSome) {
      const int64_t some = end - first < kSome ? end - first : kSome;
      for (int64_t s = 0; s < some; ++s) {
        if (plain)
          std::memcpy(a + s * a_stride, x + (first + s) * depth + from, rows * sizeof(float));
        else
          gather_row(g, x, first + s, a + s * a_stride);
        std::memcpy(b + s * b_stride, dy + (first + s) * p.k, p.k * sizeof(float));
      }
      multiply_transposed({a + (plain ? 0 : from), a_stride}, {b, b_stride}, sum, p.k, rows, some, p.k, first > begin);
    }
    if (begin >= end) std::memset(sum, 0, rows * p.k * sizeof(float));
  });
  if (parts == 1) return;
  const int64_t size = depth * p.k, chunk = 4096;
  tasks.run((size + chunk - 1) / chunk, [=](int64_t task) {
    const int64_t until = size < (task + 1) * chunk ? size : (task + 1) * chunk;
    for (int64_t i = task * chunk; i < until; ++i) {
      float sum = sums[i];
      for (int64_t part = 1; part < parts; ++part) sum += sums[part * size + i];
      dw[i] = sum;
    }
  });
}

}  // namespace podium::PODIUM_ISA
