// A separable antialiased triangle resize (Pillow's BILINEAR: half-pixel centres, support widened on reduction) of
// uint8 RGB to a square, with an optional left-right flip. Integer arithmetic, the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace podium {

// Working memory only grows: shrinking and growing a vector again would clear it each time.
template <class T>
T* at_least(std::vector<T>& memory, size_t size) {
  if (memory.size() < size) memory.resize(size);
  return memory.data();
}

// One axis: output o is the sum over k < count[o] of weight[o * stride + k] * input[first[o] + k].
struct Axis {
  int stride = 0, longest = 0;  // longest: the largest count
  std::vector<int> first, count;
  std::vector<int16_t> weight;  // in 1/32768

  const int16_t* weights(int o) const { return weight.data() + static_cast<size_t>(o) * stride; }
};

// Working memory, kept by a thread from image to image.
struct ResizeScratch {
  Axis rows, columns;
  std::vector<int16_t> row;     // one output row before its horizontal pass
  std::vector<int16_t> packed;  // column weights in the order the vector kernel reads them
  std::vector<int> offset;
  std::vector<double> exact;
};

// `pixels` is h rows of w RGB pixels, `stride` bytes apart; `out` is out_size² RGB. Reads nothing outside the rows.
void resize(const uint8_t* pixels, size_t stride, int w, int h, bool flip, int out_size, uint8_t* out,
            ResizeScratch& scratch);

// The same in plain C++, whatever the processor: what the vector kernel is tested against.
void resize_portable(const uint8_t* pixels, size_t stride, int w, int h, bool flip, int out_size, uint8_t* out,
                     ResizeScratch& scratch);

}  // namespace podium
