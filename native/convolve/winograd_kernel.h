// Winograd's other half: what happens to the 3×3 kernel itself, forward (spread to 36 packed matrices) and backward
// (its gradient from the sums over all tiles).
#pragma once

#include "winograd.h"

namespace podium::PODIUM_ISA {

// [rows, columns] → [columns, rows].
inline void transpose(const float* from, int64_t rows, int64_t columns, int64_t from_stride, float* to,
                      int64_t to_stride) {
  constexpr int64_t kSquare = 16;
  for (int64_t i = 0; i < rows; i += kSquare) {
    const int64_t until = i + kSquare < rows ? i + kSquare : rows;
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t r = i; r < until; ++r) to[j * to_stride + r] = from[r * from_stride + j];
    }
  }
}

// The 36 packed matrices [c, k] of a kernel, or [k, c] of the kernel turned around, for the gradient to x.
inline const float* winograd_pack(const Convolution& p, const float* w, bool turned, float* packed, Tasks& tasks) {
  const int64_t depth = turned ? p.k : p.c, n = turned ? p.c : p.k, each = Packed::floats(depth, n);
  constexpr int64_t kSome = 16;
  const int64_t width = round_up(n, 16);
  tasks.run((depth + kSome - 1) / kSome, [=](int64_t task) {
    float* rows = memory(Memory::kTask, 9 * kSome * width + kPlaces * width);
    float* spread = rows + 9 * kSome * width;
    const int64_t first = task * kSome, some = depth - first < kSome ? depth - first : kSome;
    for (int64_t tap = 0; turned && tap < 9; ++tap) {
      const float* from = w + tap * p.c * p.k + first;
      transpose(from, n, some, p.k, rows + (8 - tap) * kSome * width, width);
    }
    for (int64_t r = 0; r < some; ++r) {
      const float* row = turned ? rows + r * width : w + (first + r) * p.k;
      const int64_t apart = turned ? kSome * width : p.c * p.k;
      for (int64_t v = 0; v < n; v += kLanes) {
        const int lanes = n - v < kLanes ? (int)(n - v) : kLanes;
        transform<KernelTransform>([&](int i, int j) { return load_lanes(row + (i * 3 + j) * apart + v, lanes); },
                                   [&](int i, int j, Vec u) { store(spread + (i * kPatch + j) * width + v, u); });
      }
      for (int64_t place = 0; place < kPlaces; ++place) {
        Packed(depth, n, packed + place * each).put_row(first + r, spread + place * width, n);
      }
    }
  });
  return packed;
}

// dw from sums [parts, 36, c, k], in the order of the parts.
inline void winograd_finish(const Convolution& p, const float* sums, int64_t parts, int64_t width, float* dw,
                            Tasks& tasks) {
  constexpr int64_t kSome = 8;
  tasks.run((p.c + kSome - 1) / kSome, [=](int64_t task) {
    const int64_t until = p.c < (task + 1) * kSome ? p.c : (task + 1) * kSome;
    for (int64_t c = task * kSome; c < until; ++c) {
      for (int64_t v = 0; v < p.k; v += kLanes) {
        const int lanes = p.k - v < kLanes ? (int)(p.k - v) : kLanes;
        transform<KernelGradientTransform>(
            [&](int i, int j) {
              Vec sum{};
              for (int64_t part = 0; part < parts; ++part) {
                sum += load(sums + ((part * kPlaces + i * kPatch + j) * p.c + c) * width + v);
              }
              return sum;
            },
            [&](int i, int j, Vec g) { store_lanes(dw + ((i * 3 + j) * p.c + c) * p.k + v, g, lanes); });
      }
    }
  });
}

// Parts of a sum over tiles, of the same size on any machine: as many as keep the memory for them small.
PODIUM_INLINE int64_t winograd_parts(const Convolution& p, int64_t tiles) {
  const int64_t by_memory = ((int64_t)24 << 20) / (kPlaces * p.c * p.k * 4), by_tiles = tiles / 32;
  const int64_t parts = by_memory < by_tiles ? by_memory : by_tiles;
  return parts < 2 ? 2 : parts > 16 ? 16 : parts;
}

inline void winograd_weight_gradient(const Convolution& p, const float* x, const float* dy, float* dw, Tasks& tasks) {
  const Tiles tiles(p.n, p.oh, p.ow);
  const int64_t in = spaced(p.c), out = spaced(p.k), width = Panels(p.k).width();
  const int64_t parts = winograd_parts(p, tiles.count), per_part = (tiles.count + parts - 1) / parts;
  const int64_t fit = (int64_t)1600000 / (kPlaces * 4 * (in + out)), least = fit < 64 ? 64 : fit;
  const int64_t some = least < per_part ? least : per_part;
  float* sums = memory(Memory::kCall, parts * kPlaces * p.c * width);
  tasks.run(parts, [=](int64_t part) {
    float* v = memory(Memory::kTask, kPlaces * some * (in + out) + kPlaces * (in + out));
    float *z = v + kPlaces * some * in, *patch = z + kPlaces * some * out;
    const int64_t begin = part * per_part, end = tiles.count < begin + per_part ? tiles.count : begin + per_part;
    float* sum = sums + part * kPlaces * p.c * width;
    if (begin >= end) std::memset(sum, 0, kPlaces * p.c * width * sizeof(float));
    for (int64_t first = begin; first < end; first += some) {
      const int64_t count = end - first < some ? end - first : some;
      for (int64_t t = 0; t < count; ++t) {
        const int64_t tile = first + t, top = tiles.top(tile), left = tiles.left(tile), image = tiles.image(tile);
        const Image xs{x + image * p.h * p.w * p.c, p.h, p.w, p.c}, ys{dy + image * p.oh * p.ow * p.k, p.oh, p.ow, p.k};
        spread_tile<InputTransform>(xs, top - p.top, left - p.left, v + t * in, some * in, patch);
        spread_tile<GradientTransform>(ys, top, left, z + t * out, some * out, patch);
      }
      for (int64_t place = 0; place < kPlaces; ++place) {
        multiply_transposed({v + place * some * in, in}, {z + place * some * out, out}, sum + place * p.c * width,
                            width, p.c, count, width, first > begin);
      }
    }
  });
  winograd_finish(p, sums, parts, width, dw, tasks);
}

}  // namespace podium::PODIUM_ISA
