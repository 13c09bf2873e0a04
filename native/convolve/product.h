// The one place that multiplies: a block of rows times a panel of columns, held in registers. Rows of A are read where
// they are; B is packed into panels of up to three vectors, so that any number of columns splits into even panels.
#pragma once

#include "convolve.h"
#include "vector.h"

namespace podium::PODIUM_ISA {

// Rows × vectors of a block: 8 × 3 of AVX-512's 32 registers, 4 × 3, 6 × 2 or 8 × 1 of 16. They keep two multipliers
// busy with fewer loads than products, and their row addresses fit into the general registers.
constexpr int kVecs = 3;
constexpr int rows_of(int64_t vecs) { return kLanes == 16 || vecs == 1 ? 8 : vecs == 2 ? 6 : 4; }
constexpr int kRows = rows_of(kVecs);
constexpr int64_t kBlockRows = 128;  // rows of A that stay in the second cache while B's panels pass
constexpr int64_t kDepth = 768;  // terms of a sum between two visits of C: a panel of B then stays in the second cache

PODIUM_INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// How n columns are cut into panels of at most kVecs vectors, as evenly as possible.
struct Panels {
  int64_t vecs, count;
  explicit Panels(int64_t n) : vecs((n + kLanes - 1) / kLanes), count((vecs + kVecs - 1) / kVecs) {}
  int64_t first(int64_t panel) const { return panel * vecs / count; }  // in vectors
  int64_t width() const { return vecs * kLanes; }
};

struct Block {
  int64_t depth;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  bool add;   // to what is in C
  int lanes;  // of the last vector
  // The sum goes on so many times, each with A so much further on and B where it is.
  int64_t runs = 1, jump = 0;
};

// kTransposed: A is [depth, rows] instead of [rows, depth].
template <int rows, int vecs, bool kTransposed>
[[gnu::noinline]] void multiply_block(const Block& p) {
  Vec sum[rows][vecs] = {};
  const float *from = p.a, *b = p.b;
  const int64_t lda = p.lda, ldb = p.ldb;
  for (int64_t run = 0; run < p.runs; ++run, from += p.jump) {
    const float* a = from;
    for (int64_t k = 0; k < p.depth; ++k) {
      Vec column[vecs];
      PODIUM_UNROLL for (int j = 0; j < vecs; ++j) column[j] = load(b + j * kLanes);
      PODIUM_UNROLL for (int i = 0; i < rows; ++i) {
        const Vec value = broadcast(kTransposed ? a[i] : a[i * lda]);
        PODIUM_UNROLL for (int j = 0; j < vecs; ++j) sum[i][j] += value * column[j];
      }
      a += kTransposed ? lda : 1;
      b += ldb;
    }
  }
  PODIUM_UNROLL for (int i = 0; i < rows; ++i) {
    float* c = p.c + i * p.ldc;
    PODIUM_UNROLL for (int j = 0; j < vecs; ++j) {
      float* to = c + j * kLanes;
      if (j < vecs - 1 || p.lanes == kLanes) {
        store(to, p.add ? load(to) + sum[i][j] : sum[i][j]);
      } else {
        store_part(to, p.add ? load_part(to, p.lanes) + sum[i][j] : sum[i][j], p.lanes);
      }
    }
  }
}

template <int rows, bool kTransposed>
PODIUM_INLINE void multiply_some(const Block& p, int64_t vecs) {
  if constexpr (rows <= rows_of(3)) {
    if (vecs == 3) return multiply_block<rows, 3, kTransposed>(p);
  }
  if constexpr (rows <= rows_of(2)) {
    if (vecs == 2) return multiply_block<rows, 2, kTransposed>(p);
  }
  multiply_block<rows, 1, kTransposed>(p);
}

// Any number of rows, in blocks as even as possible.
template <bool kTransposed>
PODIUM_INLINE void multiply_rows(Block p, int64_t rows, int64_t vecs) {
  static_assert(rows_of(1) == 8 && rows_of(2) <= 8 && rows_of(3) <= 8);
  for (int64_t blocks = (rows + rows_of(vecs) - 1) / rows_of(vecs); blocks > 0; --blocks) {
    const int64_t some = rows / blocks;
    switch (some) {
      case 1: multiply_some<1, kTransposed>(p, vecs); break;
      case 2: multiply_some<2, kTransposed>(p, vecs); break;
      case 3: multiply_some<3, kTransposed>(p, vecs); break;
      case 4: multiply_some<4, kTransposed>(p, vecs); break;
      case 5: multiply_some<5, kTransposed>(p, vecs); break;
      case 6: multiply_some<6, kTransposed>(p, vecs); break;
      case 7: multiply_some<7, kTransposed>(p, vecs); break;
      default: multiply_some<8, kTransposed>(p, vecs); break;
    }
    p.a += some * (kTransposed ? 1 : p.lda);
    p.c += some * p.ldc;
    rows -= some;
  }
}

struct Matrix {
  const float* at;
  int64_t stride;
};

// C [rows, n] = A [rows, depth] · B, packed by `pack`; `add` to what C holds.
inline void multiply(Matrix a, const float* packed, float* c, int64_t ldc, int64_t rows, int64_t depth, int64_t n,
                     bool add = false) {
  const Panels panels(n);
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t terms = depth - k < kDepth ? depth - k : kDepth;
    for (int64_t from = 0; from < rows; from += kBlockRows) {
      const int64_t until = rows < from + kBlockRows ? rows : from + kBlockRows;
      for (int64_t panel = 0; panel < panels.count; ++panel) {
        const int64_t first = panels.first(panel), vecs = panels.first(panel + 1) - first;
        const int64_t left = n - first * kLanes;
        const int lanes = left < vecs * kLanes ? (int)(left - (vecs - 1) * kLanes) : kLanes;
        const float* b = packed + (first * depth + k * vecs) * kLanes;
        const Block block{terms,         a.at + from * a.stride + k,      a.stride, b,
                          vecs * kLanes, c + from * ldc + first * kLanes, ldc,      add || k > 0,
                          lanes};
        multiply_rows<false>(block, until - from, vecs);
      }
    }
  }
}

// The rows of A come in so many runs, which begin `jump` apart.
struct Repeats {
  int64_t count = 1, jump = 0;
};

// C [rows, n] (+)= Aᵀ · B with A [depth, rows] and B [depth, n], where whole vectors of B may be read beyond n. With
// several runs of A, B has as many times `depth` rows.
inline void multiply_transposed(Matrix a, Matrix b, float* c, int64_t ldc, int64_t rows, int64_t depth, int64_t n,
                                bool add, Repeats repeats = {}) {
  const Panels panels(n);
  for (int64_t panel = 0; panel < panels.count; ++panel) {
    const int64_t first = panels.first(panel), vecs = panels.first(panel + 1) - first;
    const int64_t left = n - first * kLanes;
    const int lanes = left < vecs * kLanes ? (int)(left - (vecs - 1) * kLanes) : kLanes;
    const Block block{depth, a.at, a.stride, b.at + first * kLanes, b.stride,    c + first * kLanes,
                      ldc,   add,  lanes,    repeats.count,         repeats.jump};
    multiply_rows<true>(block, rows, vecs);
  }
}

// Where element (k, n) of a B with `depth` rows stands when packed.
struct Packed {
  Panels panels;
  int64_t depth;
  float* at;
  Packed(int64_t depth, int64_t n, float* at) : panels(n), depth(depth), at(at) {}
  static int64_t floats(int64_t depth, int64_t n) { return depth * Panels(n).width(); }

  // Row k of B, from n consecutive numbers.
  void put_row(int64_t k, const float* row, int64_t n) const {
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      const int64_t first = panels.first(panel), vecs = panels.first(panel + 1) - first;
      for (int64_t v = 0; v < vecs; ++v) {
        const int64_t column = (first + v) * kLanes, left = n - column;
        store(at + (first * depth + k * vecs + v) * kLanes,
              load_lanes(row + column, left < kLanes ? (int)left : kLanes));
      }
    }
  }
};

}  // namespace podium::PODIUM_ISA
