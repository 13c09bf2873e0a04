// All other convolutions, as one product: the places that an output sees, side by side in a row (im2col), times the
// kernel. Rows are gathered for a block of outputs at a time, which stays in the cache; a 1×1 of stride 1 reads x
// itself. Few channels need no rows (windows.h).
#pragma once

#include "grid.h"
#include "windows.h"
#include "winograd_kernel.h"

namespace podium::PODIUM_ISA {

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
  if (fits_windows(g)) return windows_apply(g, source, packed, result, tasks);
  const int64_t depth = g.depth(), count = g.count(), stride = round_up(depth, 16) + 16;
  int64_t some = (int64_t)400000 / (4 * (depth + g.k)) / kBlockRows * kBlockRows;
  if (some < kBlockRows) some = kBlockRows;  // for fewer, reading the kernel would take as long as the products
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

// Part of the rows that outputs see: some channels of one tap, or, where channels are few, whole rows.
struct Slice {
  int64_t first, size;  // within a row
};

inline void gather_slice(const Grid& g, const float* source, int64_t output, Slice slice, float* row) {
  if (g.taps_h * g.taps_w * g.c == slice.size) return gather_row(g, source, output, row);
  const int64_t tap = slice.first / g.c;
  const int64_t j = output % g.gw, i = output / g.gw % g.gh, image = output / (g.gw * g.gh);
  const int64_t y = i * g.step - g.top + tap / g.taps_w, x = j * g.step - g.left + tap % g.taps_w;
  if (y < 0 || y >= g.h || x < 0 || x >= g.w) {
    std::memset(row, 0, slice.size * sizeof(float));
  } else {
    std::memcpy(row, source + ((image * g.h + y) * g.w + x) * g.c + slice.first % g.c, slice.size * sizeof(float));
  }
}

// How dw [depth, k] = rowsᵀ · dy is cut, on any machine alike: into slices of its rows and parts of the sum. A task has
// one part and every groups-th slice.
struct Cut {
  int64_t slice, slices, parts, groups, per_part;
  Cut(const Grid& g, int64_t k) {
    constexpr int64_t kMost = 256, kFewChannels = 32, kMemory = 32 << 20, kTasks = 16;
    const int64_t depth = g.depth(), count = g.count();
    slice = depth;
    if (g.c >= kFewChannels) {
      const int64_t pieces = (g.c + kMost - 1) / kMost;
      slice = g.c % pieces ? g.c : g.c / pieces;
    }
    slices = depth / slice;
    parts = kMemory / (depth * k * 4);
    if (parts > kTasks) parts = kTasks;
    if (parts > count / 256) parts = count / 256;
    if (parts < 1) parts = 1;
    groups = (kTasks + parts - 1) / parts;
    if (groups > slices) groups = slices;
    per_part = (count + parts - 1) / parts;
  }
};

inline void direct_weight_gradient(const Convolution& p, const float* x, const float* dy, float* dw, Tasks& tasks) {
  const Grid g = forward_grid(p);
  const Cut cut(g, p.k);
  const int64_t depth = g.depth(), count = g.count();
  constexpr int64_t kSome = 192;  // outputs at a time
  float* sums = cut.parts > 1 ? memory(Memory::kCall, cut.parts * depth * p.k) : dw;
  tasks.run(cut.groups * cut.parts, [=](int64_t task) {
    const int64_t group = task % cut.groups, part = task / cut.groups;
    const int64_t a_stride = spaced(cut.slice), b_stride = spaced(p.k);
    float* a = memory(Memory::kTask, kSome * (a_stride + b_stride));
    float *b = a + kSome * a_stride, *sum = sums + part * depth * p.k;
    const int64_t begin = part * cut.per_part, end = count < begin + cut.per_part ? count : begin + cut.per_part;
    for (int64_t first = begin; first < end; first += kSome) {
      const int64_t some = end - first < kSome ? end - first : kSome;
      for (int64_t s = 0; s < some; ++s) {
        std::memcpy(b + s * b_stride, dy + (first + s) * p.k, p.k * sizeof(float));
      }
      for (int64_t slice = group; slice < cut.slices; slice += cut.groups) {
        const int64_t from = slice * cut.slice;
        for (int64_t s = 0; s < some; ++s) gather_slice(g, x, first + s, {from, cut.slice}, a + s * a_stride);
        multiply_transposed({a, a_stride}, {b, b_stride}, sum + from * p.k, p.k, cut.slice, some, p.k, first > begin);
      }
    }
    for (int64_t slice = group; begin >= end && slice < cut.slices; slice += cut.groups) {
      std::memset(sum + slice * cut.slice * p.k, 0, cut.slice * p.k * sizeof(float));
    }
  });
  if (cut.parts > 1) add_parts(sums, cut.parts, depth * p.k, dw, tasks);
}

}  // namespace podium::PODIUM_ISA
