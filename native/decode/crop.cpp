// The decode path and the pixel-cache path meet here with the same pixels and the same box, so they give the same bits.
#include "crop.h"

#include <algorithm>
#include <cstring>

#include "podium_native.h"

namespace podium {
namespace {

// numpy.pad(mode="reflect"): … 2 1 | 0 1 2 … n−1 | n−2 …, again and again.
int reflect(int i, int n) {
  if (n == 1) return 0;
  const int period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

bool inside(int begin, int size, int n) { return begin >= 0 && begin + size <= n; }

void touched(int begin, int size, int n, int* first, int* count) {
  int low = n, high = -1;
  for (int i = begin; i < begin + size; ++i) {
    const int at = reflect(i, n);
    low = std::min(low, at);
    high = std::max(high, at);
    if (high - low == n - 1) break;
  }
  *first = low;
  *count = high - low + 1;
}

void copy_square(const uint8_t* pixels, size_t stride, bool flip, int size, uint8_t* out) {
  const size_t row_bytes = static_cast<size_t>(size) * 3;
  for (int y = 0; y < size; ++y, pixels += stride, out += row_bytes) {
    if (!flip) {
      std::memcpy(out, pixels, row_bytes);
      continue;
    }
    for (int x = 0; x < size; ++x) std::memcpy(out + x * 3, pixels + (size - 1 - x) * 3, 3);
  }
}

}  // namespace

int32_t check_box(const Rect& box, int w, int h) {
  // The reach is bounded so that no sum below leaves int32; JPEG sides end at 65,535.
  constexpr int reach = 1 << 20;
  if (w < 1 || h < 1 || box.w < 1 || box.h < 1) return PODIUM_BAD_BOX;
  if (std::abs(static_cast<int64_t>(box.x)) > reach || std::abs(static_cast<int64_t>(box.y)) > reach || box.w > reach ||
      box.h > reach) {
    return PODIUM_BAD_BOX;
  }
  if (static_cast<int64_t>(box.w) * box.h > PODIUM_MAX_PIXELS) return PODIUM_BAD_BOX;
  return PODIUM_OK;
}

Rect needed(const Rect& box, int w, int h) {
  Rect region = box;
  if (!inside(box.x, box.w, w)) touched(box.x, box.w, w, &region.x, &region.w);
  if (!inside(box.y, box.h, h)) touched(box.y, box.h, h, &region.y, &region.h);
  return region;
}

void cut(const uint8_t* pixels, const Rect& have, int w, int h, const Rect& box, bool flip, int out_size, uint8_t* out,
         Scratch& scratch) {
  size_t stride = static_cast<size_t>(have.w) * 3;
  const uint8_t* corner;
  if (inside(box.x, box.w, w) && inside(box.y, box.h, h)) {
    corner = pixels + static_cast<size_t>(box.y - have.y) * stride + static_cast<size_t>(box.x - have.x) * 3;
  } else {
    uint8_t* to = scratch.reflected.at_least(static_cast<size_t>(box.w) * box.h * 3);
    for (int y = box.y; y < box.y + box.h; ++y) {
      const uint8_t* row = pixels + static_cast<size_t>(reflect(y, h) - have.y) * stride;
      for (int x = box.x; x < box.x + box.w; ++x, to += 3) std::memcpy(to, row + (reflect(x, w) - have.x) * 3, 3);
    }
    corner = scratch.reflected.data();
    stride = static_cast<size_t>(box.w) * 3;
  }
  if (box.w == out_size && box.h == out_size) {
    copy_square(corner, stride, flip, out_size, out);
  } else {
    (scratch.flags & PODIUM_PLAIN ? resize_portable : resize)(corner, stride, box.w, box.h, flip, out_size, out,
                                                              scratch.resize);
  }
}

}  // namespace podium
