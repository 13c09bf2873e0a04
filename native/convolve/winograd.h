// 3×3 convolutions of stride 1 by Winograd's F(4×4, 3×3): 36 products give 16 outputs that otherwise take 144 (Lavin
// and Gray, arXiv 1509.09308). A tile is 6×6 of the input and 4×4 of the output. Channels stay last throughout, so that
// all transforms work on vectors of channels, and each of the 36 places of a tile has one matrix product:
//
//   y = Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A        dg = Gᵀ [(Bᵀ d B) ⊙ (A dy Aᵀ)] G
//
// Tiles are worked off in blocks, whose 36 matrices stay in the cache.
#pragma once

#include "product.h"

namespace podium::PODIUM_ISA {

constexpr int kTile = 4, kPatch = 6, kPlaces = 36;

// The five little matrices, as functions from one column to another.
struct InputTransform {  // Bᵀ
  static constexpr int from = 6, to = 6;
  PODIUM_INLINE void apply(const Vec* d, Vec* v) {
    const Vec p = d[4] - 4 * d[2], q = d[3] - 4 * d[1], r = d[4] - d[2], s = 2 * (d[3] - d[1]);
    v[0] = 4 * d[0] - 5 * d[2] + d[4];
    v[1] = p + q;
    v[2] = p - q;
    v[3] = r + s;
    v[4] = r - s;
    v[5] = 4 * d[1] - 5 * d[3] + d[5];
  }
};

struct OutputTransform {  // Aᵀ
  static constexpr int from = 6, to = 4;
  PODIUM_INLINE void apply(const Vec* m, Vec* y) {
    const Vec p = m[1] + m[2], q = m[1] - m[2], r = m[3] + m[4], s = m[3] - m[4];
    y[0] = m[0] + p + r;
    y[1] = q + 2 * s;
    y[2] = p + 4 * r;
    y[3] = q + 8 * s + m[5];
  }
};

struct GradientTransform {  // A
  static constexpr int from = 4, to = 6;
  PODIUM_INLINE void apply(const Vec* y, Vec* z) {
    const Vec p = y[0] + y[2], q = y[1] + y[3], r = y[0] + 4 * y[2], s = 2 * y[1] + 8 * y[3];
    z[0] = y[0];
    z[1] = p + q;
    z[2] = p - q;
    z[3] = r + s;
    z[4] = r - s;
    z[5] = y[3];
  }
};

struct KernelTransform {  // G
  static constexpr int from = 3, to = 6;
  PODIUM_INLINE void apply(const Vec* g, Vec* u) {
    const Vec p = (g[0] + g[2]) * (-1.0f / 6), q = g[1] * (1.0f / 6);
    const Vec r = g[0] * (1.0f / 24) + g[2] * (1.0f / 6), s = g[1] * (1.0f / 12);
    u[0] = g[0] * 0.25f;
    u[1] = p - q;
    u[2] = p + q;
    u[3] = r + s;
    u[4] = r - s;
    u[5] = g[2];
  }
};

struct KernelGradientTransform {  // Gᵀ
  static constexpr int from = 6, to = 3;
  PODIUM_INLINE void apply(const Vec* u, Vec* g) {
    const Vec p = (u[1] + u[2]) * (-1.0f / 6), q = (u[2] - u[1]) * (1.0f / 6), r = u[3] + u[4], s = u[3] - u[4];
    g[0] = u[0] * 0.25f + p + r * (1.0f / 24);
    g[1] = q + s * (1.0f / 12);
    g[2] = p + r * (1.0f / 6) + u[5];
  }
};

// T · d · Tᵀ, for one vector of channels: columns first, then rows.
template <typename T, typename Load, typename Store>
PODIUM_INLINE void transform(const Load& read, const Store& write) {
  Vec half[T::to][T::from];
  PODIUM_UNROLL for (int j = 0; j < T::from; ++j) {
    Vec column[T::from], out[T::to];
    PODIUM_UNROLL for (int i = 0; i < T::from; ++i) column[i] = read(i, j);
    T::apply(column, out);
    PODIUM_UNROLL for (int i = 0; i < T::to; ++i) half[i][j] = out[i];
  }
  PODIUM_UNROLL for (int i = 0; i < T::to; ++i) {
    Vec out[T::to];
    T::apply(half[i], out);
    PODIUM_UNROLL for (int j = 0; j < T::to; ++j) write(i, j, out[j]);
  }
}

// An image as tiles see it: places outside are zeros.
struct Image {
  const float* at;
  int64_t h, w, c;
};

// One tile's values, size × size places from (top, left), to 36 rows `apart` from each other, of whole vectors.
template <typename T>
inline void spread_tile(const Image& image, int64_t top, int64_t left, float* to, int64_t apart, float* patch) {
  const int64_t size = T::from, c = image.c;
  const float* from = image.at + (top * image.w + left) * c;
  int64_t row = image.w * c;
  if (top < 0 || left < 0 || top + size > image.h || left + size > image.w) {
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        float* place = patch + (i * size + j) * c;
        const bool inside = top + i >= 0 && top + i < image.h && left + j >= 0 && left + j < image.w;
        if (inside)
          std::memcpy(place, from + i * row + j * c, c * sizeof(float));
        else
          std::memset(place, 0, c * sizeof(float));
      }
    }
    from = patch;
    row = size * c;
  }
  int64_t v = 0;
  for (; v + kLanes <= c; v += kLanes) {
    transform<T>([&](int i, int j) { return load(from + i * row + j * c + v); },
                 [&](int i, int j, Vec value) { store(to + (i * kPatch + j) * apart + v, value); });
  }
  if (v < c) {
    const int lanes = (int)(c - v);
    transform<T>([&](int i, int j) { return load_part(from + i * row + j * c + v, lanes); },
                 [&](int i, int j, Vec value) { store(to + (i * kPatch + j) * apart + v, value); });
  }
}

// 36 rows of a tile to its 4×4 outputs, as far as they lie inside.
inline void gather_tile(const float* from, int64_t apart, float* y, int64_t h, int64_t w, int64_t c, int64_t top,
                        int64_t left) {
  const int64_t rows = h - top < kTile ? h - top : kTile, columns = w - left < kTile ? w - left : kTile;
  float* to = y + (top * w + left) * c;
  const auto one = [&](int64_t v, int lanes) {
    transform<OutputTransform>([&](int i, int j) { return load(from + (i * kPatch + j) * apart + v); },
                               [&](int i, int j, Vec value) {
                                 if (i < rows && j < columns) store_lanes(to + (i * w + j) * c + v, value, lanes);
                               });
  };
  int64_t v = 0;
  for (; v + kLanes <= c; v += kLanes) one(v, kLanes);
  if (v < c) one(v, (int)(c - v));
}

// The tiles of a batch, numbered through.
struct Tiles {
  int64_t down, across, count;
  Tiles(int64_t n, int64_t h, int64_t w)
      : down((h + kTile - 1) / kTile), across((w + kTile - 1) / kTile), count(n * down * across) {}
  int64_t image(int64_t tile) const { return tile / (down * across); }
  int64_t top(int64_t tile) const { return tile / across % down * kTile; }
  int64_t left(int64_t tile) const { return tile % across * kTile; }
};

// The length of a row of channels: whole vectors, and no multiple of 512 bytes, at which rows would compete for the
// same places of a cache.
PODIUM_INLINE int64_t spaced(int64_t c) {
  const int64_t whole = round_up(c, 16);
  return whole % 128 ? whole : whole + 16;
}

// y = x * kernel, where `spread_kernel(row, to)` has been packed for each of the 36 places. Also the gradient to x, of
// the kernel turned around.
inline void winograd_apply(const Convolution& p, const float* x, const float* packed, float* y, Tasks& tasks) {
  const Tiles tiles(p.n, p.oh, p.ow);
  const int64_t in = spaced(p.c), out = spaced(p.k);
  int64_t some = (int64_t)1200000 / (kPlaces * 4 * (in + out)) / kRows * kRows;
  if (some < 6 * kRows) some = 6 * kRows;
  while (some > kRows && (tiles.count + some - 1) / some < 2 * tasks.threads()) some -= kRows;
  const int64_t each = Packed::floats(p.c, p.k);
  tasks.run((tiles.count + some - 1) / some, [=](int64_t task) {
    const int64_t first = task * some, count = tiles.count - first < some ? tiles.count - first : some;
    float* v = memory(Memory::kTask, kPlaces * some * (in + out) + kPlaces * in);
    float *m = v + kPlaces * some * in, *patch = m + kPlaces * some * out;
    for (int64_t t = 0; t < count; ++t) {
      const int64_t tile = first + t;
      const Image image{x + tiles.image(tile) * p.h * p.w * p.c, p.h, p.w, p.c};
      spread_tile<InputTransform>(image, tiles.top(tile) - p.top, tiles.left(tile) - p.left, v + t * in, some * in,
                                  patch);
    }
    for (int64_t place = 0; place < kPlaces; ++place) {
      multiply({v + place * some * in, in}, packed + place * each, m + place * some * out, out, count, p.c,
               Panels(p.k).width());
    }
    for (int64_t t = 0; t < count; ++t) {
      const int64_t tile = first + t;
      gather_tile(m + t * out, some * out, y + tiles.image(tile) * p.oh * p.ow * p.k, p.oh, p.ow, p.k, tiles.top(tile),
                  tiles.left(tile));
    }
  });
}

}  // namespace podium::PODIUM_ISA
