// Operations of the augmentation policies (brightness, equalize, rotate, …) on whole square RGB images, in place. All
// of it is integer arithmetic, so that the NumPy twin (data/decode/change.py) gives the same bits.
#include "change.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "podium_native.h"

namespace podium {
namespace {

constexpr int kOne = 1024;  // factors are in units of 1/1024

using Table = std::array<uint8_t, 256>;

uint8_t clamp(int value) { return static_cast<uint8_t>(std::min(255, std::max(0, value))); }

// From `other` at factor 0 to `own` at factor 1, and beyond.
uint8_t blend(int other, int own, int factor) {
  return clamp((other * kOne + factor * (own - other) + kOne / 2) >> 10);
}

int luma(const uint8_t* pixel) { return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 0x8000) >> 16; }

template <class Value>
Table table_of(Value value) {
  Table table;
  for (int x = 0; x < 256; ++x) table[x] = static_cast<uint8_t>(value(x));
  return table;
}

void look_up(const Picture& picture, const Table& table) {
  for (size_t i = 0; i < picture.bytes(); ++i) picture.pixels[i] = table[picture.pixels[i]];
}

template <class MakeTable>
void by_colour(const Picture& picture, MakeTable make_table) {
  for (int colour = 0; colour < 3; ++colour) {
    std::array<int64_t, 256> counts{};
    for (size_t i = colour; i < picture.bytes(); i += 3) ++counts[picture.pixels[i]];
    const Table table = make_table(counts);
    for (size_t i = colour; i < picture.bytes(); i += 3) picture.pixels[i] = table[picture.pixels[i]];
  }
}

Table stretched(const std::array<int64_t, 256>& counts) {
  int low = 0, high = 255;
  while (low < 255 && !counts[low]) ++low;
  while (high > 0 && !counts[high]) --high;
  return table_of([&](int x) { return high <= low ? x : clamp((x - low) * 255 / (high - low)); });
}

Table equalised(const std::array<int64_t, 256>& counts) {
  int64_t total = 0, last = 0;
  for (const int64_t count : counts) {
    total += count;
    if (count) last = count;
  }
  const int64_t step = (total - last) / 255;
  int64_t before = step / 2;
  return table_of([&](int x) {
    if (!step) return x;
    const int value = static_cast<int>(std::min<int64_t>(255, before / step));
    before += counts[x];
    return value;
  });
}

void contrast(const Picture& picture, int factor) {
  int64_t sum = 0;
  const int64_t n = static_cast<int64_t>(picture.size) * picture.size;
  for (size_t i = 0; i < picture.bytes(); i += 3) sum += luma(picture.pixels + i);
  const int mean = static_cast<int>((2 * sum + n) / (2 * n));
  look_up(picture, table_of([&](int x) { return blend(mean, x, factor); }));
}

void saturation(const Picture& picture, int factor) {
  for (size_t i = 0; i < picture.bytes(); i += 3) {
    const int grey = luma(picture.pixels + i);
    for (int colour = 0; colour < 3; ++colour)
      picture.pixels[i + colour] = blend(grey, picture.pixels[i + colour], factor);
  }
}

// The pixels at the edge have no smooth neighbourhood and stay.
void sharpness(const Picture& picture, int factor, std::vector<uint8_t>& copy) {
  copy.assign(picture.pixels, picture.pixels + picture.bytes());
  const ptrdiff_t row = 3 * static_cast<ptrdiff_t>(picture.size);
  for (int y = 1; y < picture.size - 1; ++y) {
    for (ptrdiff_t i = y * row + 3; i < (y + 1) * row - 3; ++i) {
      const uint8_t* at = copy.data() + i;
      int sum = 5 * at[0] + at[-3] + at[3];
      for (const uint8_t* beside : {at - row, at + row}) sum += beside[-3] + beside[0] + beside[3];
      picture.pixels[i] = blend((2 * sum + 13) / 26, at[0], factor);
    }
  }
}

// The source of pixel (x, y) is (m0 x + m1 y + m2, m3 x + m4 y + m5) in units of 1/65536.
void affine(const Picture& picture, const int32_t* m, const uint8_t* fill, std::vector<uint8_t>& copy) {
  copy.assign(picture.pixels, picture.pixels + picture.bytes());
  uint8_t* out = picture.pixels;
  for (int64_t y = 0; y < picture.size; ++y) {
    for (int64_t x = 0; x < picture.size; ++x, out += 3) {
      const int64_t from_x = (m[0] * x + m[1] * y + m[2]) >> 16, from_y = (m[3] * x + m[4] * y + m[5]) >> 16;
      const bool inside = from_x >= 0 && from_x < picture.size && from_y >= 0 && from_y < picture.size;
      std::memcpy(out, inside ? copy.data() + 3 * (from_y * picture.size + from_x) : fill, 3);
    }
  }
}

}  // namespace

void change(const Picture& picture, const int32_t* operation, const uint8_t* fill, std::vector<uint8_t>& copy) {
  const int32_t* argument = operation + 1;
  const int value = argument[0];
  switch (operation[0]) {
    case PODIUM_AFFINE: return affine(picture, argument, fill, copy);
    case PODIUM_BRIGHTNESS: return look_up(picture, table_of([&](int x) { return blend(0, x, value); }));
    case PODIUM_CONTRAST: return contrast(picture, value);
    case PODIUM_SATURATION: return saturation(picture, value);
    case PODIUM_SHARPNESS: return sharpness(picture, value, copy);
    case PODIUM_POSTERIZE: return look_up(picture, table_of([&](int x) { return x & (0xff00 >> value); }));
    case PODIUM_SOLARIZE: return look_up(picture, table_of([&](int x) { return x < value ? x : 255 - x; }));
    case PODIUM_SOLARIZE_ADD: return look_up(picture, table_of([&](int x) { return x < 128 ? clamp(x + value) : x; }));
    case PODIUM_AUTOCONTRAST: return by_colour(picture, stretched);
    case PODIUM_EQUALIZE: return by_colour(picture, equalised);
    case PODIUM_INVERT: return look_up(picture, table_of([](int x) { return 255 - x; }));
    default: return;
  }
}

}  // namespace podium

int32_t podium_change_batch(const podium_changes* changes) {
  std::atomic<int> next{0};
  std::atomic<int32_t> status{PODIUM_OK};
  const size_t image_bytes = static_cast<size_t>(changes->size) * changes->size * 3;
  const auto run = [&] {
    try {
      std::vector<uint8_t> copy;
      for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < changes->count;) {
        const podium::Picture picture{changes->images + i * image_bytes, changes->size};
        for (int k = 0; k < changes->each; ++k) {
          const size_t at = static_cast<size_t>(i) * changes->each + k;
          podium::change(picture, changes->operations + at * PODIUM_CHANGE_NUMBERS, changes->fill, copy);
        }
      }
    } catch (const std::exception&) {
      status = PODIUM_NO_MEMORY;
    }
  };
  std::vector<std::thread> others;
  try {
    for (int t = 1; t < std::min(changes->threads, changes->count); ++t) others.emplace_back(run);
  } catch (const std::exception&) {
    // No more threads to be had: those there are do the work.
  }
  run();
  for (auto& thread : others) thread.join();
  return status;
}
